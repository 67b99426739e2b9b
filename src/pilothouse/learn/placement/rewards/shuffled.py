# SPDX-License-Identifier: Apache-2.0
"""A control: the rewards of another reward, given to the wrong clusters.

Each cluster of a batch gets what its neighbor's placement was worth, so the numbers keep their
distribution and lose their meaning. A network trained on them must fail every exam.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pilothouse.learn.placement.placed import Array, Placed, Resource
from pilothouse.learn.placement.rewards.mixture import Reward


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Needs a batch of at least two."""

    reward: Reward

    @property
    def name(self) -> str:
        return f"{self.reward.name}, shuffled"

    @property
    def resource(self) -> Resource:
        return self.reward.resource

    def __call__(self, placed: Placed) -> tuple[Array, Array]:
        value, ends = self.reward(placed)
        return placed.xp.roll(value, 1, axis=0), ends

    def card(self) -> dict[str, Any]:
        return {"name": self.name, "control": True}
