# SPDX-License-Identifier: Apache-2.0
"""A history read as a trace and the same history seen live give the same features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pilothouse.features.core import CORE, INDEX
from pilothouse.features.live import LiveHistory
from pilothouse.learn import artifacts
from pilothouse.learn.dataset import pasts, windows
from pilothouse.learn.dataset.windows import DatasetSettings
from pilothouse.learn.traces.accounting import Accountant
from pilothouse.learn.traces.journal import frames_of
from pilothouse.scenarios import load
from pilothouse.sim.cluster import SimCluster

# Peaks are of a sample here and of the container's life there; the past is counted from the start
# of the process and machines lost are told by events of instances in one, of nodes in the other.
COMPARED = [
    name
    for name in CORE
    if name.startswith(("cpu_", "memory_", "windows", "tier")) and "peak" not in name
]


def test_live_and_trace_features_agree(tmp_path: Path) -> None:
    pytest.importorskip("polars")
    cluster = SimCluster(load("harbor"), seed=2)
    live = LiveHistory(window_seconds=15)  # one sample is one window, as the journal records it
    seen = []
    for _ in range(12):
        cluster.advance(15)
        seen.append(cluster.observe())
        live.see(seen[-1])
    dataset = tmp_path / "journal"
    books = Accountant("journal", tmp_path / "run.db", limit=0)
    parts: dict[str, list[pl.DataFrame]] = {}
    for table, frame in frames_of(seen):
        parts.setdefault(table, []).append(books.accept(table, frame))
    for table, frames in parts.items():
        (dataset / table).mkdir(parents=True)
        pl.concat(frames).write_parquet(dataset / table / "0.parquet")
    facts = {"rows": {"usage": sum(map(len, parts["usage"]))}, "complete": False}
    artifacts.seal(dataset, kind="dataset", track="journal", inputs=(), settings={}, facts=facts)
    last = seen[-1].taken_seconds * 1_000_000 + 1
    from_trace = _rows_at(dataset, last)
    from_live = live.pod_features()
    pods = seen[-1].pods
    compared = 0
    for row, uid in enumerate(pods.uid.tolist()):
        if uid not in from_trace:
            continue
        for name in COMPARED:
            left, right = from_live[row, INDEX[name]], from_trace[uid][name]
            np.testing.assert_allclose(left, right, rtol=2e-3, atol=2e-4, err_msg=f"{uid} {name}")
        compared += 1

    assert compared > 50


def _rows_at(dataset: Path, end_us: int) -> dict[int, dict[str, float]]:
    """Trace features of the newest windows, labels aside."""
    events, jobs = pl.concat(pasts.event_frames(dataset)), pasts.jobs_of(dataset)
    frame = pl.read_parquet(sorted((dataset / "usage").glob("*.parquet")))
    # One later event per instance, so that the newest rows have a known future and are kept.
    marks = (
        events.group_by("cell", "job", "instance")
        .first()
        .with_columns(
            time_us=pl.lit(end_us + 1, pl.Int64),
            event=pl.lit("UPDATE_RUNNING").cast(events["event"].dtype),
        )
    )
    events = pl.concat([events, marks.select(events.columns)])
    past = pasts.Pasts.from_events([events], jobs, complete=False)
    made = windows.features_of(frame, events, past, DatasetSettings(window_seconds=15))
    newest = made.filter(pl.col("end_us") == end_us)
    return {row["instance"]: row for row in newest.iter_rows(named=True)}
