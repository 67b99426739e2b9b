# SPDX-License-Identifier: Apache-2.0
"""Agent A: nothing dies.

Looks at failure risk within 15 minutes and at upper demand against capacity. For a node that is
about to fail it asks for replicas elsewhere *and* for the move: the replicas bridge the gap, the
move gets the pods out. Capacity is asked for before pressure is visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pilothouse.domain import (
    ActionKind,
    Driver,
    Evidence,
    Forecast,
    PendingCause,
    Phase,
    Power,
    Proposal,
    Snapshot,
    WorkloadKind,
    horizon_column,
)
from pilothouse.features.demand import capacity_millicores
from pilothouse.features.population import Population, Rows
from pilothouse.propose.voice import Voice, driven_by, moved_by, says, share, strongest
from pilothouse.propose.worn import WornPods, stands_alone
from pilothouse.settings import Settings

HORIZON_SECONDS = 900
HOUR_SECONDS = 3_600
SMALL_RISK = 0.1  # a threshold below this is told with three digits
BRIDGE_SECONDS = 300  # an extra replica of a service that fails by itself, at least
START_SECONDS = 120  # until a new pod answers, at the latest
WISHES = 6  # more in one cycle could not be granted anyway
CANDIDATES = 4  # nodes and workloads looked at closely
CALM_SHARE = 0.75  # CPU in use at which neighbors no longer slow each other
NEIGHBOR_NODES = 3  # nodes that can be calmed in one cycle
NEIGHBOR_SHARE = 0.3  # of the nodes: more at once is a full cluster, not a noisy neighbor
BROKEN_SHARE = 0.82  # above this a node's services stay outside their objective


class Safety:
    """Replicate, migrate, throttle, wake: in that order of urgency."""

    name = "safety"
    title = "AgentA"

    def __init__(self, settings: Settings) -> None:
        self._all = settings
        self._settings = settings.safety

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> Sequence[Proposal]:
        case = _Case(
            self._all, snapshot, forecast, Voice(self.name, self.title, forecast.made_seconds)
        )
        wishes = [
            *case.for_nodes(),
            *case.for_workloads(),
            *case.for_worn_pods(),
            *case.for_demand(),
            *case.for_capacity(),
            *case.for_neighbors(),
        ]
        wishes.sort(key=lambda wish: (wish.priority, -wish.score, str(wish.target)))
        return wishes[:WISHES] or [case.nothing()]


class _Case:
    """One snapshot and forecast under Safety's eyes."""

    def __init__(
        self, settings: Settings, snapshot: Snapshot, forecast: Forecast, voice: Voice
    ) -> None:
        self.settings = settings.safety
        self.snapshot, self.forecast, self.voice = snapshot, forecast, voice
        self.population = Population(snapshot, settings.guard.protected_priority)
        self.column = horizon_column(HORIZON_SECONDS)
        self.interpreted = snapshot.interpreted
        declared = snapshot.workloads.replicas_baseline
        self.floor = settings.guard.cpu_floor_share
        self.window = settings.guard.window_seconds
        self.longest_hold = settings.guard.ttl_seconds.get(ActionKind.MIGRATE.value, 0)
        self.most_replicas = (declared * settings.guard.replica_factor).astype(np.int64)

    # Nodes about to fail.

    def for_nodes(self) -> Iterator[Proposal]:
        table = self.forecast.node_risk
        risk = np.where(table.abstains == 0, table.risk_permille[:, self.column], 0)
        order = np.argsort(-risk, kind="stable")[:CANDIDATES]
        for row in order.tolist():
            if risk[row] >= 1000 * self.settings.throttle_risk:
                yield from self._for_node(row, int(risk[row]))

    def _for_node(self, row: int, risk: int) -> Iterator[Proposal]:
        s = self.settings
        if not self.snapshot.nodes.ready[row]:  # gone already: only its pods can be helped
            if self._can_leave(row):
                yield self._node_wish(ActionKind.MIGRATE, row, risk, s.migrate_risk, 0)
            return
        if risk >= 1000 * s.replicate_risk and self._hosts_single_strength(row):
            yield self._node_wish(ActionKind.REPLICATE, row, risk, s.replicate_risk, 0)
        if risk >= 1000 * s.migrate_risk and self._can_leave(row):
            yield self._node_wish(ActionKind.MIGRATE, row, risk, s.migrate_risk, 1)
        elif risk < 1000 * s.migrate_risk and self._throttles(row):
            yield self._node_wish(ActionKind.THROTTLE, row, risk, s.throttle_risk, 5)

    def _node_wish(
        self, kind: ActionKind, row: int, risk: int, needs: float, priority: int
    ) -> Proposal:
        table, target = self.forecast.node_risk, self.snapshot.node_ref(row)
        moved = moved_by(self.forecast, "nodes", int(table.uid[row]))
        leaks = table.driver[row] == Driver.MEMORY_GROWTH
        why = (strongest(moved) if leaks else "") or self._node_story(row)
        fails = "is failing" if table.driver[row] == Driver.UNREADY else "fails within 15 min"
        payload: dict[str, str | int | float | bool] = {}
        if kind is ActionKind.THROTTLE:
            payload = {"factor": self.settings.throttle_factor}
        if kind is ActionKind.MIGRATE and self.settings.hold_seconds < self.longest_hold:
            payload = {"seconds": self.settings.hold_seconds}
        return self.voice.wants(
            kind,
            target,
            score=risk / 1000,
            priority=priority,
            reason=f"{target.short} {fails} with probability {share(risk)} "
            f"(needs {needs:.2f})"
            f"{says(self.forecast.forecaster, moved)}{': ' + why if why else ''}",
            evidence=(
                Evidence("risk 15 min", risk / 1000, "", needs),
                Evidence("errors", float(self.snapshot.nodes.errors_per_minute[row]), "/min"),
                Evidence("heartbeat lag", float(self.snapshot.nodes.heartbeat_lag_ms[row]), "ms"),
                Evidence("pods", float(self.snapshot.nodes.pods[row])),
                *moved,
            ),
            payload=payload,
            otherwise=self._next_best(kind, target.short, needs),
        )

    def _next_best(self, kind: ActionKind, name: str, needs: float) -> str:
        follower = {
            ActionKind.REPLICATE: f"migrate {name}",
            ActionKind.MIGRATE: f"throttle {name}",
        }.get(kind, "nothing")
        return f"below {needs:.2f} the choice would have been: {follower}"

    def _node_story(self, row: int) -> str:
        nodes, table = self.snapshot.nodes, self.forecast.node_risk
        driver = Driver(int(table.driver[row]))
        if driver in (Driver.ERRORS, Driver.HEARTBEAT):
            late = nodes.heartbeat_lag_ms[row] / 1000
            return f"{int(nodes.errors_per_minute[row])} errors/min, heartbeat {late:.1f} s late"
        return driven_by(table, row)

    def _hosts_single_strength(self, row: int) -> bool:
        """Hosts a service that has no extra replica yet."""
        workloads = self.snapshot.workloads
        owners = np.unique(self.snapshot.pods.workload[self.population.on_node(row)])
        extra = workloads.replicas_desired[owners] > workloads.replicas_baseline[owners]
        service = workloads.kind[owners] == WorkloadKind.SERVICE
        return bool((service & ~extra & self.population.workload_open[owners]).any())

    def _can_leave(self, row: int) -> bool:
        nodes = self.snapshot.nodes
        if nodes.power[row] in (Power.DRAINING, Power.ASLEEP, Power.BOOTING):
            return False
        movable = bool(self.population.movable[self.population.on_node(row)].any())
        return movable or (nodes.tainted[row] == 0 and nodes.ready[row] == 1)

    def _throttles(self, row: int) -> bool:
        """Slowing work helps only a node under pressure; elsewhere it would feed the queue."""
        s, seen = self.settings, self.interpreted
        calm = seen.pressure_permille[row] < 1000 * s.step_back_pressure
        if calm and (seen.violations > 0 or seen.queue_length >= s.step_back_queue):
            return False
        return self._has_batch_with_limits(row)

    def _has_batch_with_limits(self, row: int) -> bool:
        return len(self._batch_with_limits(row)) > 0

    def _batch_with_limits(self, row: int) -> Rows:
        pods, rows, p = self.snapshot.pods, self.population.on_node(row), self.population
        soft = p.batch[rows] & p.movable[rows] & (pods.phase[rows] == Phase.RUNNING)
        chosen: Rows = rows[soft & (pods.cpu_limit_millicores[rows] > 0)]
        return chosen

    # Workloads that fail by themselves: leaks and crashes.

    def for_workloads(self) -> Iterator[Proposal]:
        """An extra replica bridges the restarts of the others. It has the same leak, so it is
        asked for late and does not stay for long."""
        table, workloads = self.forecast.workload_risk, self.snapshot.workloads
        usable = (table.abstains == 0) & self.population.workload_open
        usable &= workloads.kind == WorkloadKind.SERVICE
        usable &= workloads.replicas_desired <= workloads.replicas_baseline
        column = horizon_column(self.settings.workload_horizon_seconds)
        risk = np.where(usable, table.risk_permille[:, column], 0)
        for row in np.argsort(-risk, kind="stable")[:CANDIDATES].tolist():
            if risk[row] >= 1000 * self.settings.replicate_risk:
                yield self._workload_wish(row, int(risk[row]))

    def _workload_wish(self, row: int, risk: int) -> Proposal:
        table, target = self.forecast.workload_risk, self.snapshot.workload_ref(row)
        needs, ahead = self.settings.replicate_risk, self.settings.workload_horizon_seconds // 60
        digits = 2 if needs >= SMALL_RISK else 3
        least = f"{needs:.{digits}f}"
        worst = self._riskiest_pod_of(row)
        avoid = "" if worst is None else self._host_of(worst)
        moved = (
            ()
            if worst is None
            else moved_by(self.forecast, "pods", int(self.snapshot.pods.uid[worst]))
        )
        why = driven_by(table, row, moved)
        return self.voice.wants(
            ActionKind.REPLICATE,
            target,
            score=risk / 1000,
            priority=2,
            reason=f"{target.short} loses too many replicas within {ahead} min with probability "
            f"{risk / 1000:.{digits}f} (needs {least})"
            f"{says(self.forecast.forecaster, moved)}{': ' + why if why else ''}",
            evidence=(
                Evidence(f"risk {ahead} min", risk / 1000, "", needs),
                Evidence("ready replicas", float(self.snapshot.workloads.replicas_ready[row])),
                Evidence("minimum", float(self.snapshot.workloads.min_available[row])),
                *moved,
            ),
            payload={"seconds": self._bridge(row), **({"avoid": avoid} if avoid else {})},
            otherwise=f"below {least} the choice would have been: nothing for {target.short}",
        )

    def _bridge(self, row: int) -> int:
        """How long the extra replica lasts. A leaking service of one has its pods started anew
        meanwhile, once now and once when the window lets it: the replica stays until what is
        started then can answer. After that the service is alone for as long as a field rests."""
        leaks = self.forecast.workload_risk.driver[row] == Driver.MEMORY_GROWTH
        alone = bool(stands_alone(self.snapshot.workloads)[row])
        return (
            max(self.window + START_SECONDS, BRIDGE_SECONDS) if leaks and alone else BRIDGE_SECONDS
        )

    def _riskiest_pod_of(self, row: int) -> int | None:
        pods = self.population.of_workload(row)
        pods = pods[self.snapshot.pods.node[pods] >= 0]
        if not len(pods):
            return None
        column = horizon_column(self.settings.workload_horizon_seconds)
        return int(pods[np.argmax(self.forecast.pod_risk.risk_permille[pods, column])])

    def _host_of(self, pod: int) -> str:
        return str(self.snapshot.nodes.names[self.snapshot.pods.node[pod]])

    def for_worn_pods(self) -> Iterator[Proposal]:
        return WornPods(self.settings, self.population, self.forecast, self.voice).wishes()

    # Services that will want more than they have.

    def for_demand(self) -> Iterator[Proposal]:
        table, workloads = self.forecast.workload_demand, self.snapshot.workloads
        has = np.maximum(capacity_millicores(self.snapshot), 1)
        usable = (table.abstains == 0) & self.population.workload_open
        usable &= (workloads.kind == WorkloadKind.SERVICE) & (workloads.replicas_ready > 0)
        usable &= workloads.replicas_desired < self.most_replicas
        wanted = np.where(usable, table.upper_millicores[:, self.column], 0)
        ratio = wanted / has
        for row in np.argsort(-ratio, kind="stable")[:CANDIDATES].tolist():
            if ratio[row] >= self.settings.demand_share:
                yield self._demand_wish(row, int(wanted[row]), int(has[row]))

    def _demand_wish(self, row: int, wanted: int, has: int) -> Proposal:
        target, workloads = self.snapshot.workload_ref(row), self.snapshot.workloads
        needs = self.settings.demand_share
        broken = ", objective broken now" if workloads.in_violation[row] else ""
        moved = moved_by(self.forecast, "demand of workloads", int(workloads.uid[row]))
        return self.voice.wants(
            ActionKind.REPLICATE,
            target,
            score=min(0.5 + 0.4 * (wanted / has - needs), 0.99) + 0.005 * bool(broken),
            priority=2 if broken else 3,
            reason=f"{target.short} will want {wanted} m CPU (p95, 15 min) of {has} m, "
            f"{wanted / has:.2f} of what it has (needs {needs:.2f})"
            f"{says(self.forecast.demand_by, moved)}{broken}",
            evidence=(
                Evidence("p95 demand over capacity", round(wanted / has, 3), "", needs),
                Evidence("p95 demand 15 min", float(wanted), "m"),
                Evidence("p95 latency", float(workloads.latency_ms[row]), "ms"),
                *moved,
            ),
            otherwise=f"below {needs:.2f} the choice would have been: nothing for {target.short}",
        )

    # A cluster that will be too small.

    def for_capacity(self) -> Iterator[Proposal]:
        nodes = self.snapshot.nodes
        asleep = np.flatnonzero(nodes.power == Power.ASLEEP)
        if not len(asleep) or (nodes.power == Power.BOOTING).any():
            return
        ratio = self._cluster_ratio()
        waiting = self._waiting_for_resources()
        needs = self.settings.wake_share
        if ratio < needs and not waiting:
            return
        # The largest machine first: one boot, most room. Ties by uid.
        row = int(asleep[np.argmax(nodes.cpu_capacity_millicores[asleep])])
        target = self.snapshot.node_ref(row)
        pends = f"{waiting} pods wait for room, " if waiting else ""
        yield self.voice.wants(
            ActionKind.POWER_STATE,
            target,
            score=min(ratio, 1.0) if not waiting else max(min(ratio, 1.0), 0.7),
            priority=1 if waiting else 4,
            reason=f"{pends}p95 demand or requests reach {ratio:.2f} of awake capacity "
            f"(needs {needs:.2f}): wake {target.short}",
            evidence=(
                Evidence("share of awake capacity", round(ratio, 3), "", needs),
                Evidence("pods waiting for resources", float(waiting), "", 1.0),
            ),
            payload={"state": "awake"},
            otherwise=f"below {needs:.2f} with nobody waiting: leave {target.short} asleep",
        )

    def _cluster_ratio(self) -> float:
        """The worse of upper demand and requests, over what is awake."""
        nodes, awake = self.snapshot.nodes, self.interpreted.awake == 1
        capacity = max(int(nodes.cpu_capacity_millicores[awake].sum()), 1)
        demand = self.forecast.node_demand
        known = awake & (demand.abstains == 0)
        upper = int(demand.upper_millicores[known, self.column].sum())
        return max(upper / capacity, self.interpreted.requested_permille / 1000)

    def _waiting_for_resources(self) -> int:
        pods = self.snapshot.pods
        short = (pods.phase == Phase.PENDING) & (pods.pending_cause == PendingCause.RESOURCES)
        return int(short.sum())

    # Services slowed by batch work beside them.

    def for_neighbors(self) -> Iterator[Proposal]:
        hurt = self._nodes_with_broken_services()
        nodes = self.snapshot.nodes
        busy = 1000 * nodes.cpu_used_millicores // np.maximum(nodes.cpu_capacity_millicores, 1)
        needs = 1000 * max(self.settings.step_back_pressure, CALM_SHARE)
        awake = self.interpreted.awake == 1
        rows = np.flatnonzero((hurt > 0) & (busy >= needs) & awake)
        if len(rows) > max(NEIGHBOR_NODES, NEIGHBOR_SHARE * int(awake.sum())):
            # The whole cluster is full: calming a few nodes restores no service, because each has
            # pods on the others too, and the slowed batch work would stay longer.
            return
        for row in rows[np.argsort(-busy[rows], kind="stable")][:CANDIDATES].tolist():
            factor = self._calming_factor(row)
            if factor is not None:
                yield self._neighbor_wish(row, int(hurt[row]), int(busy[row]), factor)

    def _calming_factor(self, row: int) -> float | None:
        """How far batch limits must fall for the node to be calm; None where that is no help.

        Half a measure would only make the batch work last longer while services go on suffering.
        """
        nodes, pods = self.snapshot.nodes, self.snapshot.pods
        rows = self._batch_with_limits(row)
        used = pods.cpu_used_millicores[rows]
        rows = rows[np.argsort(-used, kind="stable")][: self.settings.pods_per_action]
        limits = int(pods.cpu_limit_millicores[rows].sum())
        others = int(nodes.cpu_used_millicores[row]) - int(pods.cpu_used_millicores[rows].sum())
        capacity = int(nodes.cpu_capacity_millicores[row]) * int(nodes.frequency_permille[row])
        left = CALM_SHARE * capacity / 1000 - others
        if limits == 0 or left >= limits:
            return None
        factor = max(left / limits, self.floor)
        still = (others + factor * limits) * 1000 / max(capacity, 1)
        return round(factor, 3) if still <= BROKEN_SHARE else None

    def _nodes_with_broken_services(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        workloads, pods = self.snapshot.workloads, self.snapshot.pods
        broken = (workloads.in_violation == 1) & (workloads.kind == WorkloadKind.SERVICE)
        return self.population.count_by_node(broken[pods.workload])

    def _neighbor_wish(self, row: int, hurt: int, busy: int, factor: float) -> Proposal:
        target, needs = (
            self.snapshot.node_ref(row),
            max(self.settings.step_back_pressure, CALM_SHARE),
        )
        busy = min(busy, 1000)
        return self.voice.wants(
            ActionKind.THROTTLE,
            target,
            score=busy / 1000,
            priority=4,
            reason=f"{hurt} pods of services outside their objective share {target.short} with "
            f"batch work, CPU at {share(busy)} (needs {needs:.2f}): batch limits to {factor:.2f}",
            evidence=(
                Evidence("CPU share", busy / 1000, "", needs),
                Evidence("pods of broken services", float(hurt), "", 1.0),
                Evidence("factor that calms the node", factor),
            ),
            payload={"factor": factor},
            otherwise=f"below {needs:.2f} the choice would have been: nothing for {target.short}",
        )

    # Nothing.

    def nothing(self) -> Proposal:
        table, needs = self.forecast.node_risk, self.settings.throttle_risk
        risk = np.where(table.abstains == 0, table.risk_permille[:, self.column], -1)
        if not len(risk) or risk.max() < 0:
            unsure = "; ".join(a.reason for a in self.forecast.abstentions) or "no node is known"
            return self.voice.wants_nothing(
                self.snapshot.cluster_ref, score=0.0, reason=f"no forecast: {unsure}", evidence=()
            )
        row = int(np.argmax(risk))
        target, worst = self.snapshot.node_ref(row), int(risk[row])
        known = "already looked after" if worst >= 1000 * needs else f"needs {needs:.2f}"
        return self.voice.wants_nothing(
            target,
            score=worst / 1000,
            reason=f"highest risk {target.short} {share(worst)} ({known}){self._riskiest_pod()}",
            evidence=(Evidence("risk 15 min", worst / 1000, "", needs),),
        )

    def _riskiest_pod(self) -> str:
        """What a learned forecaster says about the pod it worries about most."""
        told = next((a for a in self.forecast.attributions if a.scope == "pods"), None)
        rows = np.flatnonzero(self.forecast.pod_risk.uid == (-1 if told is None else told.uid))
        if told is None or not len(rows):
            return ""
        risk = int(self.forecast.pod_risk.risk_permille[rows[0], horizon_column(HOUR_SECONDS)])
        return (
            f"; {self.snapshot.pod_ref(int(rows[0])).short} fails within 60 min with probability "
            f"{share(risk)}, says {self.forecast.forecaster}: {told.feature} "
            f"{told.value_thousandths / 1000:g} adds {told.adds_thousandths / 1000:+g} log-odds"
        )
