# SPDX-License-Identifier: Apache-2.0
"""One cluster: its log, its snapshot, its copies."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from pilothouse.domain import Phase, Ref, Status, Verb, Write, columns
from pilothouse.errors import InvalidSetting
from pilothouse.scenarios import load
from pilothouse.sim import SimCluster
from tests.sim.writes import do


@pytest.fixture
def cluster() -> SimCluster:
    return SimCluster(load("harbor"), seed=0)


def test_write_for_another_uid_hits_nobody(cluster):
    snapshot = cluster.observe()
    receipt = do(cluster, Verb.TAINT, snapshot.node_ref(0), 1, uid=999)
    assert receipt.status is Status.FAILED
    assert not cluster.observe().nodes.tainted.any()


@pytest.mark.parametrize(
    "ref",
    [
        Ref("sim", "node", "", "no-such"),
        Ref("other", "node", "", "worker-0"),
        Ref("sim", "pod", "shop", "cart-zzzz"),
    ],
)
def test_unknown_object_fails_and_is_logged(cluster, ref):
    write = Write(verb=Verb.TAINT, target=ref, uid=1, value=1, original=0, intent="a.0.0")
    assert cluster.execute(write, "x").status is Status.FAILED
    assert [c.status for c in cluster.log()] == ["failed"]


def test_write_is_refused_where_the_value_is_no_longer_the_expected_one(cluster):
    ref = cluster.observe().node_ref(0)
    receipt = do(cluster, Verb.TAINT, ref, 0, expect=1)
    assert receipt.status is Status.REFUSED
    assert receipt.detail == "conflict: expected 1, found 0"


def test_log_is_a_witness_and_never_dedupes(cluster):
    ref = cluster.observe().node_ref(2)
    for _ in range(2):
        do(cluster, Verb.TAINT, ref, 1, intent="d.1.0")
    commands = cluster.log()
    assert [c.intent for c in commands] == ["d.1.0", "d.1.0"]
    assert [c.original for c in commands] == [0, 1]
    found = cluster.find("d.1.0")
    assert found is not None
    assert found.status is Status.DONE
    assert cluster.find("d.9.9") is None


def test_command_carries_what_an_outside_checker_needs(cluster):
    snapshot = cluster.observe()
    row = next(i for i in range(len(snapshot.pods)) if snapshot.pods.workload[i] == 0)
    do(cluster, Verb.EVICT, snapshot.pod_ref(row), 1)
    command = cluster.log()[0]
    assert (command.namespace, command.workload, command.protected) == ("kube-system", "dns", 1)
    assert command.priority == 2_000_000_000
    assert command.nodes == len(snapshot.nodes)
    assert command.pods == len(snapshot.pods)


def test_snapshot_rows_are_ordered_by_uid_and_columns_are_integers(cluster):
    cluster.advance(900)
    snapshot = cluster.observe()
    for table in (snapshot.nodes, snapshot.pods, snapshot.workloads, snapshot.namespaces):
        assert (np.diff(table.uid) > 0).all()
        for name, column in columns(table).items():
            assert column.dtype == np.int32, name
            assert len(column) == len(table)
    assert snapshot.pods.node.max() < len(snapshot.nodes)


def test_every_reference_of_a_snapshot_finds_its_row(cluster):
    snapshot = cluster.observe()
    assert all(snapshot.find(snapshot.pod_ref(i)) == i for i in range(len(snapshot.pods)))
    assert all(snapshot.find(snapshot.node_ref(i)) == i for i in range(len(snapshot.nodes)))


def test_snapshot_does_not_change_under_its_reader(cluster):
    snapshot = cluster.observe()
    before = {k: v.copy() for k, v in columns(snapshot.pods).items()}
    names = snapshot.pods.names.tolist()
    cluster.advance(600)
    assert all(np.array_equal(before[k], v) for k, v in columns(snapshot.pods).items())
    assert snapshot.pods.names.tolist() == names


def test_usage_is_as_old_as_it_says(cluster):
    cluster.advance(300)
    for _ in range(6):
        cluster.advance(5)
        age = cluster.observe().nodes.age_seconds
        assert set(age.tolist()) <= {0, 5, 10}


def test_default_world_has_protected_managed_and_unmanaged_namespaces(cluster):
    snapshot = cluster.observe()
    spaces = snapshot.namespaces
    assert spaces.protected[spaces.names.tolist().index("kube-system")] == 1
    assert 2 <= int(spaces.managed.sum()) < len(spaces)
    system = snapshot.workloads.namespace[snapshot.pods.workload] == 0
    assert not snapshot.pods.evictable[system].any()


def test_saved_cluster_continues_identically(cluster):
    cluster.advance(1_500)
    do(cluster, Verb.SCALE, cluster.observe().workload_ref(5), 9)
    do(cluster, Verb.DRAIN, cluster.observe().node_ref(3), 1)
    twin = SimCluster.load(cluster.save())
    assert twin.log() == cluster.log()
    for _ in range(20):
        cluster.advance(300)
        twin.advance(300)
        assert twin.toll() == cluster.toll()
        ours, theirs = cluster.observe(), twin.observe()
        assert ours.pods.names.tolist() == theirs.pods.names.tolist()
        for name, column in columns(ours.pods).items():
            assert np.array_equal(column, getattr(theirs.pods, name)), name


def test_fork_has_the_same_future_and_an_empty_log(cluster):
    cluster.advance(600)
    do(cluster, Verb.TAINT, cluster.observe().node_ref(0), 1)
    fork = cluster.fork()
    assert fork.log() == []
    for arm in (cluster, fork):
        arm.advance(900)
    assert fork.toll() == cluster.toll()


def test_clock_advances_in_ticks_and_never_back(cluster):
    with pytest.raises(InvalidSetting, match="multiples of 5 s, but got 7"):
        cluster.advance(7)
    cluster.advance_to(100)
    cluster.advance_to(50)
    assert cluster.clock_seconds == 100


def test_dead_node_is_reported_late_and_its_pods_replaced_after_the_toleration():
    cluster = SimCluster(load("sudden-node-loss"), seed=1)
    while not (cluster.observe().nodes.power == 4).any():
        cluster.advance(5)
    row = int(np.flatnonzero(cluster.observe().nodes.power == 4)[0])
    lost = cluster.observe()
    on_node = int((lost.pods.node == row).sum())
    assert lost.nodes.ready[row] == 1  # nobody noticed yet
    assert (lost.pods.phase[lost.pods.node == row] == Phase.FAILED).all()
    cluster.advance(45)
    assert cluster.observe().nodes.ready[row] == 0
    cluster.advance(280)
    assert int((cluster.observe().pods.node == row).sum()) == on_node
    cluster.advance(60)
    assert int((cluster.observe().pods.node == row).sum()) == 0


def test_log_travels_as_plain_data(cluster):
    do(cluster, Verb.TAINT, cluster.observe().node_ref(0), 1)
    line = msgspec.json.encode(cluster.log()[0])
    assert msgspec.json.decode(line)["verb"] == "taint"
