# SPDX-License-Identifier: Apache-2.0
"""What rows of any job may ask about the rest of the cluster, and the events of the jobs at hand.

A job's own past is made from its own events, which always travel with it. What crosses jobs (the
past of a user or a machine) is kept for the whole trace, as a few numbers per *end* and nothing per
window, so it stays small beside the windows it is asked by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pilothouse.errors import TraceUnreadable
from pilothouse.features.history import AsOf
from pilothouse.learn.traces.importing import table
from pilothouse.learn.traces.schema import TERMINAL

EVENT_COLUMNS = [
    "cell",
    "job",
    "instance",
    "time_us",
    "event",
    "machine",
    "user",
    "tier",
    "scheduling_class",
    "cpu_request",
    "memory_request",
]
ENDS = [str(e) for e in TERMINAL]
FAILURES = ["FAIL", "LOST"]
_JOB = ["cell", "job"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pasts:
    """Ends by user and failures by machine over the whole trace, and where each cell ends."""

    trace_end: dict[str, int]
    complete: bool
    user: AsOf
    machine: AsOf
    user_of: pl.DataFrame  # cell, job, user_number

    def key(self, frame: pl.DataFrame, column: str) -> NDArray[np.int64]:
        """One number per (cell, value), the same in every process that holds these pasts."""
        return cell_key(frame, column, tuple(self.trace_end))

    @classmethod
    def of(cls, dataset: Path, *, complete: bool) -> Pasts:
        """The pasts of an imported dataset, read one file of events at a time."""
        return cls.from_events(event_frames(dataset), jobs_of(dataset), complete=complete)

    @classmethod
    def from_events(
        cls, frames: Iterable[pl.DataFrame], jobs: pl.DataFrame, *, complete: bool
    ) -> Pasts:
        """The pasts that these events make; ``jobs`` says whose they are where events do not."""
        books = _Books(jobs)
        for frame in frames:
            books.enter(frame)
        return books.close(complete)


@dataclass(slots=True)
class _Books:
    """Collects what must be known of all events while they pass by."""

    jobs: pl.DataFrame
    ends: list[pl.DataFrame] = field(default_factory=list)
    users: list[pl.DataFrame] = field(default_factory=list)
    trace_end: dict[str, int] = field(default_factory=dict)

    def enter(self, events: pl.DataFrame) -> None:
        for cell, last in _last_times(events).iter_rows():
            self.trace_end[str(cell)] = max(self.trace_end.get(str(cell), 0), int(last))
        self.users.append(_named(events))
        self.ends.append(
            events.filter(pl.col("event").is_in(ENDS)).select(
                *_JOB, "time_us", "machine", failed=pl.col("event").is_in(FAILURES)
            )
        )

    def close(self, complete: bool) -> Pasts:
        if not self.trace_end:
            raise TraceUnreadable(
                "The trace has usage but not one event, so there is nothing to forecast. Import "
                "its events too."
            )
        user_of = (
            pl.concat([_named(self.jobs), *self.users])
            .unique(subset=_JOB, keep="first", maintain_order=True)
            .with_columns(user_number=pl.struct("cell", "user").rank("dense").cast(pl.Int64))
            .select(*_JOB, "user_number")
        )
        self.users.clear()
        ends = pl.concat(self.ends).join(user_of, on=_JOB, how="left", maintain_order="left")
        self.ends.clear()
        failed, time = ends["failed"].to_numpy(), ends["time_us"].to_numpy()
        machine = cell_key(
            ends.with_columns(pl.col("machine").fill_null(0)),
            "machine",
            tuple(self.trace_end),
        )
        return Pasts(
            trace_end=self.trace_end,
            complete=complete,
            user=AsOf(ends["user_number"].fill_null(0).to_numpy(), time, failed=failed),
            machine=AsOf(machine[failed], time[failed]),
            user_of=user_of,
        )


def _last_times(events: pl.DataFrame) -> pl.DataFrame:
    """The last event of each cell; cells in the order in which they appear."""
    return events.group_by("cell", maintain_order=True).agg(pl.col("time_us").max())


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """Whose job it is, once per job."""
    return (
        frame.select(*_JOB, "user")
        .drop_nulls("user")
        .unique(subset=_JOB, keep="first", maintain_order=True)
    )


def coded(frame: pl.DataFrame) -> pl.DataFrame:
    """Names that come again and again as numbers."""
    return frame.with_columns(
        pl.col(c).cast(pl.Categorical) for c in ("cell", "user") if c in frame.columns
    )


def jobs_of(dataset: Path) -> pl.DataFrame:
    return coded(table(dataset, "jobs").select(*_JOB, "user").collect())


def event_frames(dataset: Path) -> Iterator[pl.DataFrame]:
    """Events one file at a time; what lies after the trace is no event of it."""
    files = sorted((dataset / "events").glob("*.parquet"))
    for file in files:
        frame = pl.read_parquet(file, columns=EVENT_COLUMNS)
        yield coded(frame.filter(pl.col("time_us") < 2**62))


def cell_key(frame: pl.DataFrame, column: str, cells: tuple[str, ...]) -> NDArray[np.int64]:
    """One number per (cell, value); cells are few and values are below 2^48 in every trace.

    The number of a cell is its place among all cells of the events: the library's own numbers of
    names differ from process to process. A cell without any event has no labels and no place.
    """
    place = frame["cell"].cast(pl.Enum(cells), strict=False).to_physical().cast(pl.Int64)
    value = frame[column].to_numpy().astype(np.int64)
    return np.asarray((place.fill_null(len(cells)).to_numpy() << 48) ^ value, np.int64)
