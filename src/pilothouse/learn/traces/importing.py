# SPDX-License-Identifier: Apache-2.0
"""Import a trace: shard by shard, resumable, with a repair report at the end.

Each source file becomes Parquet parts and one small record of what was done to it. A killed import
leaves complete parts and records behind; the next run redoes only what has no record. The dataset
counts from the moment its manifest is written.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from pilothouse.errors import TraceUnreadable, UnknownName
from pilothouse.home import folder
from pilothouse.learn import artifacts
from pilothouse.learn.artifacts import Manifest, Part
from pilothouse.learn.crew import HERE, Crew
from pilothouse.learn.traces.accounting import Accountant, Repairs
from pilothouse.learn.traces.alibaba import Alibaba2017, Alibaba2018
from pilothouse.learn.traces.google2011 import Google2011
from pilothouse.learn.traces.google2019 import Google2019
from pilothouse.learn.traces.google2019_sample import Google2019Sample
from pilothouse.learn.traces.journal import OwnJournal
from pilothouse.learn.traces.machineusage import MachineUsage
from pilothouse.learn.traces.openb import Openb
from pilothouse.learn.traces.source import Reader, Shard

# Every trace we can read, and why it is here.
READERS: tuple[Reader, ...] = (
    Google2019(),  # the reference layout; the synthetic generator writes it too
    Google2019Sample(),  # public and small: unseen cells
    Google2011(),  # all jobs of a month: history at submission, calibration
    MachineUsage(),  # demand per machine
    Alibaba2017(),  # another company's batch failures
    Alibaba2018(),
    Openb(),  # arrivals and sizes of a GPU cluster
    OwnJournal(),  # your own cluster
)
BAD_ROWS = 0.001
DONE = ".done"
ROW_GROUP = 128 * 1024  # small groups keep streaming readers' memory low


class ShardDone(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one source file."""

    source: Part
    parts: tuple[str, ...]
    rows: dict[str, int]
    repairs: dict[str, Any]


def reader_named(name: str) -> Reader:
    for reader in READERS:
        if reader.name == name:
            return reader
    raise UnknownName.among("trace", name, [reader.name for reader in READERS])


def import_trace(
    trace: str,
    source: Path,
    *,
    name: str | None = None,
    bad_rows: float = BAD_ROWS,
    crew: Crew = HERE,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Manifest:
    """Read every shard that has not been read yet, then write the manifest."""
    reader = reader_named(trace)
    # Whoever reads a file may have started in another folder.
    shards = reader.shards(source.absolute())
    target = folder("processed").absolute() / (name or trace)
    target.mkdir(parents=True, exist_ok=True)
    done: list[ShardDone] = []
    work = partial(_import_shard, reader, target, bad_rows)
    for shard in crew.map(work, shards):
        done.append(shard)
        progress(len(done), len(shards))
    _sweep(target, done)
    return _finish(reader, target, done, bad_rows)


def _import_shard(reader: Reader, target: Path, bad_rows: float, shard: Shard) -> ShardDone:
    source = artifacts.part_of(shard.path)
    record = target / DONE / f"{source.sha256[:16]}.json"
    known = _known(record, source, target)
    if known is not None:
        return known
    # From the first new part on the folder is neither the old dataset nor the new one.
    (target / artifacts.MANIFEST).unlink(missing_ok=True)
    books = Accountant(reader.name, shard.path, limit=bad_rows)
    rows: Counter[str] = Counter()
    parts: list[str] = []
    for number, (table, frame) in enumerate(reader.read(shard, books)):
        part = f"{table}/{source.sha256[:16]}-{number:05d}.parquet"
        if len(frame):
            _write_part(target / part, frame)
            parts.append(part)
            rows[table] += len(frame)
    if not books.repairs.read:
        raise TraceUnreadable(f"{shard.path} is empty. Remove it, or give the whole file.")
    result = ShardDone(
        source=source, parts=tuple(parts), rows=dict(rows), repairs=books.repairs.to_dict()
    )
    artifacts.write_atomically(record, artifacts.to_json(result))
    return result


def _known(record: Path, source: Part, target: Path) -> ShardDone | None:
    """The record of a shard that was imported before and is still whole."""
    if not record.is_file():
        return None
    try:
        done = msgspec.json.decode(record.read_bytes(), type=ShardDone)
    except msgspec.MsgspecError:
        return None  # an unreadable record is redone, which costs time and nothing else
    whole = all((target / part).is_file() for part in done.parts)
    return done if whole and done.source.sha256 == source.sha256 else None


def _write_part(path: Path, frame: pl.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    frame.write_parquet(partial, row_group_size=ROW_GROUP, compression="lz4")
    partial.replace(path)


def _sweep(target: Path, done: list[ShardDone]) -> None:
    """Parts of files that are no longer part of the source would be read with the others."""
    wanted = {part for shard in done for part in shard.parts}
    wanted |= {f"{DONE}/{shard.source.sha256[:16]}.json" for shard in done}
    (target / artifacts.MANIFEST).unlink(missing_ok=True)
    for path in target.rglob("*"):
        relative = str(path.relative_to(target))
        stray = path.suffix in (".parquet", ".partial", ".json") and relative not in wanted
        if path.is_file() and stray:
            path.unlink()


def _finish(reader: Reader, target: Path, done: list[ShardDone], bad_rows: float) -> Manifest:
    repairs = Repairs()
    rows: Counter[str] = Counter()
    for shard in done:
        repairs.add(Repairs.from_dict(shard.repairs))
        rows.update(shard.rows)
    facts = {
        "rows": dict(sorted(rows.items())),
        "complete": reader.complete,
        "repairs": repairs.to_dict(),
    }
    shutil.rmtree(target / "features", ignore_errors=True)
    return artifacts.seal(
        target,
        kind="dataset",
        track=reader.name,
        inputs=tuple(shard.source for shard in done),
        settings={"bad_rows": bad_rows},
        facts=facts,
    )


def table(dataset: Path, name: str) -> pl.LazyFrame:
    """One table of an imported dataset, lazily; empty where the trace has none."""
    from pilothouse.learn.traces.schema import TABLES

    files = sorted((dataset / name).glob("*.parquet"))
    if not files:
        return pl.LazyFrame(schema=TABLES[name])
    return pl.scan_parquet(files)
