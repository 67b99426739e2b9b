# SPDX-License-Identifier: Apache-2.0
"""The trainer's world is the simulator's: the same integers, features and rewards at every step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pilothouse.errors import InternalError
from pilothouse.learn.placement import world
from pilothouse.learn.placement.course import Courses, Family, draw
from pilothouse.learn.placement.fleet import Fleet
from pilothouse.learn.placement.rewards import REWARDS, named, worth

CROWDED = Family(nodes=(2, 6), steps=40, load_percent=(60, 130))


def played_together(courses: Courses) -> int:
    """Play both with the same random choices; how many pods fitted nowhere."""
    fleet, table = Fleet(courses), world.load(courses)
    envs = world.start(table, jnp.arange(courses.count))
    see, place = jax.jit(world.see), jax.jit(world.place)
    see_disk = jax.jit(partial(world.see, beside_cpu="disk"))
    dice = np.random.default_rng(0)
    hopeless = 0
    for step in range(courses.steps):
        sight, mask = see(table, envs), fleet.feasible()
        np.testing.assert_array_equal(np.asarray(sight.feasible), mask)
        np.testing.assert_allclose(np.asarray(sight.features), fleet.features(), atol=1e-6)
        on_disk = np.asarray(see_disk(table, envs).features)
        np.testing.assert_allclose(on_disk, fleet.features("disk"), atol=1e-6)
        choice = np.where(mask, dice.random(mask.shape), -1).argmax(axis=1)
        done = fleet.place(choice)
        envs, placed = place(table, envs, sight, jnp.asarray(choice))
        hopeless += int(done.hopeless.sum())
        for name in REWARDS:
            ours, theirs = worth(named(name), done.placed), worth(named(name), placed)
            np.testing.assert_allclose(np.asarray(theirs[0]), ours[0], atol=1e-5, err_msg=name)
            np.testing.assert_array_equal(np.asarray(theirs[1]), ours[1], err_msg=name)
        if step + 1 < courses.steps:
            s, shape = fleet.state, fleet.counted.shape
            for own, column in (
                (envs.cpu, s.n_cpu_requested),
                (envs.memory, s.n_memory_requested),
                (envs.pods, s.n_pods),
            ):
                np.testing.assert_array_equal(np.asarray(own), column[:-1].reshape(shape))
            np.testing.assert_array_equal(np.asarray(envs.disk), fleet.disk)
            np.testing.assert_array_equal(np.asarray(envs.counted), fleet.counted)
    return hopeless


@pytest.mark.parametrize("seed", [1, 2])
def test_trainers_world_equals_the_simulator_step_by_step(seed: int) -> None:
    hopeless = played_together(draw(CROWDED, seed=seed, count=24))

    assert hopeless > 0  # the hard case was among them


def test_comparison_notices_a_world_that_forgets_departures() -> None:
    courses = draw(CROWDED, seed=1, count=8)
    fleet = Fleet(courses)
    still = world.load(replace(courses, leavers=np.full_like(courses.leavers, -1)))
    envs = world.start(still, jnp.arange(8))
    for _ in range(30):
        sight = world.see(still, envs)
        choice = np.asarray(sight.feasible).argmax(axis=1)
        fleet.place(choice)
        envs, _ = world.place(still, envs, sight, jnp.asarray(choice))

    assert (np.asarray(envs.counted) != fleet.counted).any()


def test_courses_whose_nodes_move_are_refused() -> None:
    courses = draw(Family(), seed=1, count=2)
    moving = replace(courses, open_from=np.full_like(courses.open_from, 3))

    with pytest.raises(InternalError, match="use Fleet"):
        world.load(moving)
