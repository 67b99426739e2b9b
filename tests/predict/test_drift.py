# SPDX-License-Identifier: Apache-2.0
"""Drift: silent on the population it was trained on, loud on one that moved."""

from __future__ import annotations

import numpy as np

from pilothouse.predict.drift import BINS, Bins, Drift


def rows(seed: int, shift: float = 0.0, count: int = 400) -> np.ndarray:
    dice = np.random.default_rng(seed)
    return np.stack(
        [dice.normal(shift, 1, count), dice.poisson(2, count), np.full(count, np.nan)], axis=1
    ).astype(np.float32)


def index_after(shift: float) -> np.ndarray:
    drift = Drift(Bins.of(rows(0, count=5_000)))
    for seed in range(1, 11):
        drift.take(rows(seed, shift), 15)
    found = drift.index()
    assert found is not None
    return found


def test_same_population_does_not_drift() -> None:
    assert (index_after(0.0) < 0.1).all()


def test_population_that_moved_is_told_and_its_neighbor_is_not() -> None:
    moved = index_after(1.0)

    assert moved[0] > 0.25
    assert moved[1] < 0.1


def test_feature_that_was_never_known_says_nothing() -> None:
    assert index_after(1.0)[2] == 0.0


def test_too_few_rows_say_nothing() -> None:
    drift = Drift(Bins.of(rows(0)))
    drift.take(rows(1, 3.0, count=20), 15)

    assert drift.index() is None


def test_drift_fades_once_the_population_is_back() -> None:
    drift = Drift(Bins.of(rows(0, count=5_000)))
    for seed in range(10):
        drift.take(rows(seed, 2.0), 15)
    before = drift.index()
    for seed in range(20):
        drift.take(rows(seed), 1_800)
    after = drift.index()

    assert before is not None
    assert after is not None
    assert before[0] > 0.25 > after[0]


def test_bins_come_back_from_their_file() -> None:
    bins = Bins.of(rows(0))
    again = Bins.from_dict(bins.to_dict())

    assert bins.shares.shape == (3, BINS)
    np.testing.assert_array_equal(bins.edges, again.edges)
    np.testing.assert_array_equal(bins.shares, again.shares)
