# SPDX-License-Identifier: Apache-2.0
"""A model of the default kube-scheduler: filters, scores, node sampling, random among equals.

Queue order is priority, then age; pods of a deprioritized namespace come last. Filters: node
ready, awake and untainted, requests fit, zone selector, and our wish to keep a replica off one
node. Scores: LeastAllocated and BalancedAllocation, both 0..100 in integers (upstream computes
the latter in floating point; ours rounds shares to per mille first). Up to 100 nodes all are
looked at; beyond, the search stops after ``sample_size`` feasible nodes and the next one starts
where it ended. Left out: preemption, spreading, affinity, volumes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import Gate, PendingCause
from pilothouse.sim import pods
from pilothouse.sim.blueprint import NOWHERE
from pilothouse.sim.randomness import GOLDEN, MASK, mix
from pilothouse.sim.state import (
    AWAKE,
    BOOTING,
    I8,
    PENDING,
    State,
)

BINDINGS_PER_TICK = 50
ALL_NODES = 100  # clusters up to this size are searched whole
RETRY_TICKS = 12  # an unschedulable pod is tried again after a minute even if nothing changed


def bindings_per_tick(nodes: int) -> int:
    """Ten a second is easy for the default scheduler; larger clusters run it harder."""
    return max(BINDINGS_PER_TICK, nodes // 4)


def sample_size(nodes: int) -> int:
    """How many feasible nodes are enough: 50 - n/125 percent, at least 5 percent and 100 nodes."""
    if nodes <= ALL_NODES:
        return nodes
    percent = max(50 - nodes // 125, 5)
    return max(nodes * percent // 100, ALL_NODES)


def schedule(s: State) -> None:
    """Bind what fits, in queue order, up to the tick's limit."""
    queue = _queue(s)
    if not len(queue):
        return
    open_nodes = ((s.n_exists == 1) & (s.n_ready == 1) & (s.n_power == AWAKE) & (s.n_taint == 0))[
        : s.nobody_node
    ].reshape(s.batch, s.nodes)
    hopeless = np.zeros(s.nobody_work + 1, dtype=np.bool_)
    if s.nodes <= ALL_NODES:
        _schedule_rounds(s, queue, open_nodes, hopeless)
    else:
        _schedule_sampled(s, queue, open_nodes, hopeless)


def _queue(s: State) -> I8:
    """Slots to try now, by cluster and then in queue order, cut at the tick's limit."""
    i: I8 = np.flatnonzero(s.phase == PENDING)
    i = i[s.gated[i] == 0]
    cluster = i // s.pods
    tried = s.tried[i]
    due = (tried < 0) | (s.c_freed[cluster] > tried) | (s.tick - tried >= RETRY_TICKS)
    i, cluster = i[due], cluster[due]
    if not len(i):
        return i
    work = s.work[i]
    gate = s.s_gate[cluster * s.spaces + s.w_space[work]]
    last = (gate == Gate.DEPRIORITIZE) & (s.is_batch[i] == 1)
    order = np.lexsort((s.uid[i], -s.w_priority[work].astype(np.int64), last, cluster))
    i, cluster = i[order], cluster[order]
    rank = np.arange(len(i)) - np.searchsorted(cluster, cluster)
    limit = np.array([bindings_per_tick(n) for n in s.c_nodes.tolist()])
    cut: I8 = i[rank < limit[cluster]]
    return cut


def _schedule_rounds(
    s: State, queue: I8, open_nodes: NDArray[np.bool_], hopeless: NDArray[np.bool_]
) -> None:
    """Small clusters: the heads of all clusters' queues at once, round after round."""
    columns = np.arange(s.nodes)
    while len(queue):
        cluster = queue // s.pods
        head = np.flatnonzero(np.diff(cluster, prepend=-1))
        i, rows = queue[head], cluster[head]
        nodes = rows[:, None] * s.nodes + columns
        value = _value(s, i[:, None], nodes, open_nodes[rows])
        best = value.argmax(axis=1)
        found = value[np.arange(len(i)), best] >= 0
        pods.bind(s, i[found], nodes[found, best[found]])
        _give_up(s, i[~found], hopeless)
        rest = np.delete(queue, head)
        lost = hopeless[s.work[rest]] & (s.avoid[rest] < 0)
        if lost.any():
            _give_up(s, rest[lost], hopeless)
            rest = rest[~lost]
        queue = rest


def _schedule_sampled(
    s: State, queue: I8, open_nodes: NDArray[np.bool_], hopeless: NDArray[np.bool_]
) -> None:
    """Large clusters: pod by pod, looking at nodes from where the last search ended."""
    for slot in queue.tolist():
        i = np.array([slot])
        if hopeless[s.work[slot]] and s.avoid[slot] < 0:
            _give_up(s, i, hopeless)
            continue
        node = _search(s, i, open_nodes)
        if node < 0:
            _give_up(s, i, hopeless)
        else:
            pods.bind(s, i, np.array([node]))


def _search(s: State, i: I8, open_nodes: NDArray[np.bool_]) -> int:
    cluster = int(i[0]) // s.pods
    count = int(s.c_nodes[cluster])
    wanted, start = sample_size(count), int(s.c_sample[cluster])
    base, seen, found = cluster * s.nodes, 0, 0
    best, best_node = -1, -1
    while seen < count and found < wanted:
        first = (start + seen) % count
        last = min(first + max(wanted, ALL_NODES), count, first + count - seen)
        nodes = np.arange(base + first, base + last)
        value = _value(s, i, nodes, open_nodes[cluster, first:last])
        feasible = np.flatnonzero(value >= 0)
        if found + len(feasible) >= wanted:
            cut = int(feasible[wanted - found - 1]) + 1
            value, last = value[:cut], first + cut
        found += len(feasible)
        seen += last - first
        top = int(value.argmax())
        # Ties inside a value are broken by the draw, so a strict comparison is enough.
        if int(value[top]) > best:
            best, best_node = int(value[top]), base + first + top
    s.c_sample[cluster] = (start + seen) % count
    return best_node if best >= 0 else -1


def _value(s: State, i: I8, nodes: I8, is_open: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Score and tie-break of each node for a pod in one number; negative where it does not fit."""
    work = s.work[i]
    cpu, memory = s.n_cpu[nodes], s.n_memory[nodes]
    cpu_after = s.n_cpu_requested[nodes] + s.cpu_request[i]
    memory_after = s.n_memory_requested[nodes] + s.memory_request[i]
    zone = s.w_zone[work]
    fits = is_open & (cpu_after <= cpu) & (memory_after <= memory) & (nodes != s.avoid[i])
    fits &= (zone < 0) | (s.n_zone[nodes] == zone)
    least = (cpu - cpu_after) * 100 // cpu + (memory - memory_after) * 100 // memory
    # Shares fit 32 bits because requests above capacity are never scored.
    lean = np.abs(cpu_after * 1000 // cpu - memory_after.astype(np.int64) * 1000 // memory)
    score = least // 2 + 100 - lean // 20
    local = (nodes % s.nodes).astype(np.uint32)
    word = mix(s.key[i] + (local + np.uint32(1)) * np.uint32(GOLDEN & MASK))
    value: NDArray[np.int64] = np.where(fits, score.astype(np.int64) << 32 | word, -1)
    return value


def _give_up(s: State, i: I8, hopeless: NDArray[np.bool_]) -> None:
    """No node fits: remember why, and that pods of the same workload need not be tried."""
    if not len(i):
        return
    s.tried[i] = s.tick
    hopeless[s.work[i[s.avoid[i] < 0]]] = True
    booting = (s.n_power == BOOTING)[: s.nobody_node].reshape(s.batch, s.nodes).any(axis=1)
    cause = np.where(booting[i // s.pods], PendingCause.AUTOSCALER, PendingCause.RESOURCES)
    stuck = s.w_zone[s.work[i]] == NOWHERE
    s.cause[i] = np.where(stuck, PendingCause.SELECTOR, cause)
