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
from pilothouse.sim.randomness import GOLDEN, mix
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
    limit = np.maximum(BINDINGS_PER_TICK, s.c_nodes // 4)
    cut: I8 = i[rank < limit[cluster]]
    return cut


def _schedule_rounds(
    s: State, queue: I8, open_nodes: NDArray[np.bool_], hopeless: NDArray[np.bool_]
) -> None:
    """Small clusters: the heads of all clusters' queues at once, round after round."""
    cluster = queue // s.pods
    rank = np.arange(len(queue)) - np.searchsorted(cluster, cluster)
    queue = queue[np.argsort(rank, kind="stable")]
    shape = (s.batch, s.nodes)
    room = Room(
        cpu=s.n_cpu[:-1].reshape(shape),
        memory=s.n_memory[:-1].reshape(shape),
        cpu_requested=s.n_cpu_requested[:-1].reshape(shape),
        memory_requested=s.n_memory_requested[:-1].reshape(shape),
        zone=s.n_zone[:-1].reshape(shape),
        is_open=open_nodes,
    )
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
        here = room if len(rows) == s.batch else room.of(rows)
        value = _value(asks.at(i), here, 0, s.nodes)
        best = value.argmax(axis=1)
        found = value[np.arange(len(i)), best] >= 0
        if not found.all():
            out = i[~found]
            hopeless[asks.work[out[asks.avoid[out] < 0]]] = any_failed = True
            i, rows, best = i[found], rows[found], best[found]
        # One pod per cluster and round, so plain indexing is enough.
        room.cpu_requested[rows, best] += asks.cpu[i]
        room.memory_requested[rows, best] += asks.memory[i]
        chosen[i] = rows * s.nodes + best
    placed = chosen >= 0
    pods.settle(s, queue[placed], chosen[placed])
    if any_failed:
        _give_up(s, queue[~placed])


def _schedule_sampled(
    s: State, queue: I8, open_nodes: NDArray[np.bool_], hopeless: NDArray[np.bool_]
) -> None:
    """Large clusters: pod by pod, looking at nodes from where the last search ended."""
    bound, places, failed = [], [], []
    for slot in queue.tolist():
        work = int(s.work[slot])
        node = -1
        if not hopeless[work] or s.avoid[slot] >= 0:
            node = _search(s, slot, open_nodes)
        if node < 0:
            failed.append(slot)
            hopeless[work] |= s.avoid[slot] < 0
            continue
        s.n_cpu_requested[node] += s.cpu_request[slot]
        s.n_memory_requested[node] += s.memory_request[slot]
        bound.append(slot)
        places.append(node)
    if bound:
        pods.settle(s, np.array(bound), np.array(places))
    if failed:
        _give_up(s, np.array(failed))


def _search(s: State, slot: int, open_nodes: NDArray[np.bool_]) -> int:
    asks = Asks.of(s, np.array([slot]))
    asks = asks.at(np.array([0]))
    cluster = slot // s.pods
    count = int(s.c_nodes[cluster])
    wanted, start = sample_size(count), int(s.c_sample[cluster])
    base, seen, found = cluster * s.nodes, 0, 0
    best, best_node = -1.0, -1
    while seen < count and found < wanted:
        first = (start + seen) % count
        last = min(first + max(wanted, ALL_NODES), count, first + count - seen)
        span = slice(base + first, base + last)
        room = Room(
            cpu=s.n_cpu[span],
            memory=s.n_memory[span],
            cpu_requested=s.n_cpu_requested[span],
            memory_requested=s.n_memory_requested[span],
            zone=s.n_zone[span],
            is_open=open_nodes[cluster, first:last],
        )
        value = _value(asks, room, first, s.nodes)[0]
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
class Room:
    """The columns of the nodes that are looked at: (nodes,) or (pods, nodes)."""

    cpu: I4
    memory: I4
    cpu_requested: I4
    memory_requested: I4
    zone: I4
    is_open: NDArray[np.bool_]

    def of(self, rows: I8) -> Room:
        """Copies for some clusters."""
        return Room(
            self.cpu[rows],
            self.memory[rows],
            self.cpu_requested[rows],
            self.memory_requested[rows],
            self.zone[rows],
            self.is_open[rows],
        )


@dataclass(frozen=True, slots=True)
class Asks:
    """What pods ask for, one entry each; (pods, 1) where they meet nodes."""

    cluster: I8
    work: I8
    cpu: I4
    memory: I4
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
            cluster=i // s.pods,
            work=work,
            cpu=s.cpu_request[i],
            memory=s.memory_request[i],
            key=s.key[i],
            zone=zone,
            avoid=avoid,
            picky=bool((zone >= 0).any() or (avoid >= 0).any()),
        )

    def at(self, i: I8) -> Asks:
        """Some of them, as a column."""
        column = i[:, None]
        if not self.picky:
            return Asks(
                cluster=i,
                work=i,
                cpu=self.cpu[column],
                memory=self.memory[column],
                key=self.key[column],
                zone=self.zone,
                avoid=i,
                picky=False,
            )
        return Asks(
            cluster=self.cluster[column],
            work=i,
            cpu=self.cpu[column],
            memory=self.memory[column],
            key=self.key[column],
            zone=self.zone[column],
            avoid=self.avoid[column],
            picky=True,
        )


def _value(asks: Asks, room: Room, first: int, width: int) -> NDArray[np.float64]:
    """Score and tie-break of each node for each pod in one number; -1 where it does not fit.

    ``first`` is the place of the first node in its cluster, ``width`` the node rows per cluster.
    Divisions are made in doubles and cut: exact, because the operands are far below 2**53.
    """
    cpu_after = room.cpu_requested + asks.cpu
    memory_after = room.memory_requested + asks.memory
    cpu_free, memory_free = room.cpu - cpu_after, room.memory - memory_after
    fits = room.is_open & ((cpu_free | memory_free) >= 0)
    places = np.arange(first, first + room.cpu.shape[-1])
    if asks.picky:
        fits &= (asks.zone < 0) | (room.zone == asks.zone)
        fits &= asks.cluster * width + places != asks.avoid
    least = np.floor(cpu_free * 100.0 / room.cpu)
    least += np.floor(memory_free * 100.0 / room.memory)
    lean = np.floor(cpu_after * 1000.0 / room.cpu)
    lean -= np.floor(memory_after * 1000.0 / room.memory)
    np.abs(lean, out=lean)
    score = np.floor(least * 0.5)
    score += 100.0
    score -= np.floor(lean / 20.0)
    word = mix(asks.key + (places + 1).astype(np.uint32) * np.uint32(GOLDEN))
    score *= 4294967296.0
    score += word
    score[~fits] = -1.0
    return score


def _give_up(s: State, i: I8) -> None:
    """No node fits: remember when and why."""
    s.tried[i] = s.tick
    booting = (s.n_power == BOOTING)[: s.nobody_node].reshape(s.batch, s.nodes).any(axis=1)
    cause = np.where(booting[i // s.pods], PendingCause.AUTOSCALER, PendingCause.RESOURCES)
    stuck = s.w_zone[s.work[i]] == NOWHERE
    s.cause[i] = np.where(stuck, PendingCause.SELECTOR, cause)
