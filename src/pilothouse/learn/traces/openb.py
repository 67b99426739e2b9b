# SPDX-License-Identifier: Apache-2.0
"""Alibaba's 2023 GPU cluster ("openb"): pods with requests and lifetimes, nodes with capacities.

There is no usage, and the phase is the last one seen, so a pod's deletion is an end and a phase of
Failed is a failure at that time. Good for arrivals and sizes; not for failure forecasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from pilothouse.learn.traces.accounting import ROW, Accountant
from pilothouse.learn.traces.schema import SECOND_US, Event, MachineEvent
from pilothouse.learn.traces.source import Shard, csv_batches, files_under, words

_PODS = words(
    "name cpu_milli memory_mib num_gpu gpu_milli gpu_spec qos pod_phase creation_time "
    "deletion_time scheduled_time"
)
_NODES = words("sn cpu_milli memory_mib gpu model")
_ENDS = {"Succeeded": str(Event.FINISH), "Failed": str(Event.FAIL), "Running": str(Event.KILL)}
_TIER = {"BE": 0, "Burstable": 1, "LS": 3, "Guaranteed": 3}
LARGEST_CORES, LARGEST_MIB = 128_000.0, 1_048_576.0  # of the published node list


class Openb:
    """Each pod is a job of one instance."""

    name = "openb"
    complete = True

    def shards(self, source: Path) -> Sequence[Shard]:
        return files_under(source, {"pod_list": "pods", "node_list": "nodes"})

    def read(self, shard: Shard, books: Accountant) -> Iterator[tuple[str, pl.DataFrame]]:
        if shard.holds == "nodes":
            for frame in csv_batches(shard.path, _NODES, header=True):
                yield "machines", books.accept("machines", _nodes(frame))
            return
        for frame in csv_batches(shard.path, _PODS, header=True):
            pods = _pods(frame)
            yield "events", books.accept("events", pods)
            bound = pods.filter(pl.col("scheduled").is_not_null()).with_columns(
                time_us="scheduled", event=pl.lit(str(Event.SCHEDULE))
            )
            yield "events", books.accept("events", bound, counts=False)
            ended = pods.filter(pl.col("deleted").is_not_null()).with_columns(
                time_us="deleted",
                event=pl.col("phase").replace_strict(
                    _ENDS, default=str(Event.KILL), return_dtype=pl.String
                ),
            )
            yield "events", books.accept("events", ended, counts=False)


def _nodes(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(
        pl.col(ROW),
        cell=pl.lit("openb"),
        machine=pl.col("sn").str.extract(r"(\d+)$", 1),
        time_us=pl.lit(0),
        event=pl.lit(str(MachineEvent.ADD)),
        cpu_capacity=pl.col("cpu_milli").cast(pl.Float32, strict=False) / LARGEST_CORES,
        memory_capacity=pl.col("memory_mib").cast(pl.Float32, strict=False) / LARGEST_MIB,
    )


def _pods(frame: pl.DataFrame) -> pl.DataFrame:
    def seconds(column: str) -> pl.Expr:
        return pl.col(column).cast(pl.Float64, strict=False).cast(pl.Int64) * SECOND_US

    return frame.select(
        pl.col(ROW),
        cell=pl.lit("openb"),
        job=pl.col("name").str.extract(r"(\d+)$", 1),
        instance=pl.lit(0),
        time_us=seconds("creation_time"),
        event=pl.lit(str(Event.SUBMIT)),
        scheduled=seconds("scheduled_time"),
        deleted=seconds("deletion_time"),
        phase=pl.col("pod_phase"),
        tier=pl.col("qos").replace_strict(_TIER, default=None, return_dtype=pl.Int8),
        cpu_request=pl.col("cpu_milli").cast(pl.Float32, strict=False) / LARGEST_CORES,
        memory_request=pl.col("memory_mib").cast(pl.Float32, strict=False) / LARGEST_MIB,
    )
