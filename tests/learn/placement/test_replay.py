# SPDX-License-Identifier: Apache-2.0
"""What training really stores: the simulator plays the stored choices and must see the same."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import jax
import numpy as np
import pytest

from pilothouse.learn.placement.course import Family, draw
from pilothouse.learn.placement.fleet import Fleet
from pilothouse.learn.placement.presets import THESIS
from pilothouse.learn.placement.rewards import named, worth
from pilothouse.learn.placement.trainer import Carry, Trainer, Transition, _act, q_values, wanted

pytestmark = pytest.mark.timeout(600)  # compiling takes long on a busy machine

STEPS = 60
SETTINGS = replace(
    THESIS,
    envs=8,
    buffer=8 * STEPS,
    courses=4,
    course_steps_per_node=5,  # ends after 15 placements: several times in what is played here
    encoder=(8,),
    head=(8,),
    family=Family(load_percent=(60, 150), churn=1.0),  # some pods fit nowhere
)
REWARD = named("thesis-el-rl")  # the kind that ends an episode on a poor choice


@dataclass(kw_only=True)
class Told:
    """What the simulator says of every stored row; (steps, envs, ...)."""

    seen: list[np.ndarray] = field(default_factory=list)
    after: list[np.ndarray] = field(default_factory=list)
    mask: list[np.ndarray] = field(default_factory=list)  # of the next pod
    reward: list[np.ndarray] = field(default_factory=list)
    ended: list[np.ndarray] = field(default_factory=list)  # by the reward's verdict
    over: list[np.ndarray] = field(default_factory=list)  # by the clock of the course
    hopeless: list[np.ndarray] = field(default_factory=list)

    def column(self, name: str) -> np.ndarray:
        return np.concatenate(getattr(self, name))


@pytest.fixture(scope="module")
def played() -> tuple[Carry, Told]:
    """Placements by the trainer's own step, and the simulator beside it given the same choices."""
    trainer = Trainer(SETTINGS, REWARD, (1,))
    trainer._enter(0)
    table, carry = jax.tree.map(lambda x: x[0], (trainer._courses, trainer._carry))
    act = jax.jit(partial(_act, SETTINGS, REWARD, table))
    nodes = SETTINGS.stages[0]
    family = replace(SETTINGS.family, nodes=(nodes, nodes), steps=5 * nodes)
    courses = draw(family, seed=1_000_003, count=SETTINGS.courses)
    fleet, told = Fleet(courses.rows(np.asarray(carry.envs.course))), Told()
    for step in range(STEPS):
        told.seen.append(fleet.features())
        carry, _ = act(carry)
        rows = slice(step * SETTINGS.envs, (step + 1) * SETTINGS.envs)
        done = fleet.place(np.asarray(carry.replay.choice[rows]))
        value, ended = worth(REWARD, done.placed)
        told.reward.append(value)
        told.ended.append(ended)
        told.over.append(done.over)
        told.hopeless.append(done.hopeless)
        told.after.append(fleet.features())
        told.mask.append(fleet.feasible())
        stopped = np.flatnonzero(ended | done.over)
        fleet.restart(stopped, courses.rows(np.asarray(carry.envs.course)[stopped]))
    return carry, told


def goals(carry: Carry) -> tuple[np.ndarray, np.ndarray]:
    """What the update wants of every stored row, and the best that its next state promises."""
    rows = Transition(*carry.replay)
    goal = wanted(carry.weights, carry.weights, rows, SETTINGS.gamma)
    q = np.asarray(q_values(carry.weights, rows.after))
    best = np.where(np.asarray(rows.after.feasible), q, -np.inf).max(axis=1)
    return np.asarray(goal), best


def test_stored_is_what_was_seen_chosen_and_earned(played: tuple[Carry, Told]) -> None:
    carry, told = played
    rows, hopeless = carry.replay, told.column("hopeless")

    np.testing.assert_allclose(np.asarray(rows.sight.features), told.column("seen"), atol=1e-6)
    np.testing.assert_allclose(np.asarray(rows.reward), told.column("reward"), atol=1e-5)
    np.testing.assert_array_equal(np.asarray(rows.counts), ~hopeless)
    assert 0 < hopeless.sum() < len(hopeless)


def test_stored_next_state_is_after_departures_with_the_next_pod_and_its_mask(
    played: tuple[Carry, Told],
) -> None:
    carry, told = played
    after = carry.replay.after

    np.testing.assert_allclose(np.asarray(after.features), told.column("after"), atol=1e-6)
    np.testing.assert_array_equal(np.asarray(after.feasible), told.column("mask"))
    # Rows that a restart follows are among them, and what it shows is another state.
    stopped = np.flatnonzero(told.column("ended") | told.column("over"))
    follows = stopped[stopped + SETTINGS.envs < len(told.column("seen"))]
    begun = told.column("seen")[follows + SETTINGS.envs]
    assert (begun != told.column("after")[follows]).any(axis=(1, 2)).all()


def test_time_limit_bootstraps_and_only_the_rewards_verdict_ends(
    played: tuple[Carry, Told],
) -> None:
    carry, told = played
    ended, over, mask = told.column("ended"), told.column("over"), told.column("mask").any(axis=1)
    limit = over & ~ended & mask
    goal, best = goals(carry)
    reward = told.column("reward")

    np.testing.assert_array_equal(np.asarray(carry.replay.ended), ended)
    assert limit.sum() > 5
    assert ended.sum() > 5
    np.testing.assert_allclose(goal[limit], (reward + SETTINGS.gamma * best)[limit], atol=1e-5)
    assert (np.abs(best[limit]) > 1e-4).all()  # so that a forgotten bootstrap would show
    np.testing.assert_allclose(goal[ended], reward[ended], atol=1e-6)


def test_next_pod_that_fits_nowhere_bootstraps_nothing(played: tuple[Carry, Told]) -> None:
    carry, told = played
    nowhere = ~told.column("mask").any(axis=1) & ~told.column("ended")
    goal, _ = goals(carry)

    assert nowhere.sum() > 5
    np.testing.assert_allclose(goal[nowhere], told.column("reward")[nowhere], atol=1e-6)
