# SPDX-License-Identifier: Apache-2.0
"""Does a feature know the future? A check that ships, because leaks come back.

The gap: the same forecaster on the same rows, split at random and split honestly; a large gap says
that rows of one job on both sides were memorized. The lonely feature: a single feature that ranks
failures almost perfectly on jobs it never saw did not come from the past; nor did one that tells
how an instance ends more than a horizon before the end. The second needs the dataset for the last
events. So does the future shuffle: everything after a cut is changed and features before it must
not move, and the stored features must be the ones that the dataset gives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from pilothouse.features.core import CORE
from pilothouse.learn import artifacts
from pilothouse.learn.dataset.jobs import JobRows, rows_of
from pilothouse.learn.dataset.pasts import ENDS, Pasts, event_frames, jobs_of
from pilothouse.learn.dataset.windows import DatasetSettings, features_of
from pilothouse.learn.evaluate import metrics
from pilothouse.learn.evaluate.cellrisk import Case
from pilothouse.learn.traces.importing import table
from pilothouse.learn.train.boosting import Boost, fit

TOO_GOOD = 0.90  # average precision of one feature alone on jobs it never saw
KNOWS_THE_END = 0.95  # the same about ends beyond the horizon; a job's own past reaches 0.82
LARGE_GAP = 0.25
SHUFFLED_ROWS = 50_000  # windows the future shuffle is tried on
FOLDS, BINS = 5, 64
BOOST = Boost(trees=60, depth=5, rate=0.2)
_INSTANCE = ["cell", "job", "instance"]

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakReport:
    """What the checks found; nobody may be named."""

    random_split: float
    honest_split: float
    suspects: tuple[tuple[str, float], ...]
    prophets: tuple[tuple[str, float], ...] = ()  # tell the end more than a horizon before it
    moved: tuple[str, ...] = ()
    strange: tuple[str, ...] = ()  # stored otherwise than the dataset gives them
    not_run: str = ""  # why the checks that need the dataset were not run

    @property
    def ok(self) -> bool:
        """Nobody is named, and everything was looked at."""
        named = self.suspects or self.prophets or self.moved or self.strange
        return not (named or self.not_run)

    @property
    def sentence(self) -> str:
        gap = self.random_split - self.honest_split
        text = (
            f"Random split {self.random_split:.3f}, honest split {self.honest_split:.3f}: "
            f"gap {gap:.3f}{' (rows of one job are memorized)' if gap > LARGE_GAP else ''}. "
        )
        for name, value in self.suspects:
            text += f"{name} alone reaches {value:.3f} on unseen jobs: it knows the future. "
        for name, value in self.prophets:
            text += (
                f"{name} alone tells with {value:.3f} how instances of unseen jobs end, more than "
                "a horizon before they do: it knows the future. "
            )
        for name in self.moved:
            text += f"{name} changes when only the future does. "
        for name in self.strange:
            text += f"{name} is not what the dataset gives for these windows. "
        if self.not_run:
            return f"{text}Last events and the future shuffle were not looked at: {self.not_run}"
        return text + ("No leak found." if self.ok else "")

    def to_dict(self) -> dict[str, Any]:
        return {
            "random_split": self.random_split,
            "honest_split": self.honest_split,
            "gap": self.random_split - self.honest_split,
            "suspects": dict(self.suspects + self.prophets),
            "moved_by_the_future": list(self.moved),
            "unlike_the_dataset": list(self.strange),
            "not_run": self.not_run,
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
    fold = dice.integers(0, FOLDS, len(jobs))[member]
    x, y = case.columns(names), case.outcome
    report = LeakReport(
        random_split=_score(x, y, ~row_side, row_side),
        honest_split=_score(x, y, ~job_side, job_side),
        suspects=_suspects(x, names, y, job_side, fold),
    )
    dataset = features.with_name(features.name.removesuffix("-features"))
    if why := _unusable(features, dataset):
        return replace(report, not_run=why)
    settings = _settings(features)
    failed, later = _ends(case, dataset, settings, horizon_seconds)
    moved, strange = _moved(dataset, case.frame, settings)
    return replace(
        report,
        prophets=_prophets(x[later], names, failed[later], fold[later]),
        moved=moved,
        strange=strange,
    )


def check_jobs(dataset: Path) -> LeakReport:
    """All checks of job events at submission; how a job ends is its label, so none tells it too."""
    events = table(dataset, "jobs").collect()
    rows = rows_of(events.lazy())
    known = np.flatnonzero(rows.ended & (rows.submitted_us > 0))
    x, y = rows.features[known], rows.failed[known].astype(np.float32)
    submitted, ended = rows.submitted_us[known], rows.ended_us[known]
    cut = np.quantile(submitted, 0.7)
    dice = np.random.default_rng(0)
    row_side = dice.random(len(known)) < 0.3
    fold = dice.integers(0, FOLDS, rows.name.max() + 1)[rows.name[known]]
    later = submitted >= cut
    return LeakReport(
        random_split=_score(x, y, ~row_side, row_side),
        honest_split=_score(x, y, ended < cut, later),
        suspects=_suspects(x, list(rows.names), y, later, fold),
        moved=_moved_jobs(events, rows, int(np.median(submitted))),
    )


def _score(x: Floats, y: Floats, train: Mask, test: Mask) -> float:
    margin = fit(x[train], y[train], BOOST).margin(x[test])
    return metrics.average_precision(y[test], margin)


def _suspects(
    x: Floats, names: list[str], y: Floats, side: Mask, fold: Numbers
) -> tuple[tuple[str, float], ...]:
    out = []
    for column, name in enumerate(names):
        values = np.nan_to_num(x[side, column], nan=-1.0)
        figures = (
            *(metrics.average_precision(y[side], s) for s in (values, -values)),
            metrics.average_precision(y, _told(x[:, column], y, fold)),
        )
        best = max((f for f in figures if np.isfinite(f)), default=0.0)  # no failure: no figure
        if best >= TOO_GOOD:
            out.append((name, round(best, 4)))
    return tuple(out)


def _ends(
    case: Case, dataset: Path, settings: DatasetSettings, horizon_seconds: int
) -> tuple[Floats, Mask]:
    """Whether each row's instance ends in a failure, and whether only after the horizon."""
    last = (
        table(dataset, "events")
        .filter(pl.col("event").cast(pl.String).is_in(ENDS), pl.col("time_us") < 2**62)
        .sort("time_us")
        .group_by(_INSTANCE)
        .agg(pl.col("event", "time_us").last())
        .collect()
    )
    found = case.frame.select(*_INSTANCE, "end_us").join(
        last, on=_INSTANCE, how="left", maintain_order="left"
    )
    failures = list(settings.labels.failures)
    failed = found["event"].cast(pl.String).is_in(failures).fill_null(False).to_numpy()
    away = (found["time_us"] - found["end_us"]).fill_null(0)
    return failed.astype(np.float32), (away > horizon_seconds * 1_000_000).to_numpy()


def _prophets(
    x: Floats, names: list[str], failed: Floats, fold: Numbers
) -> tuple[tuple[str, float], ...]:
    """Features whose values tell the end of instances by what they told about other jobs'."""
    out = []
    for column, name in enumerate(names):
        value = metrics.average_precision(failed, _told(x[:, column], failed, fold))
        if value >= KNOWS_THE_END:
            out.append((name, round(value, 4)))
    return tuple(out)


def _told(values: Floats, failed: Floats, fold: Numbers) -> NDArray[np.float64]:
    """The failure rate of the same value in other jobs, so that a code without order counts too."""
    known = np.isfinite(values)
    edges = np.unique(values[known])
    if len(edges) > BINS:
        edges = np.unique(np.quantile(edges, np.linspace(0, 1, BINS)))
    place = np.where(known, np.searchsorted(edges, values, side="right"), len(edges) + 1)
    out = np.zeros(len(values))
    for number in range(FOLDS):
        here = fold == number
        rows = np.bincount(place[~here], minlength=len(edges) + 2)
        hits = np.bincount(place[~here], failed[~here], minlength=len(edges) + 2)
        out[here] = (hits / np.maximum(rows, 1))[place[here]]
    return out


def _unusable(features: Path, dataset: Path) -> str:
    """Why the dataset cannot be asked about these features; nothing where it can."""
    if not (dataset / artifacts.MANIFEST).is_file():
        return f"{dataset.name}, the dataset of these features, is not beside them."
    if artifacts.load(features).inputs != artifacts.load(dataset).files:
        return f"{dataset.name} is not what these features were made from. Make them again."
    return ""


def _settings(features: Path) -> DatasetSettings:
    """How the features were made."""
    return msgspec.convert(artifacts.load(features).settings, DatasetSettings)


def _moved(
    dataset: Path, stored: pl.DataFrame, settings: DatasetSettings
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Features of early windows that change when all that is later does, and those that are stored
    otherwise than they are made now."""
    complete = bool(artifacts.load(dataset).facts["complete"])
    events, jobs = pl.concat(event_frames(dataset)), jobs_of(dataset)
    usage = _some_jobs(dataset)
    cut = int(np.median(usage["end_us"].to_numpy()))
    made = []
    for after in (None, cut):
        happened = events if after is None else _other_events(events, after)
        used = usage if after is None else _other_usage(usage, after)
        past = Pasts.from_events([happened], jobs, complete=complete)
        made.append(features_of(used, happened, past, settings).filter(pl.col("end_us") <= cut))
    same, changed = made
    moved = _differing(same, changed)
    strange = _differing(stored.filter(pl.col("end_us") <= cut), same)
    return moved, tuple(name for name in strange if name not in moved)


def _some_jobs(dataset: Path) -> pl.DataFrame:
    """All windows of the first jobs: a part of an instance's windows would have other lags."""
    usage = table(dataset, "usage")
    sizes = usage.group_by("job").len().sort("job").collect()
    few = sizes.filter(pl.col("len").cum_sum().shift(1, fill_value=0) < SHUFFLED_ROWS)
    return usage.join(few.lazy().select("job"), on="job", how="semi").collect()


def _other_events(events: pl.DataFrame, cut: int) -> pl.DataFrame:
    """Every later event becomes a failure of another size."""
    later = pl.col("time_us") > cut
    return events.with_columns(
        event=pl.when(later)
        .then(pl.lit("FAIL"))
        .otherwise(pl.col("event").cast(pl.String))
        .cast(events["event"].dtype),
        cpu_request=pl.when(later).then(9.0).otherwise("cpu_request").cast(pl.Float32),
        memory_request=pl.when(later).then(9.0).otherwise("memory_request").cast(pl.Float32),
    )


def _other_usage(usage: pl.DataFrame, cut: int) -> pl.DataFrame:
    """Every later window shows another level."""
    later = pl.col("end_us") > cut
    return usage.with_columns(
        pl.when(later).then(7.0).otherwise(pl.col(name)).cast(pl.Float32).alias(name)
        for name in ("cpu_mean", "cpu_max", "memory_mean", "memory_max")
    )


def _differing(before: pl.DataFrame, after: pl.DataFrame) -> tuple[str, ...]:
    """Core features that are not the same in rows that both have."""
    keys = [*_INSTANCE, "end_us"]
    left, right = (f.filter(pl.struct(keys).is_unique()) for f in (before, after))
    both = left.join(right, on=keys, how="inner", suffix="_after")
    return tuple(
        name
        for name in CORE
        if name in before.columns and not _alike(both[name], both[f"{name}_after"])
    )


def _alike(a: pl.Series, b: pl.Series) -> bool:
    # Sums may be rounded otherwise when other rows are summed with them.
    return bool(np.allclose(a.to_numpy(), b.to_numpy(), rtol=1e-5, atol=1e-6, equal_nan=True))


def _moved_jobs(events: pl.DataFrame, rows: JobRows, cut: int) -> tuple[str, ...]:
    """Features of early jobs that change when every later event is a failure."""
    failing = (
        pl.when(pl.col("time_us") > cut)
        .then(pl.lit("FAIL"))
        .otherwise(pl.col("event").cast(pl.String))
    )
    changed = rows_of(events.lazy().with_columns(event=failing.cast(events["event"].dtype)))
    early = int((rows.submitted_us <= cut).sum())  # rows are in order of submission
    return tuple(
        name
        for column, name in enumerate(rows.names)
        if not np.array_equal(
            rows.features[:early, column], changed.features[:early, column], equal_nan=True
        )
    )
