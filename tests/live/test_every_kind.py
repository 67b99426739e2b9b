# SPDX-License-Identifier: Apache-2.0
"""Fifty cycles in shadow under real stress: every kind of action is chosen, none is done.

The witness is the API server's audit log. The stress is real (a saturated worker, a service that
misses its objective, a queue, a dead kubelet); thresholds and budgets are lowered so that fifty
cycles are enough to meet every kind.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from pilothouse.cli.live import live_settings, open_cluster
from pilothouse.clients import Store, from_kubeconfig
from pilothouse.clients.api import Api
from pilothouse.domain import (
    ADMISSION_KINDS,
    EFFICIENCY_KINDS,
    SAFETY_KINDS,
    Ruling,
    horizon_column,
)
from pilothouse.errors import BackendError
from pilothouse.journal import Journal
from pilothouse.lab import Lab
from pilothouse.lab.fake import FAKE_TAINT
from pilothouse.run import Report, Runner
from pilothouse.settings import Settings
from pilothouse.settings.file import with_overrides
from tests.live.conftest import a_deployment, is_ready
from tests.live.witness import audit, by, strange_writes

SPACE = "sim-kinds"
IDLERS = ("fake-0001", "fake-0004")  # two empty nodes of one zone: one of them may sleep
CYCLES = 50
MOST_SECONDS = 240.0
KINDS = SAFETY_KINDS | EFFICIENCY_KINDS | ADMISSION_KINDS
EAGER = {
    "forecast.warmup_seconds": 10,
    "admission.queue_queue": 2,
    "admission.cap_queue": 3,
    "admission.allow_reject": True,
    "referee.preemption": "overlap",
    "referee.actions_per_cycle": 20,
    "guard.window_seconds": 20,
    "guard.dwell_seconds": 1,
    "guard.reversals": 1000,
    "guard.per_agent": 10_000,
    "guard.per_workload": 10_000,
    "guard.per_namespace": 10_000,
    "guard.per_node": 10_000,
    "guard.node_share": 1.0,
    "guard.drains_at_once": 10,
    "guard.disturbed_share": 1.0,
    "guard.gated_namespaces": 10,
    "guard.unready_share": 1.0,
    "guard.minimum_pod_age_seconds": 1,
    "guard.stale_seconds": 60,
}


@pytest.fixture
def managed(lab: Lab) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A namespace whose owner opted in, gone afterwards."""
    labels = {"pilothouse.dev/managed": "true"}
    space = {"apiVersion": "v1", "kind": "Namespace"}
    lab.apply(json.dumps(space | {"metadata": {"name": SPACE, "labels": labels}}))
    key = FAKE_TAINT["key"]
    for node in IDLERS:
        lab.kubectl("taint", "nodes", node, f"{key}-")
    yield lambda thing: lab.apply(json.dumps(thing))
    for node in IDLERS:
        taint = f"{key}={FAKE_TAINT.get('value', '')}:{FAKE_TAINT['effect']}"
        lab.kubectl("taint", "nodes", node, taint, "--overwrite")
    lab.kubectl("delete", "deployments,jobs,pods", "--all", "-n", SPACE, "--grace-period=1")


def a_service(name: str, node: str, *, memory: str = "32Mi", **annotations: str) -> dict[str, Any]:
    made = a_deployment(name, namespace=SPACE, node=node, requests={"cpu": "50m", "memory": memory})
    made["metadata"]["annotations"] = {f"pilothouse.dev/{k}": v for k, v in annotations.items()}
    return made


def a_job(name: str, *, pods: int, cpu: str, burn: int, node: str = "") -> dict[str, Any]:
    template = a_deployment(
        name,
        namespace=SPACE,
        arguments=(f"--burn-millicores={burn}",),
        requests={"cpu": cpu, "memory": "16Mi"},
        limits={"cpu": "450m", "memory": "64Mi"} if node else {},
        node=node,
    )["spec"]["template"]
    template["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }


def ready(lab: Lab, name: str) -> list[dict[str, Any]]:
    found = lab.kubectl("get", "pods", "-n", SPACE, "-l", f"app={name}", "-o", "json")
    return [pod for pod in json.loads(found)["items"] if is_ready(pod)]


class Seen:
    """What was chosen and not done, over all cycles."""

    def __init__(self) -> None:
        self.kinds: set[Any] = set()
        self.decisions: set[str] = set()
        self.cycles = 0

    def take(self, report: Report) -> None:
        self.cycles += 1
        decision = report.turn.decision
        assert not decision.actions
        assert not report.turn.receipts
        for proposal, verdict in decision.with_ruling(Ruling.CHOSEN):
            if not proposal.is_noop:
                assert not verdict.acts
                self.kinds.add(proposal.kind)
                self.decisions.add(str(proposal.payload.get("decision", "")))

    def has(self, kinds: frozenset[Any]) -> bool:
        return kinds <= self.kinds


@pytest.mark.timeout(420)
def test_every_kind_is_chosen_in_shadow_and_nothing_is_written(
    lab: Lab,
    observer_kubeconfig: Path,
    managed: Callable[[dict[str, Any]], None],
    eventually: Callable[..., Any],
    tmp_path: Path,
) -> None:
    managed(a_service("roomy", "worker-2", memory="256Mi"))
    managed(a_service("slow", "worker-1", **{"latency-objective-ms": "6"}))
    for name in ("roomy", "slow"):
        eventually(lambda n=name: ready(lab, n))
    already = len(audit(lab))
    name, cluster = open_cluster(
        observer_kubeconfig, namespaces="sim-*", prometheus=lab.prometheus_url
    )
    settings = live_settings(with_overrides(Settings(), EAGER), name)
    seen = Seen()
    with contextlib.ExitStack() as stack:
        stack.callback(cluster.close)
        journal = stack.enter_context(
            Journal.open(tmp_path / "kinds.db", settings=settings.journal)
        )
        # Without Prometheus' past: the surges of earlier tests are no part of this one's.
        runner = Runner(settings=settings, journal=journal, cluster=cluster)
        cycles = runner.cycles(None)

        def look_until(done: Callable[[], bool], began: float = monotonic()) -> None:
            while not done():
                report = next(cycles)
                seen.take(report)
                cluster.comment(report.turn.decision)
                late = f"{sorted(KINDS - seen.kinds)} never chosen; last: {last_words(report)}"
                assert monotonic() - began < MOST_SECONDS, late
                sleep(0.5)

        look_until(lambda: seen.has(EFFICIENCY_KINDS))  # quiet: something can be saved
        stress(lab, managed, stack)
        look_until(lambda: seen.has(ADMISSION_KINDS) and "reject" in seen.decisions)
        stack.callback(lab.signal, "kubelet-worker-2", signal.SIGCONT)
        lab.signal("kubelet-worker-2", signal.SIGSTOP)
        look_until(lambda: seen.has(KINDS) and seen.cycles >= CYCLES)
    writes = by(audit(lab)[already:])
    assert any(e["verb"] == "create" and e["objectRef"]["resource"] == "events" for e in writes)
    assert any(e["verb"] == "update" and e["objectRef"]["resource"] == "leases" for e in writes)
    assert strange_writes(audit(lab)[already:]) == []


def stress(
    lab: Lab, managed: Callable[[dict[str, Any]], None], stack: contextlib.ExitStack
) -> None:
    """Batch work fills a worker until the service beside it is slow, and more of it waits."""
    managed(a_job("greedy", pods=1, cpu="50m", burn=450, node="worker-1"))
    managed(a_job("waiting", pods=6, cpu="20", burn=0))
    url = f"http://{ready(lab, 'slow')[0]['status']['podIP']}:8000/"
    command = [str(lab.layout.binaries / "workload"), "load", "-shape=30x300s", f"-urls={url}"]
    load = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    stack.callback(load.wait)
    stack.callback(load.kill)


def last_words(report: Report) -> list[str]:
    decision = report.turn.decision
    rows = zip(decision.proposals, decision.verdicts, strict=True)
    said = [f"{p.label} {p.target.short} {v.ruling}: {v.sentence or p.reason}" for p, v in rows]
    return [*said, str(report.turn.snapshot.troubles), *workers_as_seen(report)]


def workers_as_seen(report: Report) -> list[str]:
    """Why nobody asks for anything there: usage, its age, and what the forecast makes of it."""
    snapshot, demand = report.turn.snapshot, report.turn.forecast.node_demand
    nodes, column = snapshot.nodes, horizon_column(900)
    return [
        f"{name}: {nodes.cpu_used_millicores[row]} of {nodes.cpu_capacity_millicores[row]} m, "
        f"{nodes.age_seconds[row]} s old, upper {demand.upper_millicores[row, column]} m, "
        f"abstains {demand.abstains[row]}, tainted {nodes.tainted[row]}, pods {nodes.pods[row]}"
        for row, name in enumerate(nodes.names)
        if str(name).startswith("worker")
    ]


def test_witness_finds_a_planted_write(lab: Lab, observer_kubeconfig: Path) -> None:
    """The control: a write of ours that is neither Lease nor Event is found, done or refused."""
    already = len(audit(lab))
    store = Store(from_kubeconfig(observer_kubeconfig), kinds=[])
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "planted", "namespace": "pilothouse-system"},
    }

    async def plant(api: Api) -> None:
        leases = "/apis/coordination.k8s.io/v1/namespaces/pilothouse-system/leases"
        await api.post(leases, json.dumps(lease).encode(), audit_id="planted-done")
        with contextlib.suppress(BackendError):
            path = "/api/v1/namespaces/default/configmaps"
            await api.post(path, b'{"metadata":{"name":"planted"}}', audit_id="planted-refused")
        planted.append(True)

    planted: list[bool] = []
    store.add(plant)
    store.open()
    deadline = monotonic() + 30
    while not planted and monotonic() < deadline:
        sleep(0.1)
    store.close()
    lab.kubectl("delete", "lease", "planted", "-n", "pilothouse-system")
    found = strange_writes(audit(lab)[already:])
    assert len(found) == 2
    assert "planted" in found[0]
    assert found[1].endswith("403")
