# SPDX-License-Identifier: Apache-2.0
"""Trees as arrays say what the library that trained them says, and explain it exactly."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pilothouse.errors import ArtifactBroken
from pilothouse.learn.train.boosting import Boost, fit, to_ensemble
from pilothouse.predict.calibration import Calibration, isotonic
from pilothouse.predict.trees import Ensemble

xgboost = pytest.importorskip("xgboost")


@pytest.fixture(scope="module")
def case():
    dice = np.random.default_rng(0)
    x = dice.normal(size=(1500, 5)).astype(np.float32)
    x[dice.random(x.shape) < 0.1] = np.nan
    z = np.nan_to_num(x)
    y = (z[:, 0] + z[:, 1] * z[:, 2] + dice.normal(size=1500) * 0.3 > 0.5).astype(np.float32)
    booster = xgboost.train(
        {"objective": "binary:logistic", "max_depth": 3, "nthread": 1},
        xgboost.DMatrix(x, y),
        15,
    )
    return x, y, booster


def test_margin_is_the_one_of_the_library(case) -> None:
    x, _, booster = case
    expected = booster.predict(xgboost.DMatrix(x), output_margin=True)

    np.testing.assert_allclose(to_ensemble(booster, 3).margin(x), expected, atol=1e-4)


def test_contributions_are_the_shapley_values_of_the_library(case) -> None:
    x, _, booster = case
    expected = booster.predict(xgboost.DMatrix(x[:40]), pred_contribs=True)

    np.testing.assert_allclose(to_ensemble(booster, 3).contributions(x[:40]), expected, atol=1e-3)


def test_contributions_add_up_to_the_margin(case) -> None:
    x, _, booster = case
    ensemble = to_ensemble(booster, 3)

    np.testing.assert_allclose(
        ensemble.contributions(x[:50]).sum(axis=1), ensemble.margin(x[:50]), atol=1e-4
    )


def test_ensemble_survives_its_own_json(case) -> None:
    x, _, booster = case
    ensemble = to_ensemble(booster, 3)
    again = Ensemble.from_dict(json.loads(json.dumps(ensemble.to_dict())))

    np.testing.assert_array_equal(again.margin(x), ensemble.margin(x))


def test_trees_of_another_depth_are_refused(case) -> None:
    data = to_ensemble(case[2], 3).to_dict() | {"depth": 4}
    with pytest.raises(ArtifactBroken, match="depth 4"):
        Ensemble.from_dict(data)


def test_a_quantile_lies_above_that_share_of_targets(case) -> None:
    x, _, _ = case
    y = np.nan_to_num(x[:, 0]) + np.random.default_rng(1).normal(size=len(x)).astype(np.float32)
    upper = fit(x, y, Boost(trees=60, depth=3, threads=1), quantile=0.9).margin(x)

    assert 0.85 < (y <= upper).mean() < 0.95


def test_isotonic_never_falls_and_keeps_the_mean() -> None:
    dice = np.random.default_rng(2)
    margin = dice.normal(size=4000)
    outcome = dice.random(4000) < 1 / (1 + np.exp(-margin))
    points, values = isotonic(margin, outcome)
    said = np.interp(margin, points, values)

    assert (np.diff(values) >= 0).all()
    assert abs(said.mean() - outcome.mean()) < 0.02


def test_probability_never_falls_with_a_longer_horizon() -> None:
    tables = Calibration(
        margins=(np.array([0.0, 1.0]), np.array([0.0, 1.0])),
        probabilities=(np.array([0.1, 0.9]), np.array([0.2, 0.5])),
    )
    out = tables(np.linspace(-1, 2, 50))

    assert (np.diff(out, axis=1) >= 0).all()


def test_isotonic_gives_equal_margins_one_probability() -> None:
    outcome = np.repeat([0.0, 1.0], 300)
    points, values = isotonic(np.full(600, -1.0), outcome)
    assert len(points) == 1
    assert values[0] == pytest.approx(0.5, abs=0.01)
