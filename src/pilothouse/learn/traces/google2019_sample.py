# SPDX-License-Identifier: Apache-2.0
"""The public flattened sample of Google 2019: each row joins one event with one usage window.

It is thin (most instances have one window) and not complete: that an instance shows no failure says
nothing unless something else of its future is known. In rows with several constraints the user,
the logical name and the hardware counters are null, so null-ness is never a feature. Windows of one
instance appear once per joined event and are kept once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from pilothouse.learn.traces.accounting import Accountant
from pilothouse.learn.traces.google2019 import VERSION, _name
from pilothouse.learn.traces.schema import event_names, tier_2019
from pilothouse.learn.traces.source import Shard, files_under, parquet_batches

_COLUMNS = (
    "time_us",
    "instance_events_type",
    "collection_id",
    "scheduling_class",
    "priority",
    "instance_index",
    "machine_id",
    "req_cpus",
    "req_memory",
    "user",
    "collection_logical_name",
    "start_time_us",
    "end_time_us",
    "avg_cpus",
    "avg_memory",
    "max_cpus",
    "max_memory",
    "cycles_per_instruction",
    "memory_accesses_per_instruction",
    "cpu_usage_distribution",
    "cluster",
    "vertical_scaling",
    "scheduler",
)
_WINDOW = ["cell", "job", "instance", "start_us", "end_us"]


class Google2019Sample:
    """Cells are numbered in the sample; they keep their number as a name."""

    name = "google-2019-sample"
    complete = False

    def shards(self, source: Path) -> Sequence[Shard]:
        return files_under(source, {"borg2019_sample": "joined rows"})

    def read(self, shard: Shard, books: Accountant) -> Iterator[tuple[str, pl.DataFrame]]:
        frames = list(parquet_batches(shard.path, _COLUMNS))
        if not frames:
            return
        frame = _canonical(pl.concat(frames))
        events = books.accept("events", frame)
        yield "events", events.unique(maintain_order=True)
        usage = books.accept("usage", frame, counts=False)
        yield "usage", usage.unique(subset=_WINDOW, keep="first", maintain_order=True)


def _canonical(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(
        cell=pl.col("cluster").cast(pl.String),
        job="collection_id",
        instance="instance_index",
        machine="machine_id",
        event=_name(pl.col("instance_events_type"), event_names(VERSION)),
        name="collection_logical_name",
        tier=tier_2019(pl.col("priority")),
        cpu_request="req_cpus",
        memory_request="req_memory",
        start_us="start_time_us",
        end_us="end_time_us",
        cpu_mean="avg_cpus",
        cpu_max="max_cpus",
        memory_mean="avg_memory",
        memory_max="max_memory",
        cpi="cycles_per_instruction",
        mapi="memory_accesses_per_instruction",
        cpu_p50=pl.col("cpu_usage_distribution").list.get(5, null_on_oob=True),
        cpu_p90=pl.col("cpu_usage_distribution").list.get(9, null_on_oob=True),
    )
