# SPDX-License-Identifier: Apache-2.0
"""What a monitoring system would see of one simulated cluster: a ``Snapshot``.

Phases and bindings are current, as from a watch. Usage is as of the last scrape of the pod's
node: every 15 s, each node at its own phase, so it is 0 to 10 s old.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import (
    NamespaceTable,
    NodeTable,
    PodTable,
    Snapshot,
    Source,
    WorkloadTable,
    ZoneTable,
)
from pilothouse.sim import bill
from pilothouse.sim.blueprint import TICK_SECONDS, Blueprint
from pilothouse.sim.state import (
    I4,
    I8,
    SERVICE,
    UNLIMITED,
    State,
)

SCRAPE_TICKS = 3
_DIGITS = "bcdfghjklmnpqrstvwxz2456789"


def pod_name(workload: str, uid: int) -> str:
    """As an owner would name it: the workload and a short suffix that never repeats."""
    word = uid * 7_919 + 11 * 27**4
    suffix = ""
    while word:
        word, digit = divmod(word, len(_DIGITS))
        suffix = _DIGITS[digit] + suffix
    return f"{workload}-{suffix}"


def _texts(names: tuple[str, ...] | list[str]) -> NDArray[np.object_]:
    out = np.empty(len(names), dtype=object)
    out[:] = names
    return out


@dataclass(slots=True)
class View:
    """Names of one cluster, cached by slot; ``cluster`` is its place in the batch."""

    name: str
    plan: Blueprint
    cluster: int = 0
    named: I8 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    names: NDArray[np.object_] = field(default_factory=lambda: np.zeros(0, dtype=object))

    def observe(self, s: State) -> Snapshot:
        """The cluster now."""
        nodes = self._node_rows(s)
        slots = self._pod_slots(s)
        scraped = self._scraped(s)
        used, held = self._usage(s, slots, scraped)
        return Snapshot(
            cluster=self.name,
            taken_seconds=s.tick * TICK_SECONDS,
            nodes=self._node_table(s, nodes, slots, used, held, scraped),
            pods=self._pod_table(s, slots, nodes, used, held),
            workloads=self._workload_table(s),
            namespaces=self._namespace_table(s),
            zones=self._zone_table(s),
            sources=(
                Source(name="cluster", age_seconds=0, completeness_permille=1000),
                Source(
                    name="metrics",
                    age_seconds=int((s.tick - scraped[nodes - self._first_node(s)]).max(initial=0))
                    * TICK_SECONDS,
                    completeness_permille=self._completeness(s, nodes),
                ),
            ),
        )

    def _first_node(self, s: State) -> int:
        return self.cluster * s.nodes

    def _node_rows(self, s: State) -> I8:
        begin = self._first_node(s)
        rows = np.flatnonzero(s.n_exists[begin : begin + s.nodes]) + begin
        return rows[np.argsort(s.n_uid[rows])]

    def _pod_slots(self, s: State) -> I8:
        slots = np.flatnonzero(s.home == self.cluster)
        return slots[np.argsort(s.uid[slots])]

    def _scraped(self, s: State) -> I4:
        """Tick of the last scrape, by node of this cluster; a dead node is not scraped."""
        begin = self._first_node(s)
        span = slice(begin, begin + s.nodes)
        last = s.tick - (s.tick + s.n_scrape[span]) % SCRAPE_TICKS
        dead = s.n_dead_tick[span]
        return np.maximum(np.minimum(last, dead), 0).astype(np.int32)

    def _completeness(self, s: State, nodes: I8) -> int:
        """Share of the nodes that should answer and were scraped."""
        if not len(nodes):
            return 1000
        answered = (s.n_dead_tick[nodes] > s.tick) | (s.n_ready[nodes] == 0)
        return int(1000 * answered.sum() // len(nodes))

    def _usage(self, s: State, slots: I8, scraped: I4) -> tuple[I4, I4]:
        """CPU and memory by pod as last scraped; a pod that was not there then shows nothing."""
        node = s.node[slots]
        bound = node != s.nobody_node
        local = np.where(bound, node - self._first_node(s), 0)
        at = np.where(bound, scraped[local], s.tick)
        used = np.zeros(len(slots), dtype=np.int32)
        held = np.zeros(len(slots), dtype=np.int32)
        fresh = bound & (s.active_work[slots] != s.nobody_work) & (at >= s.since[slots])
        for past in range(SCRAPE_TICKS):
            tick = s.tick - past
            hit = fresh & (at == tick)
            used[hit] = s.used(tick)[slots[hit]]
            held[hit] = s.held(tick)[slots[hit]]
        return used, held

    def _node_table(
        self, s: State, rows: I8, slots: I8, used: I4, held: I4, scraped: I4
    ) -> NodeTable:
        begin = self._first_node(s)
        local = rows - begin
        bound = s.node[slots] != s.nobody_node
        at = s.node[slots][bound] - begin
        cpu = np.bincount(at, used[bound], minlength=s.nodes)[local].astype(np.int32)
        memory = np.bincount(at, held[bound], minlength=s.nodes)[local].astype(np.int32)
        return NodeTable(
            uid=s.n_uid[rows],
            names=_texts([self.plan.node_names[i] for i in local.tolist()]),
            zone=s.n_zone[rows],
            cpu_capacity_millicores=s.n_cpu[rows],
            memory_capacity_mib=s.n_memory[rows],
            cpu_requested_millicores=s.n_cpu_requested[rows],
            memory_requested_mib=s.n_memory_requested[rows],
            cpu_used_millicores=cpu,
            memory_used_mib=memory,
            pods=s.n_pods[rows],
            ready=s.n_ready[rows].astype(np.int32),
            tainted=s.n_taint[rows].astype(np.int32),
            power=_reported_power(s, rows),
            frequency_permille=s.n_frequency[rows],
            latency_ms=s.n_latency[rows],
            errors_per_minute=s.n_errors[rows],
            heartbeat_lag_ms=s.n_lag_ms[rows],
            power_watts=(s.n_power_mw[rows] + 500) // 1000,
            age_seconds=(s.tick - scraped[local]) * TICK_SECONDS,
        )

    def _pod_table(self, s: State, slots: I8, nodes: I8, used: I4, held: I4) -> PodTable:
        place = np.full(s.nobody_node + 1, -1, dtype=np.int32)
        place[nodes] = np.arange(len(nodes), dtype=np.int32)
        cpu_limit, memory_limit = s.cpu_limit[slots], s.memory_limit[slots]
        work = s.work[slots]
        return PodTable(
            uid=s.uid[slots],
            names=self._pod_names(s, slots),
            workload=(work - self.cluster * s.workloads).astype(np.int32),
            node=place[s.node[slots]],
            phase=s.phase[slots].astype(np.int32),
            pending_cause=s.cause[slots].astype(np.int32),
            created_seconds=s.created[slots] * TICK_SECONDS,
            since_seconds=s.since[slots] * TICK_SECONDS,
            cpu_request_millicores=s.cpu_request[slots],
            cpu_limit_millicores=np.where(cpu_limit == UNLIMITED, 0, cpu_limit),
            cpu_used_millicores=used,
            memory_request_mib=s.memory_request[slots],
            memory_limit_mib=np.where(memory_limit == UNLIMITED, 0, memory_limit),
            memory_used_mib=held,
            memory_peak_mib=s.peak[slots],
            restarts=s.restarts[slots],
            oom_kills=s.ooms[slots],
            evictable=s.w_evictable[work].astype(np.int32),
        )

    def _pod_names(self, s: State, slots: I8) -> NDArray[np.object_]:
        if len(self.named) != len(s.uid):
            # The pool has grown; names follow from uids, so start over.
            self.named = np.zeros(len(s.uid), dtype=np.int64)
            self.names = np.empty(len(s.uid), dtype=object)
        stale = slots[self.named[slots] != s.uid[slots]]
        first = self.cluster * s.workloads
        for slot in stale.tolist():
            workload = self.plan.workload_names[int(s.work[slot]) - first]
            self.names[slot] = pod_name(workload, int(s.uid[slot]))
        self.named[stale] = s.uid[stale]
        return self.names[slots]

    def _workload_table(self, s: State) -> WorkloadTable:
        begin = self.cluster * s.workloads
        count = len(self.plan.workload_names)
        rows = slice(begin, begin + count)
        service = s.w_kind[rows] == SERVICE
        full = np.maximum(s.w_baseline[rows].astype(np.int64) * s.w_cpu_request[rows], 1)
        load = np.where(service, s.w_load[rows].astype(np.int64) * 1000 // full, 0)
        return WorkloadTable(
            uid=np.arange(1, count + 1, dtype=np.int64),
            names=_texts(self.plan.workload_names),
            namespace=s.w_space[rows].copy(),
            kind=s.w_kind[rows].astype(np.int32),
            priority=s.w_priority[rows].copy(),
            replicas_baseline=s.w_baseline[rows].copy(),
            replicas_desired=np.where(service, s.w_desired[rows], s.w_have[rows]),
            replicas_ready=s.w_ready[rows].copy(),
            min_available=s.w_min_available[rows].copy(),
            autoscaled=s.w_autoscaled[rows].astype(np.int32),
            replicas_floor=np.where(s.w_autoscaled[rows], s.w_floor[rows], 0).astype(np.int32),
            latency_ms=s.w_latency[rows].copy(),
            latency_objective_ms=s.w_objective_ms[rows].copy(),
            load_permille=load.astype(np.int32),
            in_violation=s.w_violation[rows].astype(np.int32),
        )

    def _namespace_table(self, s: State) -> NamespaceTable:
        begin = self.cluster * s.spaces
        count = len(self.plan.namespace_names)
        return NamespaceTable(
            uid=np.arange(1, count + 1, dtype=np.int64),
            names=_texts(self.plan.namespace_names),
            managed=self.plan.namespaces["managed"].copy(),
            protected=self.plan.namespaces["protected"].copy(),
            gate=s.s_gate[begin : begin + count].astype(np.int32),
        )

    def _zone_table(self, s: State) -> ZoneTable:
        count = len(self.plan.zone_names)
        rows = slice(self.cluster * s.zones, self.cluster * s.zones + count)
        return ZoneTable(
            uid=np.arange(1, count + 1, dtype=np.int64),
            names=_texts(self.plan.zone_names),
            price_micros_per_kwh=bill.zone_price(s)[rows].astype(np.int32),
            carbon_grams_per_kwh=bill.zone_carbon(s)[rows].astype(np.int32),
        )


def _reported_power(s: State, rows: I8) -> I4:
    return s.n_power[rows].astype(np.int32)
