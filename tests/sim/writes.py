# SPDX-License-Identifier: Apache-2.0
"""Builders of writes against a simulated cluster, as the tests say them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pilothouse.domain import Phase, Receipt, Ref, Snapshot, Verb, Write
from pilothouse.sim import Cluster, SimCluster
from pilothouse.sim.randomness import Dice


def do(cluster: Cluster, verb: Verb, ref: Ref, value: int, **more: Any) -> Receipt:
    """Execute one write on what the cluster shows under this name now."""
    snapshot = cluster.observe()
    row = snapshot.find(ref)
    table: Any = {
        "node": snapshot.nodes,
        "pod": snapshot.pods,
        "workload": snapshot.workloads,
        "namespace": snapshot.namespaces,
    }[ref.kind]
    uid = -1 if row is None else int(table.uid[row])
    fields: dict[str, Any] = {"original": 0, "intent": "d.0.0", "uid": uid} | more
    write = Write(verb=verb, target=ref, value=value, **fields)
    return cluster.execute(write, "tester")


def until(
    cluster: SimCluster, wanted: Callable[[Snapshot], bool], limit_seconds: int = 9_000
) -> Snapshot:
    """Advance until the snapshot is as wanted."""
    for _ in range(limit_seconds // 15):
        snapshot = cluster.observe()
        if wanted(snapshot):
            return snapshot
        cluster.advance(15)
    raise AssertionError("the cluster never got there")


def random_write(snapshot: Snapshot, dice: Dice) -> Write:
    """Any verb on any object, sometimes nonsense."""
    verb = list(Verb)[dice.between(0, len(Verb) - 1)]
    if verb in (Verb.TAINT, Verb.AVOID, Verb.DRAIN, Verb.POWER, Verb.FREQUENCY):
        row = dice.between(0, len(snapshot.nodes) - 1)
        ref, uid = snapshot.node_ref(row), int(snapshot.nodes.uid[row])
    elif verb is Verb.SCALE:
        row = dice.between(0, len(snapshot.workloads) - 1)
        ref, uid = snapshot.workload_ref(row), int(snapshot.workloads.uid[row])
    elif verb is Verb.GATE:
        row = dice.between(0, len(snapshot.namespaces) - 1)
        ref, uid = snapshot.namespace_ref(row), int(snapshot.namespaces.uid[row])
    else:
        row = dice.between(0, len(snapshot.pods) - 1)
        ref, uid = snapshot.pod_ref(row), int(snapshot.pods.uid[row])
    high = {
        Verb.TAINT: 1,
        Verb.AVOID: 1,
        Verb.DRAIN: 2,
        Verb.POWER: 1,
        Verb.FREQUENCY: 1000,
        Verb.SCALE: 12,
        Verb.GATE: 3,
        Verb.EVICT: 1,
        Verb.CPU_LIMIT: 3_000,
        Verb.MEMORY_REQUEST: 3_000,
    }[verb]
    avoid = ""
    if verb is Verb.SCALE and dice.between(0, 1):
        avoid = str(snapshot.nodes.names[dice.between(0, len(snapshot.nodes) - 1)])
    return Write(
        verb=verb,
        target=ref,
        uid=uid,
        value=dice.between(-1, high),
        original=0,
        avoid=avoid,
        intent=f"x.{dice.word()}",
    )


def running(snapshot: Snapshot, workload: str) -> list[int]:
    """Rows of the running pods of a workload, by its name."""
    wanted = [i for i, n in enumerate(snapshot.workloads.names) if n == workload]
    pods = snapshot.pods
    return [
        i for i in range(len(pods)) if pods.workload[i] in wanted and pods.phase[i] == Phase.RUNNING
    ]
