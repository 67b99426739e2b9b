# SPDX-License-Identifier: Apache-2.0
"""One turn of the loop as a value: everything that was weighed, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from pilothouse.domain.action import Action
from pilothouse.domain.proposal import Proposal
from pilothouse.domain.verdict import Ruling, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Doing nothing is a decision too. ``verdicts[i]`` judges ``proposals[i]``."""

    id: str
    cycle: int
    made_seconds: int  # cluster clock
    snapshot_digest: str
    forecast_digest: str
    proposals: tuple[Proposal, ...]
    verdicts: tuple[Verdict, ...]
    actions: tuple[Action, ...]
    headline: int | None  # index of the proposal to show first; None: do nothing
    rationale: str  # one sentence that quotes the deciding numbers
    margin: str  # what would have been chosen had the deciding number been lower
    halted: bool = False
    halted_because: str = ""

    @property
    def kind(self) -> str:
        """``act``, ``advise`` (chosen, but nobody may act) or ``nothing``."""
        if self.actions:
            return "act"
        return "advise" if self.headline is not None else "nothing"

    def with_ruling(self, ruling: Ruling) -> list[tuple[Proposal, Verdict]]:
        """The proposals that met this fate, in order."""
        pairs = zip(self.proposals, self.verdicts, strict=True)
        return [(p, v) for p, v in pairs if v.ruling is ruling]
