# SPDX-License-Identifier: Apache-2.0
"""The thesis's balancing reward: 10 for the least loaded node, -1 and the end for the most loaded.

Deviations from the printed code: ties count as the best node (and a tie of all is no mistake);
least and most loaded are among *feasible* nodes; one feasible node gives 0, as there was no choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pilothouse.learn.placement.placed import Array, Placed, Resource
from pilothouse.learn.placement.rewards.thesis_ee import CLOSE


@dataclass(frozen=True, slots=True)
class ThesisLB:
    """Ends on the most loaded of the feasible nodes."""

    resource: Resource = "requests"

    @property
    def name(self) -> str:
        return "thesis-lb"

    def __call__(self, placed: Placed) -> tuple[Array, Array]:
        xp, load = placed.xp, placed.load_before(self.resource)
        chosen = placed.at_choice(load)
        best = chosen <= placed.least(load, placed.feasible) + CLOSE
        worst = ~best & (chosen >= placed.most(load, placed.feasible) - CLOSE)
        choice = placed.feasible.sum(axis=-1) > 1
        value = xp.where(best, 10.0, xp.where(worst, -1.0, 0.0))
        return xp.where(choice, value, 0.0), worst & choice

    def card(self) -> dict[str, Any]:
        return {"name": self.name, "resource": self.resource, "ends_on_a_wrong_choice": True}
