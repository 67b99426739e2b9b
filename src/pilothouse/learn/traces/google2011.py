# SPDX-License-Identifier: Apache-2.0
"""Google ClusterData 2011: headerless CSV shards, or the same columns as Parquet.

Its event numbers are not those of 2019. Task events become instance events, job events the jobs'
table; task usage has one row per window of up to five minutes, in fractional seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from pilothouse.learn.traces.accounting import Accountant
from pilothouse.learn.traces.google2019 import _name
from pilothouse.learn.traces.schema import MACHINE_CODES, event_names, tier_2011
from pilothouse.learn.traces.source import Shard, csv_batches, files_under, parquet_batches, words

VERSION = "google-2011"
CELL = "2011"

# As the trace's own schema file lists them, without the parts nobody here reads.
_CSV = {
    "job_events": words(
        "time missing_info job_id event_type user scheduling_class job_name logical_job_name"
    ),
    "task_events": words(
        "time missing_info job_id task_index machine_id event_type user scheduling_class priority "
        "cpu_request memory_request disk_request different_machine"
    ),
    "machine_events": words("time machine_id event_type platform_id cpus memory"),
    "task_usage": words(
        "start_time end_time job_id task_index machine_id mean_cpu canonical_memory "
        "assigned_memory unmapped_page_cache total_page_cache max_memory mean_disk_io "
        "mean_disk_space max_cpu max_disk_io cpi mapi sample_portion aggregation_type sampled_cpu"
    ),
}
_TABLE = {
    "job_events": "jobs",
    "task_events": "events",
    "machine_events": "machines",
    "task_usage": "usage",
}


class Google2011:
    """All of 2011 is one cell."""

    name = "google-2011"
    complete = True

    def shards(self, source: Path) -> Sequence[Shard]:
        if source.is_dir() and any(source.glob("google2011_*")):
            # A folder that also holds other traces: only what is named for this one.
            found = [s for s in files_under(source, {n: n for n in _CSV}) if "2011" in s.path.name]
            return found
        return files_under(source, {name: name for name in _CSV})

    def read(self, shard: Shard, books: Accountant) -> Iterator[tuple[str, pl.DataFrame]]:
        if shard.path.suffix == ".parquet":
            columns = [c for c in _CSV[shard.holds] if c not in ("job_name",)]
            frames = parquet_batches(shard.path, columns)
        else:
            frames = csv_batches(shard.path, _CSV[shard.holds], header=False)
        table = _TABLE[shard.holds]
        for frame in frames:
            yield table, books.accept(table, _canonical(shard.holds, frame))


def _canonical(holds: str, frame: pl.DataFrame) -> pl.DataFrame:
    frame = frame.with_columns(cell=pl.lit(CELL))
    if holds == "machine_events":
        names = {i: str(e) for i, e in enumerate(MACHINE_CODES[VERSION])}
        return frame.with_columns(
            time_us=_time("time"),
            machine="machine_id",
            event=_name(pl.col("event_type"), names),
            cpu_capacity="cpus",
            memory_capacity="memory",
        )
    if holds == "task_usage":
        return frame.with_columns(
            job="job_id",
            instance="task_index",
            machine="machine_id",
            start_us=_time("start_time"),
            end_us=_time("end_time"),
            cpu_mean="mean_cpu",
            cpu_max="max_cpu",
            memory_mean="canonical_memory",
            memory_max="max_memory",
        )
    frame = frame.with_columns(
        time_us=_time("time"),
        job="job_id",
        event=_name(pl.col("event_type"), event_names(VERSION)),
        user=pl.col("user").cast(pl.String),
    )
    if holds == "job_events":
        return frame.with_columns(name=pl.col("logical_job_name").cast(pl.String))
    return frame.with_columns(
        instance="task_index",
        machine="machine_id",
        tier=tier_2011(pl.col("priority").cast(pl.Int32, strict=False)),
    )


def _time(column: str) -> pl.Expr:
    """2^63 - 1 means after the trace; read as unsigned it must not wrap."""
    return pl.col(column).cast(pl.UInt64, strict=False).cast(pl.Int64, strict=False)
