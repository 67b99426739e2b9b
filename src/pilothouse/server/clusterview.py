# SPDX-License-Identifier: Apache-2.0
"""Snapshot and forecast, boiled down to what a page can show.

Five thousand nodes do not fit on a screen, so tables are cut to the worst rows; everything that is
counted is counted over all rows. Column arithmetic only: a view of a large cluster costs a few
milliseconds.
"""

from __future__ import annotations

import numpy as np

from pilothouse.domain import (
    Driver,
    Forecast,
    Gate,
    PendingCause,
    Phase,
    Power,
    Reaction,
    Ref,
    RiskTable,
    Scaler,
    Snapshot,
    Trouble,
    horizon_column,
)
from pilothouse.domain.observed import NEVER
from pilothouse.domain.snapshot import Ints, Uids
from pilothouse.server.shapes import (
    AbstentionView,
    ClusterView,
    ForecastView,
    GateView,
    InterpretedView,
    NodeView,
    RawView,
    ReactionView,
    ScalerView,
    ShiftView,
    SourceView,
    StimulusView,
    TroubleView,
    WorkloadView,
)

NODES_SHOWN = 100
WORKLOADS_SHOWN = 12
TROUBLES_SHOWN = 12
RISK_HORIZON_SECONDS = 900  # the horizon the Safety agent looks at
UNKNOWN = -1

_DRIVER_TEXT = {
    Driver.NONE: "",
    Driver.ERRORS: "{} errors/min",
    Driver.HEARTBEAT: "heartbeat {} ms late",
    Driver.MEMORY_GROWTH: "memory {:+} MiB/min",
    Driver.RESTARTS: "{} restarts",
    Driver.CPU_PRESSURE: "CPU at {} per mille",
    Driver.UNREADY: "unready for {} s",
    Driver.LATENCY: "p95 {} ms",
}


def cluster_view(
    snapshot: Snapshot, forecast: Forecast, stimuli: list[StimulusView]
) -> ClusterView:
    """The whole cluster panel."""
    return ClusterView(
        name=snapshot.cluster,
        raw=_raw(snapshot),
        interpreted=_interpreted(snapshot),
        nodes=_nodes(snapshot, forecast),
        violating=_violating(snapshot),
        gates=_gates(snapshot),
        sources=[
            SourceView(
                name=s.name,
                age_seconds=s.age_seconds,
                completeness_permille=s.completeness_permille,
            )
            for s in snapshot.sources
        ],
        troubles=[_trouble(t) for t in snapshot.troubles[:TROUBLES_SHOWN]],
        scalers=[_scaler(a) for a in snapshot.scalers if a.current != a.desired][:TROUBLES_SHOWN],
        reactions=[_reaction(r) for r in snapshot.reactions[:TROUBLES_SHOWN]],
        stimuli=stimuli,
    )


def _trouble(trouble: Trouble) -> TroubleView:
    name = f"{trouble.namespace}/{trouble.name}" if trouble.namespace else trouble.name
    return TroubleView(
        cause=str(trouble.cause), target=name, count=trouble.count, sentence=trouble.sentence
    )


def _scaler(scaler: Scaler) -> ScalerView:
    return ScalerView(
        workload=f"{scaler.namespace}/{scaler.name}",
        current=scaler.current,
        desired=scaler.desired,
        maximum=scaler.maximum,
    )


def _reaction(reaction: Reaction) -> ReactionView:
    def known(seconds: int) -> int | None:
        return None if seconds == NEVER else seconds

    return ReactionView(
        workload=f"{reaction.namespace}/{reaction.name}",
        decided_seconds=known(reaction.decided_seconds),
        node_seconds=known(reaction.node_seconds),
        running_seconds=known(reaction.running_seconds),
    )


def forecast_view(snapshot: Snapshot, forecast: Forecast) -> ForecastView:
    """The forecast in one row: the riskiest node, demand against capacity, what is unknown."""
    risk, rows = _node_risk(snapshot, forecast)
    column = horizon_column(RISK_HORIZON_SECONDS)
    worst = int(np.argmax(risk)) if len(risk) and int(risk.max()) > UNKNOWN else None
    demand = forecast.node_demand
    known = demand.abstains == 0
    awake = snapshot.interpreted.awake == 1
    return ForecastView(
        forecaster=forecast.forecaster,
        riskiest="" if worst is None else str(snapshot.nodes.names[worst]),
        risk_permille=None if worst is None else int(risk[worst]),
        driver="" if worst is None else _driver(forecast.node_risk, int(rows[worst])),
        demand_median_millicores=int(demand.median_millicores[known, column].sum(dtype=np.int64)),
        demand_upper_millicores=int(demand.upper_millicores[known, column].sum(dtype=np.int64)),
        capacity_millicores=int(snapshot.nodes.cpu_capacity_millicores[awake].sum(dtype=np.int64)),
        abstentions=[
            AbstentionView(scope=a.scope, reason=a.reason, until_seconds=a.until_seconds)
            for a in forecast.abstentions
        ],
        drift=[
            ShiftView(scope=s.scope, feature=s.feature, index=s.index_thousandths / 1000)
            for s in forecast.drift
        ],
    )


def target_name(ref: Ref) -> str:
    """An object as the page names it."""
    return ref.short


def _raw(snapshot: Snapshot) -> RawView:
    nodes, pods = snapshot.nodes, snapshot.pods
    phases = np.bincount(pods.phase, minlength=len(Phase))
    waiting = pods.pending_cause[pods.phase == Phase.PENDING]
    causes = np.bincount(waiting, minlength=len(PendingCause))
    return RawView(
        nodes=len(nodes),
        nodes_ready=int(nodes.ready.sum()),
        nodes_tainted=int(nodes.tainted.sum()),
        nodes_asleep=int((nodes.power == Power.ASLEEP).sum()),
        nodes_dead=int((nodes.power == Power.DEAD).sum()),
        pods=len(pods),
        pending=int(phases[Phase.PENDING]),
        pending_resources=int(causes[PendingCause.RESOURCES]),
        pending_selector=int(causes[PendingCause.SELECTOR]),
        pending_gated=int(causes[PendingCause.GATED]),
        pending_autoscaler=int(causes[PendingCause.AUTOSCALER]),
        pending_foreign=int(causes[PendingCause.FOREIGN_GATE]),
        starting=int(phases[Phase.STARTING]),
        running=int(phases[Phase.RUNNING]),
        failed=int(phases[Phase.FAILED]),
        terminating=int(phases[Phase.TERMINATING]),
        workloads=len(snapshot.workloads),
        restarts=int(pods.restarts.sum(dtype=np.int64)),
        watts=int(nodes.power_watts.sum(dtype=np.int64)),
    )


def _interpreted(snapshot: Snapshot) -> InterpretedView:
    seen = snapshot.interpreted
    return InterpretedView(
        queue_length=seen.queue_length,
        queue_oldest_seconds=seen.queue_oldest_seconds,
        unschedulable=seen.unschedulable,
        violations=seen.violations,
        failed_pods=seen.failed_pods,
        awake=int(seen.awake.sum()),
        overloaded=int(seen.overloaded.sum()),
        requested_permille=seen.requested_permille,
        used_permille=seen.used_permille,
        power_watts=seen.power_watts,
    )


def _nodes(snapshot: Snapshot, forecast: Forecast) -> list[NodeView]:
    nodes = snapshot.nodes
    risk, rows = _node_risk(snapshot, forecast)
    pressure = snapshot.interpreted.pressure_permille
    cpu = _permille(nodes.cpu_used_millicores, nodes.cpu_capacity_millicores)
    memory = _permille(nodes.memory_used_mib, nodes.memory_capacity_mib)
    shown = _worst_first(snapshot, risk)[:NODES_SHOWN]
    return [
        NodeView(
            name=str(nodes.names[row]),
            zone=str(snapshot.zones.names[nodes.zone[row]]) if len(snapshot.zones) else "",
            ready=bool(nodes.ready[row]),
            tainted=bool(nodes.tainted[row]),
            power=_word(Power(int(nodes.power[row]))),
            pods=int(nodes.pods[row]),
            cpu_permille=int(cpu[row]),
            memory_permille=int(memory[row]),
            pressure_permille=int(pressure[row]),
            frequency_permille=int(nodes.frequency_permille[row]),
            watts=int(nodes.power_watts[row]),
            errors_per_minute=int(nodes.errors_per_minute[row]),
            heartbeat_lag_ms=int(nodes.heartbeat_lag_ms[row]),
            age_seconds=int(nodes.age_seconds[row]),
            risk_permille=None if risk[row] == UNKNOWN else int(risk[row]),
            driver=_driver(forecast.node_risk, int(rows[row])) if risk[row] > 0 else "",
        )
        for row in shown
    ]


def _worst_first(snapshot: Snapshot, risk: Ints) -> list[int]:
    """Broken nodes, then by risk or pressure, then sleepers; the order of rows breaks ties."""
    nodes = snapshot.nodes
    asleep = nodes.power == Power.ASLEEP
    broken = (nodes.ready == 0) & ~asleep
    trouble = np.maximum(risk, snapshot.interpreted.pressure_permille)
    order = np.lexsort((-trouble, asleep, ~broken))
    return [int(row) for row in order]


def _node_risk(snapshot: Snapshot, forecast: Forecast) -> tuple[Ints, Ints]:
    """Risk by node row (UNKNOWN where nobody knows) and the row of the risk table."""
    table = forecast.node_risk
    if not len(table):
        unknown = np.full(len(snapshot.nodes), UNKNOWN, dtype=np.int32)
        return unknown, np.zeros(len(snapshot.nodes), dtype=np.int32)
    rows = _rows_of(table.uid, snapshot.nodes.uid)
    known = (table.uid[rows] == snapshot.nodes.uid) & (table.abstains[rows] == 0)
    risk = table.risk_permille[rows, horizon_column(RISK_HORIZON_SECONDS)]
    return np.where(known, risk, UNKNOWN).astype(np.int32), rows


def _rows_of(table: Uids, wanted: Uids) -> Ints:
    found = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
    return found.astype(np.int32)


def _driver(table: RiskTable, row: int) -> str:
    text = _DRIVER_TEXT.get(Driver(int(table.driver[row])), "")
    return text.format(int(table.driver_value[row]))


def _violating(snapshot: Snapshot) -> list[WorkloadView]:
    workloads = snapshot.workloads
    rows = np.flatnonzero(workloads.in_violation)
    over = workloads.latency_ms[rows] - workloads.latency_objective_ms[rows]
    worst = rows[np.argsort(-over, kind="stable")][:WORKLOADS_SHOWN]
    return [
        WorkloadView(
            name=snapshot.workload_ref(int(row)).short,
            latency_ms=int(workloads.latency_ms[row]),
            objective_ms=int(workloads.latency_objective_ms[row]),
            ready=int(workloads.replicas_ready[row]),
            desired=int(workloads.replicas_desired[row]),
        )
        for row in worst
    ]


def _gates(snapshot: Snapshot) -> list[GateView]:
    table = snapshot.namespaces
    rows = np.flatnonzero(table.gate != Gate.OPEN)[:WORKLOADS_SHOWN]
    return [
        GateView(namespace=str(table.names[row]), gate=_word(Gate(int(table.gate[row]))))
        for row in rows
    ]


def _permille(part: Ints, whole: Ints) -> Ints:
    share = 1000 * part.astype(np.int64) // np.maximum(whole.astype(np.int64), 1)
    return share.astype(np.int32)


def _word(value: Power | Gate) -> str:
    return value.name.lower()
