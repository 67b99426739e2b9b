# SPDX-License-Identifier: Apache-2.0
"""Few values make wide intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pilothouse.learn.placement import comparing
from pilothouse.learn.placement.intervals import t95
from pilothouse.learn.placement.judging import compared, paired_bound
from pilothouse.learn.placement.thesis_tests import Trial


def test_it_is_what_scipy_says_for_any_number_of_values() -> None:
    stats = pytest.importorskip("scipy.stats", reason="of the extra bench, which make install has")
    counts = [*range(2, 80), 500, 10_000]

    found = [t95(count) for count in counts]
    np.testing.assert_allclose(found, stats.t.ppf(0.975, [n - 1 for n in counts]), rtol=1e-4)


def test_one_value_has_no_interval() -> None:
    assert math.isnan(t95(1))
    assert math.isnan(t95(0))


def test_a_paired_bound_of_few_courses_is_wide() -> None:
    other = np.array([1.0, 1.0])
    assert paired_bound(np.array([0.9, 1.1]), other) == pytest.approx(12.7062 * 0.1)
    assert paired_bound(np.array([0.9, 1.1] * 4), np.ones(8)) == pytest.approx(
        2.3646 * np.std([0.9, 1.1] * 4, ddof=1) / 8**0.5
    )


def test_a_ratio_has_the_interval_of_its_pairs() -> None:
    other = np.array([1.0, 2.0, 3.0, 4.0])
    ratio = compared(0.9 * other, other)
    half = 3.1824 * np.std(0.1 * other, ddof=1) / 2 / other.mean()

    assert ratio == pytest.approx((0.9, 0.9 - half, 0.9 + half))
    assert paired_bound(0.9 * other, other) == pytest.approx(half - 0.1)


def test_a_comparison_of_three_seeds_has_the_interval_of_three() -> None:
    told = comparing.compare(Trial(test=1, pods=6, cycles=1), ("random",), seeds=3)
    row = next(row for row in told.rows if row.figure == "used nodes")
    by_seed = comparing.mean_of(told.played["random"].active)

    assert row.half > 0
    assert row.half == pytest.approx(4.3027 * by_seed.std(ddof=1) / 3**0.5)
