# SPDX-License-Identifier: Apache-2.0
"""The thesis's energy reward: unused nodes, as long as the most loaded one is chosen.

Printed: ``int(10 x unused / (N - 1))``, and 0 with the end of the episode when the choice is not
the most loaded node. Deviations, because the printed code contradicts itself or cannot learn:

- a choice that ties with the most loaded node is right too, as there is no telling them apart;
- "most loaded" is among *feasible* nodes: a full node cannot be chosen;
- unused means fewer than one pod that counts (the text's; the code says five);
- the state is the one *after* the placement, so that the reward is for what was done;
- one node (N = 1) gives 0 instead of a division by zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pilothouse.learn.placement.placed import Array, Placed, Resource

CLOSE = 1e-6  # loads this close are equal


@dataclass(frozen=True, slots=True)
class ThesisEE:
    """Whole tens per unused share; ends on anything but the most loaded node."""

    resource: Resource = "requests"

    @property
    def name(self) -> str:
        return "thesis-ee"

    def __call__(self, placed: Placed) -> tuple[Array, Array]:
        xp, load = placed.xp, placed.load_before(self.resource)
        wrong = placed.at_choice(load) < placed.most(load, placed.feasible) - CLOSE
        nodes = placed.exists.sum(axis=-1)
        unused = (placed.exists & (placed.counted_after == 0)).sum(axis=-1)
        value = xp.floor(10.0 * unused / xp.maximum(nodes - 1, 1))
        return xp.where(wrong | (nodes <= 1), 0.0, value), wrong

    def card(self) -> dict[str, Any]:
        return {"name": self.name, "resource": self.resource, "ends_on_a_wrong_choice": True}
