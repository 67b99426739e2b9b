# SPDX-License-Identifier: Apache-2.0
"""Faults of a real API server, and how long a cache takes to be right again after each.

A drill breaks one thing on the lab, changes objects while it is broken (deletions above all), mends
it and compares the cache with a fresh list. Meanwhile it notes whether snapshots said that they
were stale, how often anything was listed anew, and whether the rest of the lab is still alive.
The tests run every drill briefly, the benchmark in full.
"""

from __future__ import annotations

import itertools
import json
import signal
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pilothouse.clients import Access, Store
from pilothouse.clients.lease import Leadership
from pilothouse.domain import Source
from pilothouse.lab import Lab, process
from pilothouse.observe import MetricsApi, Observer, UsagePoll
from pilothouse.observe.kubernetes import STORE
from pilothouse.testing.faultproxy import FaultProxy

RECOVERY_SECONDS = 10.0
RELIST_SECONDS = 5.0
STALE_SECONDS = 13  # an idle watch is renewed every 10 s; older than this is old
COMPARED = ("pods", "deployments", "replicasets", "namespaces", "nodes", "resourcequotas")
SURVIVORS = ("kube-controller-manager", "kube-scheduler", "etcd", "kube-apiserver")
NAMESPACE = "sim-drill"
GIVE_UP_SECONDS = 60.0
_ACCOUNT = "system:serviceaccount:pilothouse-system:pilothouse-observer"


@dataclass(slots=True, kw_only=True)
class Finding:
    """What one drill showed."""

    name: str
    rounds: int = 0
    recovery_seconds: list[float] = field(default_factory=list)  # until cache equals list
    stale: list[bool] = field(default_factory=list)  # did a snapshot say so, by round
    lists: int = 0  # after the first ones, of all resources
    shortest_gap_seconds: float | None = None  # between two lists of one resource
    dead: list[str] = field(default_factory=list)  # of the lab, after any round

    @property
    def holds(self) -> bool:
        gap = self.shortest_gap_seconds
        return (
            self.rounds > 0
            and max(self.recovery_seconds) <= RECOVERY_SECONDS
            and all(self.stale)
            and (gap is None or gap >= RELIST_SECONDS)
            and not self.dead
        )


class Drill:
    """Breaks the lab in one way after the other, under the eyes of one store."""

    def __init__(self, lab: Lab, access: Access, proxy: FaultProxy) -> None:
        self._lab = lab
        self._proxy = proxy
        leadership = Leadership()
        self._store = Store(replace(access, server=f"https://127.0.0.1:{proxy.port}"))
        self._store.add(leadership.run)
        self._observer = Observer(
            store=self._store,
            usage=UsagePoll(MetricsApi()),
            cluster="drill",
            silence=lambda: leadership.silence_seconds,
        )
        self._generation = 0
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        lab.apply(json.dumps(space))
        self._store.open()

    def close(self) -> None:
        self._store.close()

    def restarts(self, rounds: int) -> Finding:
        """The API server is killed and started again."""

        def fault() -> None:
            self._lab.restart("kube-apiserver")
            self._lab.wait_for_api()

        return self._rounds("API server killed and restarted", rounds, fault)

    def pause(self, seconds: float) -> Finding:
        """etcd stops: the API server answers nothing that it would have to look up."""

        def fault() -> None:
            self._lab.signal("etcd", signal.SIGSTOP)
            time.sleep(seconds)
            self._lab.signal("etcd", signal.SIGCONT)
            self._lab.wait_for_api()

        return self._rounds(f"etcd stopped for {seconds:g} s", 1, fault)

    def compaction(self) -> Finding:
        """We are cut off until etcd has forgotten the versions we would go on from: a real 410."""
        before = {h.name: h.lists for h in self._store.health()}

        def fault() -> None:
            self._proxy.mode = "refuse"
            self._change()
            self._lab.kill("kube-apiserver")
            compact(self._lab)
            self._lab.restart("kube-apiserver")
            self._lab.wait_for_api()
            self._proxy.mode = "pass"

        found = self._rounds("410 after a compaction", 1, fault)
        if all(h.lists == before[h.name] for h in self._store.health() if h.name == "pods"):
            found.dead.append("no 410 came: the watch went on")
        return found

    def blackhole(self, seconds: float) -> Finding:
        """The connection stays open and nothing comes through."""

        def fault() -> None:
            self._proxy.mode = "blackhole"
            self._change()
            time.sleep(seconds)
            self._proxy.mode = "pass"

        return self._rounds(f"connection blackholed for {seconds:g} s", 1, fault)

    def _rounds(self, name: str, rounds: int, fault: Callable[[], None]) -> Finding:
        found = Finding(name=name)
        already = len(audit(self._lab))
        before = {h.name: h.lists for h in self._store.health()}
        for _ in range(rounds):
            self._change()
            with self._watching() as was_stale:
                fault()
                self._change()
            found.rounds += 1
            found.recovery_seconds.append(self._seconds_until_equal())
            found.stale.append(was_stale())
            found.dead += [part for part in SURVIVORS if not is_running(self._lab, part)]
        found.lists = sum(h.lists - before[h.name] for h in self._store.health())
        found.shortest_gap_seconds = shortest_gap(audit(self._lab)[already:])
        return found

    @contextmanager
    def _watching(self) -> Iterator[Callable[[], bool]]:
        """Snapshots are taken all the time, as the loop would; was any of them stale?"""
        stale: list[bool] = []
        stop = threading.Event()

        def look() -> None:
            while not stop.is_set():
                sources = self._observer.observe().sources
                stale.append(any(_is_stale(s) for s in sources if s.name in (*COMPARED, STORE)))
                stop.wait(0.2)

        eye = threading.Thread(target=look, daemon=True)
        eye.start()
        try:
            yield lambda: any(stale)
        finally:
            stop.set()
            eye.join()

    def _change(self) -> None:
        """One object goes, one comes: what an outage must not hide."""
        self._generation += 1
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": f"round-{self._generation}", "namespace": NAMESPACE},
            "spec": {"hard": {"pods": "100"}},
        }
        self._lab.apply(json.dumps(quota))
        if self._generation > 1:
            old = f"round-{self._generation - 1}"
            self._lab.kubectl("delete", "resourcequota", old, "-n", NAMESPACE)

    def _seconds_until_equal(self) -> float:
        began = time.monotonic()
        while True:
            different = [k for k in COMPARED if self._listed(k) != self._cached(k)]
            took = time.monotonic() - began
            if not different or took > GIVE_UP_SECONDS:
                return took
            time.sleep(0.1)

    def _listed(self, kind: str) -> dict[str, str]:
        items = json.loads(self._lab.kubectl("get", kind, "-A", "-o", "json"))["items"]
        return {i["metadata"]["uid"]: i["metadata"]["resourceVersion"] for i in items}

    def _cached(self, kind: str) -> dict[str, str]:
        of: dict[str, Callable[[], list[Any]]] = {
            "pods": self._store.pods,
            "namespaces": self._store.namespaces,
            "nodes": self._store.nodes,
            "resourcequotas": self._store.quotas,
        }
        values = of[kind]() if kind in of else self._store.workloads(kind)
        return {v.metadata.uid: v.metadata.resource_version for v in values}


def _is_stale(source: Source) -> bool:
    return source.age_seconds >= STALE_SECONDS or source.completeness_permille < 1000


def is_running(lab: Lab, name: str) -> bool:
    entry = lab.component(name)
    return process.state(entry.pid, entry.ticks) == "running"


def audit(lab: Lab) -> list[dict[str, Any]]:
    """Everything the API server was asked; a line that is being written is left out."""
    text = lab.layout.audit_log.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def shortest_gap(events: list[dict[str, Any]]) -> float | None:
    """Seconds between the closest two lists of one resource by us, as the server saw them."""
    began: dict[str, list[float]] = {}
    for event in events:
        ours = event["user"].get("username", "") == _ACCOUNT and event["verb"] == "list"
        uri = event.get("requestURI", "")
        if ours and "continue=" not in uri and "metrics.k8s.io" not in uri:
            moment = datetime.fromisoformat(event["requestReceivedTimestamp"])
            began.setdefault(event["objectRef"]["resource"], []).append(moment.timestamp())
    gaps = [b - a for times in map(sorted, began.values()) for a, b in itertools.pairwise(times)]
    return round(min(gaps), 2) if gaps else None


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
