# SPDX-License-Identifier: Apache-2.0
"""A live cluster as snapshots: the caches and the usage source, turned into columns.

The cluster clock counts seconds since the ``kube-system`` namespace was made, so it goes on across
restarts of ours. Uids are that creation time and a digest of Kubernetes' uid: ascending, never
repeated, the same for every observer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilothouse.clients.identity import row_uid
from pilothouse.clients.keys import FREQUENCY_KEY, POWER_KEY, permille
from pilothouse.clients.metrics import Sample, Usage
from pilothouse.clients.protection import MANAGED, is_system
from pilothouse.clients.quantity import mebibytes, millicores
from pilothouse.clients.resources import Budget, Meta, Node
from pilothouse.clients.store import Store
from pilothouse.domain import (
    Gate,
    NamespaceTable,
    NodeTable,
    Phase,
    PodTable,
    Power,
    Reaction,
    Reading,
    Snapshot,
    Source,
    Trouble,
    WorkloadKind,
    WorkloadTable,
    ZoneTable,
)
from pilothouse.observe import autoscaling, pending
from pilothouse.observe.autoscaling import Scalers
from pilothouse.observe.credible import credible
from pilothouse.observe.figures import FiguresPoll
from pilothouse.observe.pending import Wait
from pilothouse.observe.reactions import Reactions
from pilothouse.observe.roll import Roll, Slots
from pilothouse.observe.troubles import troubles
from pilothouse.observe.usage import UsagePoll
from pilothouse.observe.workloads import Owned, alone, owner_uid, owners

ZONE = "topology.kubernetes.io/zone"
OBJECTIVE = "pilothouse.dev/latency-objective-ms"
POWERS = {
    "draining": Power.DRAINING,
    "draining-to-sleep": Power.DRAINING,
    "asleep": Power.ASLEEP,
}
NO_SAMPLE_SECONDS = 3600  # age shown for usage that was never measured
QUOTA_SECONDS = 60.0
LATENCY = "latency"
STORE = "cluster store"  # etcd, as seen through the API server
SILENT_SECONDS = 6.0  # three renewals of our lease: watches may be served from memory alone
# 80 W idle, 120 W for the processor, 60 W for memory: a formula, labelled modelled.
IDLE_WATTS, CPU_WATTS, MEMORY_WATTS = 80, 120, 60


@dataclass(slots=True)
class Observer:
    """Builds snapshots. Pods and what is remembered of them are in the roll."""

    store: Store
    usage: UsagePoll
    cluster: str
    namespaces: tuple[str, ...] = ("*",)  # patterns of what is looked at
    now: Callable[[], float] = time.time
    figures: FiguresPoll | None = None  # where there is a Prometheus
    silence: Callable[[], float] = lambda: 0.0  # since the API server answered from its store
    waits: list[Wait] = field(default_factory=list)  # of the last snapshot
    _roll: Roll = field(init=False)
    _uids: dict[str, int] = field(default_factory=dict)
    _sifted: tuple[Usage | None, Usage] = (None, Usage(source="", nodes={}, pods={}))
    _epoch: float = 0.0
    _reactions: Reactions = field(default_factory=Reactions)
    _told: object = None  # the readings that a snapshot has shown already

    def __post_init__(self) -> None:
        self._roll = Roll(self._number)

    def clock_seconds(self) -> int:
        return int(self.now() - self._start())

    def _start(self) -> float:
        if not self._epoch:
            made = [
                n.metadata.creation_timestamp
                for n in self.store.namespaces()
                if n.metadata.name == "kube-system"
            ]
            self._epoch = made[0].timestamp() if made and made[0] else self.now()
        return self._epoch

    def observe(self) -> Snapshot:
        """The cluster as the caches know it, with the age of everything."""
        now = self.now()
        usage = self._credible(now)
        spaces = [n for n in self.store.namespaces() if self._is_watched(n.metadata.name)]
        spaces.sort(key=lambda n: self.uid_of(n.metadata))
        space_rows = {n.metadata.name: i for i, n in enumerate(spaces)}
        nodes = sorted(self.store.nodes(), key=lambda n: self.uid_of(n.metadata))
        node_rows = {n.metadata.name: i for i, n in enumerate(nodes)}
        roll = self._roll
        roll.update(self.store.pods())
        roll.take(usage)
        slots = roll.unfinished(space_rows)
        owned, above = self._owners()
        self._adopt(slots, owned, above, space_rows)
        works = [o for o in owned.items() if o[1].meta.namespace in space_rows]
        works.sort(key=lambda o: self.uid_of(o[1].meta))
        work_rows = {uid: i for i, (uid, _) in enumerate(works)}
        waits = self._classify(slots, now)
        pod_table = self._pods(slots, waits, above, work_rows, node_rows, now)
        scalers = autoscaling.by_target(self.store.autoscalers())
        snapshot = Snapshot(
            cluster=self.cluster,
            taken_seconds=self.clock_seconds(),
            nodes=self._nodes(nodes, node_rows, usage, now),
            pods=_lost(pod_table, nodes),
            workloads=self._workloads(works, space_rows, pod_table, slots, scalers),
            namespaces=self._namespaces(spaces),
            zones=_zones(nodes),
            sources=self._sources(nodes, usage, now),
            scalers=autoscaling.shown(scalers, space_rows),
            claims=autoscaling.claims(self.store.claims(), self._start()),
            readings=self._readings(now),
        )
        return replace(
            snapshot,
            troubles=self._troubles(snapshot, slots, waits, works, above),
            reactions=self._react(snapshot, works, scalers, nodes),
        )

    def _readings(self, now: float) -> tuple[Reading, ...]:
        """Once for each answer: they come more slowly than looks, and every look is recorded."""
        if self.figures is None or self.figures.latest.readings is self._told:
            return ()
        self._told = self.figures.latest.readings
        return tuple(
            Reading(
                name=name,
                node=node,
                thousandths=round(1000 * value),
                age_seconds=_seconds(now - at),
            )
            for (node, name), (at, value) in sorted(self.figures.latest.readings.items())
        )

    def _adopt(
        self,
        slots: Slots,
        owned: dict[str, Owned],
        above: Mapping[str, str],
        space_rows: Mapping[str, int],
    ) -> None:
        """Pods whose owner is nobody we show become workloads of their own."""
        owner, texts = self._roll["owner"][slots], self._roll.owners.texts
        found, first = np.unique(owner, return_index=True)
        for word, row in zip(found.tolist(), first.tolist(), strict=True):
            uid = above.get(texts[word], texts[word])
            if uid not in owned or owned[uid].meta.namespace not in space_rows:
                owned[uid] = alone(self._roll.pod(int(slots[row])))

    def _troubles(
        self,
        snapshot: Snapshot,
        slots: Slots,
        of_pods: Mapping[int, Wait],
        works: Sequence[tuple[str, Owned]],
        above: Mapping[str, str],
    ) -> tuple[Trouble, ...]:
        names = {uid: owned.meta.name for uid, owned in works}
        spaces = {owned.meta.namespace for _, owned in works}
        owners = {
            (wait.namespace, wait.name): names.get(owner_uid(self._roll.pod(slot), above), "")
            for slot, wait in of_pods.items()
        }
        waits = [
            (wait, owners.get((wait.namespace, wait.name), wait.name))
            for wait in self.waits
            if wait.namespace in spaces
        ]
        growth = self._roll.growth_mib_per_minute(slots)
        stolen = self.figures.latest.stolen_permille if self.figures else {}
        return troubles(snapshot, waits, growth, stolen)

    def _react(
        self,
        snapshot: Snapshot,
        works: Sequence[tuple[str, Owned]],
        scalers: Scalers,
        nodes: Sequence[Node],
    ) -> tuple[Reaction, ...]:
        start = self._start()
        born = [autoscaling.since(n.metadata, start) for n in nodes if _is_ready(n)]
        sights = autoscaling.sights(works, snapshot.workloads, scalers)
        return tuple(self._reactions.look(snapshot.taken_seconds, sights, born))

    def _credible(self, now: float) -> Usage:
        """The last usage, sifted once for each answer of the source."""
        if self._sifted[0] is not self.usage.latest:
            told = self.usage.latest
            self._sifted = (told, credible(told, self.store.nodes(), now))
        return self._sifted[1]

    def _is_watched(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.namespaces)

    def uid_of(self, meta: Meta) -> int:
        """The row's uid of an object."""
        known = self._uids.get(meta.uid)
        if known is None:
            known = self._uids[meta.uid] = self._number(meta)
        return known

    def _number(self, meta: Meta) -> int:
        made = meta.creation_timestamp.timestamp() if meta.creation_timestamp else 0.0
        return row_uid(meta.uid, made, self._start())

    def _owners(self) -> tuple[dict[str, Owned], dict[str, str]]:
        of = self.store.workloads
        return owners(
            of("deployments"), of("statefulsets"), of("daemonsets"), of("jobs"), of("replicasets")
        )

    def _classify(self, slots: Slots, now: float) -> dict[int, Wait]:
        """Why each waiting pod waits, by slot; with quotas, these are all the waits there are."""
        events = self.store.events()
        scaling = pending.scaling_for(events)
        found: dict[int, Wait] = {}
        for slot in slots[self._roll["waiting"][slots]].tolist():
            wait = pending.classify(self._roll.pod(slot), scaling)
            if wait is not None:
                found[slot] = wait
        sets = (*self.store.workloads("replicasets"), *self.store.workloads("statefulsets"))
        self.waits = [*found.values(), *pending.quota_waits(events, sets, now, QUOTA_SECONDS)]
        return found

    # Tables

    def _pods(
        self,
        slots: Slots,
        waits: Mapping[int, Wait],
        above: Mapping[str, str],
        work_rows: Mapping[str, int],
        node_rows: Mapping[str, int],
        now: float,
    ) -> PodTable:
        roll, start = self._roll, self._start()
        causes = np.zeros(len(roll.pods), dtype=np.int32)
        for slot, wait in waits.items():
            causes[slot] = int(pending.cause_of(wait))
        phase = _narrow(roll["phase"][slots])
        stuck = (phase == Phase.PENDING) | (phase == Phase.FAILED)
        by_owner = roll.owners.rows(_through(roll.owners.texts, above, work_rows))
        by_node = roll.nodes.rows(node_rows)
        created = (roll["created"][slots] - start).astype(np.int64)
        since = (roll["since"][slots] - start).astype(np.int64)
        return PodTable(
            uid=roll["uid"][slots],
            names=roll.names[slots],
            workload=by_owner[roll["owner"][slots]],
            node=by_node[roll["node"][slots]],
            phase=phase,
            pending_cause=np.where(stuck, causes[slots], 0).astype(np.int32),
            created_seconds=_narrow(np.maximum(created, 0)),
            since_seconds=_narrow(np.clip(since, 0, int(now - start))),
            cpu_request_millicores=_narrow(roll["cpu_request"][slots]),
            cpu_limit_millicores=_narrow(roll["cpu_limit"][slots]),
            cpu_used_millicores=_narrow(roll["cpu_used"][slots]),
            memory_request_mib=_narrow(roll["memory_request"][slots]),
            memory_limit_mib=_narrow(roll["memory_limit"][slots]),
            memory_used_mib=_narrow(roll["memory_used"][slots]),
            memory_peak_mib=_narrow(roll["peak_mib"][slots]),
            restarts=_narrow(roll["restarts"][slots]),
            oom_kills=_narrow(roll["oom_kills"][slots]),
            evictable=_narrow(roll["evictable"][slots]),
        )

    def _requested(self, node_rows: Mapping[str, int]) -> list[NDArray[np.int32]]:
        """CPU, memory and number of the pods on each node: of every namespace, because a node is
        full of other people's too."""
        roll = self._roll
        slots = roll.unfinished()
        rows = roll.nodes.rows(node_rows)[roll["node"][slots]] if slots.size else slots
        slots, rows = slots[rows >= 0], rows[rows >= 0]
        count = len(node_rows)
        return [
            _narrow(np.bincount(rows, weights=roll["cpu_request"][slots], minlength=count)),
            _narrow(np.bincount(rows, weights=roll["memory_request"][slots], minlength=count)),
            _narrow(np.bincount(rows, minlength=count)),
        ]

    def _nodes(
        self, nodes: Sequence[Node], node_rows: Mapping[str, int], usage: Usage, now: float
    ) -> NodeTable:
        zones = {name: i for i, name in enumerate(_zone_names(nodes))}
        cpu_asked, memory_asked, pods = self._requested(node_rows)
        cpu = _ints(millicores(n.status.allocatable.get("cpu", "0")) for n in nodes)
        memory = _ints(mebibytes(n.status.allocatable.get("memory", "0")) for n in nodes)
        samples = [usage.nodes.get(n.metadata.name) for n in nodes]
        used = _ints(s.cpu_millicores if s else 0 for s in samples)
        held = _ints(s.memory_mib if s else 0 for s in samples)
        lags = self._heartbeat_lags(now)
        errors = self.figures.latest.errors_per_minute if self.figures else {}
        ready = _ints(int(_is_ready(n)) for n in nodes)
        return NodeTable(
            uid=_longs(self.uid_of(n.metadata) for n in nodes),
            names=_names(n.metadata.name for n in nodes),
            zone=_ints(zones[n.metadata.labels.get(ZONE, "")] for n in nodes),
            cpu_capacity_millicores=cpu,
            memory_capacity_mib=memory,
            cpu_requested_millicores=cpu_asked,
            memory_requested_mib=memory_asked,
            cpu_used_millicores=used,
            memory_used_mib=held,
            pods=pods,
            ready=ready,
            tainted=_ints(int(_keeps_off(n)) for n in nodes),
            power=_ints(int(_power(n)) for n in nodes),
            frequency_permille=_ints(
                permille(n.metadata.annotations.get(FREQUENCY_KEY, "")) for n in nodes
            ),
            latency_ms=np.zeros(len(nodes), dtype=np.int32),
            errors_per_minute=_ints(errors.get(n.metadata.name, 0) for n in nodes),
            heartbeat_lag_ms=_ints(lags.get(n.metadata.name, 0) for n in nodes),
            power_watts=_watts(used, cpu, held, memory, ready),
            age_seconds=_ints(_age(s, now) for s in samples),
        )

    def _heartbeat_lags(self, now: float) -> dict[str, int]:
        """How late each kubelet's heartbeat is; it renews four times per lease."""
        lags = {}
        for lease in self.store.leases():
            if lease.spec.renew_time is not None:
                due = lease.spec.renew_time.timestamp() + lease.spec.lease_duration_seconds / 4
                lags[lease.metadata.name] = min(max(int(1000 * (now - due)), 0), 2**31 - 1)
        return lags

    def _workloads(
        self,
        works: Sequence[tuple[str, Owned]],
        space_rows: Mapping[str, int],
        pods: PodTable,
        slots: Slots,
        scalers: Scalers,
    ) -> WorkloadTable:
        count = len(works)
        running = np.bincount(pods.workload[pods.phase == Phase.RUNNING], minlength=count)
        wanted = np.bincount(pods.workload, minlength=count)
        used = np.bincount(pods.workload, weights=pods.cpu_used_millicores, minlength=count)
        asked = np.bincount(pods.workload, weights=pods.cpu_request_millicores, minlength=count)
        floors = _floors(self.store.budgets())
        owned = [o for _, o in works]
        # Kinds without a replica count of their own are as large as the pods they have.
        desired = [
            int(wanted[i]) if o.kind in ("DaemonSet", "Pod") else o.desired
            for i, o in enumerate(owned)
        ]
        declared = self.store.declared_replicas()
        rivals = [autoscaling.scaler_of(o, scalers) for o in owned]
        minimum = [_floor(o, floors) for o in owned]
        objective = [_objective(o.meta) for o in owned]
        measured = self.figures.latest.latency_ms if self.figures else {}
        latency = [measured.get((o.meta.namespace, o.meta.name), 0) for o in owned]
        broken = [
            int(running[i]) < minimum[i] or 0 < objective[i] < latency[i] for i in range(count)
        ]
        return WorkloadTable(
            uid=_longs(self.uid_of(o.meta) for o in owned),
            names=_names(o.meta.name for o in owned),
            namespace=_ints(space_rows[o.meta.namespace] for o in owned),
            kind=_ints(
                int(WorkloadKind.BATCH if o.kind == "Job" else WorkloadKind.SERVICE) for o in owned
            ),
            priority=_priorities(count, pods, self._roll["priority"][slots]),
            replicas_baseline=_ints(
                declared.get(o.meta.uid, d) for o, d in zip(owned, desired, strict=True)
            ),
            replicas_desired=_ints(desired),
            replicas_ready=running.astype(np.int32),
            min_available=_ints(minimum),
            autoscaled=_ints(int(a is not None) for a in rivals),
            replicas_floor=_ints(a.spec.min_replicas if a else 0 for a in rivals),
            latency_ms=_ints(latency),
            latency_objective_ms=_ints(objective),
            load_permille=_ints(
                int(1000 * u / a) if a else 0 for u, a in zip(used, asked, strict=True)
            ),
            in_violation=_ints(map(int, broken)),
        )

    def _namespaces(self, spaces: Sequence[Any]) -> NamespaceTable:
        metas: list[Meta] = [n.metadata for n in spaces]
        protected = [is_system(m.name) for m in metas]
        gates = self.store.gates()
        return NamespaceTable(
            uid=_longs(self.uid_of(m) for m in metas),
            names=_names(m.name for m in metas),
            managed=_ints(
                int(m.labels.get(MANAGED) == "true" and not kept)
                for m, kept in zip(metas, protected, strict=True)
            ),
            protected=_ints(map(int, protected)),
            gate=_ints(int(_gate(gates.get(m.name, ""))) for m in metas),
        )

    def _sources(self, nodes: Sequence[Node], usage: Usage, now: float) -> tuple[Source, ...]:
        health = self.store.health()
        found = [
            Source(
                name=h.name,
                age_seconds=_seconds(h.age_seconds),
                # While a watch is broken changes pass us by, however young the last proof is.
                completeness_permille=1000 if h.synced and not h.problem else 0,
            )
            for h in health
        ]
        answered = [usage.nodes.get(n.metadata.name) for n in nodes if _is_ready(n)]
        ages = [now - s.at for s in answered if s]
        share = 1000 * len(ages) // len(answered) if answered else 1000
        oldest = max(ages, default=float(NO_SAMPLE_SECONDS)) if answered else 0.0
        metrics = Source(name="metrics", age_seconds=_seconds(oldest), completeness_permille=share)
        silence = self.silence()
        store = Source(
            name=STORE,
            age_seconds=_seconds(silence),
            completeness_permille=0 if silence > SILENT_SECONDS else 1000,
        )
        named = [store, metrics]
        if usage.nodes:  # who told us, and how long ago the last time
            newest = min(ages, default=float(NO_SAMPLE_SECONDS))
            named.append(replace(metrics, name=usage.source, age_seconds=_seconds(newest)))
        if self.figures is not None and self.figures.latest.at:
            age = _seconds(now - self.figures.latest.at)
            named.append(Source(name=LATENCY, age_seconds=age, completeness_permille=1000))
        return (*found, *named)


def _lost(pods: PodTable, nodes: Sequence[Node]) -> PodTable:
    """A pod whose node is gone or silent serves nobody, whatever its last status says."""
    silent = np.array([not _is_ready(n) for n in nodes] + [False], dtype=bool)
    lost = silent[pods.node] & (pods.phase == Phase.RUNNING)
    pods.phase[lost] = int(Phase.FAILED)
    return pods


def _is_ready(node: Node) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)


def _power(node: Node) -> Power:
    """What we were told to make of it, and whether it answers at all."""
    ours = POWERS.get(node.metadata.annotations.get(POWER_KEY, ""))
    if ours is Power.ASLEEP:
        return ours
    if not _is_ready(node):
        return Power.DEAD
    return ours or Power.AWAKE


def _gate(word: str) -> Gate:
    return Gate[word.upper()] if word.upper() in Gate.__members__ else Gate.OPEN


def _keeps_off(node: Node) -> bool:
    hard = any(t.effect in ("NoSchedule", "NoExecute") for t in node.spec.taints)
    return node.spec.unschedulable or hard


def _zone_names(nodes: Sequence[Node]) -> list[str]:
    return sorted({n.metadata.labels.get(ZONE, "") for n in nodes}) or [""]


def _zones(nodes: Sequence[Node]) -> ZoneTable:
    """Names only: what energy costs here nobody told us."""
    names = _zone_names(nodes)
    unknown = np.zeros(len(names), dtype=np.int32)
    return ZoneTable(
        uid=_longs(range(len(names))),
        names=_names(names),
        price_micros_per_kwh=unknown,
        carbon_grams_per_kwh=unknown.copy(),
    )


def _watts(
    used: NDArray[np.int32],
    cpu: NDArray[np.int32],
    held: NDArray[np.int32],
    memory: NDArray[np.int32],
    ready: NDArray[np.int32],
) -> NDArray[np.int32]:
    busy = np.clip(used / np.maximum(cpu, 1), 0, 1)
    full = np.clip(held / np.maximum(memory, 1), 0, 1)
    watts = np.rint(IDLE_WATTS + CPU_WATTS * busy + MEMORY_WATTS * full).astype(np.int32)
    return np.where(ready == 1, watts, 0).astype(np.int32)


def _floors(budgets: Iterable[Budget]) -> list[tuple[str, Mapping[str, str], int]]:
    return [
        (b.metadata.namespace, b.spec.selector.match_labels, b.status.desired_healthy)
        for b in budgets
        if b.spec.selector.match_labels
    ]


def _floor(owned: Owned, floors: Sequence[tuple[str, Mapping[str, str], int]]) -> int:
    """The strictest disruption budget that covers a workload's pods."""
    return max(
        (
            floor
            for namespace, labels, floor in floors
            if namespace == owned.meta.namespace and labels.items() <= owned.labels.items()
        ),
        default=0,
    )


def _objective(meta: Meta) -> int:
    text = meta.annotations.get(OBJECTIVE, "")
    return min(int(text), 10**9) if text.isascii() and text.isdigit() else 0


def _priorities(count: int, pods: PodTable, of_pods: NDArray[np.int64]) -> NDArray[np.int32]:
    """A workload is as important as its most important pod."""
    found = np.zeros(count, dtype=np.int32)
    np.maximum.at(found, pods.workload, _narrow(of_pods))
    return found


def _through(
    uids: Iterable[str], above: Mapping[str, str], rows: Mapping[str, int]
) -> dict[str, int]:
    """Owners' uids to rows, by way of the Deployment above a ReplicaSet."""
    return {uid: rows.get(above.get(uid, uid), -1) for uid in uids}


def _age(sample: Sample | None, now: float) -> int:
    return _seconds(now - sample.at) if sample else NO_SAMPLE_SECONDS


def _seconds(value: float) -> int:
    return NO_SAMPLE_SECONDS if not math.isfinite(value) else max(int(value), 0)


def _ints(values: Iterable[int]) -> NDArray[np.int32]:
    return np.fromiter(values, dtype=np.int32)


def _narrow(values: NDArray[Any]) -> NDArray[np.int32]:
    return values.astype(np.int32)


def _longs(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64)


def _names(values: Iterable[str]) -> NDArray[np.object_]:
    listed = list(values)
    out = np.empty(len(listed), dtype=object)
    out[:] = listed
    return out
