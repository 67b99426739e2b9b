# SPDX-License-Identifier: Apache-2.0
"""Who decides how many pods there are: owners, arrivals, an HPA and a node autoscaler.

The HPA syncs every 15 s on a metric that is two syncs old, tolerates 10 %, at most doubles or adds
four per minute, and shrinks only to the highest count of the last five minutes. The node
autoscaler looks every 10 s, boots one spare node at a time and removes a spare node that has been
empty for ten minutes.
"""

from __future__ import annotations

import numpy as np

from pilothouse.domain import Gate, PendingCause
from pilothouse.sim import machines, pods
from pilothouse.sim.blueprint import TICK_SECONDS
from pilothouse.sim.state import (
    AWAKE,
    BOOTING,
    I4,
    I8,
    PENDING,
    RUNNING,
    SERVICE,
    TERMINATING,
    State,
)

SYNC_TICKS = 15 // TICK_SECONDS
TARGET_PERMILLE = 700  # use over request that the HPA aims at
TOLERANCE_PERMILLE = 100
STABLE_TICKS = 300 // TICK_SECONDS
GROWTH_TICKS = 60 // TICK_SECONDS
SCAN_TICKS = 10 // TICK_SECONDS
UNNEEDED_TICKS = 600 // TICK_SECONDS


def admit(s: State, count: I4) -> None:
    """Batch pods arrive; a rejecting namespace turns them away, which is not free."""
    rows = np.flatnonzero(count)
    if not len(rows):
        return
    cluster = rows // s.workloads
    gate = s.s_gate[cluster * s.spaces + s.w_space[rows]]
    work = np.repeat(rows, count[rows])
    ordinal = _ordinals(s, rows, count[rows])
    np.add.at(s.w_created, rows, count[rows])
    refused = gate == Gate.REJECT
    if refused.any():
        # Turned-away work costs as if all of it had been late, and its grace on top.
        ticks = s.w_work_ticks[rows] + pods.WAIT_GRACE_TICKS
        cost = count[rows].astype(np.int64) * ticks * s.c_lateness[cluster]
        np.add.at(s.c_violation, cluster[refused], cost[refused])
        keep = ~np.repeat(refused, count[rows])
        work, ordinal = work[keep], ordinal[keep]
    if len(work):
        pods.create(s, work, pods.pod_keys(s, work, ordinal))


def _ordinals(s: State, rows: I8, count: I4) -> I8:
    """The number each new pod has among all pods its workload ever had."""
    first = np.cumsum(count) - count
    within = np.arange(int(count.sum())) - np.repeat(first, count)
    return np.repeat(s.w_created[rows], count).astype(np.int64) + within


def reconcile(s: State) -> None:
    """Owners create what is missing and end what is too much."""
    pods.recreate(s)
    service = s.w_kind == SERVICE
    missing = np.where(service, s.w_desired - s.w_have, 0)
    rows = np.flatnonzero(missing > 0)
    if len(rows):
        _create_missing(s, rows, missing[rows])
    for row in np.flatnonzero(missing < 0).tolist():
        _remove_surplus(s, row, -int(missing[row]))


def _create_missing(s: State, rows: I8, count: I4) -> None:
    work = np.repeat(rows, count)
    ordinal = _ordinals(s, rows, count)
    np.add.at(s.w_created, rows, count)
    slots = pods.create(s, work, pods.pod_keys(s, work, ordinal))
    within = ordinal - (s.w_created[work] - np.repeat(count, count))
    s.down[slots] = within < s.w_owed[work]
    s.w_owed[rows] = np.maximum(s.w_owed[rows] - count, 0)
    s.avoid[slots] = s.w_avoid[work]
    s.w_avoid[rows] = -1


def _remove_surplus(s: State, row: int, count: int) -> None:
    """Not yet running first, then the youngest, as a ReplicaSet does."""
    i = np.flatnonzero(s.work == row)
    i = i[s.phase[i] != TERMINATING]
    order = np.lexsort((-s.uid[i], s.phase[i] == RUNNING))
    pods.terminate(s, i[order[:count]], wanted=False)
    s.w_owed[row] = 0


def autoscale_pods(s: State) -> None:
    """One sync of every HPA."""
    rows = np.flatnonzero(s.w_autoscaled == 1)
    if not len(rows) or s.tick % SYNC_TICKS:
        return
    used = np.bincount(s.active_work, s.used(s.tick), minlength=s.nobody_work + 1)[rows]
    requested = np.maximum(s.w_ready[rows] * s.w_cpu_request[rows], 1)
    s.w_metric[rows] = s.w_metric_next[rows]
    s.w_metric_next[rows] = s.w_metric_last[rows]
    s.w_metric_last[rows] = used.astype(np.int64) * 1000 // requested
    ready = np.maximum(s.w_ready[rows], 1)
    metric = s.w_metric[rows]
    wanted = -(-ready * metric // TARGET_PERMILLE)
    calm = np.abs(metric * 1000 // TARGET_PERMILLE - 1000) <= TOLERANCE_PERMILLE
    desired = s.w_desired[rows]
    wanted = np.where(calm | (s.w_ready[rows] == 0), desired, wanted)
    fresh = s.tick - s.w_grow_tick[rows] >= GROWTH_TICKS
    s.w_grow_from[rows] = np.where(fresh, desired, s.w_grow_from[rows])
    s.w_grow_tick[rows] = np.where(fresh, s.tick, s.w_grow_tick[rows])
    start = s.w_grow_from[rows]
    wanted = np.minimum(wanted, np.maximum(2 * start, start + 4))
    wanted = np.clip(wanted, s.w_floor[rows], s.w_ceiling[rows])
    s.w_shrink_tick[rows] = np.where(wanted >= desired, s.tick, s.w_shrink_tick[rows])
    stable = s.tick - s.w_shrink_tick[rows] >= STABLE_TICKS
    s.w_desired[rows] = np.where((wanted >= desired) | stable, wanted, desired)


def autoscale_nodes(s: State) -> None:
    """One scan of every node autoscaler; clusters without spare nodes have none."""
    if s.tick % SCAN_TICKS or not s.n_spare.any():
        return
    waiting = (s.phase == PENDING) & (s.cause == PendingCause.RESOURCES)
    for cluster in np.unique(s.home[waiting]).tolist():
        span = slice(cluster * s.nodes, (cluster + 1) * s.nodes)
        if (s.n_power[span] == BOOTING).any():
            continue
        spare = np.flatnonzero((s.n_spare[span] == 1) & (s.n_exists[span] == 0))
        if len(spare):
            _add_node(s, cluster, int(spare[0]) + cluster * s.nodes)
    busy = s.n_pods > 0
    s.n_idle_tick[busy & (s.n_spare == 1)] = s.tick
    idle = (s.n_spare == 1) & (s.n_exists == 1) & (s.n_power == AWAKE) & ~busy
    for node in np.flatnonzero(idle & (s.tick - s.n_idle_tick >= UNNEEDED_TICKS)).tolist():
        machines.sleep(s, node)
        s.n_exists[node] = 0


def _add_node(s: State, cluster: int, node: int) -> None:
    s.n_exists[node] = 1
    s.n_taint[node] = 0
    s.n_uid[node] = s.c_next_node_uid[cluster]
    s.c_next_node_uid[cluster] += 1
    machines.wake(s, np.array([node]))
