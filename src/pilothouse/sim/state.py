# SPDX-License-Identifier: Apache-2.0
"""Everything that changes in a batch of clusters, as flat arrays.

Rows of nodes, workloads and namespaces are flat over the batch and padded: cluster b owns rows
``b * width .. (b + 1) * width``. One extra row at the end of the node and workload columns is
*nobody*: an unbound pod points there, so that sums and look-ups need no masks. Pods of all
clusters share one pool of slots, because padding each cluster for its worst hour would waste a
third of the work; ``home`` says whose a pod is. Every quantity is an integer in a stated unit, so
that no sum depends on order, padding or batch size.

Columns of one kind of row and one type lie in one table (``Tables``), so that compiled code takes a
few tables instead of two hundred columns; every attribute is a row of its table, never replaced.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import Phase, Power, WorkloadKind

I4 = NDArray[np.int32]
I8 = NDArray[np.int64]
U4 = NDArray[np.uint32]
B1 = NDArray[np.int8]

# Plain integers: an enum member would widen every comparison with a small column to 64 bits.
PENDING, STARTING, RUNNING = int(Phase.PENDING), int(Phase.STARTING), int(Phase.RUNNING)
FAILED, TERMINATING = int(Phase.FAILED), int(Phase.TERMINATING)
EMPTY = 5  # a pod slot without a pod
AWAKE, DRAINING, ASLEEP = int(Power.AWAKE), int(Power.DRAINING), int(Power.ASLEEP)
BOOTING, DEAD = int(Power.BOOTING), int(Power.DEAD)
SERVICE, BATCH = int(WorkloadKind.SERVICE), int(WorkloadKind.BATCH)
NEVER = 2**31 - 1  # a tick that does not come
UNLIMITED = 1 << 20  # millicores or MiB that no pod reaches
RATIO_BITS = 20  # fixed point of the reciprocal of a CPU limit

# (name, dtype, value of an unused row)
NODE_COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("n_uid", "i8", 0),
    ("n_exists", "i1", 0),
    ("n_zone", "i4", -2),
    ("n_place", "i8", 0),  # zone row
    ("n_cpu", "i4", 1),
    ("n_memory", "i4", 1),
    ("n_latency", "i4", 0),
    ("n_idle_mw", "i4", 0),
    ("n_cpu_rate", "i4", 0),  # mW per millicore, in 1/1024
    ("n_memory_rate", "i4", 0),  # mW per MiB, in 1/1024
    ("n_boot_ticks", "i4", 12),
    ("n_scrape", "i4", 0),
    ("n_spare", "i1", 0),
    ("n_key", "u4", 0),
    ("n_power", "i1", 2),
    ("n_ready", "i1", 0),
    ("n_taint", "i1", 0),
    ("n_taint_tick", "i4", 0),
    ("n_drain", "i1", 0),
    ("n_frequency", "i4", 1000),
    ("n_health", "i4", 1000),  # per mille of the CPU that still works
    ("n_errors", "i4", 0),
    ("n_lag_ms", "i4", 0),
    ("n_fault", "i1", 0),
    ("n_fault_tick", "i4", 0),
    ("n_fault_ticks", "i4", 0),
    ("n_fault_height", "i4", 0),
    ("n_wake_tick", "i4", NEVER),
    ("n_dead_tick", "i4", NEVER),
    ("n_repair_tick", "i4", NEVER),
    ("n_deaths", "i4", 0),
    ("n_idle_tick", "i4", NEVER),
    ("n_cpu_requested", "i4", 0),
    ("n_memory_requested", "i4", 0),
    ("n_pods", "i4", 0),
    ("n_cpu_used", "i4", 0),
    ("n_memory_used", "i4", 0),
    ("n_power_mw", "i4", 0),
)
WORKLOAD_COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("w_exists", "i1", 0),
    ("w_home", "i8", 0),  # cluster
    ("w_space", "i4", 0),
    ("w_kind", "i1", 0),
    ("w_priority", "i4", 0),
    ("w_baseline", "i4", 0),
    ("w_min_available", "i4", 0),
    ("w_cpu_request", "i4", 1),
    ("w_cpu_limit", "i4", 0),
    ("w_memory_request", "i4", 0),
    ("w_memory_limit", "i4", 0),
    ("w_memory_base", "i4", 0),
    ("w_memory_load", "i4", 0),
    ("w_base_ms", "i4", 0),
    ("w_objective_ms", "i4", 0),
    ("w_start_ticks", "i4", 1),
    ("w_grace_ticks", "i4", 1),
    ("w_trough", "i4", 0),
    ("w_peak", "i4", 0),
    ("w_phase", "i4", 0),
    ("w_autoscaled", "i1", 0),
    ("w_evictable", "i1", 1),
    ("w_zone", "i4", -1),
    ("w_rate", "i4", 0),
    ("w_work_ticks", "i4", 0),
    ("w_appetite", "i4", 0),
    ("w_patience_ticks", "i4", 0),
    ("w_key", "u4", 0),
    ("w_burst_key", "u4", 0),
    ("w_arrival_key", "u4", 0),
    ("w_pod_key", "u4", 0),
    ("w_wobble_step", "i4", -1),
    ("w_before", "i4", 0),
    ("w_after", "i4", 0),
    ("w_luck", "i4", 0),
    ("w_desired", "i4", 0),
    ("w_scaled_tick", "i4", 0),
    ("w_floor", "i4", 0),
    ("w_ceiling", "i4", 0),
    ("w_have", "i4", 0),
    ("w_owed", "i4", 0),  # pods lost while serving and not yet created again
    ("w_ready", "i4", 0),
    ("w_created", "i4", 0),
    ("w_network_ms", "i4", 0),  # sum over ready pods of the node-to-user latency
    ("w_surge", "i4", 0),
    ("w_surge_now", "i4", 0),
    ("w_leak", "i4", 0),
    ("w_load", "i4", 0),  # millicores asked for now
    ("w_latency", "i4", 0),
    ("w_violation", "i1", 0),
    ("w_avoid", "i4", -1),  # node row that the next new replica is kept off
    ("w_metric", "i4", 700),  # what the HPA sees: use over request, per mille, lagging
    ("w_metric_next", "i4", 700),
    ("w_metric_last", "i4", 700),
    ("w_shrink_tick", "i4", 0),  # last tick at which the HPA wanted at least what there is
    ("w_grow_tick", "i4", -1000),
    ("w_grow_from", "i4", 0),
)
POD_COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("uid", "i8", 0),
    ("key", "u4", 0),
    ("home", "i8", -1),  # cluster
    ("work", "i8", -1),  # workload row
    ("node", "i8", -1),  # node row, nobody while unbound
    ("active_work", "i8", -1),  # workload row while running, else nobody
    ("active_node", "i8", -1),  # node row while running, else nobody
    ("phase", "i1", EMPTY),
    ("cause", "i1", 0),
    ("down", "i1", 0),  # should serve and does not
    ("lost", "i1", 0),  # its node died
    ("gated", "i1", 0),
    ("started", "i1", 0),
    ("created", "i4", 0),
    ("since", "i4", 0),
    ("timer", "i4", NEVER),
    ("tried", "i4", -1),
    ("cpu_request", "i4", 0),
    ("cpu_limit", "i4", UNLIMITED),
    ("cpu_ratio", "i4", 1),
    ("memory_request", "i4", 0),
    ("memory_limit", "i4", UNLIMITED),
    ("memory_alarm", "i4", UNLIMITED),  # above it a pod thrashes
    ("leaked", "i4", 0),  # KiB
    ("leak", "i4", 0),  # KiB per tick while running
    ("peak", "i4", 0),
    ("restarts", "i4", 0),
    ("ooms", "i4", 0),
    ("backoff", "i4", 0),
    ("is_batch", "i4", 0),
    ("remaining", "i4", 1),  # batch: millicore-ticks of work left
    ("work_total", "i4", 0),
    ("deadline", "i4", NEVER),
    ("avoid", "i8", -1),
    ("used_0", "i4", 0),
    ("used_1", "i4", 0),
    ("used_2", "i4", 0),
    ("held_0", "i4", 0),
    ("held_1", "i4", 0),
    ("held_2", "i4", 0),
)
SPACE_COLUMNS: tuple[tuple[str, str, int], ...] = (("s_gate", "i1", 0),)
ZONE_COLUMNS: tuple[tuple[str, str, int], ...] = (("z_price", "i4", 0), ("z_carbon", "i4", 0))
CLUSTER_COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("c_seed", "u4", 0),
    ("c_day_ticks", "i4", 720),
    ("c_day_offset", "i4", 0),
    ("c_day", "i4", 0),
    ("c_noise", "i4", 0),
    ("c_burst", "i4", 0),
    ("c_burst_level", "i4", 1000),
    ("c_lateness", "i4", 0),
    ("c_repair_low", "i4", 240),
    ("c_repair_high", "i4", 360),
    ("c_nodes", "i4", 0),  # rows in use, spare ones too
    ("c_pods", "i8", 0),
    ("c_next_uid", "i8", 1),
    ("c_next_node_uid", "i8", 1),
    ("c_damp", "i4", 1000),
    ("c_damp_now", "i4", 1000),
    ("c_rival", "i4", 0),
    ("c_freed", "i4", 0),  # tick at which room was last made: pending pods try again
    ("c_sample", "i4", 0),  # where the scheduler's next node sample starts
    ("c_scaler_tick", "i4", 0),
    ("c_failed", "i8", 0),  # pod-ticks
    ("c_violation", "i8", 0),  # workload-ticks, per mille
    ("c_waiting", "i8", 0),  # pod-ticks
    ("c_energy", "i8", 0),  # milliwatt-ticks
    ("c_cost", "i8", 0),  # milliwatt-ticks times micros per kWh
    ("c_carbon", "i8", 0),  # milliwatt-ticks times grams per kWh
)

_TABLES = {
    "node": NODE_COLUMNS,
    "work": WORKLOAD_COLUMNS,
    "space": SPACE_COLUMNS,
    "zone": ZONE_COLUMNS,
    "cluster": CLUSTER_COLUMNS,
    "pod": POD_COLUMNS,
}
_SUFFIX = {"i4": "", "i1": "_flag", "i8": "_wide", "u4": "_key"}


class Tables(NamedTuple):
    """All columns, (columns, rows) each; ``place_of`` says which row of its table a column is."""

    node: I4
    node_flag: B1
    node_wide: I8
    node_key: U4
    work: I4
    work_flag: B1
    work_wide: I8
    work_key: U4
    space_flag: B1
    zone: I4
    cluster: I4
    cluster_wide: I8
    cluster_key: U4
    pod: I4
    pod_flag: B1
    pod_wide: I8
    pod_key: U4


def _lay_out() -> dict[str, tuple[tuple[str, str, int], ...]]:
    """The columns of each table, in order."""
    return {
        entity + suffix: tuple(column for column in columns if column[1] == kind)
        for entity, columns in _TABLES.items()
        for kind, suffix in _SUFFIX.items()
    }


_LAYOUT = {table: columns for table, columns in _lay_out().items() if columns}
_PLACES = {
    name: place for columns in _LAYOUT.values() for place, (name, _, _) in enumerate(columns)
}


def places_of(*names: str) -> tuple[int, ...]:
    """Which row of its table each column is."""
    return tuple(_PLACES[name] for name in names)


class State:
    """Columns as attributes; see the tables above for names, units and fill values."""

    # Declared for the type checker; allocated from the tables.
    n_uid: I8
    n_exists: B1
    n_zone: I4
    n_place: I8
    n_cpu: I4
    n_memory: I4
    n_latency: I4
    n_idle_mw: I4
    n_cpu_rate: I4
    n_memory_rate: I4
    n_boot_ticks: I4
    n_scrape: I4
    n_spare: B1
    n_key: U4
    n_power: B1
    n_ready: B1
    n_taint: B1
    n_taint_tick: I4
    n_drain: B1
    n_frequency: I4
    n_health: I4
    n_errors: I4
    n_lag_ms: I4
    n_fault: B1
    n_fault_tick: I4
    n_fault_ticks: I4
    n_fault_height: I4
    n_wake_tick: I4
    n_dead_tick: I4
    n_repair_tick: I4
    n_deaths: I4
    n_idle_tick: I4
    n_cpu_requested: I4
    n_memory_requested: I4
    n_pods: I4
    n_cpu_used: I4
    n_memory_used: I4
    n_power_mw: I4
    w_exists: B1
    w_home: I8
    w_space: I4
    w_kind: B1
    w_priority: I4
    w_baseline: I4
    w_min_available: I4
    w_cpu_request: I4
    w_cpu_limit: I4
    w_memory_request: I4
    w_memory_limit: I4
    w_memory_base: I4
    w_memory_load: I4
    w_base_ms: I4
    w_objective_ms: I4
    w_start_ticks: I4
    w_grace_ticks: I4
    w_trough: I4
    w_peak: I4
    w_phase: I4
    w_autoscaled: B1
    w_evictable: B1
    w_zone: I4
    w_rate: I4
    w_work_ticks: I4
    w_appetite: I4
    w_patience_ticks: I4
    w_key: U4
    w_burst_key: U4
    w_arrival_key: U4
    w_pod_key: U4
    w_wobble_step: I4
    w_before: I4
    w_after: I4
    w_luck: I4
    w_desired: I4
    w_scaled_tick: I4
    w_floor: I4
    w_ceiling: I4
    w_have: I4
    w_owed: I4
    w_ready: I4
    w_created: I4
    w_network_ms: I4
    w_surge: I4
    w_surge_now: I4
    w_leak: I4
    w_load: I4
    w_latency: I4
    w_violation: B1
    w_avoid: I4
    w_metric: I4
    w_metric_next: I4
    w_metric_last: I4
    w_shrink_tick: I4
    w_grow_tick: I4
    w_grow_from: I4
    uid: I8
    key: U4
    home: I8
    work: I8
    node: I8
    active_work: I8
    active_node: I8
    phase: B1
    cause: B1
    down: B1
    lost: B1
    gated: B1
    started: B1
    created: I4
    since: I4
    timer: I4
    tried: I4
    cpu_request: I4
    cpu_limit: I4
    cpu_ratio: I4
    memory_request: I4
    memory_limit: I4
    memory_alarm: I4
    leaked: I4
    leak: I4
    peak: I4
    restarts: I4
    ooms: I4
    backoff: I4
    is_batch: I4
    remaining: I4
    work_total: I4
    deadline: I4
    avoid: I8
    used_0: I4
    used_1: I4
    used_2: I4
    held_0: I4
    held_1: I4
    held_2: I4
    s_gate: B1
    z_price: I4
    z_carbon: I4
    c_seed: U4
    c_day_ticks: I4
    c_day_offset: I4
    c_day: I4
    c_noise: I4
    c_burst: I4
    c_burst_level: I4
    c_lateness: I4
    c_repair_low: I4
    c_repair_high: I4
    c_nodes: I4
    c_pods: I8
    c_next_uid: I8
    c_next_node_uid: I8
    c_damp: I4
    c_damp_now: I4
    c_rival: I4
    c_freed: I4
    c_sample: I4
    c_scaler_tick: I4
    c_failed: I8
    c_violation: I8
    c_waiting: I8
    c_energy: I8
    c_cost: I8
    c_carbon: I8

    def __init__(
        self, *, batch: int, nodes: int, workloads: int, spaces: int, zones: int, slots: int
    ) -> None:
        self.tick = 0
        self.reborn: list[tuple[int, int, int, int, int]] = []  # batch jobs to start over
        self.batch = batch
        self.nodes = nodes
        self.workloads = workloads
        self.spaces = spaces
        self.zones = zones
        self.nobody_node = batch * nodes
        self.nobody_work = batch * workloads
        rows = {
            "node": batch * nodes + 1,
            "work": batch * workloads + 1,
            "space": batch * spaces,
            "zone": batch * zones,
            "cluster": batch,
            "pod": slots,
        }
        self._adopt(Tables(**{t: self._empty(t, rows[t.split("_")[0]]) for t in _LAYOUT}))

    def _empty(self, table: str, rows: int) -> NDArray[Any]:
        """A table of unused rows."""
        columns = _LAYOUT[table]
        out = np.empty((len(columns), rows), dtype=columns[0][1])
        for place, (name, _, fill) in enumerate(columns):
            out[place] = self._fill(name, fill)
        return out

    def _adopt(self, tables: Tables) -> None:
        self.tables = tables
        for table, columns in _LAYOUT.items():
            for (name, _, _), column in zip(columns, getattr(tables, table), strict=True):
                setattr(self, name, column)

    def used(self, tick: int) -> I4:
        """CPU granted at a recent tick, by pod slot; three ticks are kept."""
        column: I4 = getattr(self, f"used_{tick % 3}")
        return column

    def held(self, tick: int) -> I4:
        """Memory at a recent tick, by pod slot; three ticks are kept."""
        column: I4 = getattr(self, f"held_{tick % 3}")
        return column

    def grow(self, slots: int) -> None:
        """More slots in the pool; nothing observable changes."""
        more = slots - len(self.uid)
        grown = {
            table: np.concatenate((getattr(self.tables, table), self._empty(table, more)), axis=1)
            for table in _LAYOUT
            if table.startswith("pod")
        }
        self._adopt(self.tables._replace(**grown))

    def _fill(self, name: str, fill: int) -> int:
        """The value of an empty slot; references point to nobody."""
        special = {
            "node": self.nobody_node,
            "active_node": self.nobody_node,
            "work": self.nobody_work,
            "active_work": self.nobody_work,
            "home": self.batch,
        }
        return special.get(name, fill)

    def copy(self) -> State:
        """An independent state with the same future."""
        twin = copy.copy(self)
        twin.reborn = list(self.reborn)
        twin._adopt(Tables._make(table.copy() for table in self.tables))
        return twin

    def to_bytes(self) -> bytes:
        """The full state: a header, then the raw columns in the order of the tables."""
        sizes = {k: getattr(self, k) for k in _SIZES} | {"slots": len(self.uid)}
        head = {"tick": self.tick, "reborn": self.reborn, "sizes": sizes}
        columns = [np.ascontiguousarray(getattr(self, name)).tobytes() for name in ALL_NAMES]
        return msgspec.msgpack.encode([head, columns])

    @classmethod
    def from_bytes(cls, data: bytes) -> State:
        """The state that ``to_bytes`` wrote."""
        decoded: Any = msgspec.msgpack.decode(data)
        head, columns = decoded
        state = cls(**head["sizes"])
        state.tick = head["tick"]
        state.reborn = [tuple(job) for job in head["reborn"]]
        for name, raw in zip(ALL_NAMES, columns, strict=True):
            own = getattr(state, name)
            own[:] = np.frombuffer(raw, dtype=own.dtype)
        return state


_SIZES = ("batch", "nodes", "workloads", "spaces", "zones")
ALL_NAMES = tuple(name for table in _TABLES.values() for name, _, _ in table)
