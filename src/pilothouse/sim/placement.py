# SPDX-License-Identifier: Apache-2.0
"""A model of the default kube-scheduler: filters, scores, node sampling, random among equals.

Queue order is priority, then age; pods of a deprioritized namespace come last. Filters: node
ready, awake and untainted, requests fit, zone selector, and our wish to keep a replica off one
node; scores are in ``fit``. Up to 100 nodes all are looked at (``rounds``); beyond, the search
stops after ``sample_size`` feasible nodes and the next one starts where it ended. Left out:
preemption, spreading, affinity, volumes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import Gate, PendingCause
from pilothouse.sim import fit, pods, rounds
from pilothouse.sim.blueprint import NOWHERE
from pilothouse.sim.state import AWAKE, BOOTING, I4, I8, PENDING, State

BINDINGS_PER_TICK = 50  # ten a second; clusters above 200 nodes bind a quarter of their node count
ALL_NODES = 100  # clusters up to this size are searched whole
RETRY_TICKS = 12  # an unschedulable pod is tried again after a minute even if nothing changed


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
    up = (s.n_exists == 1) & (s.n_ready == 1) & (s.n_power == AWAKE) & (s.n_taint == 0)
    open_nodes = up[: s.nobody_node]
    small = s.nodes <= ALL_NODES
    chosen = (rounds.choose if small else _choose_by_sample)(s, queue, open_nodes)
    placed = chosen >= 0
    pods.bind(s, queue[placed], chosen[placed])
    if not placed.all():
        _give_up(s, queue[~placed])


def _queue(s: State) -> I8:
    """Slots to try now, by cluster and then in queue order, cut at the tick's limit."""
    i: I8 = np.flatnonzero(s.phase == PENDING)
    cluster, tried = s.home[i], s.tried[i]
    due = (tried < 0) | (s.c_freed[cluster] > tried) | (s.tick - tried >= RETRY_TICKS)
    due &= s.gated[i] == 0
    i, cluster = i[due], cluster[due]
    if not len(i):
        return i
    work = s.work[i]
    gate = s.s_gate[cluster * s.spaces + s.w_space[work]]
    last = (gate == Gate.DEPRIORITIZE) & (s.is_batch[i] == 1)
    # Cluster, then whether it comes last, then falling priority: one number to sort by.
    rank = ((2 * cluster + last) << 32) - s.w_priority[work]
    order = np.lexsort((s.uid[i], rank))
    i, cluster = i[order], cluster[order]
    limit = np.maximum(BINDINGS_PER_TICK, s.c_nodes // 4)
    cut: I8 = i[rounds.place_in_group(cluster) < limit[cluster]]
    return cut


def _choose_by_sample(s: State, queue: I8, open_nodes: NDArray[np.bool_]) -> I8:
    """Large clusters: pod by pod, looking at nodes from where the last search ended."""
    room = fit.room_of(s, open_nodes)
    hopeless = np.zeros(s.nobody_work, dtype=np.bool_)
    work, avoids = s.work[queue], s.avoid[queue] >= 0
    both = np.stack((s.cpu_request[queue], s.memory_request[queue]), axis=1)
    chosen: I8 = np.full(len(queue), -1)
    for place, slot in enumerate(queue.tolist()):
        if hopeless[work[place]] and not avoids[place]:
            continue
        node = _search(s, slot, both[place : place + 1], room)
        if node < 0:
            hopeless[work[place]] |= not avoids[place]
            continue
        room[2:4, node] += both[place]
        chosen[place] = node
    return chosen


def _search(s: State, slot: int, both: I4, room: I4) -> int:
    """The best of enough feasible nodes, looked at from where the last search ended; or -1."""
    cluster = int(s.home[slot])
    count = int(s.c_nodes[cluster])
    wanted, start = sample_size(count), int(s.c_sample[cluster])
    base, seen, found = cluster * s.nodes, 0, 0
    best, best_node = -1.0, -1
    zone, key, avoid = s.w_zone[s.work[slot : slot + 1]], s.key[slot], int(s.avoid[slot]) - base
    while seen < count and found < wanted:
        first = (start + seen) % count
        last = min(first + max(wanted, ALL_NODES), count, first + count - seen)
        value = fit.score(both, zone, room[None, :, base + first : base + last])[0]
        value += fit.tie_word(key, np.arange(first, last))
        if first <= avoid < last:
            value[avoid - first] = fit.MISFIT
        feasible = np.flatnonzero(value >= 0)
        if found + len(feasible) >= wanted:
            cut = int(feasible[wanted - found - 1]) + 1
            value, last = value[:cut], first + cut
        found += len(feasible)
        seen += last - first
        top = int(value.argmax())
        # Ties inside a value are broken by the draw, so a strict comparison is enough.
        if float(value[top]) > best:
            best, best_node = float(value[top]), base + first + top
    s.c_sample[cluster] = (start + seen) % count
    return best_node


def _give_up(s: State, i: I8) -> None:
    """No node fits: remember when and why."""
    s.tried[i] = s.tick
    booting = (s.n_power == BOOTING)[: s.nobody_node].reshape(s.batch, s.nodes).any(axis=1)
    cause = np.where(booting[s.home[i]], PendingCause.AUTOSCALER, PendingCause.RESOURCES)
    stuck = s.w_zone[s.work[i]] == NOWHERE
    s.cause[i] = np.where(stuck, PendingCause.SELECTOR, cause)
