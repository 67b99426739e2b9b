# SPDX-License-Identifier: Apache-2.0
"""Load, and what it does to pods and nodes: demand, contention, latency, memory.

CPU: a service's load is spread over its ready pods, each with its own noise. Where a node is
asked for more than it has, each pod gets up to its fair share by requests, then what is left is
split by unmet demand (two rounds of water-filling). Latency follows an open queue at the busier
of the pod's own limit and its node. Memory follows load and leaks until a limit ends it; from
seven eighths of its limit on, a pod burns CPU on reclaiming memory, as garbage collectors do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pilothouse.sim import pods
from pilothouse.sim.curves import (
    FACTOR,
    PACK,
    RATE_LEVELS,
    SHARE,
    day_table,
    packed_latency_table,
    poisson_table,
)
from pilothouse.sim.randomness import draws, mix_into, tick_word
from pilothouse.sim.state import (
    BATCH,
    I4,
    I8,
    RATIO_BITS,
    RUNNING,
    SERVICE,
    State,
)

NOISE_TICKS = 12  # load noise moves on a straight line between points a minute apart
LARGEST_SHARE = 64_000  # millicores of load one pod is offered at most; beyond is timed out
BUSY_SHARE = 921  # a full node slows its neighbors as 90 % utilization does; requests do the rest
FULL_SHARE = BUSY_SHARE + 1  # a node that is asked for more than it has
THRASH_FACTOR = 3  # CPU per unit of work of a pod that is about to run out of memory
MEMORY_SHIFT = 24  # CPU and memory of a node are summed in one number

_DAY = day_table()
_LATENCY = packed_latency_table()


@dataclass(slots=True)
class Buffers:
    """Scratch by pod slot, reused between ticks."""

    words: np.ndarray
    scratch: np.ndarray
    demand: I4
    gathered: I4
    number: np.ndarray
    flags: np.ndarray

    @classmethod
    def for_slots(cls, slots: int) -> Buffers:
        return cls(
            words=np.empty(slots, np.uint32),
            scratch=np.empty(slots, np.uint32),
            demand=np.empty(slots, np.int32),
            gathered=np.empty(slots, np.int32),
            number=np.empty(slots, np.float64),
            flags=np.empty(slots, np.bool_),
        )


def day_phase(s: State, shift: I4 | int = 0) -> I8:
    """Where in its day each cluster is, per mille, shifted by per mille."""
    phase = 1000 * ((s.tick + s.c_day_offset.astype(np.int64)) % s.c_day_ticks) // s.c_day_ticks
    return (phase + shift) % 1000


def offer_load(s: State) -> None:
    """Offered load by workload, millicores."""
    s.c_damp_now += (s.c_damp - s.c_damp_now) >> 2
    s.w_surge_now += (s.w_surge - s.w_surge_now) >> 2
    rows = s.nobody_work
    by_cluster = np.repeat(np.arange(s.batch), s.workloads)
    phase = (day_phase(s)[by_cluster] + s.w_phase[:rows]) % 1000
    trough, peak = s.w_trough[:rows], s.w_peak[:rows]
    level = trough + (peak - trough) * _DAY[phase] // 1000
    level = level * _wobble(s, by_cluster) // 1000
    level = level * s.c_damp_now[by_cluster] // 1000
    full = s.w_baseline[:rows] * s.w_cpu_request[:rows]
    per_mille = np.maximum(level, s.w_surge_now[:rows])
    s.w_load[:rows] = full.astype(np.int64) * per_mille // 1000


def _wobble(s: State, by_cluster: I8) -> I4:
    """Per mille around 1000: slow noise, and now and then a burst of a minute."""
    step, part = divmod(s.tick, NOISE_TICKS)
    if step != s.w_wobble_step[0]:
        # Points a minute apart and the luck of that minute are kept until the next one.
        s.w_wobble_step[:] = step
        s.w_before[:] = draws(s.w_key, step) >> np.uint32(22)
        s.w_after[:] = draws(s.w_key, step + 1) >> np.uint32(22)
        s.w_luck[:] = (draws(s.w_burst_key, step) >> np.uint32(12)).astype(np.int32) * 125 >> 17
    rows = slice(0, s.nobody_work)
    before = s.w_before[rows]
    line = before + (s.w_after[rows] - before) * part // NOISE_TICKS  # 0..1023
    noise = 1000 + (line - 512) * s.c_noise[by_cluster] // 512
    burst = s.w_luck[rows] < s.c_burst[by_cluster]
    return np.where(burst, noise * s.c_burst_level[by_cluster] // 1000, noise)


def arrivals(s: State) -> I4:
    """Batch pods that arrive this tick, by workload."""
    rows = np.flatnonzero(s.w_rate > 0)
    out = np.zeros(s.nobody_work, dtype=np.int32)
    if not len(rows):
        return out
    cluster = rows // s.workloads
    day = _DAY[day_phase(s)[cluster]]
    level = s.w_trough[rows] + (s.w_peak[rows] - s.w_trough[rows]) * day // 1000
    level = level.astype(np.int64) * s.c_damp_now[cluster] // 1000
    rate = np.minimum(s.w_rate[rows] * level // 1_000_000, RATE_LEVELS - 1)
    word = draws(s.w_arrival_key[rows], s.tick)
    table = poisson_table()
    count = np.zeros(len(rows), dtype=np.int32)
    column = 0
    more = word > table[rate, 0]
    while more.any():
        count += more
        column += 1
        more = word > table[rate, column] if column < table.shape[1] else np.zeros_like(more)
    out[rows] = count
    return out


def consume(s: State, buffers: Buffers) -> None:
    """CPU, latency and memory of every running pod; ends in out-of-memory kills."""
    share = _share(s)
    demand, used, held = buffers.demand, s.used(s.tick), s.held(s.tick)
    _demand(s, share, buffers)
    _hold_memory(s, share, held)
    thrashing = _thrash(s, demand, held, buffers)
    np.minimum(demand, s.cpu_limit, out=used)
    asked, memory = _by_node(s, used, held, buffers)
    capability = _capability(s)
    contended = asked > capability
    contended[-1] = False
    s.n_cpu_used[:] = np.minimum(asked, capability)
    s.n_memory_used[:] = memory
    pressure = np.minimum(quotient(asked * SHARE, capability), BUSY_SHARE)
    pressure[contended] = FULL_SHARE
    pressure[-1] = 0
    np.take(pressure.astype(np.int32), s.active_node, out=buffers.gathered, mode="wrap")
    np.multiply(demand, s.cpu_ratio, out=demand)
    np.right_shift(demand, RATIO_BITS - 10, out=demand)
    np.maximum(demand, buffers.gathered, out=demand)  # utilization in 1/1024 from here on
    if contended.any():
        np.equal(buffers.gathered, FULL_SHARE, out=buffers.flags)
        _water_fill(s, np.flatnonzero(buffers.flags), capability, demand, used)
    np.take(_LATENCY, demand, out=buffers.number, mode="clip")
    _latency(s, np.bincount(s.active_work, buffers.number, minlength=s.nobody_work + 1))
    np.multiply(used, s.is_batch, out=buffers.gathered)
    np.subtract(s.remaining, buffers.gathered, out=s.remaining)
    s.memory[:] = held
    np.maximum(s.peak, held, out=s.peak)
    _kill_for_memory(s, memory, held, thrashing)


def quotient(a: I4 | I8, b: I4 | I8 | int) -> I8:
    """``a // b`` for numbers of at least zero, in doubles: exact below 2**53, and much faster.

    The true quotient is at least 1/b away from the next integer, far more than a rounding error.
    """
    return (a / b).astype(np.int64)


def _capability(s: State) -> I8:
    """Millicores a node can give now: its clock and its health count."""
    working = s.n_frequency * s.n_health  # per million
    return np.maximum(quotient(s.n_cpu * working.astype(np.int64), 1_000_000), 1)


def _share(s: State) -> I4:
    """Millicores each running pod of a workload is asked for."""
    each = s.w_load // np.maximum(s.w_ready, 1)
    share = np.where(s.w_kind == BATCH, s.w_appetite, each)
    share[-1] = 0
    return np.minimum(share, LARGEST_SHARE).astype(np.int32)


def _demand(s: State, share: I4, buffers: Buffers) -> None:
    """Share times seven to nine eighths, drawn per pod and tick."""
    np.add(s.key, tick_word(s.tick), out=buffers.words)
    mix_into(buffers.words, buffers.scratch)
    np.right_shift(buffers.words, np.uint32(24), out=buffers.words)
    np.add(buffers.words, np.uint32(896), out=buffers.words)
    np.take(share, s.active_work, out=buffers.demand, mode="wrap")
    np.multiply(buffers.demand, buffers.words.view(np.int32), out=buffers.demand)
    np.right_shift(buffers.demand, 10, out=buffers.demand)


def _hold_memory(s: State, share: I4, held: I4) -> None:
    """Base, plus a part that follows load, plus what has leaked."""
    level = s.w_memory_base + s.w_memory_load.astype(np.int64) * share // s.w_cpu_request
    level[-1] = 0
    np.take(level.astype(np.int32), s.active_work, out=held, mode="wrap")
    if s.w_leak.any():
        _leak(s)
    held += s.leaked >> 10


def _leak(s: State) -> None:
    """Each pod at its own pace, three to five quarters of the workload's."""
    leaking = s.w_leak > 0
    leaking[-1] = False
    i = np.flatnonzero(leaking[s.active_work])
    pace = 768 + (s.key[i] & np.uint32(511)).astype(np.int32)
    s.leaked[i] += (s.w_leak[s.active_work[i]].astype(np.int64) * pace >> 10).astype(np.int32)


def _thrash(s: State, demand: I4, held: I4, buffers: Buffers) -> I8:
    """Pods close to their memory limit spend CPU on reclaiming; returns their slots."""
    np.greater(held, s.memory_alarm, out=buffers.flags)
    i: I8 = np.flatnonzero(buffers.flags)
    demand[i] = np.minimum(demand[i] * THRASH_FACTOR, LARGEST_SHARE)
    return i


def _by_node(s: State, used: I4, held: I4, buffers: Buffers) -> tuple[I8, I8]:
    """CPU asked for and memory held, by node; one pass sums both."""
    np.multiply(held, float(1 << MEMORY_SHIFT), out=buffers.number)
    np.add(buffers.number, used, out=buffers.number)
    packed = np.bincount(s.active_node, buffers.number, minlength=s.nobody_node + 1)
    both = packed.astype(np.int64)
    return both & ((1 << MEMORY_SHIFT) - 1), both >> MEMORY_SHIFT


def _water_fill(s: State, i: I8, capability: I8, busy: I4, used: I4) -> None:
    """Share out what contended nodes have; raises utilization where demand stays unmet."""
    node = s.active_node[i]
    nodes, place = np.unique(node, return_inverse=True)
    have = capability[nodes]
    want = used[i].astype(np.int64)
    weight = np.maximum(s.cpu_request[i], 1).astype(np.int64)
    total = np.bincount(place, weight).astype(np.int64)
    first = np.minimum(want, have[place] * weight // total[place])
    unmet = want - first
    left = have - np.bincount(place, first).astype(np.int64)
    missing = np.maximum(np.bincount(place, unmet).astype(np.int64), 1)
    granted = np.minimum(want, first + left[place] * unmet // missing[place])
    used[i] = granted
    starved = granted < want
    ratio = np.minimum(want * SHARE // np.maximum(granted, 1), 2 * SHARE).astype(np.int32)
    busy[i] = np.where(starved, np.maximum(busy[i], ratio), busy[i])


def _latency(s: State, packed: np.ndarray) -> None:
    """The 95th percentile by service, and whether its objective is broken."""
    both = packed.astype(np.int64)
    plain, squares = both & ((1 << PACK) - 1), both >> PACK
    ready = np.maximum(s.w_ready, 1)
    queueing = s.w_base_ms * squares // np.maximum(plain * FACTOR, 1)
    latency = queueing + s.w_network_ms // ready
    latency = np.where(s.w_ready > 0, latency, 60 * s.w_base_ms)
    service = (s.w_kind == SERVICE) & (s.w_exists == 1)
    s.w_latency[:] = np.where(service, latency, 0)
    broken = (s.w_latency > s.w_objective_ms) | (s.w_ready < s.w_min_available)
    broken |= (s.w_ready == 0) & (s.w_load > 0)
    s.w_violation[:] = service & broken


def _kill_for_memory(s: State, by_node: I8, held: I4, close: I8) -> None:
    """A pod above its limit dies; on a full node the pod furthest above its request dies."""
    over = close[held[close] > s.memory_limit[close]]
    full = np.flatnonzero(by_node[:-1] > s.n_memory[:-1])
    if len(full):
        worst = []
        for node in full.tolist():
            begin = node // s.nodes * s.pods
            i = np.flatnonzero(s.active_node[begin : begin + s.pods] == node) + begin
            excess = held[i].astype(np.int64) - s.memory_request[i]
            # The youngest among equals: the largest uid.
            worst.append(int(i[np.lexsort((s.uid[i], excess))[-1]]))
        over = np.union1d(over, np.array(worst))
    if len(over):
        pods.crash(s, over, out_of_memory=True)


def finish_batch(s: State, buffers: Buffers) -> None:
    """Batch pods whose work is done leave."""
    np.less_equal(s.remaining, 0, out=buffers.flags)
    done = np.flatnonzero(buffers.flags)
    if len(done):
        done = done[(s.phase[done] == RUNNING) & (s.is_batch[done] == 1)]
        pods.remove(s, done)
