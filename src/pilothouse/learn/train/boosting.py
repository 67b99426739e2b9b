# SPDX-License-Identifier: Apache-2.0
"""XGBoost in, plain arrays out.

Early stopping looks at a validation part that is neither training nor test. What is returned no
longer needs the library: the trees are read from its own JSON and padded to complete trees.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from pilothouse.predict.trees import Ensemble

Matrix = NDArray[np.float32]
Vector = NDArray[np.generic]
MANY_ROWS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Boost:
    """Knobs of one boosted ensemble; small by default, because it runs inside a cycle."""

    trees: int = 100
    depth: int = 4
    rate: float = 0.1
    rows: float = 0.7
    columns: float = 0.6
    least_weight: float = 5.0
    bins: int = 128
    threads: int = 2
    seed: int = 0
    patience: int = 30
    monotone: tuple[int, ...] = ()


def fit(
    rows: Matrix,
    target: Vector,
    boost: Boost,
    *,
    quantile: float | None = None,
    weight: Vector | None = None,
    valid: tuple[Matrix, Vector] | None = None,
) -> Ensemble:
    """A classifier's log-odds, or the quantile of a number."""
    train = xgboost.QuantileDMatrix(
        rows, np.asarray(target, np.float32), weight=weight, max_bin=boost.bins
    )
    settings: dict[str, Any] = {
        "max_depth": boost.depth,
        "eta": boost.rate,
        "subsample": boost.rows,
        "colsample_bytree": boost.columns,
        "min_child_weight": boost.least_weight,
        "max_bin": boost.bins,
        # Threads that wait for each other cost more than a small fit; the trees are the same.
        "nthread": boost.threads if len(rows) >= MANY_ROWS else 1,
        "seed": boost.seed,
        "tree_method": "hist",
    }
    if boost.monotone:
        settings["monotone_constraints"] = boost.monotone
    if quantile is None:
        settings |= {"objective": "binary:logistic", "eval_metric": "logloss"}
    else:
        settings |= {"objective": "reg:quantileerror", "quantile_alpha": quantile}
    watch: dict[str, Any] = {}
    if valid is not None:
        held = xgboost.QuantileDMatrix(
            valid[0], np.asarray(valid[1], np.float32), ref=train, max_bin=boost.bins
        )
        watch = {"evals": [(held, "valid")], "early_stopping_rounds": boost.patience}
    booster = xgboost.train(settings, train, boost.trees, verbose_eval=False, **watch)
    best = booster.best_iteration + 1 if valid is not None else boost.trees
    return to_ensemble(booster[:best], boost.depth)


def to_ensemble(booster: Any, depth: int) -> Ensemble:
    """The trees of a booster, padded to complete trees of one depth."""
    document = json.loads(bytes(booster.save_raw("json")))["learner"]
    trees = document["gradient_booster"]["model"]["trees"]
    score = document["learner_model_param"]["base_score"].strip("[]")
    base = float(score.split(",")[0])
    if document["objective"]["name"] == "binary:logistic":
        base = min(max(base, 1e-6), 1 - 1e-6)  # a part without any failure is no certainty
        base = float(np.log(base / (1 - base)))
    inner = 2**depth - 1
    shape = (len(trees), inner)
    feature = np.zeros(shape, np.int32)
    threshold = np.full(shape, -np.inf, np.float32)  # padding: everything goes right
    missing_left = np.zeros(shape, np.bool_)
    leaf = np.zeros((len(trees), inner + 1), np.float32)
    cover = np.zeros((len(trees), 2 * inner + 1), np.float32)
    for number, tree in enumerate(trees):
        _pad(tree, 0, 0, depth, number, feature, threshold, missing_left, leaf, cover)
    threshold[~np.isfinite(threshold)] = -3.0e38
    return Ensemble(
        depth=depth,
        bias=base,
        feature=feature,
        threshold=threshold,
        missing_left=missing_left,
        leaf=leaf,
        cover=cover,
    )


def _pad(
    tree: dict[str, Any],
    source: int,
    place: int,
    depth: int,
    number: int,
    feature: NDArray[np.int32],
    threshold: NDArray[np.float32],
    missing_left: NDArray[np.bool_],
    leaf: NDArray[np.float32],
    cover: NDArray[np.float32],
) -> None:
    inner = 2**depth - 1
    weight = float(tree["sum_hessian"][source])
    if tree["left_children"][source] == -1:
        value = float(tree["split_conditions"][source])
        # A leaf above the bottom fills the whole subtree; all of its cover goes right.
        below = [place]
        cover[number, place] = weight
        while below[0] < inner:
            for node in below:
                cover[number, 2 * node + 2] = cover[number, node]
            below = [child for node in below for child in (2 * node + 1, 2 * node + 2)]
        for node in below:
            leaf[number, node - inner] = value
        return
    cover[number, place] = weight
    feature[number, place] = tree["split_indices"][source]
    threshold[number, place] = tree["split_conditions"][source]
    missing_left[number, place] = bool(tree["default_left"][source])
    for child, side in ((tree["left_children"], 1), (tree["right_children"], 2)):
        _pad(
            tree,
            child[source],
            2 * place + side,
            depth,
            number,
            feature,
            threshold,
            missing_left,
            leaf,
            cover,
        )
