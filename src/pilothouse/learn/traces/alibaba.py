# SPDX-License-Identifier: Apache-2.0
"""Alibaba batch tasks of 2017 and 2018.

A task has a start, an end and a status; each becomes a submission and, where the status says so, an
end. The 2018 files have no header and name tasks; the 2017 ones have one and number them. Status
Terminated means finished; Failed is a failure; Waiting, Ready and Running have no end yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from pilothouse.learn.traces.accounting import ROW, Accountant
from pilothouse.learn.traces.schema import SECOND_US, Event
from pilothouse.learn.traces.source import Shard, csv_batches, files_under

_COLUMNS_2017 = ["start", "end", "job", "task", "instances", "status", "cpu", "memory"]
_COLUMNS_2018 = ["task", "instances", "job", "type", "status", "start", "end", "cpu", "memory"]
_ENDS = {
    "Terminated": str(Event.FINISH),
    "Failed": str(Event.FAIL),
    "Cancelled": str(Event.KILL),
    "Interrupted": str(Event.EVICT),
}
_OPEN = ("Waiting", "Ready", "Running")
CORES = 96.0  # of the machines both traces describe: requests become shares of one machine


class _Alibaba:
    """One row per batch task; ``instances`` of a task share its fate, so a task is the instance."""

    complete = True
    name: str
    _columns: list[str]
    _header: bool

    def shards(self, source: Path) -> Sequence[Shard]:
        return files_under(source, {"batch_task": "batch_task"})

    def read(self, shard: Shard, books: Accountant) -> Iterator[tuple[str, pl.DataFrame]]:
        for frame in csv_batches(shard.path, self._columns, header=self._header):
            begun = _tasks(frame, self.name)
            early = int((begun["time_us"] < 0).sum())
            if early:
                # Created before the trace began: that is what time 0 means in our schema.
                books.repairs.mended["created before the trace"] += early
                begun = begun.with_columns(pl.col("time_us").clip(lower_bound=0))
            yield "events", books.accept("events", begun)
            ended = begun.with_columns(
                time_us=_seconds("end").clip(lower_bound=0),
                event=pl.col("status").replace_strict(_ENDS, default=None, return_dtype=pl.String),
            ).filter(pl.col("event").is_not_null() & (_seconds("end") >= _seconds("start")))
            yield "events", books.accept("events", ended, counts=False)


class Alibaba2017(_Alibaba):
    """With a header, jobs and tasks numbered; CPU in hundredths of a core."""

    name = "alibaba-2017"
    _columns = _COLUMNS_2017
    _header = True


class Alibaba2018(_Alibaba):
    """Without a header; jobs are named ``j_12`` and tasks carry their dependencies in the name."""

    name = "alibaba-2018"
    _columns = _COLUMNS_2018
    _header = False


def _tasks(frame: pl.DataFrame, cell: str) -> pl.DataFrame:
    known = [*_ENDS, *_OPEN]
    task = pl.col("task").str.extract(r"(\d+)", 1)
    return frame.select(
        pl.col(ROW),
        cell=pl.lit(cell),
        job=pl.col("job").str.extract(r"(\d+)", 1),
        # A task without a number in its name still is one task of its job.
        instance=pl.when(pl.col("task").is_null()).then(None).otherwise(task.fill_null("0")),
        time_us=_seconds("start"),
        # An unknown status makes the row unusable rather than open-ended.
        event=pl.when(pl.col("status").is_in(known)).then(pl.lit(str(Event.SUBMIT))),
        name=pl.col("task"),
        status=pl.col("status"),
        start=pl.col("start"),
        end=pl.col("end"),
        cpu_request=pl.col("cpu").cast(pl.Float32, strict=False) / (100 * CORES),
        memory_request=pl.col("memory"),
    )


def _seconds(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Int64, strict=False) * SECOND_US
