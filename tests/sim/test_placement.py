# SPDX-License-Identifier: Apache-2.0
"""The model of the default scheduler: which nodes it looks at, and which it takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pilothouse.domain import PendingCause, Verb
from pilothouse.scenarios import Exerciser, Range, load
from pilothouse.sim import SimCluster
from pilothouse.sim.fit import tie_word
from pilothouse.sim.placement import sample_size
from tests.sim.writes import do, until


@pytest.mark.parametrize(
    ("nodes", "enough"), [(5, 5), (100, 100), (120, 100), (400, 188), (1000, 420), (5000, 500)]
)
def test_sample_size_follows_the_default_scheduler(nodes, enough):
    assert sample_size(nodes) == enough


def test_ties_are_broken_evenly():
    keys = np.arange(8_000, dtype=np.uint32)[:, None] * np.uint32(2_654_435_761)
    first = tie_word(keys, np.arange(8)).argmax(axis=1)
    counts = np.bincount(first, minlength=8)
    assert counts.min() > 850
    assert counts.max() < 1_150


def test_spreading_leaves_nodes_evenly_requested():
    nodes = SimCluster(load("harbor"), seed=1).observe().nodes
    share = 1000 * nodes.cpu_requested_millicores // nodes.cpu_capacity_millicores
    assert int(share.max() - share.min()) < 150


def test_tainted_nodes_get_no_new_pods():
    cluster = SimCluster(load("queue-surge"), seed=0)
    do(cluster, Verb.TAINT, cluster.observe().node_ref(0), 1)
    before = int(cluster.observe().nodes.pods[0])
    cluster.advance(900)
    assert cluster.observe().nodes.pods[0] <= before


def test_pods_wait_with_the_cause_that_holds_them():
    cluster = SimCluster(load("unschedulable-selector"), seed=0)
    seen = until(cluster, lambda s: s.interpreted.unschedulable > 0)
    waiting = seen.pods.pending_cause[seen.pods.phase == 0]
    assert set(waiting.tolist()) == {int(PendingCause.SELECTOR)}
    cluster = SimCluster(load("queue-surge"), seed=0)
    seen = until(cluster, lambda s: s.interpreted.queue_length >= 8)
    waiting = seen.pods.pending_cause[seen.pods.phase == 0]
    assert int(PendingCause.RESOURCES) in waiting.tolist()


def test_node_autoscaler_boots_a_node_for_pods_that_do_not_fit():
    surge = load("queue-surge")
    cluster = SimCluster(
        replace(surge, world=replace(surge.world, spare_nodes=Range(3, 3))), seed=0
    )
    before = len(cluster.observe().nodes)
    seen = until(cluster, lambda s: len(s.nodes) > before)
    row = seen.nodes.names.tolist().index("spare-0")
    assert seen.nodes.ready[row] == 0
    seen = until(cluster, lambda s: s.nodes.ready[s.nodes.names.tolist().index("spare-0")] == 1)
    assert (np.diff(seen.nodes.uid) > 0).all()


def test_hpa_follows_load_late_and_shrinks_later():
    saturated = load("cpu-saturation")
    shape = replace(saturated.services, autoscaled=Range(12, 12), count=Range(12, 12))
    saturated = replace(saturated, services=shape)
    cluster = SimCluster(saturated, seed=2)
    calm = SimCluster(replace(saturated, exerciser=Exerciser()), seed=2)
    while not cluster.stimuli():
        cluster.advance(5)
    stimulus = cluster.stimuli()[0]
    row = cluster.observe().find(stimulus.target)

    def extra(clock_seconds: int) -> int:
        for arm in (cluster, calm):
            arm.advance_to(clock_seconds)
        ours, theirs = (a.observe().workloads.replicas_desired[row] for a in (cluster, calm))
        return int(ours) - int(theirs)

    assert extra(stimulus.since_seconds + 25) == 0
    assert extra(stimulus.since_seconds + 150) > 0
    assert extra(stimulus.until_seconds + 60) > 0


def test_quiet_cluster_schedules_everything_at_once():
    quiet = replace(load("harbor"), exerciser=Exerciser())
    cluster = SimCluster(quiet, seed=0)
    for _ in range(60):
        cluster.advance(15)
        assert cluster.observe().interpreted.queue_length == 0
