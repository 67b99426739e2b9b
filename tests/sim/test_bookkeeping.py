# SPDX-License-Identifier: Apache-2.0
"""Whatever is written to a cluster, the sums it keeps are the sums of its pods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pilothouse.domain import Status
from pilothouse.scenarios import LatencyChange, load
from pilothouse.sim import SimCluster
from pilothouse.sim.randomness import Dice, Stream
from pilothouse.sim.state import EMPTY, RUNNING, TERMINATING, State
from tests.sim.writes import random_write


def _sum(index: np.ndarray, values: np.ndarray | None, rows: int) -> list[int]:
    sums: list[int] = np.bincount(index, values, minlength=rows).astype(np.int64)[:rows].tolist()
    return sums


def check(s: State) -> None:
    alive = s.phase != EMPTY
    bound = alive & (s.node != s.nobody_node)
    running = s.phase == RUNNING
    node, rows = s.node[bound], s.nobody_node
    assert _sum(node, s.cpu_request[bound], rows) == s.n_cpu_requested[:rows].tolist()
    assert _sum(node, s.memory_request[bound], rows) == s.n_memory_requested[:rows].tolist()
    assert _sum(node, None, rows) == s.n_pods[:rows].tolist()
    rows = s.nobody_work
    work = s.work[running]
    assert _sum(work, None, rows) == s.w_ready[:rows].tolist()
    assert _sum(work, s.n_latency[s.node[running]], rows) == s.w_network_ms[:rows].tolist()
    wanted = alive & (s.phase != TERMINATING)
    assert _sum(s.work[wanted], None, rows) == s.w_have[:rows].tolist()
    assert _sum(s.home[alive], None, s.batch) == s.c_pods.tolist()
    assert (s.active_node[running] == s.node[running]).all()
    assert (s.active_node[~running] == s.nobody_node).all()
    assert (s.active_work[~running] == s.nobody_work).all()
    assert len(np.unique(s.uid[alive])) == int(alive.sum())
    assert not s.uid[~alive].any()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sums_hold_under_random_writes(seed):
    cluster = SimCluster(load("harbor"), seed=seed)
    dice = Dice(seed, Stream.TIE, 99)
    for _ in range(120):
        snapshot = cluster.observe()
        for _ in range(3):
            cluster.execute(random_write(snapshot, dice), "chaos")
        cluster.advance(15)
        check(cluster._simulation.state)
    statuses = {command.status for command in cluster.log()}
    assert {Status.DONE, Status.REFUSED} <= statuses


def test_a_latency_schedule_moves_users_and_keeps_the_sums():
    harbor = load("harbor")
    changes = (
        LatencyChange(at_seconds=0, node_ms=(5, 80)),
        LatencyChange(at_seconds=300, node_ms=(80, 5)),
    )
    scenario = replace(harbor, exerciser=replace(harbor.exerciser, latency=changes))
    cluster = SimCluster(scenario, seed=1)
    cluster.advance(60)
    s = cluster._simulation.state
    assert s.n_latency[:4].tolist() == [5, 80, 5, 80]
    check(s)
    before = s.w_network_ms.copy()
    cluster.advance(300)
    assert s.n_latency[:4].tolist() == [80, 5, 80, 5]
    check(s)
    assert (s.w_network_ms != before).any(), "who serves there feels it"


def test_asleep_and_dead_nodes_never_run_pods():
    cluster = SimCluster(load("harbor"), seed=3)
    dice = Dice(3, Stream.TIE, 98)
    for _ in range(120):
        cluster.execute(random_write(cluster.observe(), dice), "chaos")
        cluster.advance(15)
        s = cluster._simulation.state
        off = np.flatnonzero((s.n_power[:-1] == 2) | (s.n_power[:-1] == 4))
        assert not np.isin(s.active_node, off).any()


def test_requests_never_exceed_a_node():
    cluster = SimCluster(load("queue-surge"), seed=1)
    for _ in range(150):
        cluster.advance(15)
        nodes = cluster.observe().nodes
        assert (nodes.cpu_requested_millicores <= nodes.cpu_capacity_millicores).all()
        assert (nodes.memory_requested_mib <= nodes.memory_capacity_mib).all()
