# SPDX-License-Identifier: Apache-2.0
"""The cache is what an informer must be, against a real API server that misbehaves."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from pilothouse.clients import Store, from_kubeconfig
from pilothouse.lab import Lab, process
from pilothouse.lab.layout import API_ADDRESS, API_PORT
from pilothouse.testing.faultproxy import FaultProxy
from tests.live.conftest import NAMESPACE, a_deployment, is_ready

RECOVERY_SECONDS = 10.0
COMPARED = ("pods", "deployments", "replicasets", "namespaces")


@pytest.fixture
def proxy(lab: Lab) -> Iterator[FaultProxy]:
    with FaultProxy(API_ADDRESS, API_PORT) as proxy:
        yield proxy


@pytest.fixture
def store(observer_kubeconfig: Path, proxy: FaultProxy) -> Iterator[Store]:
    access = from_kubeconfig(observer_kubeconfig)
    store = Store(replace(access, server=f"https://127.0.0.1:{proxy.port}"))
    store.open()
    yield store
    store.close()


def listed(lab: Lab, kind: str) -> dict[str, str]:
    items = json.loads(lab.kubectl("get", kind, "-A", "-o", "json"))["items"]
    return {i["metadata"]["uid"]: i["metadata"]["resourceVersion"] for i in items}


def cached(store: Store, kind: str) -> dict[str, str]:
    found = {"pods": store.pods, "namespaces": store.namespaces}
    values: list[Any] = found[kind]() if kind in found else store.workloads(kind)
    return {v.metadata.uid: v.metadata.resource_version for v in values}


def seconds_until_equal(lab: Lab, store: Store, limit: float) -> float:
    """How long until the cache is what a fresh list says."""
    began = monotonic()
    while True:
        different = [k for k in COMPARED if listed(lab, k) != cached(store, k)]
        took = monotonic() - began
        if not different:
            return took
        assert took < limit, f"{different} differ after {took:.1f} s: {store.health()}"
        sleep(0.2)


def assert_lab_is_alive(lab: Lab) -> None:
    for name in ("kube-controller-manager", "kube-scheduler", "etcd", "kube-apiserver"):
        entry = lab.component(name)
        assert process.state(entry.pid, entry.ticks) == "running", name


def restart_api(lab: Lab) -> None:
    lab.restart("kube-apiserver")
    lab.wait_for_api()


def test_cache_equals_a_list_after_api_server_restarts(
    lab: Lab, store: Store, space: Callable[..., None]
) -> None:
    for round_ in range(2):  # ten in the long form: benchmarks/
        space(a_deployment(f"round-{round_}"))
        restart_api(lab)
        lab.kubectl("delete", "deployment", f"round-{round_}", "-n", NAMESPACE)
        seconds_until_equal(lab, store, RECOVERY_SECONDS)
        assert_lab_is_alive(lab)


def test_cache_notices_deletions_behind_a_real_410(
    lab: Lab,
    store: Store,
    space: Callable[..., None],
    pods: Callable[[str], list[dict[str, Any]]],
    eventually: Callable[..., Any],
    proxy: FaultProxy,
) -> None:
    space(a_deployment("vanishing", replicas=2))
    eventually(lambda: len([p for p in pods("vanishing") if is_ready(p)]) == 2)
    seconds_until_equal(lab, store, RECOVERY_SECONDS)
    before = {h.name: h.lists for h in store.health()}
    proxy.mode = "refuse"
    lab.kubectl("delete", "deployment", "vanishing", "-n", NAMESPACE)
    lab.kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--grace-period=0", "--force")
    lab.kill("kube-apiserver")
    compact(lab)
    lab.restart("kube-apiserver")
    lab.wait_for_api()
    proxy.mode = "pass"
    seconds_until_equal(lab, store, RECOVERY_SECONDS)
    after = {h.name: h.lists for h in store.health()}
    assert after["pods"] > before["pods"], "the watch went on, so there was no 410"
    assert all(after[name] - before[name] <= 2 for name in after)
    assert_lab_is_alive(lab)


def compact(lab: Lab) -> None:
    """Make etcd forget every revision that anybody may want to go on from."""
    planned = lab.planned
    assert planned is not None
    url = f"http://127.0.0.1:{planned.ports['etcd']}/v3/kv"

    def ask(path: str, body: dict[str, Any]) -> dict[str, Any]:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(f"{url}/{path}", data=json.dumps(body).encode())
        with opener.open(request, timeout=5) as answer:
            return dict(json.load(answer))

    revision = ""
    for _ in range(3):
        revision = ask("put", {"key": "bGFi", "value": "bGFi"})["header"]["revision"]
    ask("compaction", {"revision": revision, "physical": True})


def test_blackholed_connection_is_noticed_and_survived(
    lab: Lab, store: Store, proxy: FaultProxy, space: Callable[..., None]
) -> None:
    proxy.mode = "blackhole"
    began = monotonic()
    space(a_deployment("unseen"))
    while max(h.age_seconds for h in store.health()) < 14:
        assert monotonic() - began < 30
        sleep(0.2)
    assert {h.problem for h in store.health()} != {""}
    proxy.mode = "pass"
    seconds_until_equal(lab, store, RECOVERY_SECONDS)
    assert max(h.age_seconds for h in store.health() if h.name == "pods") < 14


def test_etcd_pause_is_survived_by_everybody(lab: Lab, store: Store) -> None:
    lab.signal("etcd", signal.SIGSTOP)
    sleep(5)  # thirty in the long form: benchmarks/
    lab.signal("etcd", signal.SIGCONT)
    lab.wait_for_api()
    seconds_until_equal(lab, store, RECOVERY_SECONDS)
    assert_lab_is_alive(lab)


def test_resource_we_may_not_read_is_named_with_the_rule_to_add(
    lab: Lab, observer_kubeconfig: Path
) -> None:
    from pilothouse.clients.resources import KINDS, Kind, Namespace
    from pilothouse.errors import BackendError

    secret = Kind(name="secrets", path="/api/v1/secrets", type=Namespace)
    store = Store(from_kubeconfig(observer_kubeconfig), kinds=[KINDS[0], secret])
    with pytest.raises(BackendError, match=r'resources: \["secrets"\]'):
        store.open(wait_seconds=3)
    store.close()
