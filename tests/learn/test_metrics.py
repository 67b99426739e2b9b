# SPDX-License-Identifier: Apache-2.0
"""Figures of merit, against hand counts and a second implementation."""

from __future__ import annotations

import numpy as np
import pytest

from pilothouse.learn.evaluate import metrics


def test_average_precision_agrees_with_a_second_implementation() -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    dice = np.random.default_rng(0)
    for ties in (False, True):
        y = dice.random(500) < 0.1
        score = dice.normal(size=500) + y
        score = score.round(0 if ties else 6)
        expected = sklearn.average_precision_score(y, score)
        assert metrics.average_precision(y, score) == pytest.approx(expected)


def test_average_precision_of_a_constant_is_the_base_rate() -> None:
    y = np.array([1, 0, 0, 0, 1, 0, 0, 0, 0, 0])

    assert metrics.average_precision(y, np.zeros(10)) == pytest.approx(0.2)


def test_calibration_slope_is_one_for_honest_probabilities_and_less_for_boasting() -> None:
    dice = np.random.default_rng(1)
    z = dice.normal(size=40_000) - 2
    y = dice.random(40_000) < 1 / (1 + np.exp(-z))

    assert metrics.calibration_slope(y, 1 / (1 + np.exp(-z))) == pytest.approx(1, abs=0.05)
    assert metrics.calibration_slope(y, 1 / (1 + np.exp(-2 * z))) == pytest.approx(0.5, abs=0.05)


def test_brier_skill_of_the_base_rate_is_zero() -> None:
    y = np.array([1, 0, 0, 0])

    assert metrics.brier_skill(y, np.full(4, 0.25), 0.25) == pytest.approx(0)


def test_pinball_punishes_the_rare_side_of_a_quantile() -> None:
    actual = np.array([10.0])

    assert metrics.pinball(actual, np.array([9.0]), 0.95) == pytest.approx(0.95)
    assert metrics.pinball(actual, np.array([11.0]), 0.95) == pytest.approx(0.05)


def test_bootstrap_draws_whole_groups() -> None:
    group = np.repeat(np.arange(10), 100)
    value = np.repeat(np.arange(10.0), 100)
    low, high = metrics.bootstrap(group, lambda rows: float(value[rows].mean()))

    assert low < 3.5 < 5.5 < high  # drawing rows would give an interval of about 4.3 to 4.7


def test_drift_index_is_zero_for_the_same_and_large_for_another_distribution() -> None:
    dice = np.random.default_rng(3)
    a = dice.normal(size=5000)

    assert metrics.psi(a, dice.normal(size=5000)) < 0.02
    assert metrics.psi(a, dice.normal(size=5000) + 1) > 0.25
