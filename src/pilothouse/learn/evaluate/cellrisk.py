# SPDX-License-Identifier: Apache-2.0
"""Will an instance fail soon? Judged on a cell nobody trained on.

Each scored cell is left out once. Which kind of forecaster to use is chosen by leaving out cells
*inside* the remaining ones, so the left-out cell decides nothing. Rows of one job are many and
alike, so training counts a job by the root of its rows, and intervals draw whole jobs. Beside the
honest figure stands a random split of the very same rows: the gap is the price of believing it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pilothouse.errors import TraceUnreadable
from pilothouse.features.core import CORE
from pilothouse.learn.dataset import windows
from pilothouse.learn.evaluate import metrics
from pilothouse.learn.evaluate.jobrisk import curves
from pilothouse.learn.train.boosting import Boost, fit
from pilothouse.learn.train.logistic import Logistic

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
Progress = Callable[[str], None]
LEAST_POSITIVES, LEAST_JOBS = 100, 15  # fewer cannot rank forecasters
HISTORY = tuple(n for n in CORE if n.startswith(("job_", "user_", "machine_")))
STATIC = ("tier", "scheduling_class", "cpu_request", "memory_request")  # of the literature
TRACE_ONLY = ("scheduling_class", "vertical_scaling", "scheduler")
BOOST = Boost(trees=60, depth=3, rate=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Rows of every cell with known labels for one horizon."""

    frame: pl.DataFrame
    outcome: NDArray[np.float32]
    cell: NDArray[np.object_]
    job: NDArray[np.int64]

    @classmethod
    def of(cls, features: Path, horizon_seconds: int) -> Case:
        frame = windows.load(features)
        column = f"label_{horizon_seconds}"
        if column not in frame.columns:
            known = [c.removeprefix("label_") for c in frame.columns if c.startswith("label_")]
            raise TraceUnreadable(
                f"{features.name} has no labels for {horizon_seconds} s; it has {', '.join(known)}."
            )
        frame = frame.filter(pl.col(column) >= 0)
        return cls(
            frame=frame,
            outcome=frame[column].to_numpy().astype(np.float32),
            cell=frame["cell"].to_numpy().astype(object),
            job=frame["job"].to_numpy(),
        )

    def columns(self, names: Sequence[str]) -> NDArray[np.float32]:
        known = [n for n in names if n in self.frame.columns]
        return self.frame.select(pl.col(n).cast(pl.Float32) for n in known).to_numpy()

    def job_weight(self, rows: Rows) -> Floats:
        _, member, count = np.unique(self.job[rows], return_inverse=True, return_counts=True)
        return np.asarray(1.0 / np.sqrt(count[member]))

    def scored_cells(self) -> list[str]:
        out = []
        for cell in sorted(set(self.cell.tolist())):
            hit = (self.cell == cell) & (self.outcome == 1)
            if hit.sum() >= LEAST_POSITIVES and len(np.unique(self.job[hit])) >= LEAST_JOBS:
                out.append(cell)
        return out


class Candidate:
    """A kind of forecaster: fit on some rows, score others."""

    def __init__(self, name: str, columns: Sequence[str], how: str, *, by_job: bool) -> None:
        self.name, self._columns, self._how, self._by_job = name, tuple(columns), how, by_job

    def score(self, case: Case, train: Rows, test: Rows) -> Floats:
        x = case.columns(self._columns)
        weight = case.job_weight(train) if self._by_job else None
        if self._how == "logistic":
            fitted = Logistic.fit(x[train], case.outcome[train], weight=weight)
            return fitted.margin(x[test])
        return fit(x[train], case.outcome[train], BOOST, weight=weight).margin(x[test])


class Blend:
    """The mean rank of several candidates: none of them can drag it far."""

    def __init__(self, name: str, parts: Sequence[Candidate]) -> None:
        self.name, self._parts = name, parts

    def score(self, case: Case, train: Rows, test: Rows) -> Floats:
        ranks = [_rank(part.score(case, train, test)) for part in self._parts]
        return np.asarray(np.mean(ranks, axis=0))


def _rank(values: Floats) -> Floats:
    order = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return np.asarray(order / max(len(values) - 1, 1))


def baselines() -> list[Candidate]:
    """What the forecaster has to beat, trained the way people train them: rows as they come."""
    return [
        Candidate("four static features, boosted", STATIC, "trees", by_job=False),
        Candidate("four static features, logistic", STATIC, "logistic", by_job=False),
        Candidate("logistic regression, all features", (*CORE, *TRACE_ONLY), "logistic",
                  by_job=False),
        Candidate("usage only, logistic", [n for n in CORE if n not in HISTORY], "logistic",
                  by_job=False),
        Candidate("usage only, boosted", [n for n in CORE if n not in HISTORY], "trees",
                  by_job=False),
    ]  # fmt: skip


def candidates() -> list[Candidate | Blend]:
    """What may be chosen: static, core, and core with what only a trace has."""
    wide = (*CORE, *TRACE_ONLY)
    core_trees = Candidate("core, boosted by job", CORE, "trees", by_job=True)
    core_line = Candidate("core, logistic by job", CORE, "logistic", by_job=True)
    wide_trees = Candidate("core and trace-only, boosted by job", wide, "trees", by_job=True)
    wide_line = Candidate("core and trace-only, logistic by job", wide, "logistic", by_job=True)
    return [
        Candidate("four static features, boosted by job", STATIC, "trees", by_job=True),
        core_trees,
        core_line,
        wide_trees,
        wide_line,
        Blend("blend of core and trace-only", [wide_trees, wide_line]),
    ]


def evaluate(
    features: Path, *, horizon_seconds: int = 3600, progress: Progress = lambda what: None
) -> dict[str, Any]:
    """Leave one cell out, choose inside, compare, and print the leak gap beside it."""
    case = Case.of(features, horizon_seconds)
    cells = case.scored_cells()
    if len(cells) < 2:
        raise TraceUnreadable(
            f"{features.name} has {len(cells)} cells with at least {LEAST_POSITIVES} failures from "
            f"{LEAST_JOBS} jobs; leaving one out needs two. Use a split by time for it."
        )
    kinds = [*candidates()]
    outer = {c: np.flatnonzero(case.cell != c) for c in cells}
    scores: dict[str, dict[str, Floats]] = {c: {} for c in cells}
    inside: dict[str, dict[str, list[float]]] = {c: {} for c in cells}
    for kind in kinds:
        for cell in cells:
            progress(f"{kind.name}, without cell {cell}")
            scores[cell][kind.name] = kind.score(
                case, outer[cell], np.flatnonzero(case.cell == cell)
            )
        for one, two in combinations(cells, 2):
            _score_inside(case, kind, one, two, inside)
    rivals = _rivals(case, cells, outer, progress)
    return _figures(case, cells, scores, inside, rivals, horizon_seconds)


def _score_inside(
    case: Case,
    kind: Candidate | Blend,
    one: str,
    two: str,
    inside: dict[str, dict[str, list[float]]],
) -> None:
    """Without both cells: tested on the one, it informs the choice for the other."""
    train = np.flatnonzero((case.cell != one) & (case.cell != two))
    for tested, informs in ((one, two), (two, one)):
        test = np.flatnonzero(case.cell == tested)
        value = metrics.average_precision(case.outcome[test], kind.score(case, train, test))
        inside[informs].setdefault(kind.name, []).append(value)


def _rivals(
    case: Case, cells: list[str], outer: dict[str, Rows], progress: Progress
) -> dict[str, dict[str, Floats]]:
    out: dict[str, dict[str, Floats]] = {c: {} for c in cells}
    for cell in cells:
        test = np.flatnonzero(case.cell == cell)
        for kind in baselines():
            progress(f"baseline {kind.name}, without cell {cell}")
            out[cell][kind.name] = kind.score(case, outer[cell], test)
        for name in ("user", "name"):
            out[cell][f"rate per {name}"] = _rate(case, name, outer[cell], test)
        for name in ("user_failure_share", "job_failure_share"):
            known = case.frame[name].to_numpy().astype(float)
            out[cell][f"{name.split('_')[0]}'s failures so far"] = known[test]
    return out


def _rate(case: Case, column: str, train: Rows, test: Rows) -> Floats:
    """The failure rate of the same user or logical name in other cells."""
    base = float(case.outcome[train].mean())
    name = case.frame[column].fill_null("").to_numpy()
    table = (
        pl.DataFrame({"name": name[train], "y": case.outcome[train]})
        .group_by("name")
        .agg(pl.col("y").sum().alias("hits"), pl.len().alias("rows"))
    )
    rate = {n: (h + 5 * base) / (r + 5) for n, h, r in table.iter_rows()}
    return np.array([rate.get(n, base) for n in name[test]])


def _figures(
    case: Case,
    cells: list[str],
    scores: dict[str, dict[str, Floats]],
    inside: dict[str, dict[str, list[float]]],
    rivals: dict[str, dict[str, Floats]],
    horizon: int,
) -> dict[str, Any]:
    chosen = {c: max(inside[c], key=lambda name: np.mean(inside[c][name])) for c in cells}
    per_cell: list[dict[str, Any]] = []
    ours: dict[str, Floats] = {}
    for cell in cells:
        test = np.flatnonzero(case.cell == cell)
        y = case.outcome[test]
        ours[cell] = scores[cell][chosen[cell]]
        table = {n: metrics.average_precision(y, s) for n, s in rivals[cell].items()}
        every = {n: metrics.average_precision(y, s) for n, s in scores[cell].items()}
        best = max(table, key=lambda n: table[n])
        gap = _paired(case, test, ours[cell], rivals[cell][best])
        per_cell.append(
            {
                "cell": cell,
                "rows": len(test),
                "positives": int(y.sum()),
                "jobs_failing": len(np.unique(case.job[test][y == 1])),
                "base_rate": float(y.mean()),
                "chosen": chosen[cell],
                "average_precision": metrics.average_precision(y, ours[cell]),
                "baselines": table,
                "candidates": every,
                "best_baseline": best,
                "gap_interval": gap,
                "at_budgets": metrics.at_budgets(y, ours[cell]),
            }
        )
    names = list(per_cell[0]["baselines"])
    means = {n: float(np.mean([c["baselines"][n] for c in per_cell])) for n in names}
    base = float(np.mean([c["base_rate"] for c in per_cell]))
    mean = float(np.mean([c["average_precision"] for c in per_cell]))
    best_name = max(means, key=lambda n: means[n])
    whole = np.concatenate([_rank(ours[c]) for c in cells])
    truth = np.concatenate([case.outcome[case.cell == c] for c in cells])
    return {
        "track": "instances, one cell left out",
        "horizon_seconds": horizon,
        "scored_cells": cells,
        "other_cells": _others(case, cells),
        "mean_average_precision": mean,
        "mean_base_rate": base,
        "times_base_rate": mean / base,
        "baseline_means": means,
        "best_baseline": best_name,
        "over_best_baseline": mean / means[best_name],
        "cells": per_cell,
        "random_split_average_precision": _random_split(case),
        "curves": curves(truth, whole, whole),
    }


def _paired(case: Case, test: Rows, ours: Floats, theirs: Floats) -> tuple[float, float]:
    y = case.outcome[test]

    def gap(drawn: Rows) -> float:
        mine = metrics.average_precision(y[drawn], ours[drawn])
        return mine - metrics.average_precision(y[drawn], theirs[drawn])

    return metrics.bootstrap(case.job[test], gap, resamples=200)


def _others(case: Case, cells: list[str]) -> list[dict[str, Any]]:
    out = []
    for cell in sorted(set(case.cell.tolist()) - set(cells)):
        rows = case.cell == cell
        hits = rows & (case.outcome == 1)
        jobs = len(np.unique(case.job[hits]))
        out.append(
            {"cell": cell, "rows": int(rows.sum()), "positives": int(hits.sum()), "jobs": jobs}
        )
    return out


def _random_split(case: Case) -> float:
    """The figure nobody should publish: rows of one job on both sides."""
    dice = np.random.default_rng(0)
    side = dice.random(len(case.outcome)) < 0.3
    train, test = np.flatnonzero(~side), np.flatnonzero(side)
    x = case.columns((*CORE, *TRACE_ONLY))
    deep = Boost(trees=100, depth=6, rate=0.2)
    margin = fit(x[train], case.outcome[train], deep).margin(x[test])
    return metrics.average_precision(case.outcome[test], margin)
