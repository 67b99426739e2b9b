# SPDX-License-Identifier: Apache-2.0
"""Arrivals can be replayed from a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pilothouse.errors import InvalidSetting
from pilothouse.scenarios import Exerciser, load
from pilothouse.sim import SimCluster, Trace


def _cluster() -> tuple[SimCluster, int]:
    quiet = replace(load("harbor"), exerciser=Exerciser())
    names = SimCluster(quiet, seed=0).observe().workloads.names.tolist()
    row = names.index("report")
    trace = Trace(tick=np.array([3, 9, 3]), workload=np.array([row, row, row]))
    return SimCluster(quiet, seed=0, trace=trace), row


def _created(cluster: SimCluster, row: int) -> int:
    return int(cluster._simulation.state.w_created[row])


def test_replayed_arrivals_come_at_their_tick_and_nothing_else_does():
    cluster, row = _cluster()
    start = _created(cluster, row)
    made = []
    for _ in range(12):
        cluster.advance(5)
        made.append(_created(cluster, row) - start)
    assert made == [0, 0, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3]


def test_trace_survives_a_save_and_a_fork():
    cluster, row = _cluster()
    cluster.advance(20)
    for twin in (SimCluster.load(cluster.save()), cluster.fork()):
        before = _created(twin, row)
        twin.advance(60)
        assert _created(twin, row) == before + 1


def test_uneven_trace_is_refused():
    with pytest.raises(InvalidSetting, match="as many ticks as workloads, but got 2 and 1"):
        Trace(tick=np.array([1, 2]), workload=np.array([0]))
