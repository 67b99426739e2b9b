# SPDX-License-Identifier: Apache-2.0
"""The recent past of a cluster, from Prometheus, so that a forecaster need not start blind.

What is known of the past is usage; which objects there were is taken from now, without the pods
that are younger. Heartbeats, conditions and restarts of then are not known and not made up: they
are shown as they are now, or calm. Such snapshots warm a forecaster up. They are never decided
from and never recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from pilothouse.clients.metrics import Sample
from pilothouse.clients.prometheus import Answer, Prometheus
from pilothouse.domain import PodTable, Snapshot
from pilothouse.observe.usage import node_of, pod_of, sample
from pilothouse.settings import ObserveSettings

STEP_SECONDS = 15
K = TypeVar("K")
Series = dict[K, list[Sample | None]]  # one sample per step, oldest first


async def fetch(
    prometheus: Prometheus, settings: ObserveSettings, *, end: float
) -> tuple[list[float], Series[str], Series[tuple[str, str]]]:
    """When, and what nodes and pods used then."""
    begin = end - settings.backfill_seconds
    steps = [begin + i * STEP_SECONDS for i in range(settings.backfill_seconds // STEP_SECONDS)]

    async def ask(query: str) -> Answer:
        return await prometheus.history(query, begin=begin, end=end, step_seconds=STEP_SECONDS)

    try:
        node_cpu, node_memory, pod_cpu, pod_memory = await asyncio.gather(
            ask(settings.node_cpu_query),
            ask(settings.node_memory_query),
            ask(settings.pod_cpu_query),
            ask(settings.pod_memory_query),
        )
    finally:
        await prometheus.close()
    nodes = _series(node_cpu, node_memory, node_of, steps)
    return steps, nodes, _series(pod_cpu, pod_memory, pod_of, steps)


def _series(
    cpu: Answer, memory: Answer, key: Callable[[Mapping[str, str]], K], steps: Sequence[float]
) -> Series[K]:
    held = {key(row.labels): dict(row.points) for row in memory.rows}
    found: Series[K] = {}
    for row in cpu.rows:
        other, mine = held.get(key(row.labels), {}), dict(row.points)
        found[key(row.labels)] = [
            sample((at, mine[at]), (at, other[at])) if at in mine and at in other else None
            for at in _nearest(steps, mine)
        ]
    return found


def _nearest(steps: Sequence[float], points: Mapping[float, float]) -> list[float]:
    """Prometheus rounds the times it was asked for to milliseconds."""
    known = {round(at, 1): at for at in points}
    return [known.get(round(step, 1), step) for step in steps]


def past(
    now: Snapshot,
    steps: Sequence[int],
    nodes: Series[str],
    pods: Series[tuple[str, str]],
) -> list[Snapshot]:
    """Snapshots at ``steps`` (cluster clock). Steps of which no node's use is known are left out:
    a Prometheus that is younger than asked for has nothing to tell about them."""
    names = [str(name) for name in now.nodes.names]
    refs = [now.pod_ref(row) for row in range(len(now.pods))]
    keys = [(ref.namespace, ref.name) for ref in refs]
    made = []
    for index, at in enumerate(steps):
        known = [nodes.get(name, [None] * len(steps))[index] for name in names]
        if at < 0 or at >= now.taken_seconds or not any(known):
            continue
        used = [pods.get(key, [None] * len(steps))[index] for key in keys]
        made.append(_at(now, at, known, used))
    return made


def _at(
    now: Snapshot, at: int, nodes: Sequence[Sample | None], pods: Sequence[Sample | None]
) -> Snapshot:
    cpu, memory, age = (column.copy() for column in _usage_of(now))
    for row, found in enumerate(nodes):
        if found is not None:
            cpu[row], memory[row], age[row] = found.cpu_millicores, found.memory_mib, 0
    lag = np.zeros_like(now.nodes.heartbeat_lag_ms)
    table = replace(
        now.nodes,
        cpu_used_millicores=cpu,
        memory_used_mib=memory,
        age_seconds=age,
        heartbeat_lag_ms=lag,
    )
    there = now.pods.created_seconds <= at
    then = _rows(_used(now.pods, pods), there)
    return replace(
        now,
        taken_seconds=at,
        nodes=table,
        pods=then,
        workloads=replace(now.workloads, load_permille=_load(now, then)),
        troubles=(),
        reactions=(),
        readings=(),
    )


def _usage_of(now: Snapshot) -> tuple[Any, Any, Any]:
    return now.nodes.cpu_used_millicores, now.nodes.memory_used_mib, now.nodes.age_seconds


def _used(pods: PodTable, samples: Sequence[Sample | None]) -> PodTable:
    cpu, memory = pods.cpu_used_millicores.copy(), pods.memory_used_mib.copy()
    for row, found in enumerate(samples):
        if found is not None:
            cpu[row], memory[row] = found.cpu_millicores, found.memory_mib
    return replace(pods, cpu_used_millicores=cpu, memory_used_mib=memory)


def _rows(pods: PodTable, keep: np.ndarray[Any, np.dtype[np.bool_]]) -> PodTable:
    return PodTable(**{f.name: getattr(pods, f.name)[keep] for f in fields(PodTable)})


def _load(now: Snapshot, pods: PodTable) -> np.ndarray[Any, np.dtype[np.int32]]:
    count = len(now.workloads)
    used = np.bincount(pods.workload, weights=pods.cpu_used_millicores, minlength=count)
    asked = np.bincount(pods.workload, weights=pods.cpu_request_millicores, minlength=count)
    load: np.ndarray[Any, np.dtype[np.int32]] = np.where(
        asked > 0, 1000 * used // np.maximum(asked, 1), 0
    ).astype(np.int32)
    return load
