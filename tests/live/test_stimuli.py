# SPDX-License-Identifier: Apache-2.0
"""Each stimulus is named within 30 s, and what is forecast and proposed follows from it.

Read the columns left to right: what is done to the cluster, what the snapshot calls it, what the
forecast says of it, which agent wants what. Causes that no queue can help must not move Admission.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from pilothouse.cli.live import history, open_cluster
from pilothouse.domain import ActionKind, Cause, Driver, Forecast, Proposal, Snapshot
from pilothouse.lab import Lab
from pilothouse.observe import ShadowCluster
from pilothouse.predict import forecaster_of
from pilothouse.propose.registry import default_agents
from pilothouse.settings import Settings
from pilothouse.settings.file import with_overrides
from tests.live.conftest import NAMESPACE, a_deployment

NAMED_SECONDS = 30.0
FOLLOWED_SECONDS = 60.0
SETTINGS = with_overrides(
    Settings(), {"admission.queue_queue": 2, "forecast.warmup_seconds": 15}, source="test"
)
Pods = Callable[[str], list[dict[str, Any]]]


class Watch:
    """Looks every second; remembers the last look, the forecast and what agents want."""

    def __init__(self, cluster: ShadowCluster, past: list[Snapshot]) -> None:
        self._cluster = cluster
        self._forecaster = forecaster_of(SETTINGS.forecast)
        self._agents = default_agents(SETTINGS)
        for snapshot in past:
            self._forecaster.predict(snapshot)
        self.look()

    def look(self) -> None:
        self.snapshot: Snapshot = self._cluster.observe()
        self.forecast: Forecast = self._forecaster.predict(self.snapshot)
        self.wishes: list[Proposal] = [
            wish
            for agent in self._agents
            for wish in agent.proposer.propose(self.snapshot, self.forecast)
        ]

    def until(self, holds: Callable[[], bool], seconds: float) -> float:
        began = monotonic()
        while not holds():
            took = monotonic() - began
            assert took < seconds, f"{self.snapshot.troubles} {[w.reason for w in self.wishes]}"
            sleep(0.5)
            self.look()
        return monotonic() - began

    def names(self, cause: Cause, name: str) -> bool:
        return any(t.cause is cause and t.name.startswith(name) for t in self.snapshot.troubles)

    def driver(self, table: str, name: str) -> Driver:
        names = getattr(self.snapshot, f"{table}s").names.tolist()
        return Driver(int(getattr(self.forecast, f"{table}_risk").driver[names.index(name)]))

    def wants(self, agent: str, kind: ActionKind, name: str = "") -> bool:
        return any(
            w.agent == agent and w.kind is kind and name in w.target.name for w in self.wishes
        )


@pytest.fixture
def watch(lab: Lab, observer_kubeconfig: Path, space: Callable[..., None]) -> Iterator[Watch]:
    lab.kubectl("label", "namespace", NAMESPACE, "pilothouse.dev/managed=true", "--overwrite")
    _, cluster = open_cluster(
        observer_kubeconfig, namespaces="sim-*", prometheus=lab.prometheus_url
    )
    past, _ = history(cluster, SETTINGS.observe, lab.prometheus_url)
    yield Watch(cluster, past)
    cluster.close()
    lab.kubectl("label", "namespace", NAMESPACE, "pilothouse.dev/managed-")


def test_nothing_is_named_on_a_calm_cluster(watch: Watch) -> None:
    """The control for all others."""
    watch.until(lambda: not watch.snapshot.troubles, 120)  # what tests before did may take longer


def test_memory_growth_is_named_and_replicas_are_wanted(
    watch: Watch, space: Callable[..., None]
) -> None:
    arguments = ("--memory-mib=40", "--grow-mib-per-minute=45")
    space(a_deployment("grower", arguments=arguments, limits={"memory": "96Mi", "cpu": "200m"}))
    started(watch, "grower")
    watch.until(lambda: watch.names(Cause.MEMORY_GROWTH, "grower"), NAMED_SECONDS)
    watch.until(
        lambda: watch.driver("workload", "grower") is Driver.MEMORY_GROWTH, FOLLOWED_SECONDS
    )
    watch.until(lambda: watch.wants("safety", ActionKind.REPLICATE, "grower"), 120)


def test_saturated_worker_is_named_and_more_replicas_are_wanted(
    watch: Watch, space: Callable[..., None]
) -> None:
    space(a_deployment("burner", node="worker-1", arguments=("--burn-millicores=2000",)))
    started(watch, "burner")
    watch.until(lambda: watch.names(Cause.SATURATION, "worker-1"), NAMED_SECONDS)
    watch.until(lambda: watch.wants("safety", ActionKind.REPLICATE, "burner"), FOLLOWED_SECONDS)


def test_degrading_worker_is_named_and_left(
    lab: Lab, watch: Watch, space: Callable[..., None], eventually: Callable[..., Any]
) -> None:
    """A quota that shrinks is named by what is withheld, a kubelet that stops by its heartbeat."""
    space(a_deployment("tenant", node="worker-3"))
    started(watch, "tenant")
    worker = lab.workers()[2]
    lab.squeeze("worker-3", worker.cpu_millicores // 4)
    try:
        watch.until(
            lambda: (
                watch.names(Cause.DEGRADATION, "worker-3")
                and "withheld" in sentence(watch, "worker-3")  # and not only a late heartbeat
            ),
            NAMED_SECONDS,
        )
        lab.signal("kubelet-worker-3", signal.SIGSTOP)
        watch.until(lambda: "heartbeat" in sentence(watch, "worker-3"), NAMED_SECONDS)
        watch.until(
            lambda: watch.driver("node", "worker-3") in (Driver.HEARTBEAT, Driver.UNREADY),
            FOLLOWED_SECONDS,
        )
        watch.until(lambda: watch.wants("safety", ActionKind.MIGRATE, "worker-3"), 60)
    finally:
        lab.signal("kubelet-worker-3", signal.SIGCONT)
        lab.squeeze("worker-3", worker.cpu_millicores)
        eventually(lambda: is_up(lab, "worker-3"))


def test_lost_worker_is_named_and_its_pods_are_moved(
    lab: Lab, watch: Watch, space: Callable[..., None], eventually: Callable[..., Any]
) -> None:
    space(a_deployment("orphan", node="worker-2"))
    started(watch, "orphan")
    lab.kill("kubelet-worker-2")
    try:
        watch.until(lambda: watch.names(Cause.NODE_LOSS, "worker-2"), NAMED_SECONDS)
        watch.until(lambda: watch.driver("node", "worker-2") is Driver.UNREADY, FOLLOWED_SECONDS)
        watch.until(lambda: watch.wants("safety", ActionKind.MIGRATE, "worker-2"), NAMED_SECONDS)
    finally:
        lab.restart("kubelet-worker-2")
        eventually(lambda: is_up(lab, "worker-2"))


def test_selector_that_nothing_matches_is_named_and_no_queue_is_wanted(
    watch: Watch, space: Callable[..., None]
) -> None:
    space(a_deployment("astray", replicas=4, selector={"no": "such-node"}))
    # The scheduler refuses them one by one, and a look may fall in between.
    watch.until(
        lambda: (
            watch.names(Cause.SELECTOR, "astray") and watch.snapshot.interpreted.unschedulable == 4
        ),
        NAMED_SECONDS,
    )
    assert watch.snapshot.interpreted.queue_length == 0
    assert not watch.wants("admission", ActionKind.ADMISSION)


def test_want_of_room_is_named_and_new_batch_work_is_held(
    watch: Watch, space: Callable[..., None]
) -> None:
    template = a_deployment("crowd", requests={"cpu": "300", "memory": "1Mi"})["spec"]["template"]
    template["spec"]["restartPolicy"] = "Never"
    meta = {"name": "crowd", "namespace": NAMESPACE}
    spec = {"parallelism": 4, "completions": 4, "template": template}
    space({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})
    watch.until(lambda: watch.names(Cause.RESOURCES, "crowd"), NAMED_SECONDS)
    watch.until(lambda: watch.wants("admission", ActionKind.ADMISSION, NAMESPACE), NAMED_SECONDS)


def test_quota_that_is_used_up_is_named_and_no_queue_is_wanted(
    watch: Watch, space: Callable[..., None]
) -> None:
    meta = {"name": "none", "namespace": NAMESPACE}
    spec = {"hard": {"pods": "0"}}
    space({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": spec})
    space(a_deployment("refused", replicas=4))
    watch.until(lambda: watch.names(Cause.QUOTA, "refused"), NAMED_SECONDS)
    assert not watch.wants("admission", ActionKind.ADMISSION)


def started(watch: Watch, name: str) -> None:
    """Until its pods run: starting a pod is not what these tests time."""

    def runs() -> bool:
        table = watch.snapshot.workloads
        names = table.names.tolist()
        return name in names and bool(table.replicas_ready[names.index(name)] > 0)

    watch.until(runs, 60)


def sentence(watch: Watch, name: str) -> str:
    return " ".join(t.sentence for t in watch.snapshot.troubles if t.name == name)


def is_up(lab: Lab, name: str) -> bool:
    return any(n["name"] == name and n["ready"] for n in lab.status()["nodes"])
