# SPDX-License-Identifier: Apache-2.0
"""Draws are well spread, independent of each other, and the same in plain Python."""

from __future__ import annotations

import numpy as np

from pilothouse.sim import randomness
from pilothouse.sim.curves import ARRIVALS_MAX, RATE_UNIT, poisson_table

_SEED = np.array([7], dtype=np.uint32)


def test_scalar_twins_give_the_same_draws():
    entities = np.arange(200)
    key = randomness.keys(_SEED, randomness.Stream.POD, entities)
    words = randomness.draws(key, 1234)
    for entity in entities.tolist():
        scalar = randomness.key_one(7, randomness.Stream.POD, entity)
        assert scalar == int(key[entity])
        assert randomness.draw_one(scalar, 1234) == int(words[entity])


def test_draws_fill_every_bucket_alike():
    key = randomness.keys(_SEED, randomness.Stream.LOAD, np.arange(64))
    words = np.concatenate([randomness.draws(key, tick) for tick in range(1_024)])
    for shift in (24, 16, 8, 0):
        counts = np.bincount((words >> np.uint32(shift)) & np.uint32(255), minlength=256)
        expected = len(words) / 256
        chi_squared = float(((counts - expected) ** 2 / expected).sum())
        # 255 degrees of freedom: mean 255, standard deviation 22.6.
        assert 150 < chi_squared < 370


def test_neighboring_entities_and_ticks_are_unrelated():
    key = randomness.keys(_SEED, randomness.Stream.POD, np.arange(4_096))
    first = randomness.draws(key, 1).astype(np.float64)
    for other in (randomness.draws(key, 2), np.roll(randomness.draws(key, 1), 1)):
        assert abs(float(np.corrcoef(first, other.astype(np.float64))[0, 1])) < 0.05


def test_streams_do_not_share_draws():
    one = randomness.keys(_SEED, randomness.Stream.POD, np.arange(100))
    other = randomness.keys(_SEED, randomness.Stream.LOAD, np.arange(100))
    assert not np.intersect1d(one, other).size


def test_poisson_thresholds_have_the_mean_of_their_rate():
    table = poisson_table().astype(np.float64) / 2**32
    for level in (1, 16, 64, 320, 1_000):
        mean = float((1 - table[level]).sum())  # sum of P(count > k)
        assert abs(mean - level / RATE_UNIT) < 1e-6 * ARRIVALS_MAX


def test_dice_reach_both_ends_of_a_range():
    dice = randomness.Dice(3, randomness.Stream.WORLD)
    drawn = {dice.between(4, 7) for _ in range(200)}
    assert drawn == {4, 5, 6, 7}
