# SPDX-License-Identifier: Apache-2.0
"""The cache is what an informer must be, against a real API server that misbehaves.

The short form; the full one (ten restarts, thirty seconds) is ``benchmarks/faults``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from pilothouse.clients import Store, from_kubeconfig
from pilothouse.clients.resources import KINDS, Kind, Namespace
from pilothouse.errors import BackendError
from pilothouse.lab import Lab
from pilothouse.lab.layout import API_ADDRESS, API_PORT
from pilothouse.testing.drill import Drill, Finding, shortest_gap
from pilothouse.testing.faultproxy import FaultProxy


@pytest.fixture
def drill(lab: Lab, observer_kubeconfig: Path) -> Iterator[Drill]:
    with FaultProxy(API_ADDRESS, API_PORT) as proxy:
        drill = Drill(lab, from_kubeconfig(observer_kubeconfig), proxy)
        yield drill
        drill.close()


def test_cache_is_right_again_after_api_server_restarts(drill: Drill) -> None:
    assert_holds(drill.restarts(2))


def test_cache_is_right_again_after_etcd_stopped(drill: Drill) -> None:
    assert_holds(drill.pause(10))


def test_cache_is_right_again_after_a_real_410(drill: Drill) -> None:
    assert_holds(drill.compaction())


def test_cache_is_right_again_after_a_blackhole(drill: Drill) -> None:
    assert_holds(drill.blackhole(15))


def assert_holds(found: Finding) -> None:
    assert found.holds, found


def test_hot_relisting_would_be_seen() -> None:
    """The control: two lists of one resource within a second are told apart from five."""
    user = {"username": "system:serviceaccount:pilothouse-system:pilothouse-observer"}
    events = [
        {
            "user": user,
            "verb": "list",
            "requestURI": "/api/v1/pods?limit=500",
            "requestReceivedTimestamp": f"2026-01-01T00:00:{second:02d}.000000Z",
            "objectRef": {"resource": "pods"},
        }
        for second in (1, 10, 11)
    ]
    gap = shortest_gap(events)
    assert gap == 1.0
    assert not Finding(
        name="", rounds=1, recovery_seconds=[1.0], stale=[True], shortest_gap_seconds=gap
    ).holds


def test_resource_we_may_not_read_is_named_with_the_rule_to_add(
    lab: Lab, observer_kubeconfig: Path
) -> None:
    secret = Kind(name="secrets", path="/api/v1/secrets", type=Namespace)
    store = Store(from_kubeconfig(observer_kubeconfig), kinds=[KINDS[0], secret])
    began = monotonic()
    with pytest.raises(BackendError, match=r'resources: \["secrets"\]'):
        store.open(wait_seconds=30)
    assert monotonic() < began + 20, "a refusal is told as soon as it comes"
    store.close()
