# SPDX-License-Identifier: Apache-2.0
"""Values with good defaults, so that a test names only what it is about.

``a_snapshot`` is a calm, consistent cluster: every pod runs, nothing waits, node sums equal the
sums of their pods. Tests then break one thing with ``with_node``, ``with_pod``, ``with_workload``
or ``with_namespace``. ``moved`` gives the next cycle of the same cluster, with the usage of every
pod changed and a share of the pods replaced; it is what the journal's size is measured with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import (
    HORIZONS_SECONDS,
    Action,
    ActionKind,
    Decision,
    DemandTable,
    Driver,
    Evidence,
    Forecast,
    Mode,
    NamespaceTable,
    NodeTable,
    Phase,
    PodTable,
    Power,
    Proposal,
    Receipt,
    Ref,
    Result,
    Reward,
    RiskTable,
    Ruling,
    Snapshot,
    Source,
    Status,
    Toll,
    Verb,
    Verdict,
    WorkloadKind,
    WorkloadTable,
    Write,
    ZoneTable,
    columns,
)

Row = int | str
AnyTable = TypeVar("AnyTable", NodeTable, PodTable, WorkloadTable, NamespaceTable, ZoneTable)

NAMESPACES = ("shop", "media", "reports", "kube-system")
"""The last one is protected; the others are managed."""


def ints(values: Any) -> NDArray[np.int32]:
    return np.asarray(values, dtype=np.int32)


def names(values: Sequence[str]) -> NDArray[np.object_]:
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array


def a_snapshot(
    *,
    nodes: int = 6,
    pods: int = 24,
    workloads: int | None = None,
    seed: int = 0,
    cluster: str = "sim",
    taken_seconds: int = 3_600,
) -> Snapshot:
    """A calm cluster: nodes of 16 cores and 64 GiB, pods spread evenly over nodes and workloads."""
    rng = np.random.default_rng([seed, 1])
    owners = max(1, pods // 8) if workloads is None else workloads
    snapshot = Snapshot(
        cluster=cluster,
        taken_seconds=taken_seconds,
        nodes=_nodes(nodes, rng),
        pods=_pods(pods, nodes, owners, taken_seconds, rng),
        workloads=_workloads(owners, rng),
        namespaces=_namespaces(),
        zones=_zones(),
        sources=(
            Source(name="cluster", age_seconds=0, completeness_permille=1000),
            Source(name="metrics", age_seconds=15, completeness_permille=1000),
        ),
    )
    return consistent(snapshot)


def _nodes(count: int, rng: np.random.Generator) -> NodeTable:
    zeros = np.zeros(count, dtype=np.int32)
    return NodeTable(
        uid=np.arange(1, count + 1, dtype=np.int64),
        names=names([f"node-{i}" for i in range(count)]),
        zone=ints(np.arange(count) % 2),
        cpu_capacity_millicores=ints(np.full(count, 16_000)),
        memory_capacity_mib=ints(np.full(count, 65_536)),
        cpu_requested_millicores=zeros,
        memory_requested_mib=zeros,
        cpu_used_millicores=zeros,
        memory_used_mib=zeros,
        pods=zeros,
        ready=ints(np.ones(count)),
        tainted=zeros,
        power=ints(np.full(count, Power.AWAKE)),
        frequency_permille=ints(np.full(count, 1000)),
        latency_ms=ints(rng.integers(5, 30, count)),
        errors_per_minute=zeros,
        heartbeat_lag_ms=ints(rng.integers(0, 200, count)),
        power_watts=ints(np.full(count, 120)),
        age_seconds=ints(np.full(count, 15)),
    )


def _pods(
    count: int, nodes: int, workloads: int, taken_seconds: int, rng: np.random.Generator
) -> PodTable:
    workload = np.arange(count) % workloads
    request = ints(rng.choice((250, 500, 750), count))
    memory = ints(rng.choice((512, 1_024, 2_048), count))
    used = ints(memory * rng.uniform(0.4, 0.7, count))
    created = ints(rng.integers(0, max(taken_seconds - 900, 1), count))
    return PodTable(
        uid=np.arange(1_000, 1_000 + count, dtype=np.int64),
        names=names([f"{_workload_name(w)}-{i:05x}" for i, w in enumerate(workload.tolist())]),
        workload=ints(workload),
        node=ints(np.arange(count) % nodes if nodes else np.full(count, -1)),
        phase=ints(np.full(count, Phase.RUNNING)),
        pending_cause=ints(np.zeros(count)),
        created_seconds=created,
        since_seconds=ints(created + 20),
        cpu_request_millicores=request,
        cpu_limit_millicores=ints(2 * request),
        cpu_used_millicores=ints(request * rng.uniform(0.3, 0.7, count)),
        memory_request_mib=memory,
        memory_limit_mib=ints(2 * memory),
        memory_used_mib=used,
        memory_peak_mib=ints(used * 1.1),
        restarts=ints(np.zeros(count)),
        oom_kills=ints(np.zeros(count)),
        evictable=ints(np.ones(count)),
    )


def _workload_name(row: int) -> str:
    return f"app-{row}"


def _workloads(count: int, rng: np.random.Generator) -> WorkloadTable:
    zeros = np.zeros(count, dtype=np.int32)
    # From four workloads on the last one lives in the protected namespace.
    namespace = np.arange(count) % (len(NAMESPACES) - 1)
    if count >= len(NAMESPACES):
        namespace[-1] = len(NAMESPACES) - 1
    return WorkloadTable(
        uid=np.arange(500_000_000, 500_000_000 + count, dtype=np.int64),
        names=names([_workload_name(i) for i in range(count)]),
        namespace=ints(namespace),
        kind=ints(np.full(count, WorkloadKind.SERVICE)),
        priority=ints(np.full(count, 100)),
        replicas_baseline=zeros,
        replicas_desired=zeros,
        replicas_ready=zeros,
        min_available=zeros,
        autoscaled=zeros,
        replicas_floor=zeros,
        latency_ms=ints(rng.integers(20, 80, count)),
        latency_objective_ms=ints(np.full(count, 200)),
        load_permille=ints(rng.integers(400, 700, count)),
        in_violation=zeros,
    )


def _namespaces() -> NamespaceTable:
    count = len(NAMESPACES)
    protected = ints([name == "kube-system" for name in NAMESPACES])
    return NamespaceTable(
        uid=np.arange(1, count + 1, dtype=np.int64),
        names=names(NAMESPACES),
        managed=ints(1 - protected),
        protected=protected,
        gate=ints(np.zeros(count)),
    )


def _zones() -> ZoneTable:
    return ZoneTable(
        uid=np.arange(1, 3, dtype=np.int64),
        names=names(("east", "west")),
        price_micros_per_kwh=ints([210_000, 180_000]),
        carbon_grams_per_kwh=ints([320, 140]),
    )


def consistent(snapshot: Snapshot) -> Snapshot:
    """The same snapshot with node and workload sums recomputed from its pods."""
    nodes, pods, workloads = snapshot.nodes, snapshot.pods, snapshot.workloads
    bound = pods.node >= 0
    running = pods.phase == Phase.RUNNING

    def on_nodes(column: NDArray[np.int32]) -> NDArray[np.int32]:
        sums = np.bincount(pods.node[bound], weights=column[bound], minlength=len(nodes))
        return ints(sums)

    ready = np.bincount(pods.workload[running], minlength=len(workloads))
    wanted = np.bincount(pods.workload, minlength=len(workloads))
    return replace(
        snapshot,
        nodes=replace(
            nodes,
            cpu_requested_millicores=on_nodes(pods.cpu_request_millicores),
            memory_requested_mib=on_nodes(pods.memory_request_mib),
            cpu_used_millicores=on_nodes(pods.cpu_used_millicores),
            memory_used_mib=on_nodes(pods.memory_used_mib),
            pods=on_nodes(np.ones(len(pods), dtype=np.int32)),
        ),
        workloads=replace(
            workloads,
            replicas_baseline=ints(wanted),
            replicas_desired=ints(wanted),
            replicas_ready=ints(ready),
            min_available=ints(wanted // 2),
        ),
    )


def moved(
    snapshot: Snapshot, seed: int = 0, *, seconds: int = 15, replaced_permille: int = 10
) -> Snapshot:
    """The next cycle: every pod uses something else, some pods are gone and as many are new."""
    rng = np.random.default_rng([seed, snapshot.taken_seconds, 2])
    now = snapshot.taken_seconds + seconds
    pods = _with_other_usage(snapshot.pods, rng)
    pods = _with_replacements(pods, len(snapshot.nodes), now, replaced_permille, rng)
    workloads, nodes = snapshot.workloads, snapshot.nodes
    after = replace(
        snapshot,
        taken_seconds=now,
        pods=pods,
        nodes=replace(
            nodes,
            heartbeat_lag_ms=ints(rng.integers(0, 200, len(nodes))),
            power_watts=ints(np.maximum(nodes.power_watts + rng.integers(-5, 6, len(nodes)), 60)),
        ),
        workloads=replace(
            workloads,
            latency_ms=_jittered(workloads.latency_ms, 8, rng),
            load_permille=_jittered(workloads.load_permille, 30, rng),
        ),
    )
    kept = after.workloads
    after = consistent(after)
    # What owners declared does not move because pods come and go.
    return replace(
        after,
        workloads=replace(
            after.workloads,
            replicas_baseline=kept.replicas_baseline,
            min_available=kept.min_available,
        ),
    )


def _jittered(
    column: NDArray[np.int32], spread: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    return ints(np.maximum(column + rng.integers(-spread, spread + 1, len(column)), 1))


def _with_other_usage(pods: PodTable, rng: np.random.Generator) -> PodTable:
    memory = np.minimum(_jittered(pods.memory_used_mib, 16, rng), pods.memory_limit_mib)
    return replace(
        pods,
        cpu_used_millicores=_jittered(pods.cpu_used_millicores, 40, rng),
        memory_used_mib=ints(memory),
        memory_peak_mib=np.maximum(pods.memory_peak_mib, ints(memory)),
    )


def _with_replacements(
    pods: PodTable, nodes: int, now: int, permille: int, rng: np.random.Generator
) -> PodTable:
    count = -(-len(pods) * permille // 1000)
    if count == 0:
        return pods
    gone = np.sort(rng.choice(len(pods), count, replace=False))
    fresh_uid = np.arange(1, count + 1, dtype=np.int64) + int(pods.uid[-1])
    fresh: dict[str, NDArray[Any]] = {
        name: np.asarray(column[gone]) for name, column in columns(pods).items()
    }
    fresh["created_seconds"] = fresh["since_seconds"] = ints(np.full(count, now))
    fresh["restarts"] = fresh["oom_kills"] = ints(np.zeros(count))
    fresh["node"] = ints(rng.integers(0, nodes, count))
    fresh["uid"] = fresh_uid
    fresh["names"] = names(
        [
            f"{_workload_name(w)}-{u:05x}"
            for w, u in zip(fresh["workload"].tolist(), fresh_uid.tolist(), strict=True)
        ]
    )
    kept = np.delete(np.arange(len(pods)), gone)
    return PodTable(
        **{name: np.concatenate((getattr(pods, name)[kept], fresh[name])) for name in fresh}
    )


def with_node(snapshot: Snapshot, row: Row = 0, **values: int) -> Snapshot:
    """One node changed, by row or by name: ``with_node(s, "node-2", ready=0)``."""
    return replace(snapshot, nodes=_changed(snapshot.nodes, row, values))


def with_pod(snapshot: Snapshot, row: Row = 0, **values: int) -> Snapshot:
    return replace(snapshot, pods=_changed(snapshot.pods, row, values))


def with_workload(snapshot: Snapshot, row: Row = 0, **values: int) -> Snapshot:
    return replace(snapshot, workloads=_changed(snapshot.workloads, row, values))


def with_namespace(snapshot: Snapshot, row: Row = 0, **values: int) -> Snapshot:
    return replace(snapshot, namespaces=_changed(snapshot.namespaces, row, values))


def _changed(table: AnyTable, row: Row, values: dict[str, int]) -> AnyTable:
    index = table.names.tolist().index(row) if isinstance(row, str) else row
    changed: dict[str, Any] = {}
    for name, value in values.items():
        column = getattr(table, name).copy()
        column[index] = value
        changed[name] = column
    return replace(table, **changed)


def a_forecast(snapshot: Snapshot, *, seed: int = 0, forecaster: str = "test/1") -> Forecast:
    """Low risk everywhere and demand a little above what is used, for this very snapshot."""
    rng = np.random.default_rng([seed, snapshot.taken_seconds, 3])
    workload_use = np.bincount(
        snapshot.pods.workload,
        weights=snapshot.pods.cpu_used_millicores,
        minlength=len(snapshot.workloads),
    )
    return Forecast(
        cluster=snapshot.cluster,
        made_seconds=snapshot.taken_seconds,
        forecaster=forecaster,
        node_risk=_risk(snapshot.nodes.uid, rng),
        pod_risk=_risk(snapshot.pods.uid, rng),
        workload_risk=_risk(snapshot.workloads.uid, rng),
        node_demand=_demand(snapshot.nodes.uid, snapshot.nodes.cpu_used_millicores),
        workload_demand=_demand(snapshot.workloads.uid, workload_use),
    )


def _risk(uid: NDArray[np.int64], rng: np.random.Generator) -> RiskTable:
    count, horizons = len(uid), len(HORIZONS_SECONDS)
    risk = np.sort(rng.integers(0, 60, (count, horizons)), axis=1)
    return RiskTable(
        uid=uid,
        risk_permille=ints(risk),
        driver=ints(np.full(count, Driver.NONE)),
        driver_value=ints(np.zeros(count)),
        abstains=ints(np.zeros(count)),
    )


def _demand(uid: NDArray[np.int64], used: NDArray[Any]) -> DemandTable:
    growth = np.array([1.02, 1.05, 1.08, 1.1])
    # Room below the largest int32, so that extreme usage stays a demand and not a cast.
    median = ints(np.clip(np.outer(used, growth), 0, 2**30))
    return DemandTable(
        uid=uid,
        median_millicores=median,
        upper_millicores=ints(median * 1.25),
        abstains=ints(np.zeros(len(uid))),
    )


def with_risk(
    forecast: Forecast,
    table: str,
    row: int,
    permille: int | Sequence[int],
    driver: Driver = Driver.ERRORS,
    value: int = 20,
) -> Forecast:
    """One row's risk changed; ``table`` is ``node_risk``, ``pod_risk`` or ``workload_risk``."""
    before: RiskTable = getattr(forecast, table)
    risk, drivers, numbers = (
        before.risk_permille.copy(),
        before.driver.copy(),
        before.driver_value.copy(),
    )
    risk[row], drivers[row], numbers[row] = permille, driver, value
    after = replace(before, risk_permille=risk, driver=drivers, driver_value=numbers)
    changes: dict[str, Any] = {table: after}
    return replace(forecast, **changes)


def with_demand(forecast: Forecast, table: str, row: int, *, median: int, upper: int) -> Forecast:
    """One row's demand changed on all horizons; ``node_demand`` or ``workload_demand``."""
    before: DemandTable = getattr(forecast, table)
    medians, uppers = before.median_millicores.copy(), before.upper_millicores.copy()
    medians[row], uppers[row] = median, upper
    after = replace(before, median_millicores=medians, upper_millicores=uppers)
    changes: dict[str, Any] = {table: after}
    return replace(forecast, **changes)


def a_proposal(target: Ref | None = None, **changes: Any) -> Proposal:
    values: dict[str, Any] = {
        "agent": "safety",
        "label": "AgentA:migrate",
        "kind": ActionKind.MIGRATE,
        "target": target or Ref("sim", "node", "", "node-0"),
        "payload": {},
        "score": 0.78,
        "priority": 1,
        "evidence": (Evidence("risk 15 min", 0.78, needs=0.70),),
        "reason": "node-0 fails within 15 min with probability 0.78 (needs 0.70)",
        "expires_seconds": 10_000,
    }
    return Proposal(**{**values, **changes})


def a_verdict(**changes: Any) -> Verdict:
    values: dict[str, Any] = {
        "ruling": Ruling.CHOSEN,
        "rule": "highest-score",
        "sentence": "nothing outranks it",
        "mode": Mode.ENFORCE,
    }
    return Verdict(**{**values, **changes})


def an_action(decision: str = "d0", number: int = 0, **changes: Any) -> Action:
    """A taint of one node with its inverse; intents follow ``<decision>.<action>.<n>``."""
    node = Ref("sim", "node", "", "node-0")
    ident = f"{decision}.{number}"
    taint = Write(verb=Verb.TAINT, target=node, uid=1, value=1, original=0, intent=f"{ident}.0")
    values: dict[str, Any] = {
        "id": ident,
        "proposal": 0,
        "agent": "safety",
        "kind": ActionKind.MIGRATE,
        "target": node,
        "writes": (taint,),
        "inverse": (replace(taint, value=0, original=1, expect=1, intent=""),),
        "expires_seconds": 5_400,
    }
    return Action(**{**values, **changes})


def a_decision(cycle: int = 0, **changes: Any) -> Decision:
    """Doing nothing, unless actions are given."""
    values: dict[str, Any] = {
        "id": f"{cycle:08x}",
        "cycle": cycle,
        "made_seconds": 3_600 + 15 * cycle,
        "snapshot_digest": "",
        "forecast_digest": "",
        "proposals": (a_proposal(),),
        "verdicts": (a_verdict(),),
        "actions": (),
        "headline": None,
        "rationale": "nothing is at risk: the highest risk is 0.06 (needs 0.50)",
        "margin": "",
    }
    return Decision(**{**values, **changes})


def a_receipt(intent: str = "d0.0.0", **changes: Any) -> Receipt:
    values: dict[str, Any] = {
        "intent": intent,
        "status": Status.DONE,
        "detail": "",
        "at_seconds": 3_601,
    }
    return Receipt(**{**values, **changes})


def a_toll(**changes: float) -> Toll:
    zero = dict.fromkeys(
        (
            "failed_pod_seconds",
            "violation_seconds",
            "waiting_pod_seconds",
            "energy_joules",
            "energy_cost_micros",
            "carbon_grams",
        ),
        0.0,
    )
    return Toll(**{**zero, **changes})


def a_result(action: str = "d0.0", **changes: Any) -> Result:
    values: dict[str, Any] = {
        "action": action,
        "settled_seconds": 3_720,
        "method": "fork",
        "toll": a_toll(energy_joules=1_000.0),
        "effect": a_toll(failed_pod_seconds=-120.0),
        "reward": Reward(safety=7.2, efficiency=0.0, admission=0.4),
        "overlapped": False,
        "sentence": "120 pod seconds of failure avoided",
    }
    return Result(**{**values, **changes})
