# SPDX-License-Identifier: Apache-2.0
"""Every action acts with the right sign and its delay: a fork with it against one without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pilothouse.domain import Gate, PendingCause, Phase, Power, Status, Verb
from pilothouse.scenarios import Exerciser, Range, load
from pilothouse.sim import SimCluster
from tests.sim.writes import do, running, until


def calm(seed: int = 0, **services: Any) -> SimCluster:
    """A cluster to which nothing happens."""
    harbor = load("harbor")
    quiet = replace(harbor, exerciser=Exerciser(), services=replace(harbor.services, **services))
    return SimCluster(quiet, seed=seed)


def emptiest(cluster: SimCluster) -> int:
    """The row of the node with the fewest pods, all of which may be evicted."""
    snapshot = cluster.observe()
    fixed = set(snapshot.pods.node[snapshot.pods.evictable == 0].tolist())
    rows = [i for i in range(len(snapshot.nodes)) if i not in fixed]
    return min(rows, key=lambda i: int(snapshot.nodes.pods[i]))


def test_quiet_cluster_has_no_failures_and_hardly_a_violation():
    cluster = calm(autoscaled=Range(0, 0))
    cluster.advance(3_600)
    assert cluster.toll().failed_pod_seconds == 0
    assert cluster.toll().violation_seconds < 60


def test_drain_moves_every_evictable_pod_off_the_node_and_keeps_them_off():
    cluster = calm()
    row = emptiest(cluster)
    ref = cluster.observe().node_ref(row)
    before = int(cluster.observe().nodes.pods[row])
    assert before > 3
    do(cluster, Verb.DRAIN, ref, 1)
    cluster.advance(300)
    snapshot = cluster.observe()
    assert snapshot.nodes.pods[row] == 0
    assert snapshot.nodes.power[row] == Power.DRAINING
    assert not np.isin(snapshot.pods.phase, (Phase.PENDING, Phase.FAILED)).any()


def test_draining_dying_nodes_early_saves_failed_pod_seconds():
    """Three clusters: a false alarm costs a little, two real ones save a lot."""
    saved = 0.0
    for seed in (0, 2, 4):
        cluster = SimCluster(load("node-degradation"), seed=seed)
        snapshot = until(cluster, lambda s: bool((s.nodes.errors_per_minute >= 12).any()))
        row = int(np.argmax(snapshot.nodes.errors_per_minute))
        left_alone = cluster.fork()
        do(cluster, Verb.TAINT, snapshot.node_ref(row), 1)
        do(cluster, Verb.DRAIN, snapshot.node_ref(row), 1)
        for arm in (cluster, left_alone):
            arm.advance(1_200)
        saved += left_alone.toll().minus(cluster.toll()).failed_pod_seconds
    assert saved > 4_000


def test_eviction_is_refused_where_the_disruption_budget_would_break():
    cluster = calm()
    snapshot = cluster.observe()
    workload = next(
        i
        for i in range(len(snapshot.workloads))
        if snapshot.workloads.min_available[i] > 1 and snapshot.workloads.namespace[i] == 1
    )
    rows = running(snapshot, str(snapshot.workloads.names[workload]))
    answers = [do(cluster, Verb.EVICT, snapshot.pod_ref(row), 1) for row in rows]
    done = [a for a in answers if a.status is Status.DONE]
    refused = [a for a in answers if a.status is Status.REFUSED]
    least = int(snapshot.workloads.min_available[workload])
    assert len(done) == len(rows) - least
    assert refused[0].detail == f"disruption budget: ready {least}, min {least}"


def test_eviction_costs_a_restart():
    cluster = calm()
    snapshot = cluster.observe()
    alone = cluster.fork()
    do(cluster, Verb.EVICT, snapshot.pod_ref(running(snapshot, "cart")[0]), 1)
    for arm in (cluster, alone):
        arm.advance(120)
    assert cluster.toll().minus(alone.toll()).failed_pod_seconds > 0


def test_bare_sleep_of_a_node_with_pods_is_refused():
    cluster = calm()
    ref = cluster.observe().node_ref(0)
    receipt = do(cluster, Verb.POWER, ref, 0)
    assert receipt.status is Status.REFUSED
    assert "drain it first" in receipt.detail


def test_drained_node_sleeps_saves_energy_and_wakes_after_its_boot():
    cluster = calm()
    row = emptiest(cluster)
    ref = cluster.observe().node_ref(row)
    alone = cluster.fork()
    do(cluster, Verb.DRAIN, ref, 2)
    until(cluster, lambda s: s.nodes.power[row] == Power.ASLEEP, 600)
    cluster.advance(900)
    alone.advance(cluster.clock_seconds - alone.clock_seconds)
    assert cluster.toll().energy_joules < alone.toll().energy_joules
    assert cluster.observe().nodes.power_watts[row] == 5
    do(cluster, Verb.POWER, ref, 1)
    assert cluster.observe().nodes.power[row] == Power.BOOTING
    cluster.advance(55)
    assert cluster.observe().nodes.ready[row] == 0
    cluster.advance(40)
    assert cluster.observe().nodes.ready[row] == 1


def test_lower_clock_lowers_power_and_raises_latency():
    cluster = calm(autoscaled=Range(0, 0))
    cluster.advance(900)
    alone = cluster.fork()
    for row in range(len(cluster.observe().nodes)):
        do(cluster, Verb.FREQUENCY, cluster.observe().node_ref(row), 500)
    for arm in (cluster, alone):
        arm.advance(600)
    assert cluster.toll().energy_joules < alone.toll().energy_joules
    slow, usual = (a.observe().workloads.latency_ms.sum() for a in (cluster, alone))
    assert slow > usual


def test_replicas_lower_the_latency_of_a_saturated_service():
    cluster = SimCluster(load("cpu-saturation"), seed=1)
    snapshot = until(cluster, lambda s: bool(s.workloads.in_violation[4:].any()))
    row = int(np.flatnonzero(snapshot.workloads.in_violation)[0])
    alone = cluster.fork()
    wanted = int(snapshot.workloads.replicas_desired[row]) + 4
    do(cluster, Verb.SCALE, snapshot.workload_ref(row), wanted)
    for arm in (cluster, alone):
        arm.advance(120)
    helped, usual = (a.observe().workloads.latency_ms[row] for a in (cluster, alone))
    assert helped < usual
    assert cluster.toll().violation_seconds < alone.toll().violation_seconds


def test_new_replica_is_kept_off_the_node_to_avoid():
    cluster = calm()
    cluster.advance(15)
    snapshot = cluster.observe()
    for row in range(5, 9):
        before = set(snapshot.pods.uid.tolist())
        target = snapshot.workload_ref(row)
        wanted = int(snapshot.workloads.replicas_desired[row]) + 1
        probe = cluster.fork()
        do(probe, Verb.SCALE, target, wanted)
        probe.advance(15)
        seen = probe.observe()
        fresh = [
            i
            for i in range(len(seen.pods))
            if int(seen.pods.uid[i]) not in before and seen.pods.workload[i] == row
        ]
        chosen = str(seen.nodes.names[seen.pods.node[fresh[0]]])
        again = cluster.fork()
        do(again, Verb.SCALE, target, wanted, avoid=chosen)
        again.advance(15)
        seen = again.observe()
        place = seen.pods.node[[u not in before for u in seen.pods.uid.tolist()]]
        assert chosen not in [str(seen.nodes.names[i]) for i in place if i >= 0]


def test_scaling_an_autoscaled_workload_raises_its_floor():
    cluster = calm(autoscaled=Range(3, 3))
    snapshot = cluster.observe()
    row = int(np.flatnonzero(snapshot.workloads.autoscaled)[0])
    wanted = int(snapshot.workloads.replicas_desired[row]) + 1
    receipt = do(cluster, Verb.SCALE, snapshot.workload_ref(row), wanted)
    assert receipt.detail == f"minReplicas {wanted}"
    cluster.advance(1_800)
    assert cluster.observe().workloads.replicas_desired[row] >= wanted


def test_throttling_a_noisy_neighbor_restores_latency():
    cluster = SimCluster(load("noisy-neighbor"), seed=0)
    until(cluster, lambda s: bool(s.interpreted.overloaded.any()))
    alone = cluster.fork()
    snapshot = cluster.observe()
    for row in running(snapshot, "crunch"):
        do(cluster, Verb.CPU_LIMIT, snapshot.pod_ref(row), 2_000)
    for arm in (cluster, alone):
        arm.advance(240)
    assert cluster.toll().violation_seconds < alone.toll().violation_seconds / 2


def test_memory_request_below_use_gets_the_pod_killed():
    cluster = calm()
    cluster.advance(15)
    snapshot = cluster.observe()
    row = running(snapshot, "cart")[0]
    uid = int(snapshot.pods.uid[row])
    do(cluster, Verb.MEMORY_REQUEST, snapshot.pod_ref(row), 20)
    cluster.advance(5)
    after = cluster.observe()
    place = after.pods.uid.tolist().index(uid)
    assert after.pods.oom_kills[place] == 1
    assert after.pods.phase[place] == Phase.FAILED


@pytest.mark.parametrize("gate", [Gate.QUEUE, Gate.REJECT])
def test_gate_touches_only_new_batch_pods_and_is_never_free(gate):
    cluster = calm()
    alone = cluster.fork()
    for name in ("data", "research"):
        space = cluster.observe().namespaces.names.tolist().index(name)
        do(cluster, Verb.GATE, cluster.observe().namespace_ref(space), int(gate))
    for arm in (cluster, alone):
        arm.advance(900)
    seen = cluster.observe()
    held = seen.pods.pending_cause == PendingCause.GATED
    assert bool(held.any()) == (gate is Gate.QUEUE)
    assert (seen.workloads.kind[seen.pods.workload[held]] == 1).all()
    assert cluster.toll().violation_seconds > alone.toll().violation_seconds


def test_opened_gate_releases_what_it_held():
    cluster = calm()
    space = cluster.observe().namespaces.names.tolist().index("data")
    ref = cluster.observe().namespace_ref(space)
    do(cluster, Verb.GATE, ref, Gate.QUEUE)
    cluster.advance(600)
    assert (cluster.observe().pods.pending_cause == PendingCause.GATED).any()
    do(cluster, Verb.GATE, ref, Gate.OPEN)
    cluster.advance(60)
    assert not (cluster.observe().pods.pending_cause == PendingCause.GATED).any()


def test_arms_of_a_comparison_see_the_same_arrivals_and_faults():
    arm = SimCluster(load("harbor"), seed=5)
    other = arm.fork()
    for step in range(100):
        arm.advance(30)
        other.advance(30)
        snapshot = arm.observe()
        if step % 5 == 0:
            row = step // 5 % len(snapshot.workloads)
            do(arm, Verb.SCALE, snapshot.workload_ref(row), 9)
    ours, theirs = arm._simulation.state, other._simulation.state
    batch = ours.w_rate > 0
    assert ours.w_created[batch].tolist() == theirs.w_created[batch].tolist()
    assert ours.n_deaths.tolist() == theirs.n_deaths.tolist()
    assert arm.stimuli() == other.stimuli()
    service = ours.w_kind == 0
    assert ours.w_load[service].tolist() == theirs.w_load[service].tolist()


def test_rival_takes_back_what_it_sees_under_its_own_name():
    harbor = load("rival-controller")
    cluster = SimCluster(harbor, seed=0)
    until(cluster, lambda s: any(x.kind == "rival-controller" for x in cluster.stimuli()))
    do(cluster, Verb.TAINT, cluster.observe().node_ref(1), 1)
    cluster.advance(180)
    moves = [c for c in cluster.log() if c.agent == "rival"]
    assert [m.verb for m in moves] == ["taint"]
    assert cluster.observe().nodes.tainted[1] == 0
