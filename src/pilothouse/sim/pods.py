# SPDX-License-Identifier: Apache-2.0
"""The life of a pod: created, bound, started, failed, started again, terminated, gone.

Every function takes pod slots (flat rows) and keeps the sums that others rely on: requests and
pods by node, ready and existing pods by workload. Times follow Kubernetes: crash back-off of 10,
20, 40 .. 300 s that is forgotten after ten healthy minutes, a grace period on termination, and
340 s until the pods of a dead node are given up.
"""

from __future__ import annotations

import numpy as np

from pilothouse.domain import Gate, PendingCause
from pilothouse.sim.blueprint import TICK_SECONDS
from pilothouse.sim.randomness import mix
from pilothouse.sim.state import (
    BATCH,
    EMPTY,
    FAILED,
    I4,
    I8,
    NEVER,
    PENDING,
    RATIO_BITS,
    RUNNING,
    STARTING,
    TERMINATING,
    U4,
    UNLIMITED,
    State,
)

BACKOFF_TICKS = np.array([2, 4, 8, 16, 32, 60], dtype=np.int32)  # 10 s doubling to 300 s
HEALTHY_TICKS = 600 // TICK_SECONDS
LOST_TICKS = 340 // TICK_SECONDS  # 40 s until NotReady, 300 s of toleration
WAIT_GRACE_TICKS = 60 // TICK_SECONDS  # a batch pod may wait this long at no cost
RELEASES_PER_TICK = 2  # held pods let go by an opened gate
_BLANK = ("lost", "gated", "started", "peak", "restarts", "ooms", "backoff")
DEAL = 32  # pods created one after the other lie this many slots apart
SMALLEST_LIMIT = 50  # millicores; keeps the reciprocal in range


def stop(s: State, i: I8) -> None:
    """These no longer serve."""
    running = i[s.phase[i] == RUNNING]
    np.subtract.at(s.w_ready, s.work[running], 1)
    np.subtract.at(s.w_network_ms, s.work[running], s.n_latency[s.node[running]])
    s.active_work[i] = s.nobody_work
    s.active_node[i] = s.nobody_node
    s.leaked[i] = s.leak[i] = 0


def run(s: State, i: I8) -> None:
    """These serve from now on."""
    work, node = s.work[i], s.node[i]
    s.phase[i] = RUNNING
    s.since[i] = s.tick
    s.timer[i] = NEVER
    s.down[i] = 0
    s.started[i] = 1
    s.active_work[i] = work
    s.active_node[i] = node
    s.peak[i] = 0
    set_leak(s, i)
    np.add.at(s.w_ready, work, 1)
    np.add.at(s.w_network_ms, work, s.n_latency[node])


def move_user(s: State, node: int, milliseconds: int) -> None:
    """From now on this node's user is so far away; who serves there is slower by as much."""
    here = np.flatnonzero((s.node == node) & (s.phase == RUNNING))
    np.add.at(s.w_network_ms, s.work[here], milliseconds - int(s.n_latency[node]))
    s.n_latency[node] = milliseconds


def set_leak(s: State, i: I8) -> None:
    """Each pod leaks at its own pace, three to five quarters of its workload's."""
    rate = s.w_leak[s.work[i]]
    if not rate.any():
        s.leak[i] = 0
        return
    pace = 768 + (s.key[i] & np.uint32(511)).astype(np.int64)
    s.leak[i] = rate * pace >> 10


def release(s: State, i: I8) -> None:
    """Give back what these had requested of their nodes."""
    bound = i[s.node[i] != s.nobody_node]
    if not len(bound):
        return
    node = s.node[bound]
    np.subtract.at(s.n_cpu_requested, node, s.cpu_request[bound])
    np.subtract.at(s.n_memory_requested, node, s.memory_request[bound])
    np.subtract.at(s.n_pods, node, 1)
    s.c_freed[node // s.nodes] = s.tick
    s.node[bound] = s.nobody_node


def bind(s: State, i: I8, node: I8) -> None:
    """Place pending pods; nodes may repeat."""
    s.node[i] = node
    np.add.at(s.n_cpu_requested, node, s.cpu_request[i])
    np.add.at(s.n_memory_requested, node, s.memory_request[i])
    np.add.at(s.n_pods, node, 1)
    s.cause[i] = PendingCause.NONE
    s.avoid[i] = -1
    start(s, i)


def start(s: State, i: I8) -> None:
    """Pull, create, start: takes the workload's start time, half as long again for some."""
    s.phase[i] = STARTING
    s.since[i] = s.tick
    ticks = s.w_start_ticks[s.work[i]]
    s.timer[i] = s.tick + ticks + (ticks * (s.key[i] >> np.uint32(31)).astype(np.int32) >> 1)


def crash(s: State, i: I8, *, out_of_memory: bool) -> None:
    """The container dies where it is and will be started again after its back-off."""
    healthy = s.tick - s.since[i] >= HEALTHY_TICKS
    level = np.where(healthy, 0, s.backoff[i])
    stop(s, i)
    s.phase[i] = FAILED
    s.since[i] = s.tick
    s.down[i] = 1
    s.restarts[i] += 1
    s.ooms[i] += int(out_of_memory)
    s.backoff[i] = np.minimum(level + 1, len(BACKOFF_TICKS) - 1)
    s.timer[i] = s.tick + BACKOFF_TICKS[level]
    s.remaining[i] = np.where(s.is_batch[i] == 1, s.work_total[i], 1)


def lose(s: State, i: I8) -> None:
    """The node died under these; nobody replaces them before the toleration has passed."""
    alive = i[s.phase[i] != TERMINATING]
    gone = i[s.phase[i] == TERMINATING]
    stop(s, alive)
    s.phase[alive] = FAILED
    s.since[alive] = s.tick
    s.down[alive] = 1
    s.lost[alive] = 1
    s.timer[alive] = s.tick + LOST_TICKS
    s.timer[gone] = s.tick + LOST_TICKS


def terminate(s: State, i: I8, *, wanted: bool) -> None:
    """Ask these to end. ``wanted``: they should serve, so their replacements count as down."""
    i = i[s.phase[i] != TERMINATING]
    serving = i[((s.started[i] == 1) | (s.down[i] == 1)) & (s.is_batch[i] == 0)]
    stop(s, i)
    np.subtract.at(s.w_have, s.work[i], 1)
    if wanted:
        np.add.at(s.w_owed, s.work[serving], 1)
        requeue(s, i[s.is_batch[i] == 1])
    s.down[i] = 0
    bound = s.node[i] != s.nobody_node
    held = i[bound]
    s.phase[held] = TERMINATING
    s.since[held] = s.tick
    s.timer[held] = s.tick + s.w_grace_ticks[s.work[held]]
    erase(s, i[~bound])


def remove(s: State, i: I8) -> None:
    """Finished or withdrawn: gone at once, nobody replaces them."""
    stop(s, i)
    np.subtract.at(s.w_have, s.work[i], 1)
    erase(s, i)


def erase(s: State, i: I8) -> None:
    """Empty these slots."""
    release(s, i)
    np.subtract.at(s.c_pods, s.home[i], 1)
    s.home[i] = s.batch
    s.phase[i] = EMPTY
    s.uid[i] = 0
    s.timer[i] = NEVER
    s.down[i] = 0
    s.gated[i] = 0
    s.is_batch[i] = 0
    s.work[i] = s.nobody_work
    s.memory_limit[i] = s.memory_alarm[i] = UNLIMITED
    s.remaining[i] = 1
    s.deadline[i] = NEVER


def requeue(s: State, i: I8) -> None:
    """Remember these batch jobs: the next reconcile starts them over, as new pods."""
    i = i[np.lexsort((s.uid[i], s.home[i]))]
    for slot in i.tolist():
        s.reborn.append(
            (
                int(s.work[slot]),
                int(s.key[slot]),
                int(s.created[slot]),
                int(s.deadline[slot]),
                int(s.started[slot] | s.down[slot]),
            )
        )


def recreate(s: State) -> None:
    """Start the remembered jobs over. A job is not forgiven its wait: it keeps its deadline."""
    if not s.reborn:
        return
    rows = np.array(sorted(s.reborn, key=lambda r: r[0] // s.workloads), dtype=np.int64)
    s.reborn = []
    slots = create(s, rows[:, 0], rows[:, 1].astype(np.uint32))
    s.created[slots] = rows[:, 2]
    s.deadline[slots] = rows[:, 3]
    s.down[slots] = rows[:, 4]


def pod_keys(s: State, work: I8, ordinal: I4 | I8) -> U4:
    """The key of the n-th pod of a workload: the same in both arms of a comparison."""
    return mix(s.w_pod_key[work] + ordinal.astype(np.uint32))


def create(s: State, work: I8, key: U4) -> I8:
    """New pending pods, one per entry, sorted by cluster; uids ascend in the order given."""
    cluster = work // s.workloads  # callers give workloads cluster by cluster
    slots = _free_slots(s, len(work))
    rank = np.arange(len(work)) - np.searchsorted(cluster, cluster)
    s.home[slots] = cluster
    s.uid[slots] = s.c_next_uid[cluster] + rank
    np.add.at(s.c_next_uid, cluster, 1)
    np.add.at(s.c_pods, cluster, 1)
    s.key[slots] = key
    s.work[slots] = work
    s.node[slots] = s.nobody_node
    s.active_work[slots] = s.nobody_work
    s.active_node[slots] = s.nobody_node
    s.phase[slots] = PENDING
    s.cause[slots] = PendingCause.NONE
    s.created[slots] = s.since[slots] = s.tick
    s.tried[slots] = s.avoid[slots] = -1
    patience = s.w_patience_ticks[work]
    s.timer[slots] = np.where(patience > 0, s.tick + patience, NEVER)
    _equip(s, slots, work)
    for column in _BLANK:
        getattr(s, column)[slots] = 0
    np.add.at(s.w_have, work, 1)
    batch = slots[s.is_batch[slots] == 1]
    gate = s.s_gate[s.home[batch] * s.spaces + s.w_space[s.work[batch]]]
    s.gated[batch] = gate == Gate.QUEUE
    s.cause[batch] = np.where(gate == Gate.QUEUE, PendingCause.GATED, PendingCause.NONE)
    return slots


def open_gates(s: State) -> None:
    """Release held pods of namespaces whose gate is open, oldest first and a few at a time.

    A scheduling gate is a field of each pod: opening a gate is one write per held pod, and whoever
    held them back paces those writes, or the release would be a surge of its own.
    """
    if not s.gated.any():
        return
    held = np.flatnonzero(s.gated)
    space = s.home[held] * s.spaces + s.w_space[s.work[held]]
    free = s.s_gate[space] != Gate.QUEUE
    held, space = held[free], space[free]
    order = np.lexsort((s.uid[held], space))
    held, space = held[order], space[order]
    rank = np.arange(len(held)) - np.searchsorted(space, space)
    held = held[rank < RELEASES_PER_TICK]
    s.gated[held] = 0
    s.cause[held] = PendingCause.NONE


def _equip(s: State, slots: I8, work: I8) -> None:
    """Requests, limits and work of new pods, from their workload."""
    s.cpu_request[slots] = s.w_cpu_request[work]
    set_cpu_limit(s, slots, s.w_cpu_limit[work])
    s.memory_request[slots] = s.w_memory_request[work]
    set_memory_limit(s, slots, s.w_memory_limit[work])
    batch = s.w_kind[work] == BATCH
    s.is_batch[slots] = batch
    rate = np.minimum(s.w_appetite[work], s.cpu_limit[slots])
    # Three quarters to five quarters of the usual work, by the pod's own key.
    size = 768 + (s.key[slots] >> np.uint32(9) & np.uint32(511)).astype(np.int32)
    total = (rate.astype(np.int64) * s.w_work_ticks[work] * size >> 10).astype(np.int32)
    s.work_total[slots] = total
    s.remaining[slots] = np.where(batch, np.maximum(total, 1), 1)
    due = s.tick + WAIT_GRACE_TICKS + 2 * s.w_work_ticks[work]
    s.deadline[slots] = np.where(batch, due, NEVER)


def set_cpu_limit(s: State, slots: I8, limit: I4) -> None:
    """Set the limit in millicores (0: none) and the reciprocal that latency uses."""
    s.cpu_limit[slots] = np.where(limit > 0, np.maximum(limit, SMALLEST_LIMIT), UNLIMITED)
    s.cpu_ratio[slots] = (1 << RATIO_BITS) // s.cpu_limit[slots]


def set_memory_limit(s: State, slots: I8, limit: I4) -> None:
    """Set the limit in MiB (0: none) and the level from which a pod thrashes."""
    limit = np.where(limit > 0, limit, UNLIMITED)
    s.memory_limit[slots] = limit
    s.memory_alarm[slots] = limit // 8 * 7


def make_room(s: State, count: int) -> None:
    """Let the pool grow where it has fewer empty slots than this."""
    free = len(s.uid) - int(s.c_pods.sum())
    if free < count:
        s.grow(len(s.uid) + count - free + max(len(s.uid) // 16, 16))


def _free_slots(s: State, count: int) -> I8:
    """Empty slots among the lowest.

    They are dealt like cards: pods created together lie apart. Sums by workload would otherwise
    add to the same number again and again, and the processor would wait for each.
    """
    make_room(s, count)
    free: I8 = np.flatnonzero(s.phase == EMPTY)
    if count < DEAL * DEAL:
        return free[:count]
    return np.concatenate([free[first:count:DEAL] for first in range(DEAL)])
