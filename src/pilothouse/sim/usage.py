# SPDX-License-Identifier: Apache-2.0
"""Load, and what it does to pods and nodes: demand, contention, latency, memory.

CPU: a service's load is spread over its ready pods, each with its own noise. Where a node is
asked for more than it has, each pod gets up to its fair share by requests, then what is left is
split by unmet demand (two rounds of water-filling). Latency follows an open queue at the busier
of the pod's own limit and its node. Memory follows load and leaks until a limit ends it; from
seven eighths of its limit on, a pod burns CPU on reclaiming memory, as garbage collectors do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
from pilothouse.sim.randomness import draws, mix_top_into, tick_word
from pilothouse.sim.state import (
    BATCH,
    I4,
    I8,
    RATIO_BITS,
    RUNNING,
    SERVICE,
    U4,
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


BLOCK = 65_536  # pod slots worked on at a time, so that their scratch stays in cache


class Buffers:
    """Scratch by pod slot: a whole column of demand, the rest for one block."""

    def __init__(self, slots: int) -> None:
        self.demand: I4 = np.empty(slots, np.int32)
        self.gathered: I4 = np.empty(slots, np.int32)
        self.flags = np.empty(slots, np.bool_)
        self.words: U4 = np.empty(BLOCK, np.uint32)
        self.scratch: U4 = np.empty(BLOCK, np.uint32)
        self.number: NDArray[np.float64] = np.empty(BLOCK, np.float64)
        self.index: I8 = np.empty(BLOCK, np.int64)


def tell_time(s: State) -> None:
    """Where in its day each cluster is, per mille."""
    s.c_day[:] = 1000 * ((s.tick + s.c_day_offset) % s.c_day_ticks) // s.c_day_ticks


def offer_load(s: State) -> None:
    """Offered load by workload, millicores."""
    tell_time(s)
    s.c_damp_now += (s.c_damp - s.c_damp_now) >> 2
    s.w_surge_now += (s.w_surge - s.w_surge_now) >> 2
    rows = s.nobody_work
    by_cluster = s.w_home[:rows]
    phase = (s.c_day[by_cluster] + s.w_phase[:rows]) % 1000
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
    day = _DAY[s.c_day[cluster]]
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
    asked, memory, thrashing = _ask(s, buffers)
    capability = _capability(s)
    contended = asked > capability
    contended[-1] = False
    s.n_cpu_used[:] = np.minimum(asked, capability)
    s.n_memory_used[:] = memory
    pressure = np.minimum(quotient(asked * SHARE, capability), BUSY_SHARE).astype(np.int32)
    pressure[contended] = FULL_SHARE
    pressure[-1] = 0
    _latency(s, _serve(s, pressure, capability, buffers))
    _kill_for_memory(s, memory, s.held(s.tick), thrashing)


def _ask(s: State, buffers: Buffers) -> tuple[I8, I8, I8]:
    """CPU asked for and memory held by node, and the slots of pods that thrash."""
    share = _share(s)
    level = s.w_memory_base + quotient(s.w_memory_load.astype(np.int64) * share, s.w_cpu_request)
    level[-1] = 0
    memory_level = level.astype(np.int32)
    packed = np.zeros(s.nobody_node + 1)
    thrashing = []
    for begin in range(0, len(s.uid), BLOCK):
        span = slice(begin, min(begin + BLOCK, len(s.uid)))
        used, held, demand = s.used(s.tick)[span], s.held(s.tick)[span], buffers.demand[span]
        _demand(s, share, span, buffers)
        _hold_memory(s, memory_level, span, buffers)
        close = np.flatnonzero(held > s.memory_alarm[span])
        demand[close] = np.minimum(demand[close] * THRASH_FACTOR, LARGEST_SHARE)
        thrashing.append(close + begin)
        np.minimum(demand, s.cpu_limit[span], out=used)
        # One pass sums CPU and memory: exact, because both are integers below 2**53 together.
        number = buffers.number[: len(used)]
        np.multiply(held, float(1 << MEMORY_SHIFT), out=number)
        np.add(number, used, out=number)
        np.add.at(packed, s.active_node[span], number)
    both = packed.astype(np.int64)
    asked, memory = both & ((1 << MEMORY_SHIFT) - 1), both >> MEMORY_SHIFT
    return asked, memory, np.concatenate(thrashing)


def _serve(s: State, pressure: I4, capability: I8, buffers: Buffers) -> NDArray[np.float64]:
    """Grant CPU, do batch work, and sum latency factors by workload, squares packed above."""
    used, held = s.used(s.tick), s.held(s.tick)
    busy, gathered = buffers.demand, buffers.gathered
    np.take(pressure, s.active_node, out=gathered, mode="wrap")
    if (pressure == FULL_SHARE).any():
        np.equal(gathered, FULL_SHARE, out=buffers.flags)
        starved, ratio = _water_fill(s, np.flatnonzero(buffers.flags), capability, used)
        gathered[starved] = ratio
    packed = np.zeros(s.nobody_work + 1)
    for begin in range(0, len(s.uid), BLOCK):
        span = slice(begin, min(begin + BLOCK, len(s.uid)))
        block, number = busy[span], buffers.number[: span.stop - begin]
        index = buffers.index[: span.stop - begin]
        np.multiply(block, s.cpu_ratio[span], out=block)
        np.right_shift(block, RATIO_BITS - 10, out=block)
        np.maximum(block, gathered[span], out=index)  # utilization in 1/1024
        np.take(_LATENCY, index, out=number, mode="clip")
        np.add.at(packed, s.active_work[span], number)
        np.multiply(used[span], s.is_batch[span], out=block)
        np.subtract(s.remaining[span], block, out=s.remaining[span])
        np.maximum(s.peak[span], held[span], out=s.peak[span])
    return packed


def quotient(a: I4 | I8, b: I4 | I8 | int) -> I8:
    """``a // b`` for numbers of at least zero, in doubles: exact below 2**53, and much faster.

    The true quotient is at least 1/b away from the next integer, far more than a rounding error.
    """
    return (a / b).astype(np.int64)


def _capability(s: State) -> I8:
    """Millicores a node can give now: its clock and its health count."""
    capability = s.n_cpu.astype(np.int64)
    odd = np.flatnonzero((s.n_frequency != 1000) | (s.n_health != 1000))
    working = s.n_frequency[odd] * s.n_health[odd]  # per million
    capability[odd] = np.maximum(capability[odd] * working // 1_000_000, 1)
    return capability


def _share(s: State) -> I4:
    """Millicores each running pod of a workload is asked for."""
    each = quotient(s.w_load, np.maximum(s.w_ready, 1))
    share = np.where(s.w_kind == BATCH, s.w_appetite, each)
    share[-1] = 0
    return np.minimum(share, LARGEST_SHARE).astype(np.int32)


def _demand(s: State, share: I4, span: slice, buffers: Buffers) -> None:
    """Share times seven to nine eighths, drawn per pod and tick."""
    demand = buffers.demand[span]
    words, scratch = buffers.words[: len(demand)], buffers.scratch[: len(demand)]
    np.add(s.key[span], tick_word(s.tick), out=words)
    mix_top_into(words, scratch)
    np.right_shift(words, np.uint32(24), out=words)
    np.add(words, np.uint32(896), out=words)
    np.take(share, s.active_work[span], out=demand, mode="wrap")
    np.multiply(demand, words.view(np.int32), out=demand)
    np.right_shift(demand, 10, out=demand)


def _hold_memory(s: State, level: I4, span: slice, buffers: Buffers) -> None:
    """Base, plus a part that follows load, plus what has leaked."""
    held, leaked, gathered = s.held(s.tick)[span], s.leaked[span], buffers.gathered[span]
    np.take(level, s.active_work[span], out=held, mode="wrap")
    np.add(leaked, s.leak[span], out=leaked)
    np.right_shift(leaked, 10, out=gathered)
    np.add(held, gathered, out=held)


def _water_fill(s: State, i: I8, capability: I8, used: I4) -> tuple[I8, I4]:
    """Share out what contended nodes have; returns who got too little and asked-over-got."""
    node = s.active_node[i]
    full = np.flatnonzero(np.bincount(node))
    number = np.empty(s.nobody_node, dtype=np.int64)
    number[full] = np.arange(len(full))
    place, have = number[node], capability[full]
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
    got = np.maximum(granted[starved], 1)
    ratio = np.minimum(want[starved] * SHARE // got, 2 * SHARE)
    return i[starved], ratio.astype(np.int32)


def _latency(s: State, packed: NDArray[np.float64]) -> None:
    """The 95th percentile by service, and whether its objective is broken."""
    both = packed.astype(np.int64)
    plain, squares = both & ((1 << PACK) - 1), both >> PACK
    ready = np.maximum(s.w_ready, 1)
    queueing = quotient(s.w_base_ms * squares, np.maximum(plain * FACTOR, 1))
    latency = queueing + quotient(s.w_network_ms, ready)
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
            i = np.flatnonzero(s.active_node == node)
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
