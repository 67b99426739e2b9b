# SPDX-License-Identifier: Apache-2.0
"""Does a feature know the future? A check that ships, because leaks come back.

Two tests. The gap: the same forecaster on the same rows, split at random and split honestly by job;
a large gap says that rows of one job on both sides were memorized. And the lonely feature: a single
feature that ranks failures almost perfectly on jobs it never saw did not come from the past.
A third, the future shuffle, needs the dataset: events after a cut are changed and features before
it must not move.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pilothouse.features.core import CORE
from pilothouse.learn import artifacts
from pilothouse.learn.dataset.pasts import Pasts, event_frames, jobs_of
from pilothouse.learn.dataset.windows import DatasetSettings, features_of
from pilothouse.learn.evaluate import metrics
from pilothouse.learn.evaluate.cellrisk import Case
from pilothouse.learn.train.boosting import Boost, fit

TOO_GOOD = 0.90  # average precision of one feature alone on jobs it never saw
LARGE_GAP = 0.25
BOOST = Boost(trees=60, depth=5, rate=0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakReport:
    """What the checks found; ``suspects`` and ``moved`` must be empty."""

    random_split: float
    honest_split: float
    suspects: tuple[tuple[str, float], ...]
    moved: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.suspects and not self.moved

    @property
    def sentence(self) -> str:
        gap = self.random_split - self.honest_split
        text = (
            f"Random split {self.random_split:.3f}, honest split {self.honest_split:.3f}: "
            f"gap {gap:.3f}{' (rows of one job are memorized)' if gap > LARGE_GAP else ''}. "
        )
        for name, value in self.suspects:
            text += f"{name} alone reaches {value:.3f} on unseen jobs: it knows the future. "
        for name in self.moved:
            text += f"{name} changes when only the future does. "
        return text + ("No leak found." if self.ok else "")

    def to_dict(self) -> dict[str, Any]:
        return {
            "random_split": self.random_split,
            "honest_split": self.honest_split,
            "gap": self.random_split - self.honest_split,
            "suspects": dict(self.suspects),
            "moved_by_the_future": list(self.moved),
            "ok": self.ok,
            "sentence": self.sentence,
        }


def check(features: Path, *, horizon_seconds: int = 3600) -> LeakReport:
    """All checks of a features artefact; extra numeric columns are suspects too."""
    case = Case.of(features, horizon_seconds)
    known = {"cell", "job", "instance", "end_us", "name", "user"}
    names = [
        c
        for c, kind in case.frame.schema.items()
        if c not in known and not c.startswith("label_") and kind.is_numeric()
    ]
    dice = np.random.default_rng(0)
    row_side = dice.random(len(case.outcome)) < 0.3
    jobs, member = np.unique(case.job, return_inverse=True)
    job_side = (dice.random(len(jobs)) < 0.3)[member]
    x = case.columns(names)
    dataset = features.with_name(features.name.removesuffix("-features"))
    return LeakReport(
        random_split=_score(x, case.outcome, row_side),
        honest_split=_score(x, case.outcome, job_side),
        suspects=_suspects(x, names, case.outcome, job_side),
        moved=_moved(dataset) if dataset.exists() else (),
    )


def _score(x: NDArray[np.float32], y: NDArray[np.float32], side: NDArray[np.bool_]) -> float:
    margin = fit(x[~side], y[~side], BOOST).margin(x[side])
    return metrics.average_precision(y[side], margin)


def _suspects(
    x: NDArray[np.float32], names: list[str], y: NDArray[np.float32], side: NDArray[np.bool_]
) -> tuple[tuple[str, float], ...]:
    out = []
    for column, name in enumerate(names):
        values = np.nan_to_num(x[side, column], nan=-1.0)
        best = max(metrics.average_precision(y[side], s) for s in (values, -values))
        if best >= TOO_GOOD:
            out.append((name, round(best, 4)))
    return tuple(out)


def _moved(dataset: Path) -> tuple[str, ...]:
    """Features of early windows that change when every later event becomes a failure."""
    manifest = artifacts.load(dataset)
    complete = bool(manifest.facts["complete"])
    events, jobs = pl.concat(event_frames(dataset)), jobs_of(dataset)
    files = sorted((dataset / "usage").glob("*.parquet"))
    frame = pl.read_parquet(files[0]).head(50_000)
    cut = int(np.median(frame["end_us"].to_numpy()))
    early = frame.filter(pl.col("end_us") <= cut)
    settings = DatasetSettings()
    past = Pasts.from_events([events], jobs, complete=complete)
    before = features_of(early, events, past, settings)
    later = pl.col("time_us") > cut
    changed = events.with_columns(
        event=pl.when(later)
        .then(pl.lit("FAIL"))
        .otherwise(pl.col("event").cast(pl.String))
        .cast(events["event"].dtype),
        cpu_request=pl.when(later).then(9.0).otherwise("cpu_request").cast(pl.Float32),
    )
    past = Pasts.from_events([changed], jobs, complete=complete)
    after = features_of(early, changed, past, settings)
    keys = ["cell", "job", "instance", "end_us"]
    both = before.join(after, on=keys, how="inner", suffix="_after")
    moved = []
    for name in CORE:
        a, b = both[name].to_numpy(), both[f"{name}_after"].to_numpy()
        if not np.array_equal(a, b, equal_nan=True):
            moved.append(name)
    return tuple(moved)
