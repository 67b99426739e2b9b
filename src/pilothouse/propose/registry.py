# SPDX-License-Identifier: Apache-2.0
"""Who may propose, and who goes first.

Rank belongs to the registration: whatever a proposal claims about itself, it is heard under the
rank of the agent that was asked. Third parties register at ``THIRD_PARTY_RANK`` or above, under a
name of their own: modes, budgets and the right to take back go by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pilothouse.domain import Forecast, Proposal, Snapshot
from pilothouse.errors import NameTaken
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

    def __post_init__(self) -> None:
        if self.name == Janitor.name and type(self.proposer) is not Janitor:
            raise NameTaken(
                f'The name "{Janitor.name}" belongs to the built-in agent that takes expired '
                f"actions back, but {type(self.proposer).__name__} registers under it. Give it "
                "another name."
            )

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


def refuse_twins(agents: Sequence[Registration]) -> None:
    """Two agents under one name would share modes and budgets, and nobody could tell them apart."""
    names = [agent.name for agent in agents]
    for name in names:
        if names.count(name) > 1:
            kinds = ", ".join(type(a.proposer).__name__ for a in agents if a.name == name)
            raise NameTaken(f'Agents need names of their own, but "{name}" is used by {kinds}.')


def default_agents(settings: Settings) -> tuple[Registration, ...]:
    """The agents every run has."""
    return (
        Registration(Janitor(), 0, "Janitor"),  # taking back is never outvoted
        Registration(Safety(settings), 10, "AgentA"),  # nothing dies comes before all else
        Registration(Admission(settings), 20, "AgentC"),  # protecting the queue before saving
        Registration(Efficiency(settings), 30, "AgentB"),  # saves when nothing is shouting
    )
