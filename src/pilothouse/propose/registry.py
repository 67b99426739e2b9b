# SPDX-License-Identifier: Apache-2.0
"""Who may propose, and who goes first.

Rank belongs to the registration: whatever a proposal claims about itself, it is heard under the
rank of the agent that was asked. Third parties register at ``THIRD_PARTY_RANK`` or above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilothouse.domain import Forecast, Proposal, Snapshot
from pilothouse.propose import Proposer
from pilothouse.propose.admission import Admission
from pilothouse.propose.efficiency import Efficiency
from pilothouse.propose.safety import Safety
from pilothouse.settings import Settings

THIRD_PARTY_RANK = 100


@dataclass(frozen=True, slots=True)
class Registration:
    """An agent with its place. Lower ranks are heard first."""

    proposer: Proposer
    rank: int
    title: str

    @property
    def name(self) -> str:
        return self.proposer.name


class Janitor:
    """Takes back what expired. It has no wishes of its own: the ledger says what is due."""

    name = "janitor"
    title = "Janitor"

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> Sequence[Proposal]:
        return ()


class Steward:
    """Carries on what was begun: the next evictions of a drain, and the sleep after the last. It
    has no wishes of its own: the ledger says what is under way."""

    name = "steward"
    title = "Steward"

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> Sequence[Proposal]:
        return ()


def default_agents(settings: Settings) -> tuple[Registration, ...]:
    """The agents every run has."""
    return (
        Registration(Janitor(), 0, "Janitor"),  # taking back is never outvoted
        Registration(Safety(settings), 10, "AgentA"),  # nothing dies comes before all else
        Registration(Admission(settings), 20, "AgentC"),  # protecting the queue before saving
        Registration(Efficiency(settings), 30, "AgentB"),  # saves when nothing is shouting
    )
