# SPDX-License-Identifier: Apache-2.0
"""Rewards must mean something: what passes an exam when trained on them fails it when not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pilothouse.learn.placement import judging
from pilothouse.learn.placement.chooser import Learned
from pilothouse.learn.placement.presets import THESIS
from pilothouse.learn.placement.rewards import OF_POLICY, named
from pilothouse.learn.placement.rewards.mixture import Reward
from pilothouse.learn.placement.rewards.shuffled import Shuffled
from pilothouse.learn.placement.trainer import Trainer

pytestmark = pytest.mark.timeout(600)  # compiling takes long on a busy machine

# LB is learned soonest: seconds, most of them compiling. The others are left to the benchmark.
POLICY = "lb"
SOON = replace(
    THESIS,
    steps=1_000,
    batch=64,
    train_every=1,
    updates=2,
    learning_starts=8,
    target_every=50,
    gamma=0.5,
    buffer=2_560,
    courses=64,
    encoder=(8,),
    head=(8,),
)


def passed(reward: Reward | Shuffled, exam: judging.Exam) -> list[bool]:
    """By seed, whether all lines hold."""
    trainer = Trainer(SOON, reward, (1, 2))
    for _ in trainer.run():
        pass
    networks = [Learned(POLICY, trainer.network(index)) for index in (0, 1)]
    return [all(line.holds for line in judging.judge(POLICY, own, exam)) for own in networks]


def test_shuffled_rewards_fail_the_exam_that_the_right_ones_pass() -> None:
    exam = judging.exam((3, 3), seed=321_500, count=48, steps=30)
    reward = named(OF_POLICY[POLICY])

    assert passed(reward, exam) == [True, True]
    assert passed(Shuffled(reward), exam) == [False, False]
