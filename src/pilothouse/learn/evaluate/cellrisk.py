# SPDX-License-Identifier: Apache-2.0
"""Will an instance fail soon? Judged on a cell nobody trained on.

Each scored cell is left out once. Which forecaster to use (any family, a blend or a static rule) is
chosen by leaving out cells *inside* the remaining ones, so the left-out cell decides nothing. Every
baseline may be chosen too: a rule that cannot answer "the simple one" is not a choice. Rows of one
job are many and alike, so each family also comes with jobs counted by the root of their rows, and
intervals draw whole jobs. Beside the honest figure stands a random split of the very same rows: the
gap is the price of believing it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pilothouse.errors import TraceUnreadable
from pilothouse.features.core import CORE
from pilothouse.learn.dataset import windows
from pilothouse.learn.evaluate import metrics
from pilothouse.learn.evaluate.choosing import Choice, Fold, choose, inside, rank
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


class Kind(Protocol):
    """A kind of forecaster: fit on some rows, score others."""

    name: str

    def score(self, case: Case, train: Rows, test: Rows) -> Floats: ...


class Fitted:
    """Trees or a line over some columns."""

    def __init__(self, name: str, columns: Sequence[str], how: str, *, by_job: bool) -> None:
        self.name, self._columns, self._how, self._by_job = name, tuple(columns), how, by_job

    def score(self, case: Case, train: Rows, test: Rows) -> Floats:
        x = case.columns(self._columns)
        weight = case.job_weight(train) if self._by_job else None
        if self._how == "logistic":
            fitted = Logistic.fit(x[train], case.outcome[train], weight=weight)
            return fitted.margin(x[test])
        return fit(x[train], case.outcome[train], BOOST, weight=weight).margin(x[test])


class Rate:
    """The failure rate of the same user or logical name in other cells."""

    def __init__(self, column: str) -> None:
        self.name, self._column = f"rate per {column}", column

    def score(self, case: Case, train: Rows, test: Rows) -> Floats:
        base = float(case.outcome[train].mean())
        name = case.frame[self._column].fill_null("").to_numpy()
        table = (
            pl.DataFrame({"name": name[train], "y": case.outcome[train]})
            .group_by("name")
            .agg(pl.col("y").sum().alias("hits"), pl.len().alias("rows"))
        )
        rate = {n: (h + 5 * base) / (r + 5) for n, h, r in table.iter_rows()}
        return np.array([rate.get(n, base) for n in name[test]])


class SoFar:
    """The share of failures so far, as it stands in the row: nothing is fitted."""

    def __init__(self, whose: str) -> None:
        self.name, self._column = f"{whose}'s failures so far", f"{whose}_failure_share"

    def score(self, case: Case, train: Rows, test: Rows) -> Floats:
        return case.frame[self._column].to_numpy().astype(float)[test]


FAMILIES = {
    "four static features": STATIC,
    "usage only": tuple(n for n in CORE if n not in HISTORY),
    "core": CORE,
    "all features": (*CORE, *TRACE_ONLY),
}


def baselines() -> list[Kind]:
    """What the forecaster has to beat, trained the way people train them: rows as they come."""
    lines = [Fitted(f"{n}, logistic", c, "logistic", by_job=False) for n, c in FAMILIES.items()]
    trees = [Fitted(f"{n}, boosted", c, "trees", by_job=False) for n, c in FAMILIES.items()]
    return [*lines, *trees, Rate("user"), Rate("name"), SoFar("user"), SoFar("job")]


def candidates() -> list[Kind]:
    """What may be chosen, alone or blended: every baseline, and each family by job."""
    return [
        *baselines(),
        *(
            Fitted(f"{name}, {word} by job", columns, how, by_job=True)
            for name, columns in FAMILIES.items()
            for how, word in (("logistic", "logistic"), ("trees", "boosted"))
        ),
    ]


Without = frozenset[str]  # cells nobody trained on
Scores = dict[tuple[Without, str], dict[str, Floats]]  # those, and the cell that was scored


def evaluate(
    features: Path, *, horizon_seconds: int = 3600, progress: Progress = lambda what: None
) -> dict[str, Any]:
    """Leave one cell out, choose inside, compare, and print the leak gap beside it."""
    case = Case.of(features, horizon_seconds)
    cells = case.scored_cells()
    if len(cells) < 2:
        raise TraceUnreadable(
            f"{features.name} has {len(cells)} cells with at least {LEAST_POSITIVES} failures from "
            f"{LEAST_JOBS} jobs; leaving one out needs two. Import more cells into the "
            "trace, or evaluate a trace of job events, which is split by time."
        )
    scores = _scores(case, cells, progress)
    chosen = {cell: choose(_inside(case, cells, cell, scores)) for cell in cells}
    return _figures(case, cells, scores, chosen, horizon_seconds)


def _scores(case: Case, cells: list[str], progress: Progress) -> Scores:
    """Every kind, trained without each cell and without each two."""
    out: Scores = {}
    lefts: list[Without] = [frozenset(w) for n in (1, 2) for w in combinations(cells, n)]
    for kind in candidates():
        for left in lefts:
            progress(f"{kind.name}, without cell {' and '.join(sorted(left))}")
            here = np.isin(case.cell, sorted(left))
            test = np.flatnonzero(here)
            score = kind.score(case, np.flatnonzero(~here), test)
            for cell in left:
                out.setdefault((left, cell), {})[kind.name] = score[case.cell[test] == cell]
    return out


def _inside(case: Case, cells: list[str], left: str, scores: Scores) -> list[Fold]:
    """Folds that know nothing of the cell left out: each tests another cell, trained on neither."""
    return [
        Fold(outcome=case.outcome[case.cell == cell], scores=scores[frozenset((left, cell)), cell])
        for cell in cells
        if cell != left
    ]


def _figures(
    case: Case, cells: list[str], scores: Scores, chosen: dict[str, Choice], horizon: int
) -> dict[str, Any]:
    alone = {cell: scores[frozenset((cell,)), cell] for cell in cells}
    ours = {cell: chosen[cell].blend(alone[cell]) for cell in cells}
    rivals = [kind.name for kind in baselines()]
    per_cell = [
        _cell(case, cell, chosen[cell], ours[cell], alone[cell], rivals,
              _inside(case, cells, cell, scores))
        for cell in cells
    ]  # fmt: skip
    means = {n: float(np.mean([c["baselines"][n] for c in per_cell])) for n in rivals}
    base = float(np.mean([c["base_rate"] for c in per_cell]))
    mean = float(np.mean([c["average_precision"] for c in per_cell]))
    best = max(means, key=lambda n: means[n])
    whole = np.concatenate([rank(ours[c]) for c in cells])
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
        "best_baseline": best,
        "over_best_baseline": mean / means[best],
        "gap_interval": _paired_mean(case, cells, ours, {c: alone[c][best] for c in cells}),
        "cells": per_cell,
        "random_split_average_precision": _random_split(case),
        "curves": {
            # Ranks are no probabilities: there is no calibration to draw here.
            "precision_recall": curves(truth, whole, whole)["precision_recall"],
            "lead_time": _lead_time(case, cells, ours),
            "drift": _drift(case, cells),
        },
    }


def _cell(
    case: Case,
    cell: str,
    choice: Choice,
    ours: Floats,
    alone: dict[str, Floats],
    rivals: list[str],
    folds: list[Fold],
) -> dict[str, Any]:
    test = np.flatnonzero(case.cell == cell)
    y = case.outcome[test]
    every = {n: metrics.average_precision(y, s) for n, s in alone.items()}
    table = {n: every[n] for n in rivals}
    best = max(table, key=lambda n: table[n])
    return {
        "cell": cell,
        "rows": len(test),
        "positives": int(y.sum()),
        "jobs_failing": len(np.unique(case.job[test][y == 1])),
        "base_rate": float(y.mean()),
        "chosen": choice.sentence,
        "chosen_inside": choice.inside,
        "inside": {n: inside(folds, n) for n in alone},
        "average_precision": metrics.average_precision(y, ours),
        "baselines": table,
        "candidates": every,
        "best_baseline": best,
        "gap_interval": _paired(case, test, ours, alone[best]),
        "at_budgets": metrics.at_budgets(y, ours),
    }


def _paired(case: Case, test: Rows, ours: Floats, theirs: Floats) -> tuple[float, float]:
    y = case.outcome[test]

    def gap(drawn: Rows) -> float:
        mine = metrics.average_precision(y[drawn], ours[drawn])
        return mine - metrics.average_precision(y[drawn], theirs[drawn])

    return metrics.bootstrap(case.job[test], gap, resamples=200)


def _paired_mean(
    case: Case, cells: list[str], ours: dict[str, Floats], theirs: dict[str, Floats]
) -> tuple[float, float]:
    """95 % interval of the gap of the means; jobs are drawn again inside each cell."""
    rows = np.concatenate([np.flatnonzero(case.cell == c) for c in cells])
    mine, other = (np.concatenate([s[c] for c in cells]) for s in (ours, theirs))
    y, cell = case.outcome[rows], case.cell[rows]

    def gap(drawn: Rows) -> float:
        out = []
        for name in cells:
            part = drawn[cell[drawn] == name]
            out.append(
                metrics.average_precision(y[part], mine[part])
                - metrics.average_precision(y[part], other[part])
            )
        return float(np.nanmean(out))

    return metrics.bootstrap(case.job[rows], gap, resamples=200)


ALERTS = 0.05  # of the rows of a cell: the budget under which lead time is told


def _lead_time(case: Case, cells: list[str], ours: dict[str, Floats]) -> list[list[float]]:
    """Share of failing instances warned at least so many minutes before, at one alert budget."""
    horizons = sorted(
        int(c.removeprefix("label_")) for c in case.frame.columns if c.startswith("label_")
    )
    warned: list[NDArray[np.int64]] = []
    for cell in cells:
        rows = np.flatnonzero(case.cell == cell)
        failing = rows[case.outcome[rows] == 1]
        labels = case.frame[failing].select(f"label_{h}" for h in horizons).to_numpy()
        # A row that fails within an hour but not within 30 minutes is at least 30 minutes early.
        early = np.append(-1, np.array([0, *horizons[:-1]]))[1 + np.argmax(labels == 1, axis=1)]
        limit = np.sort(ours[cell])[-max(int(ALERTS * len(rows)), 1)]
        early = np.where(ours[cell][case.outcome[rows] == 1] >= limit, early, -1)
        names = case.frame[failing].select(pl.struct("job", "instance").rank("dense")).to_series()
        best = np.full(int(names.max() or 0) + 1, -2)
        np.maximum.at(best, names.to_numpy().astype(np.int64), early)
        warned.append(best[best > -2])
    every = np.concatenate(warned)
    minutes = [0.0, *(h / 60 for h in horizons[:-1])]
    return [minutes, [float((every >= 60 * m).mean()) for m in minutes]]


def _drift(case: Case, cells: list[str]) -> dict[str, float]:
    """Population stability of each feature between a cell and the others, the mean over cells."""
    out = {}
    for name in FAMILIES["all features"]:
        if name not in case.frame.columns:
            continue
        values = case.frame[name].cast(pl.Float64).fill_null(float("nan")).to_numpy()
        values = np.nan_to_num(values, nan=-1.0)
        out[name] = float(
            np.mean([metrics.psi(values[case.cell != c], values[case.cell == c]) for c in cells])
        )
    return dict(sorted(out.items(), key=lambda item: -item[1]))


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
