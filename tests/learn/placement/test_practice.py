# SPDX-License-Identifier: Apache-2.0
"""Training one placement at a time: the trainer's own update, files that change while it goes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pilothouse.learn.placement import rewards
from pilothouse.learn.placement.course import Family
from pilothouse.learn.placement.environment import PlacePods
from pilothouse.learn.placement.learner import Learner, sight_of
from pilothouse.learn.placement.practice import one_at_a_time, practice
from pilothouse.learn.placement.trainer import THESIS
from pilothouse.policy import read, shipped
from pilothouse.scorer.board import Board, PolicySource
from pilothouse.scorer.view import NoCluster
from tests.learn.placement.test_trainer import events

pytestmark = pytest.mark.timeout(600)


def an_environment(steps: int = 30) -> PlacePods:
    family = Family(nodes=(3, 3), steps=steps, load_percent=(30, 50))
    return PlacePods(max_nodes=3, reward="nearby", family=family)


def test_practice_writes_new_weights_that_a_scorer_takes_while_it_goes(tmp_path: Path) -> None:
    source, board, taken = PolicySource(str(tmp_path / "el-rl.json")), Board(view=NoCluster()), []

    def look() -> None:
        if source.changed() and board.load(source).ok and board.policy:
            taken.append(board.policy.version)

    reward = rewards.named("nearby")
    settings = one_at_a_time(THESIS, 40)
    made = practice("el-rl", settings, an_environment(), reward, seed=1, out=tmp_path, told=look)
    look()

    assert made.placements == 40
    assert made.updates == len(made.versions) == len(set(made.versions)) == 4
    assert taken == list(made.versions), "every version was served"
    assert read(made.stem).version == made.versions[-1]


def test_practice_writes_its_curves_for_tensorboard(tmp_path: Path) -> None:
    settings, reward = one_at_a_time(THESIS, 40), rewards.named("nearby")
    made = practice("el-rl", settings, an_environment(), reward, seed=1, out=tmp_path)
    (written,) = (tmp_path / "scalars").glob("events.out.tfevents.*")
    _, *points = events(written)
    learned = [point for _, point in points if "td_loss" in point]

    assert len(learned) == made.updates
    for point in learned:
        assert set(point) == {"td_loss", "q_values", "epsilon", "steps_per_second"}
        assert np.isfinite(list(point.values())).all()
        assert point["steps_per_second"] > 0
    assert len({point["q_values"] for point in learned}) > 1
    assert [p["episodic_return"] for _, p in points if p not in learned] == pytest.approx(
        made.returns
    )


def test_practice_goes_on_from_a_policy(tmp_path: Path) -> None:
    start = shipped("el-rl")
    learner = Learner(one_at_a_time(THESIS, 40), width=3, seed=1, start=start)

    features = np.random.default_rng(1).uniform(size=(4, 3, 18)).astype(np.float32)
    np.testing.assert_allclose(learner.network()(features), start.network(features), rtol=1e-6)


def test_practice_learns_to_keep_limits(tmp_path: Path) -> None:
    reward = rewards.named("nearby")
    settings = one_at_a_time(THESIS, 900)
    made = practice("el-rl", settings, an_environment(), reward, seed=1, out=tmp_path)

    early, late = made.returns[:5], made.returns[-5:]
    assert np.mean(late) > 0.6 * np.mean(early), (early, late)  # returns are regrets, below zero


def test_fewer_steps_shrink_the_warm_up_too() -> None:
    few = one_at_a_time(THESIS, 20)

    assert (few.learning_starts, few.train_every, few.target_every) == (3, 5, 5)
    assert one_at_a_time(THESIS, None).learning_starts == 300


def test_padding_is_not_a_node() -> None:
    nodes, pod = np.ones((2, 12)), np.ones(6)
    assert sight_of(nodes, pod, np.ones(2), width=5).valid.tolist() == [True, True] + [False] * 3
