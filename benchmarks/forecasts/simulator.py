# SPDX-License-Identifier: Apache-2.0
"""Is the shipped forecaster calibrated on simulator histories nobody trained on?

Fresh seeds of the training recipe, watched the way training watches them. The base rate its skill
is measured against is the one its own card states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import HORIZONS_SECONDS
from pilothouse.learn.evaluate import metrics
from pilothouse.learn.train.simulated import UNKNOWN, Recipe, Rows, collect
from pilothouse.predict.learned import RiskPart, load_artifact

SEEDS = (9001, 9002)
COLUMN = HORIZONS_SECONDS.index(900)


def judge(
    *,
    seeds: tuple[int, ...] = SEEDS,
    cycles: int = 300,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Figures of both parts, 15 minutes ahead, intervals by run."""
    artifact = load_artifact()
    node_rows, pod_rows, *_ = collect(replace(Recipe(), seeds=seeds, cycles=cycles), progress)
    out: dict[str, Any] = {"forecaster": artifact.name, "seeds": list(seeds), "falling": 0}
    for name, part, rows in (
        ("nodes", artifact.nodes, node_rows),
        ("pods", artifact.pods, pod_rows),
    ):
        if part is None:
            continue
        base = artifact.card.get(name, {}).get("base_rate")
        out[name], falling = _figures(part, rows, base)
        out["falling"] += falling
    return out


def _figures(part: RiskPart, rows: Rows, base: float | None) -> tuple[dict[str, Any], int]:
    x, labels, run = rows.stacked()
    known = np.flatnonzero(labels[:, COLUMN] != UNKNOWN)
    every = part.probabilities(x[known])
    p, y, who = every[:, COLUMN], labels[known, COLUMN], run[known]
    rate = float(y.mean()) if base is None else base

    def skill(drawn: NDArray[np.intp]) -> float:
        return metrics.brier_skill(y[drawn], p[drawn], rate)

    return {
        "rows": len(y),
        "base_rate": float(y.mean()),
        "average_precision": metrics.average_precision(y, p),
        "brier_skill": skill(np.arange(len(y))),
        "brier_skill_interval": metrics.bootstrap(who, skill, resamples=200),
        "calibration_slope": metrics.calibration_slope(y, p),
        "top_1_percent_ratio": metrics.top_ratio(y, p),
        "at_budgets": metrics.at_budgets(y, p),
    }, int((np.diff(every, axis=1) < 0).any(axis=1).sum())
