# SPDX-License-Identifier: Apache-2.0
"""Jobs at submission: what the past of their user and logical name says about how they will end.

There is no usage here, only who submits what and how it went before. Outcomes of jobs that had not
ended by the submission are invisible, however early they were submitted. A job that has not ended
when the trace does has no label.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pilothouse.errors import TraceUnreadable
from pilothouse.features.history import AsOf, Moment
from pilothouse.learn.traces.importing import table

HOUR_US = 3_600_000_000
LASTS = (1, 3, 10, 50)
HOURS = (1, 6, 24)
_ENDING = pl.col("event").cast(pl.String).is_in(["EVICT", "FAIL", "FINISH", "KILL", "LOST"])
PRIOR = 2.0  # jobs' worth of the base rate mixed into a rate, so that one failure is not certainty


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRows:
    """One row per submitted job, in order of submission."""

    names: tuple[str, ...]
    features: NDArray[np.float32]  # (jobs, features)
    submitted_us: NDArray[np.int64]
    ended_us: NDArray[np.int64]  # meaningless where not ended
    ended: NDArray[np.bool_]
    failed: NDArray[np.bool_]
    user: NDArray[np.int64]
    name: NDArray[np.int64]

    def column(self, name: str) -> NDArray[np.float32]:
        return self.features[:, self.names.index(name)]


def job_rows(dataset: Path, *, failures: tuple[str, ...] = ("FAIL", "LOST")) -> JobRows:
    """Rows from the jobs' events of an imported dataset."""
    rows = rows_of(table(dataset, "jobs"), failures=failures)
    if not len(rows.submitted_us):
        raise TraceUnreadable(f"{dataset.name} has no job events. Import google-2011 job events.")
    return rows


def rows_of(events: pl.LazyFrame, *, failures: tuple[str, ...] = ("FAIL", "LOST")) -> JobRows:
    """Rows from events of jobs."""
    jobs = _lives(events)
    submitted, ended_at = jobs["submitted"].to_numpy(), jobs["ended"].fill_null(-1).to_numpy()
    last = jobs["last"].cast(pl.String).to_numpy()
    ended = ended_at >= 0
    failed = ended & np.isin(last, failures)
    ends = _Ends.of(events, jobs, failures)
    user = jobs["user"].rank("dense").fill_null(0).cast(pl.Int64).to_numpy()
    name = jobs["name"].rank("dense").fill_null(0).cast(pl.Int64).to_numpy()
    columns: dict[str, NDArray[Any]] = {}
    for tag, group in (("user", user), ("name", name), ("all", np.zeros(len(user), np.int64))):
        columns |= _past_of(tag, group, submitted, ends)
    columns["scheduling_class"] = jobs["scheduling_class"].fill_null(-1).to_numpy()
    columns["hour_of_day"] = submitted / HOUR_US % 24
    return JobRows(
        names=tuple(columns),
        features=np.stack([np.asarray(v, np.float32) for v in columns.values()], axis=1),
        submitted_us=submitted,
        ended_us=ended_at,
        ended=ended,
        failed=failed,
        user=user,
        name=name,
    )


def _lives(events: pl.LazyFrame) -> pl.DataFrame:
    return (
        events.group_by("cell", "job")
        .agg(
            submitted=pl.col("time_us").filter(pl.col("event") == "SUBMIT").min(),
            ended=pl.col("time_us").filter(_ENDING).max(),
            last=pl.col("event").sort_by("time_us").filter(_ENDING.sort_by("time_us")).last(),
            user=pl.col("user").first(),
            name=pl.col("name").first(),
            scheduling_class=pl.col("scheduling_class").first(),
        )
        .filter(pl.col("submitted").is_not_null())
        .sort("submitted", "cell", "job")
        .collect()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """Every end of every job: the last one alone would hide an earlier one until it happens."""

    job: NDArray[np.intp]  # row of the job
    time_us: NDArray[np.int64]
    failed: NDArray[np.bool_]
    killed: NDArray[np.bool_]

    @classmethod
    def of(cls, events: pl.LazyFrame, jobs: pl.DataFrame, failures: tuple[str, ...]) -> _Ends:
        rows = jobs.lazy().select("cell", "job").with_row_index("row")
        found = (
            events.filter(_ENDING)
            .select("cell", "job", "time_us", pl.col("event").cast(pl.String))
            .join(rows, on=["cell", "job"], how="inner")
            .sort("row", "time_us")
            .collect()
        )
        kind = found["event"].to_numpy()
        return cls(
            job=found["row"].to_numpy().astype(np.intp),
            time_us=found["time_us"].to_numpy(),
            failed=np.isin(kind, failures),
            killed=kind == "KILL",
        )


def _past_of(
    tag: str, group: NDArray[np.int64], submitted: NDArray[np.int64], known: _Ends
) -> dict[str, NDArray[Any]]:
    job, at = known.job, known.time_us
    seconds = (at - submitted[job]) / 1e6
    ends = AsOf(group[job], at, failed=known.failed, killed=known.killed, seconds=seconds).at(
        group, submitted
    )
    failures = np.flatnonzero(known.failed)
    last_failure = AsOf(group[job[failures]], at[failures]).at(group, submitted)
    # Strictly earlier submissions: the job itself is not its own past.
    before = AsOf(group, submitted).at(group, submitted - 1)
    # A job that ended twice was still one job.
    first = np.flatnonzero(np.diff(job, prepend=-1))
    over = AsOf(group[job[first]], at[first]).at(group, submitted)
    out: dict[str, NDArray[Any]] = {
        f"{tag}_ends": ends.count,
        f"{tag}_running": np.maximum(before.count - over.count, 0),
        f"{tag}_seconds": ends.sum("seconds") / np.maximum(ends.count, 1),
        f"{tag}_since_end": ends.elapsed(),
        f"{tag}_since_failure": last_failure.elapsed(),
        f"{tag}_since_submission": before.elapsed(),
    }
    for outcome in ("failed", "killed"):
        prior = 0.015 if outcome == "failed" else 0.4
        rate = (ends.sum(outcome) + PRIOR * prior) / (ends.count + PRIOR)
        out[f"{tag}_{outcome}_share"] = rate
        for last in LASTS:
            out[f"{tag}_{outcome}_last_{last}"] = ends.mean_of_last(outcome, last)
    out |= _recent(tag, ends, before)
    return out


def _recent(tag: str, ends: Moment, before: Moment) -> dict[str, NDArray[Any]]:
    out: dict[str, NDArray[Any]] = {}
    for hours in HOURS:
        lately = ends.since(hours * HOUR_US)
        out[f"{tag}_failed_{hours}h"] = lately.sum("failed")
        out[f"{tag}_ends_{hours}h"] = lately.count
    for hours in (1, 24):
        out[f"{tag}_submitted_{hours}h"] = before.since(hours * HOUR_US).count
    return out
