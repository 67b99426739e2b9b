# SPDX-License-Identifier: Apache-2.0
"""The cluster at one instant, columnar.

Every numeric column is an integer in a stated unit. Integers make sums exact, differences small
and the record identical to what the agents saw: a snapshot is quantized by construction, before
anyone decides. Rows of each table are ordered by ``uid``, which never repeats, so two snapshots of
one cluster can be compared row by row. Indices (``pod.node``, ``pod.workload``) refer to rows of
the same snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain.observed import Claim, Reaction, Reading, Scaler, Trouble
from pilothouse.domain.reference import Ref

Ints = NDArray[np.int32]
Uids = NDArray[np.int64]
Names = NDArray[np.object_]


class Phase(IntEnum):
    """Where a pod is in its life. ``FAILED`` covers crash back-off and a lost node."""

    PENDING = 0
    STARTING = 1
    RUNNING = 2
    FAILED = 3
    TERMINATING = 4


class PendingCause(IntEnum):
    """Why a pod waits. Queueing helps only against ``RESOURCES``."""

    NONE = 0
    RESOURCES = 1
    SELECTOR = 2
    GATED = 3
    AUTOSCALER = 4
    IMAGE = 5
    FOREIGN_GATE = 6


# No queue helps these pods: somebody has to change something first.
HELPLESS = (PendingCause.SELECTOR, PendingCause.IMAGE, PendingCause.FOREIGN_GATE)


class Power(IntEnum):
    """What a node's machine is doing."""

    AWAKE = 0
    DRAINING = 1
    ASLEEP = 2
    BOOTING = 3
    DEAD = 4


class Gate(IntEnum):
    """What happens to *new* pods of a namespace."""

    OPEN = 0
    QUEUE = 1
    DEPRIORITIZE = 2
    REJECT = 3


class WorkloadKind(IntEnum):
    """A service answers requests and has a latency objective; a batch workload finishes."""

    SERVICE = 0
    BATCH = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeTable:
    """One row per node."""

    uid: Uids  # (nodes,) ascending
    names: Names  # (nodes,)
    zone: Ints  # index into Snapshot.zones
    cpu_capacity_millicores: Ints
    memory_capacity_mib: Ints
    cpu_requested_millicores: Ints
    memory_requested_mib: Ints
    cpu_used_millicores: Ints  # as last measured, see age_seconds
    memory_used_mib: Ints
    pods: Ints  # bound and not finished
    ready: Ints  # 1 when the node reports Ready
    tainted: Ints  # 1 when new pods are kept off: by our taint, or by somebody's cordon
    power: Ints  # Power
    frequency_permille: Ints  # of the default clock; 1000 is the default
    latency_ms: Ints  # node to user
    errors_per_minute: Ints  # corrected hardware and kernel errors: the usual precursor
    heartbeat_lag_ms: Ints  # how late the kubelet's last heartbeat was
    power_watts: Ints  # modelled
    age_seconds: Ints  # of the usage columns

    def __len__(self) -> int:
        return len(self.uid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodTable:
    """One row per pod that is wanted and not finished."""

    uid: Uids  # (pods,) ascending, in order of creation
    names: Names  # (pods,)
    workload: Ints  # index into Snapshot.workloads
    node: Ints  # index into Snapshot.nodes, -1 while unbound
    phase: Ints  # Phase
    pending_cause: Ints  # PendingCause
    created_seconds: Ints  # cluster clock
    since_seconds: Ints  # cluster clock at the last change of phase
    cpu_request_millicores: Ints
    cpu_limit_millicores: Ints  # 0: none
    cpu_used_millicores: Ints
    memory_request_mib: Ints
    memory_limit_mib: Ints  # 0: none
    memory_used_mib: Ints
    memory_peak_mib: Ints  # highest working set since the container started
    restarts: Ints
    oom_kills: Ints
    evictable: Ints  # 0: bare, DaemonSet-like, local storage or do-not-disrupt

    def __len__(self) -> int:
        return len(self.uid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkloadTable:
    """One row per workload (what owns pods)."""

    uid: Uids  # (workloads,) ascending
    names: Names  # (workloads,)
    namespace: Ints  # index into Snapshot.namespaces
    kind: Ints  # WorkloadKind
    priority: Ints  # higher is more important
    replicas_baseline: Ints  # as its owner declared
    replicas_desired: Ints
    replicas_ready: Ints
    min_available: Ints  # the disruption budget's floor
    autoscaled: Ints  # 1 when an HPA owns the replica count
    replicas_floor: Ints  # the HPA's minimum, 0 where there is none
    latency_ms: Ints  # observed p95, 0 for batch
    latency_objective_ms: Ints  # 0: none
    load_permille: Ints  # offered CPU work per baseline replica request; 1000 fills it
    in_violation: Ints  # 1 while its objective is broken

    def __len__(self) -> int:
        return len(self.uid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NamespaceTable:
    """One row per namespace."""

    uid: Uids
    names: Names
    managed: Ints  # 1 when its owner opted in
    protected: Ints  # 1: never touched, whoever asks
    gate: Ints  # Gate

    def __len__(self) -> int:
        return len(self.uid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ZoneTable:
    """One row per zone: what energy costs there now."""

    uid: Uids
    names: Names
    price_micros_per_kwh: Ints  # currency units * 1e6
    carbon_grams_per_kwh: Ints

    def __len__(self) -> int:
        return len(self.uid)


Table = NodeTable | PodTable | WorkloadTable | NamespaceTable | ZoneTable


def columns(table: Table) -> dict[str, NDArray[np.generic]]:
    """The numeric columns of a table by name, ``uid`` and ``names`` aside."""
    return {f.name: getattr(table, f.name) for f in fields(table) if f.name not in ("uid", "names")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """How old and how complete one source of the snapshot is."""

    name: str
    age_seconds: int
    completeness_permille: int


# Recorded and counted into the digest only where there are any, so that records without them stay
# what they were.
IF_ANY = {"if_any": True}


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """What the cluster says (the raw view); ``interpreted`` is what we conclude from it."""

    cluster: str
    taken_seconds: int  # cluster clock
    nodes: NodeTable
    pods: PodTable
    workloads: WorkloadTable
    namespaces: NamespaceTable
    zones: ZoneTable
    sources: tuple[Source, ...] = field(default=())
    troubles: tuple[Trouble, ...] = field(default=(), metadata=IF_ANY)
    scalers: tuple[Scaler, ...] = field(default=(), metadata=IF_ANY)
    claims: tuple[Claim, ...] = field(default=(), metadata=IF_ANY)
    reactions: tuple[Reaction, ...] = field(default=(), metadata=IF_ANY)  # ended since the last
    readings: tuple[Reading, ...] = field(default=(), metadata=IF_ANY)  # new since the last

    def node_ref(self, row: int) -> Ref:
        return Ref(self.cluster, "node", "", str(self.nodes.names[row]))

    def workload_ref(self, row: int) -> Ref:
        namespace = self.namespaces.names[self.workloads.namespace[row]]
        return Ref(self.cluster, "workload", str(namespace), str(self.workloads.names[row]))

    def pod_ref(self, row: int) -> Ref:
        namespace = self.workloads.namespace[self.pods.workload[row]]
        name = str(self.pods.names[row])
        return Ref(self.cluster, "pod", str(self.namespaces.names[namespace]), name)

    def namespace_ref(self, row: int) -> Ref:
        return Ref(self.cluster, "namespace", "", str(self.namespaces.names[row]))

    @property
    def cluster_ref(self) -> Ref:
        return Ref(self.cluster, "cluster")

    def find(self, ref: Ref) -> int | None:
        """The row a reference names in its table, or None where there is no such object."""
        if ref.cluster != self.cluster:
            return None
        return self._rows.get((ref.kind, ref.namespace, ref.name))

    @cached_property
    def _rows(self) -> dict[tuple[str, str, str], int]:
        rows: dict[tuple[str, str, str], int] = {("cluster", "", ""): 0}
        rows.update((("node", "", str(n)), i) for i, n in enumerate(self.nodes.names))
        spaces = [str(n) for n in self.namespaces.names]
        rows.update((("namespace", "", n), i) for i, n in enumerate(spaces))
        of_workload = [spaces[i] for i in self.workloads.namespace.tolist()]
        rows.update(
            (("workload", of_workload[i], str(n)), i) for i, n in enumerate(self.workloads.names)
        )
        rows.update(
            (("pod", of_workload[w], n), i)
            for i, (w, n) in enumerate(
                zip(self.pods.workload.tolist(), self.pods.names.tolist(), strict=True)
            )
        )
        return rows

    @cached_property
    def interpreted(self) -> Interpretation:
        return interpret(self)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Interpretation:
    """What we conclude from the raw view; debugging happens where the two disagree."""

    pressure_permille: Ints  # (nodes,) the worse of CPU and memory use over capacity
    overloaded: Ints  # (nodes,) 1 above 850 permille, awake nodes only
    awake: Ints  # (nodes,) 1 when the node is ready and takes part
    queue_length: int  # pods that wait for resources, a gate or an autoscaler
    queue_oldest_seconds: int
    unschedulable: int  # pods that wait for what no queue can give: selector, image, gate
    violations: int  # workloads whose objective is broken now
    failed_pods: int
    requested_permille: int  # CPU requests over the capacity of awake nodes
    used_permille: int  # CPU use over the capacity of awake nodes
    power_watts: int  # modelled, whole cluster


OVERLOADED_PERMILLE = (
    850  # half the nodes above this make admission cap (lessons of the source system)
)


def interpret(snapshot: Snapshot) -> Interpretation:
    """Conclude; a pure function, so a replay concludes the same."""
    nodes, pods = snapshot.nodes, snapshot.pods
    awake = (nodes.ready == 1) & (nodes.power == Power.AWAKE)
    cpu_capacity = np.maximum(nodes.cpu_capacity_millicores.astype(np.int64), 1)
    memory_capacity = np.maximum(nodes.memory_capacity_mib.astype(np.int64), 1)
    pressure = np.maximum(
        1000 * nodes.cpu_used_millicores.astype(np.int64) // cpu_capacity,
        1000 * nodes.memory_used_mib.astype(np.int64) // memory_capacity,
    )
    pending = pods.phase == Phase.PENDING
    stuck = pending & np.isin(pods.pending_cause, HELPLESS)
    waiting = pending & ~stuck
    oldest = int(snapshot.taken_seconds - pods.since_seconds[waiting].min()) if waiting.any() else 0
    capacity = max(int(cpu_capacity[awake].sum()), 1)
    return Interpretation(
        pressure_permille=pressure.astype(np.int32),
        overloaded=(awake & (pressure > OVERLOADED_PERMILLE)).astype(np.int32),
        awake=awake.astype(np.int32),
        queue_length=int(waiting.sum()),
        queue_oldest_seconds=oldest,
        unschedulable=int(stuck.sum()),
        violations=int(snapshot.workloads.in_violation.sum()),
        failed_pods=int((pods.phase == Phase.FAILED).sum()),
        requested_permille=1000 * int(nodes.cpu_requested_millicores[awake].sum()) // capacity,
        used_permille=1000 * int(nodes.cpu_used_millicores[awake].sum()) // capacity,
        power_watts=int(nodes.power_watts.sum()),
    )
