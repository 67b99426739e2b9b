# SPDX-License-Identifier: Apache-2.0
"""The thesis's reward for energy and latency: r1 + r2 + r3.

r1 = (N - on) / N, r2 = (pods / on) / 50, r3 = 1 within the soft limit, 0.5 within the hard one, 0
and the end of the episode beyond. Deviations from the printed code: a pod without limits gives
r3 = 1 instead of ending the episode; a missing limit admits every latency; an unknown latency
breaks a limit; breaking the hard limit ends the episode only where a feasible node keeps it; the
state is the one *after* the placement; one node (N = 1) gives r1 = 0; r2 is 1 at most, so that
more than fifty pods on a node are worth no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pilothouse.learn.placement.placed import Array, Placed, Resource

MOST_PODS = 50.0  # the thesis's bound on pods per used node


@dataclass(frozen=True, slots=True)
class ThesisElRl:
    """Counts pods, whatever the resource; it is taken so that all rewards are made alike."""

    resource: Resource = "pods"

    @property
    def name(self) -> str:
        return "thesis-el-rl"

    def __call__(self, placed: Placed) -> tuple[Array, Array]:
        xp = placed.xp
        nodes = xp.maximum(placed.exists.sum(axis=-1), 1)
        on = xp.maximum((placed.exists & (placed.counted_after > 0)).sum(axis=-1), 1)
        density = xp.where(placed.exists, placed.counted_after, 0).sum(axis=-1) / on / MOST_PODS
        hard, soft = placed.within(placed.hard_ms), placed.within(placed.soft_ms)
        in_hard = placed.at_choice(hard) > 0
        in_soft = in_hard & (placed.at_choice(soft) > 0)
        latency = xp.where(in_soft, 1.0, xp.where(in_hard, 0.5, 0.0))
        wrong = ~in_hard & (placed.feasible & hard).any(axis=-1)
        return (nodes - on) / nodes + xp.minimum(density, 1.0) + latency, wrong

    def card(self) -> dict[str, Any]:
        return {"name": self.name, "ends_on_a_wrong_choice": True}
