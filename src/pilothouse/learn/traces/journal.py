# SPDX-License-Identifier: Apache-2.0
"""A journal of our own runs, read as a trace: pods are instances, workloads jobs, nodes machines.

Each recorded snapshot closes a usage window since the one before. Events come from what changed: a
restart or a failed phase is a failure, a pod that went away finished (batch) or was evicted.
Cluster seconds become microseconds, shifted by one so that nothing happens "before the trace".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from pilothouse.domain import Phase, Power, Snapshot, WorkloadKind
from pilothouse.journal import JournalReader
from pilothouse.learn.traces.accounting import ROW, Accountant
from pilothouse.learn.traces.schema import SECOND_US, Event, MachineEvent
from pilothouse.learn.traces.source import Shard, files_under

CYCLES_PER_FRAME = 200


class OwnJournal:
    """``pilothouse traces import journal FILE.db``."""

    name = "journal"
    complete = True

    def shards(self, source: Path) -> Sequence[Shard]:
        return files_under(source, {".db": "journal"})

    def read(self, shard: Shard, books: Accountant) -> Iterator[tuple[str, pl.DataFrame]]:
        cycles = JournalReader(shard.path).cycles()
        for table, frame in frames_of(recorded.snapshot for recorded in cycles):
            yield table, books.accept(table, frame)


def frames_of(snapshots: Iterable[Snapshot]) -> Iterator[tuple[str, pl.DataFrame]]:
    """Canonical frames of a run of snapshots in order."""
    rows: dict[str, list[pl.DataFrame]] = {"events": [], "usage": [], "machines": []}
    before: Snapshot | None = None
    waiting = 0
    for snapshot in snapshots:
        for table, frame in _step(before, snapshot):
            rows[table].append(frame)
        before, waiting = snapshot, waiting + 1
        if waiting % CYCLES_PER_FRAME == 0:
            yield from _flush(rows)
    yield from _flush(rows)


def _flush(rows: dict[str, list[pl.DataFrame]]) -> Iterator[tuple[str, pl.DataFrame]]:
    for table, frames in rows.items():
        if frames:
            whole = pl.concat(frames, how="vertical_relaxed")
            frames.clear()
            yield table, whole.with_row_index(ROW, offset=1)


def _us(seconds: int | np.ndarray) -> np.ndarray:
    return np.asarray(seconds, np.int64) * SECOND_US + 1


def _step(before: Snapshot | None, now: Snapshot) -> Iterator[tuple[str, pl.DataFrame]]:
    pods = now.pods
    if before is None:
        nodes = now.nodes
        yield "machines", _machines(now, np.arange(len(nodes)), MachineEvent.ADD)
        yield "events", _events(now, np.arange(len(pods)), Event.SUBMIT, pods.created_seconds)
        bound = np.flatnonzero(pods.node >= 0)
        yield "events", _events(now, bound, Event.SCHEDULE, pods.created_seconds[bound])
        return
    place = np.searchsorted(before.pods.uid, pods.uid)
    place = np.minimum(place, max(len(before.pods) - 1, 0))
    known = before.pods.uid[place] == pods.uid if len(before.pods) else np.zeros(len(pods), bool)
    new = np.flatnonzero(~known)
    yield "events", _events(now, new, Event.SUBMIT, pods.created_seconds[new])
    was_bound = known & (before.pods.node[place] >= 0)
    bound = np.flatnonzero((pods.node >= 0) & ~was_bound)
    yield "events", _events(now, bound, Event.SCHEDULE, now.taken_seconds)
    failed = (pods.phase == Phase.FAILED) & known & (before.pods.phase[place] != Phase.FAILED)
    failed |= known & (pods.restarts > before.pods.restarts[place])
    rows = np.flatnonzero(failed)
    # Just before the snapshot: a container that is up again in it started after it had failed.
    fails = _events(now, rows, Event.FAIL, now.taken_seconds)
    yield "events", fails.with_columns(pl.col("time_us") - 1)
    # Up again, or on its way: a container in back-off is seen starting before it is seen running.
    up = np.flatnonzero(
        known
        & np.isin(pods.phase, (Phase.STARTING, Phase.RUNNING))
        & (failed | (before.pods.phase[place] == Phase.FAILED))
    )
    yield "events", _events(now, up, Event.SCHEDULE, now.taken_seconds)
    gone = np.flatnonzero(~np.isin(before.pods.uid, pods.uid))
    batch = before.workloads.kind[before.pods.workload[gone]] == WorkloadKind.BATCH
    for mask, event in ((batch, Event.FINISH), (~batch, Event.EVICT)):
        yield "events", _events(before, gone[mask], event, now.taken_seconds)
    running = np.flatnonzero((pods.phase == Phase.RUNNING) & (pods.node >= 0))
    yield "usage", _usage(now, running, before.taken_seconds)
    dead = np.flatnonzero(now.nodes.power == Power.DEAD)
    newly = dead[~np.isin(now.nodes.uid[dead], before.nodes.uid[before.nodes.power == Power.DEAD])]
    yield "machines", _machines(now, newly, MachineEvent.REMOVE)


def _events(
    snapshot: Snapshot, rows: np.ndarray, event: Event, seconds: int | np.ndarray
) -> pl.DataFrame:
    pods, owner = snapshot.pods, snapshot.pods.workload[rows]
    cpu, memory = _largest(snapshot)
    spaces = snapshot.namespaces.names[snapshot.workloads.namespace[owner]]
    node = pods.node[rows]
    machine = np.where(node >= 0, snapshot.nodes.uid[np.maximum(node, 0)], 0)
    return pl.DataFrame(
        {
            "cell": [snapshot.cluster] * len(rows),
            "job": snapshot.workloads.uid[owner],
            "instance": pods.uid[rows],
            "time_us": np.broadcast_to(_us(seconds), len(rows)),
            "event": [str(event)] * len(rows),
            "machine": machine,
            "user": [str(s) for s in spaces],
            "name": [str(n) for n in snapshot.workloads.names[owner]],
            "tier": np.where(snapshot.workloads.kind[owner] == WorkloadKind.SERVICE, 3, 0),
            "cpu_request": pods.cpu_request_millicores[rows] / cpu,
            "memory_request": np.where(
                pods.memory_limit_mib[rows] > 0,
                pods.memory_limit_mib[rows],
                pods.memory_request_mib[rows],
            )
            / memory,
        }
    )


def _usage(snapshot: Snapshot, rows: np.ndarray, since: int) -> pl.DataFrame:
    pods = snapshot.pods
    cpu, memory = _largest(snapshot)
    used_cpu, used_memory = (
        pods.cpu_used_millicores[rows] / cpu,
        pods.memory_used_mib[rows] / memory,
    )
    # A pod made since the last snapshot has no window before it was: its age would be too high.
    started = np.clip(pods.created_seconds[rows], since, snapshot.taken_seconds - 1)
    return pl.DataFrame(
        {
            "cell": [snapshot.cluster] * len(rows),
            "job": snapshot.workloads.uid[pods.workload[rows]],
            "instance": pods.uid[rows],
            "machine": snapshot.nodes.uid[pods.node[rows]],
            "start_us": _us(started),
            "end_us": np.broadcast_to(_us(snapshot.taken_seconds), len(rows)),
            "cpu_mean": used_cpu,
            "cpu_max": used_cpu,
            "memory_mean": used_memory,
            "memory_max": pods.memory_peak_mib[rows] / memory,
        }
    )


def _machines(snapshot: Snapshot, rows: np.ndarray, event: MachineEvent) -> pl.DataFrame:
    cpu, memory = _largest(snapshot)
    nodes = snapshot.nodes
    return pl.DataFrame(
        {
            "cell": [snapshot.cluster] * len(rows),
            "machine": nodes.uid[rows],
            "time_us": np.broadcast_to(_us(snapshot.taken_seconds), len(rows)),
            "event": [str(event)] * len(rows),
            "cpu_capacity": nodes.cpu_capacity_millicores[rows] / cpu,
            "memory_capacity": nodes.memory_capacity_mib[rows] / memory,
        }
    )


def _largest(snapshot: Snapshot) -> tuple[float, float]:
    nodes = snapshot.nodes
    if not len(nodes):
        return 1.0, 1.0
    return float(nodes.cpu_capacity_millicores.max()), float(nodes.memory_capacity_mib.max())
