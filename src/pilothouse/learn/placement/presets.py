# SPDX-License-Identifier: Apache-2.0
"""Hyper-parameters of the placement trainer, and the two sets of them that have a name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pilothouse.errors import InvalidSetting
from pilothouse.learn.placement.course import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Hyper-parameters; a step places one pod in each of the clusters played at once."""

    steps: int
    envs: int  # clusters played at once
    batch: int
    train_every: int  # steps between two trainings
    learning_rate: float
    learning_rate_end: float
    gamma: float
    buffer: int  # placements
    learning_starts: int
    target_every: int
    exploration_fraction: float
    updates: int = 1  # steps of gradient each time it trains
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    stages: tuple[int, ...] = (3,)  # most nodes of a cluster, stage by stage
    stage_shares: tuple[float, ...] = (1.0,)  # of the steps
    fewest_nodes: int = 2
    course_steps_per_node: int = 4
    courses: int = 512  # drawn per stage; played in random order
    encoder: tuple[int, ...] = (16, 16)
    head: tuple[int, ...] = (16,)
    initialization: Literal["he", "uniform"] = "he"  # uniform: as PyTorch does unless told
    family: Family = field(default_factory=Family)

    def __post_init__(self) -> None:
        if len(self.stages) != len(self.stage_shares):
            raise InvalidSetting(
                f"Each stage needs a share of the steps, but got {len(self.stages)} stages and "
                f"{len(self.stage_shares)} shares."
            )
        if self.buffer % self.envs:
            raise InvalidSetting(
                "envs must divide buffer, so that a step's placements are stored side by side, "
                f"but got envs {self.envs} and buffer {self.buffer}."
            )


THESIS = Settings(
    steps=2_000,
    envs=10,
    batch=128,
    train_every=10,
    learning_rate=2.5e-3,
    learning_rate_end=2.5e-3,
    gamma=0.99,
    buffer=10_000,
    learning_starts=300,
    target_every=500,
    exploration_fraction=0.3,
    updates=64,
    stages=(3,),
    fewest_nodes=3,
    course_steps_per_node=10,
)
"""What the thesis trained with on its three nodes, but for what is listed here.

Its table gives the steps, the learning rate, when learning starts and how long exploration lasts.
The batch, the steps between two trainings, the buffer, the discount, the target's period and the
ends of epsilon are the defaults of the trainer it used. Ours, and why:

- ``envs=10``: a step places a pod in each of ten simulated clusters, the thesis's in one real one;
- ``updates=64``: each of the (2,000 - 300) / 10 = 170 trainings takes 64 steps of gradient, the
  thesis's one. 170 updates on 2,000 placements are too few to learn from: EE then needs 1.4 times
  the fewest nodes. ``train placement --live`` does as the thesis did, one cluster and one step;
- courses of 30 pods whose sizes, lifetimes, nodes and latencies are drawn; the thesis created the
  same 30 deployments again and again;
- the network, truly equivariant and 16 wide, and double DQN with Huber's loss where the trainer it
  used has plain DQN with the squared error: as in every preset here.

The reward is not part of a preset: ``--reward thesis-ee`` and the like.
"""

FAST = Settings(
    steps=12_000,
    envs=32,
    batch=128,
    train_every=1,
    learning_rate=2e-3,
    learning_rate_end=1e-4,
    gamma=0.8,
    buffer=19_200,
    learning_starts=32,
    target_every=64,
    exploration_fraction=0.8,
    updates=2,
    epsilon_end=0.25,
    stages=(4, 12, 32),
    stage_shares=(0.4, 0.45, 0.15),
)
"""What the shipped policies are trained with: minutes on two cores, up to 32 nodes.

A quarter of the choices stays random to the end: among thousands of nodes some look like nothing a
good policy ever chose among 32, and they must have been tried to be valued right.
"""

PRESETS = {"fast": FAST, "thesis": THESIS}
