# SPDX-License-Identifier: Apache-2.0
"""Causes are named from what agents see too, and nothing is named while all is well."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pilothouse.domain import Cause, Snapshot
from pilothouse.observe.pending import Wait
from pilothouse.observe.troubles import MOST, troubles
from pilothouse.testing.builders import a_snapshot, ints, with_node


def named(snapshot: Snapshot, **given: object) -> list[tuple[Cause, str]]:
    growth = given.get("growth", np.zeros(len(snapshot.pods), np.int32))
    found = troubles(snapshot, given.get("waits", ()), growth, given.get("stolen", {}))  # type: ignore[arg-type]
    return [(t.cause, t.name) for t in found]


def calm() -> Snapshot:
    return a_snapshot(nodes=3, pods=6)


def test_nothing_is_named_while_all_is_well() -> None:
    assert named(calm()) == []


def test_node_that_is_not_ready_is_lost() -> None:
    snapshot = with_node(calm(), 1, ready=0)
    assert (Cause.NODE_LOSS, str(snapshot.nodes.names[1])) in named(snapshot)


def test_node_that_missed_two_heartbeats_is_lost_before_it_is_called_not_ready() -> None:
    snapshot = with_node(calm(), 0, heartbeat_lag_ms=12_500)
    assert (Cause.NODE_LOSS, str(snapshot.nodes.names[0])) in named(snapshot)


def test_late_heartbeat_and_withheld_processor_are_degradation() -> None:
    snapshot = with_node(calm(), 0, heartbeat_lag_ms=9_000)
    names = [str(name) for name in snapshot.nodes.names]
    found = named(snapshot, stolen={names[2]: 400, names[1]: 100})
    assert found == [(Cause.DEGRADATION, names[0]), (Cause.DEGRADATION, names[2])]


def test_node_at_its_limit_is_saturated() -> None:
    snapshot = calm()
    full = int(snapshot.nodes.cpu_capacity_millicores[0])
    snapshot = with_node(snapshot, 0, cpu_used_millicores=full)
    assert named(snapshot) == [(Cause.SATURATION, str(snapshot.nodes.names[0]))]


def test_pod_that_will_be_full_soon_grows_and_one_that_will_not_does_not() -> None:
    snapshot = calm()
    count = len(snapshot.pods)
    pods = replace(
        snapshot.pods, memory_limit_mib=ints([100] * count), memory_used_mib=ints([40] * count)
    )
    snapshot = replace(snapshot, pods=pods)
    growth = np.zeros(count, np.int32)
    growth[0], growth[1] = 10, 1  # six minutes left; an hour left
    found = named(snapshot, growth=growth)
    owner = snapshot.workloads.names[snapshot.pods.workload[0]]
    assert found == [(Cause.MEMORY_GROWTH, str(owner))]


def test_waits_of_one_workload_are_one_trouble_and_the_list_stays_short() -> None:
    waits = [
        (Wait(namespace="n", name=f"p{i}", cause=Cause.RESOURCES, sentence="no room"), f"w{i % 2}")
        for i in range(10)
    ]
    found = troubles(calm(), waits, np.zeros(6, np.int32), {})
    assert [(t.name, t.count) for t in found] == [("w0", 5), ("w1", 5)]
    many = [(wait, str(i)) for i, (wait, _) in enumerate(waits * 20)]
    assert len(troubles(calm(), many, np.zeros(6, np.int32), {})) == MOST
