# SPDX-License-Identifier: Apache-2.0
"""What an opened gate lets go, and how fast."""

from __future__ import annotations

from pilothouse.domain import Gate, PendingCause, Verb
from pilothouse.scenarios import load
from pilothouse.sim import SimCluster
from pilothouse.sim.pods import RELEASES_PER_TICK
from tests.sim.writes import do


def held(cluster: SimCluster) -> list[int]:
    pods = cluster.observe().pods
    return pods.uid[pods.pending_cause == PendingCause.GATED].tolist()


def test_opened_gate_lets_the_oldest_go_first_and_a_few_at_a_time():
    cluster = SimCluster(load("queue-surge"), seed=1)
    snapshot = cluster.observe()
    ref = snapshot.namespace_ref(snapshot.namespaces.names.tolist().index("data"))
    do(cluster, Verb.GATE, ref, Gate.QUEUE)
    while len(held(cluster)) < 10:
        cluster.advance(60)
    before = held(cluster)
    do(cluster, Verb.GATE, ref, Gate.OPEN)
    for ticks in range(1, 4):
        cluster.advance(5)
        assert held(cluster) == before[ticks * RELEASES_PER_TICK :]


def test_gate_shut_again_keeps_what_it_still_holds():
    cluster = SimCluster(load("queue-surge"), seed=1)
    snapshot = cluster.observe()
    ref = snapshot.namespace_ref(snapshot.namespaces.names.tolist().index("data"))
    do(cluster, Verb.GATE, ref, Gate.QUEUE)
    while len(held(cluster)) < 10:
        cluster.advance(60)
    do(cluster, Verb.GATE, ref, Gate.OPEN)
    cluster.advance(5)
    left = held(cluster)
    do(cluster, Verb.GATE, ref, Gate.QUEUE)
    cluster.advance(30)
    assert set(left) <= set(held(cluster))


def test_held_pod_that_was_withdrawn_leaves_nothing_for_an_opened_gate():
    """Its slot is empty then and belongs to no namespace."""
    cluster = SimCluster(load("unschedulable-selector"), seed=1)
    snapshot = cluster.observe()
    ref = snapshot.namespace_ref(snapshot.namespaces.names.tolist().index("research"))
    do(cluster, Verb.GATE, ref, Gate.QUEUE)
    row = snapshot.workloads.names.tolist().index("pinned")

    def pinned() -> int:
        return int((cluster.observe().pods.workload == row).sum())

    while not pinned():
        cluster.advance(60)
    while pinned():
        cluster.advance(5)
    do(cluster, Verb.GATE, ref, Gate.OPEN)
    cluster.advance(60)
