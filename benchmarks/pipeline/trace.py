# SPDX-License-Identifier: Apache-2.0
"""A trace of any size in the imported layout: shards of windows and the events that go with them.

Rows lie in no order inside a shard, as in the published traces. Instances of a job start at
different times, some fail, some are killed, and some fail early and are scheduled again, so every
history and every label has something to tell.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pilothouse.learn import artifacts
from pilothouse.learn.traces.schema import TABLES

WINDOWS = 24  # per instance
STEP = 300_000_000
MINUTE = 60_000_000
SHARD_ROWS = 500_000


def make(dataset: Path, rows: int) -> None:
    """Write and seal the dataset; the same rows for the same size."""
    dice = np.random.default_rng(0)
    instances = rows // WINDOWS
    for table in ("usage", "events"):
        (dataset / table).mkdir(parents=True, exist_ok=True)
    per_shard = SHARD_ROWS // WINDOWS
    for shard, first in enumerate(range(0, instances, per_shard)):
        ids = np.arange(first, min(first + per_shard, instances))
        start = dice.integers(1, 500, len(ids)) * STEP
        request = dice.uniform(0.01, 0.1, len(ids)).astype(np.float32)
        usage = _usage(ids, start, request, dice)
        _write(usage, dataset / "usage" / f"{shard:05d}.parquet", "usage", dice)
        for number, events in enumerate(_events(ids, start, request, dice)):
            _write(events, dataset / "events" / f"{shard:05d}-{number}.parquet", "events", dice)
    facts = {"rows": {"usage": instances * WINDOWS}, "complete": True}
    artifacts.seal(dataset, kind="dataset", track="benchmark", inputs=(), settings={}, facts=facts)


def _who(ids: NDArray[np.int64]) -> dict[str, object]:
    return {"job": ids // 8 + 1, "instance": ids % 8, "machine": ids % 997 + 1}


def _usage(
    ids: NDArray[np.int64],
    start: NDArray[np.int64],
    request: NDArray[np.float32],
    dice: np.random.Generator,
) -> pl.DataFrame:
    each = np.repeat(ids, WINDOWS)
    begin = np.repeat(start, WINDOWS) + np.tile(np.arange(WINDOWS), len(ids)) * STEP
    most = np.repeat(request, WINDOWS)
    used = [most * dice.random(len(each), np.float32) for _ in range(2)]
    return pl.DataFrame(
        {
            **_who(each),
            "start_us": begin,
            "end_us": begin + STEP,
            "cpu_mean": used[0],
            "cpu_max": most,
            "memory_mean": used[1],
            "memory_max": most,
        }
    )


def _events(
    ids: NDArray[np.int64],
    start: NDArray[np.int64],
    request: NDArray[np.float32],
    dice: np.random.Generator,
) -> list[pl.DataFrame]:
    over = start + WINDOWS * STEP
    fate = dice.random(len(ids))
    end = np.select([fate < 0.1, fate < 0.15], ["FAIL", "KILL"], "FINISH")
    at = over + np.select([fate < 0.1, fate < 0.15], [MINUTE, 2 * MINUTE], 10**12)
    again = dice.random(len(ids)) < 0.1  # failed in its first windows and was scheduled again
    early = start + 4 * STEP + MINUTE
    lives = [
        (ids, start - 5, np.full(len(ids), "SUBMIT"), request),
        (ids, start - 1, np.full(len(ids), "SCHEDULE"), request),
        (ids, at, end, request),
        (ids[again], early[again], np.full(again.sum(), "FAIL"), request[again]),
        (ids[again], early[again] + MINUTE, np.full(again.sum(), "SCHEDULE"), request[again]),
    ]
    return [
        pl.DataFrame(
            {
                **_who(who),
                "time_us": time,
                "event": event,
                "user": [f"user-{job % 50}" for job in (who // 8 + 1).tolist()],
                "tier": np.ones(len(who), np.int8),
                "cpu_request": size,
                "memory_request": size,
            }
        )
        for who, time, event, size in lives
    ]


def _write(frame: pl.DataFrame, path: Path, table: str, dice: np.random.Generator) -> None:
    schema = TABLES[table]
    frame = frame[dice.permutation(len(frame))].with_columns(cell=pl.lit("a"))
    missing = [pl.lit(None, dtype=kind).alias(n) for n, kind in schema.items() if n not in frame]
    frame = frame.with_columns(missing).select(pl.col(n).cast(kind) for n, kind in schema.items())
    frame.write_parquet(path, row_group_size=131_072, compression="lz4")
