# SPDX-License-Identifier: Apache-2.0
"""What is wrong now and why, in the words of a person: the interpreted view of a live cluster.

Everything here is read from the same columns and waits that agents and forecasters see; it names
causes and decides nothing. Pods of one workload that suffer alike are one trouble, so the list
stays short where the trouble is large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import Cause, NodeTable, Phase, PodTable, Snapshot, Trouble
from pilothouse.observe.pending import Wait

MOST = 64  # in one snapshot; the rest would tell a reader nothing more
LATE_HEARTBEAT_MS = 8_000  # kubelets renew every 10 s: nearly one renewal was missed
LOST_HEARTBEAT_MS = 12_000  # two were missed: nobody answers there, long before Kubernetes says so
STOLEN_PERMILLE = 200  # a fifth of its processor time is withheld from the node
SATURATED_PERMILLE = 850
GROWTH_SECONDS = 900  # a pod that will be full within a quarter of an hour is growing too fast
SENTENCE = 300


def troubles(
    snapshot: Snapshot,
    waits: Iterable[tuple[Wait, str]],
    growth: NDArray[np.int32],
    stolen_permille: Mapping[str, int],
) -> tuple[Trouble, ...]:
    """Nodes first, then what waits, then pods that grow.

    ``waits`` come with the name of the workload each belongs to; ``growth`` is (pods,) MiB/min.
    """
    found = [
        *_of_nodes(snapshot.nodes, snapshot, stolen_permille),
        *_of_waits(waits),
        *_of_pods(snapshot.pods, snapshot, growth),
    ]
    return tuple(found[:MOST])


def _of_nodes(
    nodes: NodeTable, snapshot: Snapshot, stolen_permille: Mapping[str, int]
) -> Iterator[Trouble]:
    pressure = snapshot.interpreted.pressure_permille
    for row, name in enumerate(nodes.names.tolist()):
        late, stolen = int(nodes.heartbeat_lag_ms[row]), stolen_permille.get(name, 0)
        pods = int(nodes.pods[row])
        if not nodes.ready[row]:
            yield _node(Cause.NODE_LOSS, name, pods, f"not ready, {pods} pods on it")
        elif late >= LOST_HEARTBEAT_MS:
            sentence = f"no heartbeat, the next is {late / 1000:.1f} s late, {pods} pods on it"
            yield _node(Cause.NODE_LOSS, name, pods, sentence)
        elif late >= LATE_HEARTBEAT_MS:
            yield _node(Cause.DEGRADATION, name, pods, f"heartbeat {late / 1000:.1f} s late")
        elif stolen >= STOLEN_PERMILLE:
            sentence = f"{stolen / 10:.0f} % of its processor time is withheld"
            yield _node(Cause.DEGRADATION, name, pods, sentence)
        elif pressure[row] > SATURATED_PERMILLE:
            used, has = nodes.cpu_used_millicores[row], nodes.cpu_capacity_millicores[row]
            held, of = nodes.memory_used_mib[row], nodes.memory_capacity_mib[row]
            sentence = f"CPU {used} m of {has} m, memory {held} MiB of {of} MiB"
            yield _node(Cause.SATURATION, name, pods, sentence)


def _node(cause: Cause, name: str, pods: int, sentence: str) -> Trouble:
    return Trouble(cause=cause, kind="node", namespace="", name=name, count=pods, sentence=sentence)


def _of_waits(waits: Iterable[tuple[Wait, str]]) -> Iterator[Trouble]:
    groups: dict[tuple[Cause, str, str], list[Wait]] = {}
    for wait, owner in waits:
        groups.setdefault((wait.cause, wait.namespace, owner), []).append(wait)
    for (cause, namespace, owner), group in groups.items():
        yield Trouble(
            cause=cause,
            kind="workload",
            namespace=namespace,
            name=owner,
            count=len(group),
            sentence=group[0].sentence[:SENTENCE],
        )


def _of_pods(pods: PodTable, snapshot: Snapshot, growth: NDArray[np.int32]) -> Iterator[Trouble]:
    """Pods whose memory will reach its limit soon if it goes on like this, by workload."""
    limited = (pods.memory_limit_mib > 0) & (growth > 0) & (pods.phase == Phase.RUNNING)
    left = np.maximum(pods.memory_limit_mib - pods.memory_used_mib, 0)
    seconds = 60 * left / np.maximum(growth, 1)
    rows = np.flatnonzero(limited & (seconds <= GROWTH_SECONDS))
    for owner in np.unique(pods.workload[rows]).tolist():
        mine = rows[pods.workload[rows] == owner]
        worst = int(mine[np.argmin(seconds[mine])])
        ref = snapshot.workload_ref(owner)
        yield Trouble(
            cause=Cause.MEMORY_GROWTH,
            kind="workload",
            namespace=ref.namespace,
            name=ref.name,
            count=len(mine),
            sentence=f"{pods.names[worst]} holds {pods.memory_used_mib[worst]} MiB of "
            f"{pods.memory_limit_mib[worst]} MiB and grows by {growth[worst]} MiB/min",
        )
