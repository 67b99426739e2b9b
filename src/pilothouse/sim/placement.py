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

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import Gate, PendingCause
from pilothouse.sim import pods
from pilothouse.sim.blueprint import NOWHERE
from pilothouse.sim.randomness import GOLDEN, SECOND
from pilothouse.sim.state import (
    AWAKE,
    BOOTING,
    I4,
    I8,
    PENDING,
    U4,
    State,
)

BINDINGS_PER_TICK = 50  # ten a second; clusters above 200 nodes bind a quarter of their node count
ALL_NODES = 100  # clusters up to this size are searched whole
CLOSED = -(1 << 30)  # the CPU of a node that takes no pods
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
    cluster = s.home[i]
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
    limit = np.maximum(BINDINGS_PER_TICK, s.c_nodes // 4)
    cut: I8 = i[rank < limit[cluster]]
    return cut


def _schedule_rounds(
    s: State, queue: I8, open_nodes: NDArray[np.bool_], hopeless: NDArray[np.bool_]
) -> None:
    """Small clusters: the heads of all clusters' queues at once, round after round."""
    cluster = s.home[queue]
    rank = np.arange(len(queue)) - np.searchsorted(cluster, cluster)
    queue = queue[np.argsort(rank, kind="stable")]
    shape = (s.batch, s.nodes)
    columns = (s.n_cpu, s.n_memory, s.n_cpu_requested, s.n_memory_requested, s.n_zone)
    room = np.stack([c[:-1].reshape(shape) for c in columns], axis=1)  # (batch, columns, nodes)
    # A closed node looks full, so that it need not be asked for separately.
    room[:, 0][~open_nodes] = CLOSED
    asks = Asks.of(s, queue)
    chosen = np.full(len(queue), -1)
    end, any_failed = 0, False
    for size in np.bincount(rank).tolist():
        begin, end = end, end + size
        i = np.arange(begin, end)
        if any_failed:
            i = i[~hopeless[asks.work[i]] | (asks.avoid[i] >= 0)]
            if not len(i):
                continue
        rows = asks.cluster[i]
        value = _value(asks.at(i), room[rows], 0, s.nodes)
        best = value.argmax(axis=1)
        found = value[np.arange(len(i)), best] >= 0
        if not found.all():
            out = i[~found]
            hopeless[asks.work[out[asks.avoid[out] < 0]]] = any_failed = True
            i, rows, best = i[found], rows[found], best[found]
        # One pod per cluster and round, so plain indexing is enough.
        room[rows, 2:4, best] += asks.both[i]
        chosen[i] = rows * s.nodes + best
    placed = chosen >= 0
    pods.bind(s, queue[placed], chosen[placed])
    if any_failed:
        _give_up(s, queue[~placed])


def _schedule_sampled(
    s: State, queue: I8, open_nodes: NDArray[np.bool_], hopeless: NDArray[np.bool_]
) -> None:
    """Large clusters: pod by pod, looking at nodes from where the last search ended."""
    room = np.stack([s.n_cpu, s.n_memory, s.n_cpu_requested, s.n_memory_requested, s.n_zone])
    room[0, :-1][~open_nodes.reshape(-1)] = CLOSED
    asks = Asks.of(s, queue)
    chosen = np.full(len(queue), -1)
    for place in range(len(queue)):
        work, avoids = asks.work[place], asks.avoid[place] >= 0
        node = _search(s, asks, place, room) if avoids or not hopeless[work] else -1
        if node < 0:
            hopeless[work] |= not avoids
            continue
        room[2:4, node] += asks.both[place]
        chosen[place] = node
    placed = chosen >= 0
    pods.bind(s, queue[placed], chosen[placed])
    if not placed.all():
        _give_up(s, queue[~placed])


def _search(s: State, asks: Asks, place: int, room: I4) -> int:
    ask = asks.at(np.array([place]))
    cluster = int(asks.cluster[place])
    count = int(s.c_nodes[cluster])
    wanted, start = sample_size(count), int(s.c_sample[cluster])
    base, seen, found = cluster * s.nodes, 0, 0
    best, best_node = -1.0, -1
    while seen < count and found < wanted:
        first = (start + seen) % count
        last = min(first + max(wanted, ALL_NODES), count, first + count - seen)
        value = _value(ask, room[None, :, base + first : base + last], first, s.nodes)[0]
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


@dataclass(frozen=True, slots=True)
class Asks:
    """What pods ask for, one entry each; (pods, 1) where they meet nodes."""

    cluster: I8
    work: I8
    both: I4  # (pods, 2): CPU and memory
    key: U4
    zone: I4
    avoid: I8
    picky: bool  # any of them has a zone or a node to keep off

    @classmethod
    def of(cls, s: State, i: I8) -> Asks:
        """The pods in these slots."""
        work = s.work[i]
        zone, avoid = s.w_zone[work], s.avoid[i]
        return cls(
            cluster=s.home[i],
            work=work,
            both=np.stack([s.cpu_request[i], s.memory_request[i]], axis=1),
            key=s.key[i],
            zone=zone,
            avoid=avoid,
            picky=bool((zone >= 0).any() or (avoid >= 0).any()),
        )

    def at(self, i: I8) -> Asks:
        """Some of them; what is matched with nodes becomes a column."""
        picky, column = self.picky, i[:, None]
        return Asks(
            cluster=self.cluster[column] if picky else i,
            work=i,
            both=self.both[i],
            key=self.key[column],
            zone=self.zone[column] if picky else self.zone,
            avoid=self.avoid[column] if picky else i,
            picky=picky,
        )


def _value(asks: Asks, room: I4, first: int, width: int) -> NDArray[np.float64]:
    """Score and tie-break of each node for each pod in one number; -1 where it does not fit.

    ``room`` is (pods, columns, nodes): CPU, memory, what is requested of both, and zone.
    ``first`` is the place of the first node in its cluster, ``width`` the node rows per cluster.
    Divisions are made in doubles and cut: exact, because the operands are far below 2**53.
    """
    capacity = room[:, 0:2]
    after = room[:, 2:4] + asks.both[:, :, None]
    free = capacity - after
    misfit = (free[:, 0] | free[:, 1]) < 0
    places = np.arange(first, first + room.shape[-1])
    if asks.picky:
        misfit |= (asks.zone >= 0) & (room[:, 4] != asks.zone)
        misfit |= asks.cluster * width + places == asks.avoid
    left = np.floor(free * 100.0 / capacity)
    taken = np.floor(after * 1000.0 / capacity)
    lean = np.abs(taken[:, 0] - taken[:, 1])
    score: NDArray[np.float64] = np.floor((left[:, 0] + left[:, 1]) * 0.5)
    score -= np.floor(lean * 0.05)
    score += 100.0
    score *= 4294967296.0
    score += tie_word(asks.key, places)
    score[misfit] = -1.0
    return score


def tie_word(key: U4, places: I8) -> U4:
    """The draw that decides among equal nodes: one round of mixing is enough for that."""
    word = key + (places + 1).astype(np.uint32) * np.uint32(GOLDEN)
    word ^= word >> np.uint32(15)
    word *= np.uint32(SECOND)
    return word


def _give_up(s: State, i: I8) -> None:
    """No node fits: remember when and why."""
    s.tried[i] = s.tick
    booting = (s.n_power == BOOTING)[: s.nobody_node].reshape(s.batch, s.nodes).any(axis=1)
    cause = np.where(booting[s.home[i]], PendingCause.AUTOSCALER, PendingCause.RESOURCES)
    stuck = s.w_zone[s.work[i]] == NOWHERE
    s.cause[i] = np.where(stuck, PendingCause.SELECTOR, cause)
