# SPDX-License-Identifier: Apache-2.0
"""Objects in, columns out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pilothouse.clients.cache import Health
from pilothouse.clients.metrics import Sample, Usage
from pilothouse.clients.resources import (
    Autoscaler,
    AutoscalerSpec,
    Budget,
    BudgetSpec,
    BudgetStatus,
    Condition,
    Container,
    ContainerState,
    ContainerStatus,
    Lease,
    LeaseSpec,
    Meta,
    Namespace,
    Node,
    NodeSpec,
    NodeStatus,
    Owner,
    Pod,
    PodSpec,
    PodStatus,
    PodTemplate,
    Resources,
    Selector,
    Taint,
    Target,
    Terminated,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from pilothouse.domain import Phase, Snapshot
from pilothouse.observe import MetricsApi, Observer, ShadowCluster, UsagePoll
from pilothouse.observe.figures import Figures

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = START + timedelta(seconds=1000)


def a_meta(name: str, *, age: int = 500, **changes: Any) -> Meta:
    made = NOW - timedelta(seconds=age)
    given = {"namespace": "shop", "uid": f"uid-{name}", "resource_version": "1"} | changes
    return Meta(name=name, creation_timestamp=made, **given)


def a_node(
    name: str, *, ready: bool = True, taints: tuple[Taint, ...] = (), age: int = 900
) -> Node:
    status = "True" if ready else "Unknown"
    return Node(
        metadata=a_meta(name, age=age, namespace="", labels={"topology.kubernetes.io/zone": "a"}),
        spec=NodeSpec(taints=taints),
        status=NodeStatus(
            allocatable={"cpu": "2", "memory": "4Gi"},
            conditions=(Condition(type="Ready", status=status),),
        ),
    )


def a_pod(
    name: str,
    *,
    node: str = "n1",
    owner: Owner | None = None,
    phase: str = "Running",
    ready: bool = True,
    restarts: int = 0,
    oom: bool = False,
    age: int = 400,
    **changes: Any,
) -> Pod:
    ended = ContainerState(terminated=Terminated(exit_code=137, reason="OOMKilled" if oom else ""))
    return Pod(
        metadata=a_meta(name, age=age, owner_references=(owner,) if owner else (), **changes),
        spec=PodSpec(
            node_name=node,
            containers=(
                Container(
                    name="c",
                    resources=Resources(
                        requests={"cpu": "100m", "memory": "64Mi"}, limits={"cpu": "200m"}
                    ),
                ),
            ),
        ),
        status=PodStatus(
            phase=phase,
            conditions=(Condition(type="Ready", status="True" if ready else "False"),),
            container_statuses=(
                ContainerStatus(
                    restart_count=restarts,
                    last_state=ended if restarts else ContainerState(),
                ),
            ),
        ),
    )


class FakeStore:
    """The caches of a small shop."""

    def __init__(self) -> None:
        replicaset = Owner(kind="ReplicaSet", name="cart-1", uid="uid-cart-1", controller=True)
        deployment = Owner(kind="Deployment", name="cart", uid="uid-cart", controller=True)
        self.held: dict[str, str] = {}
        self.declared: dict[str, int] = {}
        self.things: dict[str, list[Any]] = {
            "namespaces": [
                Namespace(metadata=a_meta("kube-system", age=1000, namespace="")),
                Namespace(
                    metadata=a_meta(
                        "shop", age=950, namespace="", labels={"pilothouse.dev/managed": "true"}
                    )
                ),
            ],
            "nodes": [a_node("n1"), a_node("n2", age=800)],
            "pods": [
                a_pod("cart-1-x", owner=replicaset),
                a_pod("cart-1-y", owner=replicaset, node="n2", age=300),
                a_pod("lonely", age=200),
            ],
            "deployments": [
                Workload(
                    metadata=a_meta("cart"),
                    spec=WorkloadSpec(
                        replicas=2, template=PodTemplate(metadata=Meta(labels={"app": "cart"}))
                    ),
                    status=WorkloadStatus(ready_replicas=2),
                )
            ],
            "replicasets": [Workload(metadata=a_meta("cart-1", owner_references=(deployment,)))],
            "leases": [
                Lease(
                    metadata=a_meta("n1", namespace="kube-node-lease"),
                    spec=LeaseSpec(
                        renew_time=NOW - timedelta(seconds=25), lease_duration_seconds=40
                    ),
                )
            ],
        }
        self.ages = {"pods": 3.0}

    def __getattr__(self, name: str) -> Any:
        return lambda: list(self.things.get(name, []))

    def workloads(self, name: str) -> list[Any]:
        return list(self.things.get(name, []))

    def autoscalers(self) -> list[Any]:
        return list(self.things.get("autoscalers", []))

    def gates(self) -> dict[str, str]:
        return self.held

    def declared_replicas(self) -> dict[str, int]:
        return self.declared

    def health(self) -> list[Health]:
        return [
            Health(
                name=name,
                synced=True,
                objects=1,
                age_seconds=age,
                lists=1,
                watches=1,
                changes=0,
                problem="",
            )
            for name, age in self.ages.items()
        ]


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def poll() -> UsagePoll:
    poll = UsagePoll(MetricsApi())
    at = NOW.timestamp() - 7
    poll.latest = Usage(
        source="test",
        nodes={"n1": Sample(cpu_millicores=500, memory_mib=1024, at=at)},
        pods={("shop", "cart-1-x"): Sample(cpu_millicores=150, memory_mib=40, at=at)},
    )
    return poll


@pytest.fixture
def observer(store: Any, poll: UsagePoll) -> Observer:
    return Observer(store=store, usage=poll, cluster="lab", now=NOW.timestamp)


def row(snapshot: Snapshot, kind: str, name: str) -> int:
    return int(getattr(snapshot, kind).names.tolist().index(name))


def test_pods_of_a_deployment_belong_to_it_through_the_replicaset(observer: Observer) -> None:
    snapshot = observer.observe()
    cart = row(snapshot, "workloads", "cart")
    assert snapshot.workloads.replicas_ready[cart] == 2
    assert snapshot.pods.workload[row(snapshot, "pods", "cart-1-x")] == cart


def test_pod_that_nobody_owns_is_its_own_workload_and_never_evicted(observer: Observer) -> None:
    snapshot = observer.observe()
    pod = row(snapshot, "pods", "lonely")
    assert snapshot.workloads.names[snapshot.pods.workload[pod]] == "lonely"
    assert snapshot.pods.evictable[pod] == 0
    assert snapshot.pods.evictable[row(snapshot, "pods", "cart-1-x")] == 1


def test_rows_ascend_by_uid_and_uids_are_the_same_for_every_observer(
    observer: Observer, store: Any, poll: UsagePoll
) -> None:
    other = Observer(store=store, usage=poll, cluster="lab", now=NOW.timestamp)
    first, second = observer.observe(), other.observe()
    for kind in ("nodes", "pods", "workloads", "namespaces"):
        uids = getattr(first, kind).uid
        assert (np.diff(uids) > 0).all(), kind
        assert (uids == getattr(second, kind).uid).all(), kind


def test_clock_counts_from_the_birth_of_the_cluster(observer: Observer) -> None:
    assert observer.observe().taken_seconds == 1000


def test_usage_that_was_never_measured_is_old_not_fresh(observer: Observer) -> None:
    snapshot = observer.observe()
    ages = dict(zip(snapshot.nodes.names, snapshot.nodes.age_seconds.tolist(), strict=True))
    assert ages["n1"] == 7
    assert ages["n2"] >= 3600
    metrics = next(s for s in snapshot.sources if s.name == "metrics")
    assert metrics.completeness_permille == 500


def test_sources_carry_the_age_of_every_cache(observer: Observer, store: FakeStore) -> None:
    store.ages = {"pods": 94.2, "nodes": float("inf")}
    ages = {s.name: s.age_seconds for s in observer.observe().sources}
    assert ages["pods"] == 94
    assert ages["nodes"] >= 3600


def test_late_heartbeat_shows_as_lag(observer: Observer) -> None:
    snapshot = observer.observe()
    assert snapshot.nodes.heartbeat_lag_ms[row(snapshot, "nodes", "n1")] == 15_000


def test_pod_on_a_silent_node_has_failed_whatever_its_status_says(
    observer: Observer, store: FakeStore
) -> None:
    store.things["nodes"][1] = a_node("n2", ready=False, age=800)
    snapshot = observer.observe()
    assert snapshot.pods.phase[row(snapshot, "pods", "cart-1-y")] == Phase.FAILED
    assert snapshot.pods.phase[row(snapshot, "pods", "cart-1-x")] == Phase.RUNNING


def test_oom_kills_are_counted_across_restarts(observer: Observer, store: FakeStore) -> None:
    observer.observe()
    for restarts in (1, 2):
        version = {"resource_version": str(restarts + 1)}
        store.things["pods"][2] = a_pod("lonely", restarts=restarts, oom=True, age=200, **version)
        snapshot = observer.observe()
        pod = row(snapshot, "pods", "lonely")
        assert snapshot.pods.oom_kills[pod] == restarts
        assert snapshot.pods.restarts[pod] == restarts


def test_peak_memory_is_kept_until_the_container_starts_anew(
    observer: Observer, poll: UsagePoll
) -> None:
    observer.observe()
    at = NOW.timestamp()
    poll.latest = Usage(
        source="test",
        nodes={},
        pods={("shop", "cart-1-x"): Sample(cpu_millicores=1, memory_mib=10, at=at)},
    )
    snapshot = observer.observe()
    pod = row(snapshot, "pods", "cart-1-x")
    assert (snapshot.pods.memory_used_mib[pod], snapshot.pods.memory_peak_mib[pod]) == (10, 40)


def test_disruption_budget_is_the_workloads_floor(observer: Observer, store: FakeStore) -> None:
    store.things["budgets"] = [
        Budget(
            metadata=a_meta("cart"),
            spec=BudgetSpec(selector=Selector(match_labels={"app": "cart"})),
            status=BudgetStatus(desired_healthy=1),
        )
    ]
    snapshot = observer.observe()
    assert snapshot.workloads.min_available[row(snapshot, "workloads", "cart")] == 1


def test_autoscalers_minimum_is_the_replicas_floor(observer: Observer, store: FakeStore) -> None:
    store.things["autoscalers"] = [
        Autoscaler(
            metadata=a_meta("cart"),
            spec=AutoscalerSpec(
                scale_target_ref=Target(kind="Deployment", name="cart"), min_replicas=2
            ),
        )
    ]
    snapshot = observer.observe()
    cart = row(snapshot, "workloads", "cart")
    assert (snapshot.workloads.autoscaled[cart], snapshot.workloads.replicas_floor[cart]) == (1, 2)


def test_namespaces_are_managed_only_by_their_owners_word(observer: Observer) -> None:
    snapshot = observer.observe()
    spaces = snapshot.namespaces
    flags = zip(spaces.managed.tolist(), spaces.protected.tolist(), strict=True)
    found = dict(zip(spaces.names, flags, strict=True))
    assert found == {"kube-system": (0, 1), "shop": (1, 0)}


def test_namespaces_outside_the_patterns_are_not_shown_but_fill_nodes(
    store: Any, poll: UsagePoll
) -> None:
    only = ("kube-*",)
    observer = Observer(store=store, usage=poll, cluster="lab", namespaces=only, now=NOW.timestamp)
    snapshot = observer.observe()
    assert len(snapshot.pods) == 0
    assert snapshot.nodes.cpu_requested_millicores.tolist() == [200, 100]


def test_tainted_node_keeps_new_pods_off(observer: Observer, store: FakeStore) -> None:
    store.things["nodes"][0] = a_node("n1", taints=(Taint(key="x", effect="NoSchedule"),))
    snapshot = observer.observe()
    assert snapshot.nodes.tainted.tolist() == [1, 0]


def test_empty_cluster_is_a_snapshot_too(poll: UsagePoll) -> None:
    store = FakeStore()
    store.things = {}
    observer = Observer(store=store, usage=poll, cluster="lab", now=NOW.timestamp)  # type: ignore[arg-type]
    snapshot = observer.observe()
    assert len(snapshot.nodes) == len(snapshot.pods) == 0
    assert snapshot.interpreted.queue_length == 0


def test_shadow_charges_for_failed_pods_by_the_second(store: Any, poll: UsagePoll) -> None:
    store.things["nodes"][1] = a_node("n2", ready=False, age=800)
    now = [NOW.timestamp()]
    observer = Observer(store=store, usage=poll, cluster="lab", now=lambda: now[0])
    cluster = ShadowCluster(store, observer)
    cluster.observe()
    now[0] += 10
    cluster.observe()
    assert cluster.toll().failed_pod_seconds == 10
    now[0] += 3600  # nobody looked; what happened meanwhile is not known
    cluster.observe()
    assert cluster.toll().failed_pod_seconds == 70


def test_watches_served_from_memory_alone_do_not_pass_for_current(
    store: Any, poll: UsagePoll
) -> None:
    silent = [2.0]
    observer = Observer(
        store=store, usage=poll, cluster="lab", now=NOW.timestamp, silence=lambda: silent[0]
    )

    def told() -> tuple[int, int]:
        found = next(s for s in observer.observe().sources if s.name == "cluster store")
        return found.age_seconds, found.completeness_permille

    assert told() == (2, 1000)
    silent[0] = 9.0
    assert told() == (9, 0)


def test_readings_are_shown_once_for_each_answer(store: Any, poll: UsagePoll) -> None:
    figures: Any = SimpleNamespace(
        latest=Figures(readings={("n1", "pods"): (NOW.timestamp(), 3.5)})
    )
    observer = Observer(store=store, usage=poll, cluster="lab", now=NOW.timestamp, figures=figures)
    (reading,) = observer.observe().readings
    assert (reading.node, reading.name, reading.thousandths) == ("n1", "pods", 3500)
    assert observer.observe().readings == ()
    figures.latest = Figures(readings={("n1", "pods"): (NOW.timestamp(), 4.0)})
    assert [r.thousandths for r in observer.observe().readings] == [4000]


def test_service_slower_than_its_objective_is_in_violation(store: Any, poll: UsagePoll) -> None:
    store.things["deployments"][0] = Workload(
        metadata=a_meta("cart", annotations={"pilothouse.dev/latency-objective-ms": "100"}),
        spec=WorkloadSpec(replicas=2),
    )
    figures: Any = SimpleNamespace(latest=Figures(latency_ms={("shop", "cart"): 90}))
    observer = Observer(store=store, usage=poll, cluster="lab", now=NOW.timestamp, figures=figures)

    def cart() -> tuple[int, int]:
        seen = observer.observe()
        at = row(seen, "workloads", "cart")
        return int(seen.workloads.latency_ms[at]), int(seen.workloads.in_violation[at])

    assert cart() == (90, 0)
    figures.latest = Figures(latency_ms={("shop", "cart"): 250})
    assert cart() == (250, 1)
