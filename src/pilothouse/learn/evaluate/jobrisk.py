# SPDX-License-Identifier: Apache-2.0
"""Will a job fail? Judged at its submission, on a split by time, against the rates people use.

Training sees jobs that were submitted *and* had ended before the first cut; a validation part
between the cuts stops the training and calibrates; the rest is the test, at its own base rate.
Jobs still running at a cut are on neither side, which is the embargo.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilothouse.learn.dataset.jobs import JobRows, job_rows
from pilothouse.learn.evaluate import metrics
from pilothouse.learn.train.boosting import Boost, fit
from pilothouse.predict.calibration import Calibration, isotonic

DAY_US = 86_400_000_000
# Measured on days before the test: depth 6 and heavy leaves beat both smaller and larger trees.
BOOST = Boost(trees=200, depth=6, rate=0.08, least_weight=30, columns=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cuts:
    """Days: train before ``train``, stop before ``stop``, calibrate before ``test``."""

    train: float = 14.0
    stop: float = 16.0
    test: float = 18.0


def evaluate(dataset: Path, cuts: Cuts | None = None, boost: Boost = BOOST) -> dict[str, Any]:
    """All figures of the track as one document."""
    cuts = cuts or Cuts()
    rows = job_rows(dataset)
    parts = _parts(rows, cuts)
    y = rows.failed.astype(np.float32)
    ensemble = fit(
        rows.features[parts["train"]],
        y[parts["train"]],
        boost,
        valid=(rows.features[parts["stop"]], y[parts["stop"]]),
    )
    held = parts["calibrate"]
    points = isotonic(ensemble.margin(rows.features[held]), y[held], least=100)
    calibration = Calibration(margins=(points[0],), probabilities=(points[1],))
    test = parts["test"]
    margin = ensemble.margin(rows.features[test])
    probability = calibration(margin)[:, 0]
    return _figures(rows, parts, margin, probability, test, y)


def _parts(rows: JobRows, cuts: Cuts) -> dict[str, NDArray[np.intp]]:
    train, stop, test = (int(d * DAY_US) for d in (cuts.train, cuts.stop, cuts.test))
    known = rows.ended & (rows.submitted_us > 0)
    s, e = rows.submitted_us, rows.ended_us
    return {
        "train": np.flatnonzero(known & (s < train) & (e <= train)),
        "stop": np.flatnonzero(known & (s >= train) & (s < stop) & (e <= stop)),
        "calibrate": np.flatnonzero(known & (s >= stop) & (s < test) & (e <= test)),
        "test": np.flatnonzero(known & (s >= test)),
    }


def _figures(
    rows: JobRows,
    parts: dict[str, NDArray[np.intp]],
    margin: NDArray[np.float64],
    probability: NDArray[np.float64],
    test: NDArray[np.intp],
    y: NDArray[np.float32],
) -> dict[str, Any]:
    outcome = y[test]
    rivals: dict[str, NDArray[Any]] = {
        "per logical name": rows.column("name_failed_share")[test],
        "per user": rows.column("user_failed_share")[test],
        "logistic regression": _logistic(rows, parts["train"], test, y),
    }
    base = float(y[parts["train"]].mean())
    ours = metrics.average_precision(outcome, margin)
    best = "per logical name"
    name_rate = rivals[best]

    def gap(drawn: NDArray[np.intp]) -> float:
        mine = metrics.average_precision(outcome[drawn], margin[drawn])
        return mine - metrics.average_precision(outcome[drawn], name_rate[drawn])

    def skill(drawn: NDArray[np.intp]) -> float:
        return metrics.brier_skill(outcome[drawn], probability[drawn], base)

    groups = rows.name[test]
    scores = {name: metrics.average_precision(outcome, s) for name, s in rivals.items()}
    return {
        "track": "jobs at submission",
        "rows": {name: len(part) for name, part in parts.items()},
        "base_rate": {"train": base, "test": float(outcome.mean())},
        "average_precision": {"forecaster": ours, **scores},
        "gain_over_name_rate": ours / scores[best] - 1,
        "gain_interval": metrics.bootstrap(groups, gap, resamples=200),
        "brier_skill": metrics.brier_skill(outcome, probability, base),
        "brier_skill_interval": metrics.bootstrap(groups, skill, resamples=200),
        "calibration_slope": metrics.calibration_slope(outcome, probability),
        "top_1_percent_ratio": metrics.top_ratio(outcome, probability),
        "at_budgets": metrics.at_budgets(outcome, margin),
        "curves": curves(outcome, margin, probability),
    }


def _logistic(
    rows: JobRows, train: NDArray[np.intp], test: NDArray[np.intp], y: NDArray[np.float32]
) -> NDArray[np.float64]:
    from pilothouse.learn.train.logistic import Logistic

    return Logistic.fit(rows.features[train], y[train]).margin(rows.features[test])


def curves(
    outcome: NDArray[Any], score: NDArray[np.float64], probability: NDArray[np.float64]
) -> dict[str, Any]:
    """A few dozen points each of precision over recall and of outcome over probability."""
    order = np.argsort(-score, kind="stable")
    hits = np.cumsum(outcome[order])
    picks = np.unique(np.geomspace(1, len(hits), 60).round().astype(int)) - 1
    recall, precision = hits[picks] / max(hits[-1], 1), hits[picks] / (picks + 1)
    edges = np.unique(np.quantile(probability, np.linspace(0, 1, 21)))
    place = np.clip(np.searchsorted(edges, probability, side="right") - 1, 0, len(edges) - 1)
    said = [float(probability[place == b].mean()) for b in np.unique(place)]
    was = [float(outcome[place == b].mean()) for b in np.unique(place)]
    return {
        "precision_recall": [recall.tolist(), precision.tolist()],
        "reliability": [said, was],
    }
