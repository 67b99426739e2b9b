# SPDX-License-Identifier: Apache-2.0
"""CPU and memory per machine in five minute slots, a series derived from Google 2019.

The published values are scaled integers of a share; the factor only sets the unit, and forecasts
are judged relative to rivals in the same unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from pilothouse.learn.traces.accounting import Accountant
from pilothouse.learn.traces.schema import SECOND_US
from pilothouse.learn.traces.source import Shard, files_under, parquet_batches

SLOT_SECONDS = 300
SCALE = 1e9


class MachineUsage:
    """One cell, one row per machine and slot."""

    name = "machine-usage"
    complete = True

    def shards(self, source: Path) -> Sequence[Shard]:
        return files_under(source, {"machine_usage": "machine usage"})

    def read(self, shard: Shard, books: Accountant) -> Iterator[tuple[str, pl.DataFrame]]:
        columns = ["slot", "machine_id", "avgcpu", "avgmem", "maxcpu", "maxmem"]
        slot = pl.col("slot").cast(pl.Int64, strict=False) * SLOT_SECONDS * SECOND_US
        for frame in parquet_batches(shard.path, columns):
            canonical = frame.with_columns(
                cell=pl.lit("2019"),
                machine="machine_id",
                start_us=slot,
                end_us=slot + SLOT_SECONDS * SECOND_US,
                cpu_mean=pl.col("avgcpu") / SCALE,
                cpu_max=pl.col("maxcpu") / SCALE,
                memory_mean=pl.col("avgmem") / SCALE,
                memory_max=pl.col("maxmem") / SCALE,
            )
            yield "machine_usage", books.accept("machine_usage", canonical)
