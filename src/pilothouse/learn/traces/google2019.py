# SPDX-License-Identifier: Apache-2.0
"""Google ClusterData 2019, the official tables, as JSON lines or Parquet shards.

One folder per cell (``a`` to ``h``) or one folder in all; a file's name says which table it holds.
BigQuery exports write integers as strings in JSON, and both spellings are read. Rows are taken as
they are published: nothing is filled in from a neighboring event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import polars as pl

from pilothouse.learn.traces.accounting import ROW, Accountant
from pilothouse.learn.traces.schema import (
    MACHINE_CODES,
    event_names,
    tier_2019,
)
from pilothouse.learn.traces.source import BATCH_ROWS, Shard, files_under, lines, parquet_batches

VERSION = "google-2019"


class _Resources(msgspec.Struct):
    cpus: float | None = None
    memory: float | None = None


class _InstanceEvent(msgspec.Struct):
    time: int
    type: int
    collection_id: int
    instance_index: int
    priority: int | None = None
    scheduling_class: int | None = None
    machine_id: int | None = None
    resource_request: _Resources | None = None


class _CollectionEvent(msgspec.Struct):
    time: int
    type: int
    collection_id: int
    priority: int | None = None
    scheduling_class: int | None = None
    user: str | None = None
    collection_logical_name: str | None = None


class _InstanceUsage(msgspec.Struct):
    start_time: int
    end_time: int
    collection_id: int
    instance_index: int
    machine_id: int | None = None
    average_usage: _Resources | None = None
    maximum_usage: _Resources | None = None
    cycles_per_instruction: float | None = None
    memory_accesses_per_instruction: float | None = None
    cpu_usage_distribution: list[float] | None = None


class _MachineEvent(msgspec.Struct):
    time: int
    machine_id: int
    type: int
    capacity: _Resources | None = None


_LAYOUTS: dict[str, type[msgspec.Struct]] = {
    "instance_events": _InstanceEvent,
    "collection_events": _CollectionEvent,
    "instance_usage": _InstanceUsage,
    "machine_events": _MachineEvent,
}
_TABLE = {
    "instance_events": "events",
    "collection_events": "jobs",
    "instance_usage": "usage",
    "machine_events": "machines",
}


class Google2019:
    """The official layout."""

    name = "google-2019"
    complete = True

    def shards(self, source: Path) -> Sequence[Shard]:
        return files_under(source, {name: name for name in _LAYOUTS})

    def read(self, shard: Shard, books: Accountant) -> Iterator[tuple[str, pl.DataFrame]]:
        cell = _cell(shard.path)
        for frame in _batches(shard, books):
            table = _TABLE[shard.holds]
            yield table, books.accept(table, _canonical(shard.holds, frame, cell))


def _cell(path: Path) -> str:
    """The folder's name where it is a single letter, as Google names cells; "a" otherwise."""
    return next(
        (part for part in reversed(path.parts[:-1]) if len(part) == 1 and part.isalpha()), "a"
    )


def _batches(shard: Shard, books: Accountant) -> Iterator[pl.DataFrame]:
    layout = _LAYOUTS[shard.holds]
    if ".parquet" in shard.path.suffixes:
        wanted = [f.name for f in msgspec.structs.fields(layout)]
        for frame in parquet_batches(shard.path, wanted):
            yield _flatten(frame)
        return
    decoder = msgspec.json.Decoder(layout, strict=False)
    numbers: list[int] = []
    rows: list[msgspec.Struct] = []
    for number, line in lines(shard.path, books):
        try:
            rows.append(decoder.decode(line))
        except msgspec.MsgspecError as error:
            books.unreadable(number, f"not a row of {shard.holds} ({str(error).split(' - ')[0]})")
            continue
        numbers.append(number)
        if len(rows) == BATCH_ROWS:
            yield _to_frame(layout, rows, numbers)
            numbers, rows = [], []
    if rows:
        yield _to_frame(layout, rows, numbers)


def _to_frame(
    layout: type[msgspec.Struct], rows: list[msgspec.Struct], numbers: list[int]
) -> pl.DataFrame:
    columns: dict[str, list[object]] = {}
    for item in msgspec.structs.fields(layout):
        values = [getattr(row, item.name) for row in rows]
        if item.name in ("resource_request", "capacity", "average_usage", "maximum_usage"):
            columns[f"{item.name}.cpus"] = [v.cpus if v else None for v in values]
            columns[f"{item.name}.memory"] = [v.memory if v else None for v in values]
        else:
            columns[item.name] = values
    schema = {"cpu_usage_distribution": pl.List(pl.Float32)}
    frame = pl.DataFrame(columns, schema_overrides=schema, strict=False)
    return frame.with_columns(pl.Series(ROW, numbers, dtype=pl.UInt32))


def _flatten(frame: pl.DataFrame) -> pl.DataFrame:
    nested = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Struct)]
    return frame.with_columns(
        pl.col(name).struct.field(part).alias(f"{name}.{part}")
        for name in nested
        for part in ("cpus", "memory")
    ).drop(nested)


def _canonical(holds: str, frame: pl.DataFrame, cell: str) -> pl.DataFrame:
    frame = frame.with_columns(cell=pl.lit(cell))
    if holds == "machine_events":
        names = {i: str(e) for i, e in enumerate(MACHINE_CODES[VERSION]) if e is not None}
        return frame.rename({"time": "time_us", "machine_id": "machine"}).with_columns(
            event=_name(pl.col("type"), names),
            cpu_capacity=pl.col("capacity.cpus"),
            memory_capacity=pl.col("capacity.memory"),
        )
    if holds == "instance_usage":
        return frame.with_columns(
            job="collection_id",
            instance="instance_index",
            machine="machine_id",
            start_us="start_time",
            end_us="end_time",
            cpu_mean="average_usage.cpus",
            memory_mean="average_usage.memory",
            cpu_max="maximum_usage.cpus",
            memory_max="maximum_usage.memory",
            cpi="cycles_per_instruction",
            mapi="memory_accesses_per_instruction",
            cpu_p50=pl.col("cpu_usage_distribution").list.get(5, null_on_oob=True),
            cpu_p90=pl.col("cpu_usage_distribution").list.get(9, null_on_oob=True),
        )
    frame = frame.with_columns(
        job="collection_id",
        time_us="time",
        event=_name(pl.col("type"), event_names(VERSION)),
        tier=tier_2019(pl.col("priority").cast(pl.Int32, strict=False)),
    )
    if holds == "collection_events":
        return frame.rename({"collection_logical_name": "name"})
    return frame.with_columns(
        instance="instance_index",
        machine="machine_id",
        cpu_request="resource_request.cpus",
        memory_request="resource_request.memory",
    )


def _name(code: pl.Expr, names: dict[int, str]) -> pl.Expr:
    """A number outside the version's list becomes missing, and so a counted bad row."""
    return code.cast(pl.Int64, strict=False).replace_strict(
        names, default=None, return_dtype=pl.String
    )
