# SPDX-License-Identifier: Apache-2.0
"""The tick as compiled loops: the rules of ``machines``, ``pods``, ``usage``, ``replicas``,
``placement`` and ``bill`` once more, one row at a time, for batches where array calls are too slow.

Every function has the name of the array function it repeats and leaves the same bytes behind,
slots included; a test compares whole states over all scenarios. Change a rule in both places. What
is rare or not worth a loop stays with the arrays: the exerciser, the rival, both autoscalers, the
start-over of lost jobs, writes. Nothing here allocates a pod slot that was not promised before:
``prepare`` and ``missing_pods`` say how many are needed, and the caller makes room.

Needs the extra ``fast``. Import it through ``tick``, which knows when that is worth its start-up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np

from pilothouse.domain import Gate, PendingCause
from pilothouse.sim import bill, curves, fit, machines, placement, pods, usage
from pilothouse.sim.blueprint import NOWHERE
from pilothouse.sim.fit import Numbers
from pilothouse.sim.randomness import FIRST, GOLDEN, MASK, SECOND
from pilothouse.sim.state import (
    ASLEEP,
    AWAKE,
    B1,
    BATCH,
    BOOTING,
    DEAD,
    DRAINING,
    EMPTY,
    FAILED,
    I4,
    I8,
    NEVER,
    PENDING,
    RATIO_BITS,
    RUNNING,
    SERVICE,
    STARTING,
    TERMINATING,
    U4,
    UNLIMITED,
    State,
    Tables,
    places_of,
)
from pilothouse.sim.timeline import Fault

Rule = TypeVar("Rule", bound=Callable[..., object])


# What the compiler takes as a cast; for the type checker all of these are integers.
whole = cast("Callable[[object], int]", np.int64)
half = cast("Callable[[object], int]", np.int32)
word = cast("Callable[[object], int]", np.uint32)


def _cache_folder() -> str:
    """Where compiled rules are kept: by the content of this package, because they hold constants
    of other modules, and a change of those must not find yesterday's code."""
    here = Path(__file__).parent
    content = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(here.glob("*.py"))))
    return str(here / "__pycache__" / f"rules-{content.hexdigest()[:16]}")


CACHE_FOLDER = _cache_folder()


def compiled(rule: Rule) -> Rule:
    """Compile at the first call and keep the result on disk; array semantics for divisions."""
    config: Any = numba.config
    usual, config.CACHE_DIR = config.CACHE_DIR, CACHE_FOLDER
    try:
        return cast("Rule", numba.njit(cache=True, error_model="numpy")(rule))
    finally:
        config.CACHE_DIR = usual


class Sizes(NamedTuple):
    """The tick and the widths of the batch."""

    tick: int
    batch: int
    nodes: int
    workloads: int
    spaces: int
    zones: int


# fmt: off
(N_PLACE,) = places_of("n_place")
(N_EXISTS, N_POWER, N_READY, N_TAINT, N_DRAIN, N_FAULT) = places_of(
    "n_exists", "n_power", "n_ready", "n_taint", "n_drain", "n_fault")
(N_ZONE, N_CPU, N_MEMORY, N_LATENCY, N_IDLE_MW, N_CPU_RATE, N_MEMORY_RATE, N_BOOT_TICKS,
 N_FREQUENCY, N_HEALTH, N_ERRORS, N_LAG_MS, N_FAULT_TICK, N_FAULT_TICKS, N_FAULT_HEIGHT,
 N_WAKE_TICK, N_DEAD_TICK, N_REPAIR_TICK, N_DEATHS, N_IDLE_TICK, N_CPU_REQUESTED,
 N_MEMORY_REQUESTED, N_PODS, N_CPU_USED, N_MEMORY_USED, N_POWER_MW) = places_of(
    "n_zone", "n_cpu", "n_memory", "n_latency", "n_idle_mw", "n_cpu_rate", "n_memory_rate",
    "n_boot_ticks", "n_frequency", "n_health", "n_errors", "n_lag_ms", "n_fault_tick",
    "n_fault_ticks", "n_fault_height", "n_wake_tick", "n_dead_tick", "n_repair_tick", "n_deaths",
    "n_idle_tick", "n_cpu_requested", "n_memory_requested", "n_pods", "n_cpu_used",
    "n_memory_used", "n_power_mw")
(N_KEY,) = places_of("n_key")
W_KEY, W_BURST_KEY, W_ARRIVAL_KEY, W_POD_KEY = places_of(
    "w_key", "w_burst_key", "w_arrival_key", "w_pod_key")
W_EXISTS, W_KIND, W_EVICTABLE, W_VIOLATION = places_of(
    "w_exists", "w_kind", "w_evictable", "w_violation")
(W_SPACE, W_PRIORITY, W_BASELINE, W_MIN_AVAILABLE, W_CPU_REQUEST, W_CPU_LIMIT, W_MEMORY_REQUEST,
 W_MEMORY_LIMIT, W_MEMORY_BASE, W_MEMORY_LOAD, W_BASE_MS, W_OBJECTIVE_MS, W_START_TICKS,
 W_GRACE_TICKS, W_TROUGH, W_PEAK, W_PHASE, W_ZONE, W_RATE, W_WORK_TICKS, W_APPETITE,
 W_PATIENCE_TICKS, W_WOBBLE_STEP, W_BEFORE, W_AFTER, W_LUCK, W_DESIRED, W_HAVE, W_OWED, W_READY,
 W_CREATED, W_NETWORK_MS, W_SURGE, W_SURGE_NOW, W_LEAK, W_LOAD, W_LATENCY, W_AVOID) = places_of(
    "w_space", "w_priority", "w_baseline", "w_min_available", "w_cpu_request", "w_cpu_limit",
    "w_memory_request", "w_memory_limit", "w_memory_base", "w_memory_load", "w_base_ms",
    "w_objective_ms", "w_start_ticks", "w_grace_ticks", "w_trough", "w_peak", "w_phase", "w_zone",
    "w_rate", "w_work_ticks", "w_appetite", "w_patience_ticks", "w_wobble_step", "w_before",
    "w_after", "w_luck", "w_desired", "w_have", "w_owed", "w_ready", "w_created", "w_network_ms",
    "w_surge", "w_surge_now", "w_leak", "w_load", "w_latency", "w_avoid")
UID, HOME, WORK, NODE, ACTIVE_WORK, ACTIVE_NODE, AVOID = places_of(
    "uid", "home", "work", "node", "active_work", "active_node", "avoid")
PHASE, CAUSE, DOWN, LOST, GATED, STARTED = places_of(
    "phase", "cause", "down", "lost", "gated", "started")
(CREATED, SINCE, TIMER, TRIED, CPU_REQUEST, CPU_LIMIT, CPU_RATIO, MEMORY_REQUEST, MEMORY_LIMIT,
 MEMORY_ALARM, LEAKED, LEAK, PEAK, RESTARTS, OOMS, BACKOFF, IS_BATCH, REMAINING, WORK_TOTAL,
 DEADLINE) = places_of(
    "created", "since", "timer", "tried", "cpu_request", "cpu_limit", "cpu_ratio",
    "memory_request", "memory_limit", "memory_alarm", "leaked", "leak", "peak", "restarts", "ooms",
    "backoff", "is_batch", "remaining", "work_total", "deadline")
USED = places_of("used_0", "used_1", "used_2")
HELD = places_of("held_0", "held_1", "held_2")
(KEY,) = places_of("key")
(S_GATE,) = places_of("s_gate")
Z_PRICE, Z_CARBON = places_of("z_price", "z_carbon")
(C_DAY_TICKS, C_DAY_OFFSET, C_DAY, C_NOISE, C_BURST, C_BURST_LEVEL, C_LATENESS, C_REPAIR_LOW,
 C_REPAIR_HIGH, C_NODES, C_DAMP, C_DAMP_NOW, C_FREED, C_SAMPLE) = places_of(
    "c_day_ticks", "c_day_offset", "c_day", "c_noise", "c_burst", "c_burst_level", "c_lateness",
    "c_repair_low", "c_repair_high", "c_nodes", "c_damp", "c_damp_now", "c_freed", "c_sample")
(C_PODS, C_NEXT_UID, C_FAILED, C_VIOLATION, C_WAITING, C_ENERGY, C_COST, C_CARBON) = places_of(
    "c_pods", "c_next_uid", "c_failed", "c_violation", "c_waiting", "c_energy", "c_cost",
    "c_carbon")
# fmt: on

# Plain numbers and tables: the compiler takes them as constants.
NO_CAUSE, NO_ROOM = int(PendingCause.NONE), int(PendingCause.RESOURCES)
NO_MATCH, HELD_BACK = int(PendingCause.SELECTOR), int(PendingCause.GATED)
NODE_COMES = int(PendingCause.AUTOSCALER)
QUEUE, LAST, REJECT = int(Gate.QUEUE), int(Gate.DEPRIORITIZE), int(Gate.REJECT)
HEALTHY, FALSE_ALARM, SUDDEN = int(Fault.NONE), int(Fault.FALSE_ALARM), int(Fault.SUDDEN)
NOT_READY_TICKS, HEALTH_LOST = machines.NOT_READY_TICKS, machines.HEALTH_LOST
ERRORS_AT_DEATH, LAG_AT_DEATH_MS = machines.ERRORS_AT_DEATH, machines.LAG_AT_DEATH_MS
EVICTIONS_PER_TICK = machines.EVICTIONS_PER_TICK
BACKOFF_TICKS, HEALTHY_TICKS, LOST_TICKS = pods.BACKOFF_TICKS, pods.HEALTHY_TICKS, pods.LOST_TICKS
WAIT_GRACE_TICKS, SMALLEST_LIMIT, DEAL = pods.WAIT_GRACE_TICKS, pods.SMALLEST_LIMIT, pods.DEAL
RELEASES_PER_TICK = pods.RELEASES_PER_TICK
NOISE_TICKS, LARGEST_SHARE = usage.NOISE_TICKS, usage.LARGEST_SHARE
BUSY_SHARE, FULL_SHARE = usage.BUSY_SHARE, usage.FULL_SHARE
THRASH_FACTOR, SHARE, FACTOR = usage.THRASH_FACTOR, curves.SHARE, curves.FACTOR
PACK, RATE_LEVELS, ARRIVALS_MAX = curves.PACK, curves.RATE_LEVELS, curves.ARRIVALS_MAX
BINDINGS_PER_TICK, RETRY_TICKS = placement.BINDINGS_PER_TICK, placement.RETRY_TICKS
ALL_NODES = placement.ALL_NODES
ASLEEP_MW, BOOT_PERMILLE = bill.ASLEEP_MW, bill.BOOT_PERMILLE
DAY = curves.day_table()
PACKED_LATENCY = curves.packed_latency_table().astype(np.int64)
SCALE, CLOSED, MISFIT = fit.SCALE, fit.CLOSED, fit.MISFIT


# --- randomness


@compiled
def mix_top(bits: int) -> int:
    """Right in the upper 16 bits only."""
    bits = word((bits ^ (bits >> word(16))) * word(FIRST))
    return word((bits ^ (bits >> word(13))) * word(SECOND))


@compiled
def mix(bits: int) -> int:
    bits = mix_top(bits)
    return word(bits ^ (bits >> word(16)))


@compiled
def draw(key: int, tick: int) -> int:
    return mix(word(key + word(tick * GOLDEN & MASK)))


@compiled
def tie_word(key: int, place: int) -> int:
    bits = word(key + word((place + 1) * GOLDEN & MASK))
    return word((bits ^ (bits >> word(15))) * word(SECOND))


# --- the life of a pod


@compiled
def stop(t: Tables, d: Sizes, i: int) -> None:
    if t.pod_flag[PHASE, i] == RUNNING:
        work = t.pod_wide[WORK, i]
        t.work[W_READY, work] -= 1
        t.work[W_NETWORK_MS, work] -= t.node[N_LATENCY, t.pod_wide[NODE, i]]
    t.pod_wide[ACTIVE_WORK, i] = d.batch * d.workloads
    t.pod_wide[ACTIVE_NODE, i] = d.batch * d.nodes
    t.pod[LEAKED, i] = 0
    t.pod[LEAK, i] = 0


@compiled
def run(t: Tables, d: Sizes, i: int) -> None:
    work, node = t.pod_wide[WORK, i], t.pod_wide[NODE, i]
    t.pod_flag[PHASE, i] = RUNNING
    t.pod[SINCE, i] = d.tick
    t.pod[TIMER, i] = NEVER
    t.pod_flag[DOWN, i] = 0
    t.pod_flag[STARTED, i] = 1
    t.pod_wide[ACTIVE_WORK, i] = work
    t.pod_wide[ACTIVE_NODE, i] = node
    t.pod[PEAK, i] = 0
    pace = 768 + whole(t.pod_key[KEY, i] & word(511))
    t.pod[LEAK, i] = t.work[W_LEAK, work] * pace >> 10
    t.work[W_READY, work] += 1
    t.work[W_NETWORK_MS, work] += t.node[N_LATENCY, node]


@compiled
def bind(t: Tables, d: Sizes, i: int, node: int) -> None:
    t.pod_wide[NODE, i] = node
    t.node[N_CPU_REQUESTED, node] += t.pod[CPU_REQUEST, i]
    t.node[N_MEMORY_REQUESTED, node] += t.pod[MEMORY_REQUEST, i]
    t.node[N_PODS, node] += 1
    t.pod_flag[CAUSE, i] = NO_CAUSE
    t.pod_wide[AVOID, i] = -1
    start(t, d, i)


@compiled
def start(t: Tables, d: Sizes, i: int) -> None:
    t.pod_flag[PHASE, i] = STARTING
    t.pod[SINCE, i] = d.tick
    ticks = whole(t.work[W_START_TICKS, t.pod_wide[WORK, i]])
    slow = whole(t.pod_key[KEY, i] >> word(31))
    t.pod[TIMER, i] = d.tick + ticks + (ticks * slow >> 1)


@compiled
def crash(t: Tables, d: Sizes, i: int) -> None:
    """Always for want of memory."""
    level = whole(t.pod[BACKOFF, i])
    if d.tick - t.pod[SINCE, i] >= HEALTHY_TICKS:
        level = 0
    stop(t, d, i)
    t.pod_flag[PHASE, i] = FAILED
    t.pod[SINCE, i] = d.tick
    t.pod_flag[DOWN, i] = 1
    t.pod[RESTARTS, i] += 1
    t.pod[OOMS, i] += 1
    t.pod[BACKOFF, i] = min(level + 1, len(BACKOFF_TICKS) - 1)
    t.pod[TIMER, i] = d.tick + BACKOFF_TICKS[level]
    t.pod[REMAINING, i] = t.pod[WORK_TOTAL, i] if t.pod[IS_BATCH, i] == 1 else 1


@compiled
def lose(t: Tables, d: Sizes, i: int) -> None:
    t.pod[TIMER, i] = d.tick + LOST_TICKS
    if t.pod_flag[PHASE, i] != TERMINATING:
        stop(t, d, i)
        t.pod_flag[PHASE, i] = FAILED
        t.pod[SINCE, i] = d.tick
        t.pod_flag[DOWN, i] = 1
        t.pod_flag[LOST, i] = 1


@compiled
def terminate(t: Tables, d: Sizes, i: int, wanted: bool, reborn: I8) -> None:
    """``reborn`` collects batch jobs to start over: their number, then one row each."""
    if t.pod_flag[PHASE, i] == TERMINATING:
        return
    stop(t, d, i)
    work = t.pod_wide[WORK, i]
    t.work[W_HAVE, work] -= 1
    served = t.pod_flag[STARTED, i] == 1 or t.pod_flag[DOWN, i] == 1
    if wanted and t.pod[IS_BATCH, i] == 1:
        reborn[0, 0] += 1
        row = reborn[reborn[0, 0]]
        row[0], row[1] = t.pod_wide[HOME, i], t.pod_wide[UID, i]
        row[2], row[3] = work, t.pod_key[KEY, i]
        row[4], row[5], row[6] = t.pod[CREATED, i], t.pod[DEADLINE, i], whole(served)
    elif wanted and served:
        t.work[W_OWED, work] += 1
    t.pod_flag[DOWN, i] = 0
    if t.pod_wide[NODE, i] == d.batch * d.nodes:
        erase(t, d, i)
        return
    t.pod_flag[PHASE, i] = TERMINATING
    t.pod[SINCE, i] = d.tick
    t.pod[TIMER, i] = d.tick + t.work[W_GRACE_TICKS, work]


@compiled
def remove(t: Tables, d: Sizes, i: int) -> None:
    stop(t, d, i)
    t.work[W_HAVE, t.pod_wide[WORK, i]] -= 1
    erase(t, d, i)


@compiled
def erase(t: Tables, d: Sizes, i: int) -> None:
    """Releases what was requested, too."""
    node, home = t.pod_wide[NODE, i], t.pod_wide[HOME, i]
    if node != d.batch * d.nodes:
        t.node[N_CPU_REQUESTED, node] -= t.pod[CPU_REQUEST, i]
        t.node[N_MEMORY_REQUESTED, node] -= t.pod[MEMORY_REQUEST, i]
        t.node[N_PODS, node] -= 1
        t.cluster[C_FREED, home] = d.tick
        t.pod_wide[NODE, i] = d.batch * d.nodes
    t.cluster_wide[C_PODS, home] -= 1
    t.pod_wide[HOME, i] = d.batch
    t.pod_flag[PHASE, i] = EMPTY
    t.pod_wide[UID, i] = 0
    t.pod[TIMER, i] = NEVER
    t.pod_flag[DOWN, i] = 0
    t.pod_flag[GATED, i] = 0
    t.pod[IS_BATCH, i] = 0
    t.pod_wide[WORK, i] = d.batch * d.workloads
    t.pod[MEMORY_LIMIT, i] = UNLIMITED
    t.pod[MEMORY_ALARM, i] = UNLIMITED
    t.pod[REMAINING, i] = 1
    t.pod[DEADLINE, i] = NEVER


@compiled
def free_slots(t: Tables, count: int) -> I8:
    """The caller has seen to it that there are enough."""
    phase = t.pod_flag[PHASE]
    free = np.empty(count, np.int64)
    found = slot = 0
    while found < count:
        if phase[slot] == EMPTY:
            free[found] = slot
            found += 1
        slot += 1
    if count < DEAL * DEAL:
        return free
    dealt = np.empty(count, np.int64)
    place = 0
    for first in range(DEAL):
        for card in range(first, count, DEAL):
            dealt[place] = free[card]
            place += 1
    return dealt


@compiled
def create(t: Tables, d: Sizes, i: int, work: int, ordinal: int) -> None:
    """Into an empty slot."""
    cluster = work // d.workloads
    nobody_work, nobody_node = d.batch * d.workloads, d.batch * d.nodes
    t.pod_wide[HOME, i] = cluster
    t.pod_wide[UID, i] = t.cluster_wide[C_NEXT_UID, cluster]
    t.cluster_wide[C_NEXT_UID, cluster] += 1
    t.cluster_wide[C_PODS, cluster] += 1
    key = mix(word(t.work_key[W_POD_KEY, work] + word(ordinal)))
    t.pod_key[KEY, i] = key
    t.pod_wide[WORK, i] = work
    t.pod_wide[NODE, i] = nobody_node
    t.pod_wide[ACTIVE_WORK, i] = nobody_work
    t.pod_wide[ACTIVE_NODE, i] = nobody_node
    t.pod_flag[PHASE, i] = PENDING
    t.pod[CREATED, i] = d.tick
    t.pod[SINCE, i] = d.tick
    t.pod[TRIED, i] = -1
    t.pod_wide[AVOID, i] = -1
    patience = t.work[W_PATIENCE_TICKS, work]
    t.pod[TIMER, i] = d.tick + patience if patience > 0 else NEVER
    equip(t, d, i, work, key)
    t.pod_flag[LOST, i] = 0
    t.pod_flag[STARTED, i] = 0
    t.pod[PEAK, i] = 0
    t.pod[RESTARTS, i] = 0
    t.pod[OOMS, i] = 0
    t.pod[BACKOFF, i] = 0
    t.work[W_HAVE, work] += 1
    gate = t.space_flag[S_GATE, cluster * d.spaces + t.work[W_SPACE, work]]
    held = t.pod[IS_BATCH, i] == 1 and gate == QUEUE
    t.pod_flag[GATED, i] = 1 if held else 0
    t.pod_flag[CAUSE, i] = HELD_BACK if held else NO_CAUSE


@compiled
def equip(t: Tables, d: Sizes, i: int, work: int, key: int) -> None:
    limit = whole(t.work[W_CPU_LIMIT, work])
    cpu_limit = max(limit, SMALLEST_LIMIT) if limit > 0 else UNLIMITED
    t.pod[CPU_REQUEST, i] = t.work[W_CPU_REQUEST, work]
    t.pod[CPU_LIMIT, i] = cpu_limit
    t.pod[CPU_RATIO, i] = (1 << RATIO_BITS) // cpu_limit
    t.pod[MEMORY_REQUEST, i] = t.work[W_MEMORY_REQUEST, work]
    limit = whole(t.work[W_MEMORY_LIMIT, work])
    limit = limit if limit > 0 else UNLIMITED
    t.pod[MEMORY_LIMIT, i] = limit
    t.pod[MEMORY_ALARM, i] = limit // 8 * 7
    batch = t.work_flag[W_KIND, work] == BATCH
    t.pod[IS_BATCH, i] = 1 if batch else 0
    rate = min(whole(t.work[W_APPETITE, work]), cpu_limit)
    ticks = whole(t.work[W_WORK_TICKS, work])
    size = 768 + whole((key >> word(9)) & word(511))
    total = rate * ticks * size >> 10
    t.pod[WORK_TOTAL, i] = total
    t.pod[REMAINING, i] = max(total, 1) if batch else 1
    t.pod[DEADLINE, i] = d.tick + WAIT_GRACE_TICKS + 2 * ticks if batch else NEVER


# --- machines


@compiled
def advance(t: Tables, d: Sizes) -> None:
    killed = np.zeros(d.batch * d.nodes + 1, np.int8)
    dead = 0
    for n in range(d.batch * d.nodes + 1):
        noise = draw(t.node_key[N_KEY, n], d.tick)
        t.node[N_ERRORS, n] = 1 if (noise >> word(24)) > 243 else 0
        t.node[N_LAG_MS, n] = 100 + whole(noise & word(511))
        t.node[N_HEALTH, n] = 1000
        if t.node_flag[N_FAULT, n] != HEALTHY and advance_fault(t, d, n):
            kill(t, d, n)
            killed[n] = 1
            dead += 1
        if t.node[N_DEAD_TICK, n] == d.tick - NOT_READY_TICKS:
            t.node_flag[N_READY, n] = 0
        if t.node[N_REPAIR_TICK, n] == d.tick:
            t.node[N_REPAIR_TICK, n] = NEVER
            t.node[N_DEAD_TICK, n] = NEVER
            wake(t, d, n)
        if t.node[N_WAKE_TICK, n] == d.tick:
            t.node[N_WAKE_TICK, n] = NEVER
            t.node_flag[N_POWER, n] = AWAKE
            t.node_flag[N_READY, n] = 1
            t.node[N_IDLE_TICK, n] = d.tick
            t.cluster[C_FREED, n // d.nodes] = d.tick
    if dead:
        for i in range(t.pod_wide.shape[1]):
            if killed[t.pod_wide[NODE, i]]:
                lose(t, d, i)


@compiled
def advance_fault(t: Tables, d: Sizes, n: int) -> bool:
    """Whether the machine dies of it now."""
    age = whole(d.tick - t.node[N_FAULT_TICK, n])
    length, kind = whole(t.node[N_FAULT_TICKS, n]), t.node_flag[N_FAULT, n]
    level = min(1000 * age // length, 1000)
    if kind == FALSE_ALARM:
        level = min(level, 1000 - level) * 2 * t.node[N_FAULT_HEIGHT, n] // 1000
    t.node[N_ERRORS, n] += ERRORS_AT_DEATH * level // 1000
    t.node[N_LAG_MS, n] += LAG_AT_DEATH_MS * level // 1000
    t.node[N_HEALTH, n] = 1000 - HEALTH_LOST * level // 1000
    if age < length and kind != SUDDEN:
        return False
    t.node_flag[N_FAULT, n] = HEALTHY
    return kind != FALSE_ALARM


@compiled
def kill(t: Tables, d: Sizes, n: int) -> None:
    """The machine only; its pods are lost by the caller, all at once."""
    cluster = n // d.nodes
    t.node_flag[N_POWER, n] = DEAD
    t.node_flag[N_DRAIN, n] = 0
    t.node[N_WAKE_TICK, n] = NEVER
    t.node[N_DEAD_TICK, n] = d.tick
    t.node[N_DEATHS, n] += 1
    bits = whole(draw(t.node_key[N_KEY, n], -whole(t.node[N_DEATHS, n])))
    low, high = t.cluster[C_REPAIR_LOW, cluster], t.cluster[C_REPAIR_HIGH, cluster]
    t.node[N_REPAIR_TICK, n] = d.tick + low + (bits * (high - low + 1) >> 32)


@compiled
def wake(t: Tables, d: Sizes, n: int) -> None:
    t.node_flag[N_POWER, n] = BOOTING
    t.node_flag[N_READY, n] = 0
    t.node_flag[N_DRAIN, n] = 0
    t.node[N_FREQUENCY, n] = 1000
    t.node[N_WAKE_TICK, n] = d.tick + t.node[N_BOOT_TICKS, n]


@compiled
def drain(t: Tables, d: Sizes, reborn: I8) -> None:
    for n in range(d.batch * d.nodes):
        if t.node_flag[N_DRAIN, n] > 0 and t.node_flag[N_POWER, n] == DRAINING:
            drain_node(t, d, n, reborn)


@compiled
def drain_node(t: Tables, d: Sizes, n: int, reborn: I8) -> None:
    """The oldest first: look for the next larger uid until two have gone or nobody is left."""
    evicted, last, none = 0, whole(0), True
    while evicted < EVICTIONS_PER_TICK:
        slot = -1
        for i in range(t.pod_wide.shape[1]):
            next_one = t.pod_wide[NODE, i] == n and t.pod_wide[UID, i] > last
            if next_one and (slot < 0 or t.pod_wide[UID, i] < t.pod_wide[UID, slot]):
                slot = i
        if slot < 0:
            break
        none, last = False, t.pod_wide[UID, slot]
        evicted += evict(t, d, slot, reborn)
    if none and t.node_flag[N_DRAIN, n] == 2:
        t.node_flag[N_POWER, n] = ASLEEP
        t.node_flag[N_READY, n] = 0
        t.node[N_ERRORS, n] = 0
        t.node[N_LAG_MS, n] = 0
        t.node_flag[N_FAULT, n] = HEALTHY


@compiled
def evict(t: Tables, d: Sizes, i: int, reborn: I8) -> int:
    """1 where it goes, 0 where it may not."""
    work, phase = t.pod_wide[WORK, i], t.pod_flag[PHASE, i]
    if not t.work_flag[W_EVICTABLE, work] or phase == TERMINATING:
        return 0
    if phase == RUNNING and t.work[W_READY, work] - 1 < t.work[W_MIN_AVAILABLE, work]:
        return 0
    terminate(t, d, i, True, reborn)
    return 1


@compiled
def time_comes(t: Tables, d: Sizes, reborn: I8) -> None:
    timer = t.pod[TIMER]
    for i in range(len(timer)):
        if timer[i] != d.tick:
            continue
        phase = t.pod_flag[PHASE, i]
        if phase == PENDING:
            remove(t, d, i)
        elif phase == STARTING:
            run(t, d, i)
        elif phase == TERMINATING:
            erase(t, d, i)
        elif phase == FAILED and t.pod_flag[LOST, i]:
            terminate(t, d, i, True, reborn)
            erase(t, d, i)
        elif phase == FAILED:
            start(t, d, i)


# --- load and use


@compiled
def offer_load(t: Tables, d: Sizes) -> None:
    step, part = d.tick // NOISE_TICKS, d.tick % NOISE_TICKS
    if step != t.work[W_WOBBLE_STEP, 0]:
        draw_points(t, d, step)
    for c in range(d.batch):
        ticks = whole(t.cluster[C_DAY_TICKS, c])
        day = 1000 * ((d.tick + t.cluster[C_DAY_OFFSET, c]) % ticks) // ticks
        t.cluster[C_DAY, c] = day
        t.cluster[C_DAMP_NOW, c] += (t.cluster[C_DAMP, c] - t.cluster[C_DAMP_NOW, c]) >> 2
        damp, noisy = whole(t.cluster[C_DAMP_NOW, c]), whole(t.cluster[C_NOISE, c])
        burst, high = t.cluster[C_BURST, c], whole(t.cluster[C_BURST_LEVEL, c])
        for w in range(c * d.workloads, (c + 1) * d.workloads):
            t.work[W_SURGE_NOW, w] += (t.work[W_SURGE, w] - t.work[W_SURGE_NOW, w]) >> 2
            before = whole(t.work[W_BEFORE, w])
            line = before + (t.work[W_AFTER, w] - before) * part // NOISE_TICKS
            wobble = 1000 + (line - 512) * noisy // 512
            if t.work[W_LUCK, w] < burst:
                wobble = wobble * high // 1000
            trough = whole(t.work[W_TROUGH, w])
            bright = DAY[(day + t.work[W_PHASE, w]) % 1000]
            level = trough + (t.work[W_PEAK, w] - trough) * bright // 1000
            level = level * wobble // 1000 * damp // 1000
            level = max(level, whole(t.work[W_SURGE_NOW, w]))
            full = whole(t.work[W_BASELINE, w]) * t.work[W_CPU_REQUEST, w]
            t.work[W_LOAD, w] = full * level // 1000


@compiled
def draw_points(t: Tables, d: Sizes, step: int) -> None:
    for w in range(d.batch * d.workloads + 1):
        t.work[W_WOBBLE_STEP, w] = step
        key = t.work_key[W_KEY, w]
        t.work[W_BEFORE, w] = draw(key, step) >> word(22)
        t.work[W_AFTER, w] = draw(key, step + 1) >> word(22)
        luck = whole(draw(t.work_key[W_BURST_KEY, w], step) >> word(12))
        t.work[W_LUCK, w] = luck * 125 >> 17


@compiled
def arrivals(t: Tables, d: Sizes, table: U4, count: I4) -> int:
    """Adds to ``count`` by workload; returns how many pods the gates let in."""
    admitted = 0
    for c in range(d.batch):
        day, damp = whole(DAY[t.cluster[C_DAY, c]]), t.cluster[C_DAMP_NOW, c]
        for w in range(c * d.workloads, (c + 1) * d.workloads):
            rate = whole(t.work[W_RATE, w])
            if rate > 0:
                trough = whole(t.work[W_TROUGH, w])
                level = (trough + (t.work[W_PEAK, w] - trough) * day // 1000) * damp // 1000
                rate = min(rate * level // 1_000_000, RATE_LEVELS - 1)
                bits = draw(t.work_key[W_ARRIVAL_KEY, w], d.tick)
                drawn = 0
                while drawn < ARRIVALS_MAX and bits > table[rate, drawn]:
                    drawn += 1
                count[w] += drawn
            if t.space_flag[S_GATE, c * d.spaces + t.work[W_SPACE, w]] != REJECT:
                admitted += count[w]
    return admitted


@compiled
def admit(t: Tables, d: Sizes, count: I4, admitted: int) -> None:
    slots, place = free_slots(t, admitted), 0
    for w in range(d.batch * d.workloads):
        if count[w] == 0:
            continue
        c, first = w // d.workloads, whole(t.work[W_CREATED, w])
        t.work[W_CREATED, w] += count[w]
        if t.space_flag[S_GATE, c * d.spaces + t.work[W_SPACE, w]] == REJECT:
            ticks = whole(t.work[W_WORK_TICKS, w]) + WAIT_GRACE_TICKS
            t.cluster_wide[C_VIOLATION, c] += count[w] * ticks * t.cluster[C_LATENESS, c]
            continue
        for within in range(count[w]):
            create(t, d, slots[place], w, first + within)
            place += 1


@compiled
def consume(t: Tables, d: Sizes) -> None:
    """Ends with out-of-memory kills and finished batch work."""
    slots, nobody = t.pod.shape[1], d.batch * d.nodes
    demand = np.empty(slots, np.int32)
    asked = np.zeros(nobody + 1, np.int64)
    thrashing = np.empty(slots, np.int64)
    close = ask(t, d, demand, asked, thrashing)
    pressure = np.zeros(nobody + 1, np.int32)
    contended = press(t, d, asked, pressure)
    squeezed = np.empty(slots if contended else 0, np.int32)
    if contended:
        water_fill(t, d, pressure, squeezed)
    done = serve(t, d, demand, pressure, squeezed, thrashing[close:])
    kill_for_memory(t, d, thrashing[:close])
    for k in range(close, close + done):
        i = thrashing[k]
        if t.pod_flag[PHASE, i] == RUNNING and t.pod[IS_BATCH, i] == 1:
            remove(t, d, i)


@compiled
def ask(t: Tables, d: Sizes, demand: I4, asked: I8, thrashing: I8) -> int:
    """Demand and memory by pod, and by node in one number; returns how many pods thrash."""
    offer = find_offer(t, d)
    now = word(d.tick * GOLDEN & MASK)
    key, active_work, active_node = t.pod_key[KEY], t.pod_wide[ACTIVE_WORK], t.pod_wide[ACTIVE_NODE]
    leaked, leak, alarm, limit = t.pod[LEAKED], t.pod[LEAK], t.pod[MEMORY_ALARM], t.pod[CPU_LIMIT]
    used, held = t.pod[USED[d.tick % 3]], t.pod[HELD[d.tick % 3]]
    close = 0
    for i in range(len(key)):
        both = offer[active_work[i]]
        noise = half(mix_top(word(key[i] + now)) >> word(24)) + half(896)
        wish = half(half(both) * noise) >> 10
        if leak[i]:
            leaked[i] += leak[i]
        holds = half(both >> 32) + (leaked[i] >> 10)
        if holds > alarm[i]:
            wish = min(wish * THRASH_FACTOR, LARGEST_SHARE)
            thrashing[close] = i
            close += 1
        demand[i] = wish
        gets = min(wish, limit[i])
        used[i] = gets
        held[i] = holds
        asked[active_node[i]] += (whole(holds) << 32) + gets
    return close


@compiled
def find_offer(t: Tables, d: Sizes) -> I8:
    """By workload: CPU each running pod is asked for, and above it the memory it needs for that."""
    rows = d.batch * d.workloads
    offer = np.zeros(rows + 1, np.int64)
    for w in range(rows):
        if t.work_flag[W_KIND, w] == BATCH:
            share = whole(t.work[W_APPETITE, w])
        else:
            share = whole(t.work[W_LOAD, w] / max(t.work[W_READY, w], 1))
        share = min(share, LARGEST_SHARE)
        follows = whole(whole(t.work[W_MEMORY_LOAD, w]) * share / t.work[W_CPU_REQUEST, w])
        offer[w] = ((t.work[W_MEMORY_BASE, w] + follows) << 32) + share
    return offer


@compiled
def press(t: Tables, d: Sizes, asked: I8, pressure: I4) -> bool:
    """Use by node and how hard it is pressed; whether any is asked for more than it has."""
    contended = False
    for n in range(d.batch * d.nodes + 1):
        capability = whole(t.node[N_CPU, n])
        if t.node[N_FREQUENCY, n] != 1000 or t.node[N_HEALTH, n] != 1000:
            working = whole(t.node[N_FREQUENCY, n]) * t.node[N_HEALTH, n]
            capability = max(capability * working // 1_000_000, 1)
        want = asked[n] & MASK
        t.node[N_CPU_USED, n] = min(want, capability)
        t.node[N_MEMORY_USED, n] = asked[n] >> 32
        pressure[n] = min(whole(want * SHARE / capability), BUSY_SHARE)
        if want > capability:
            pressure[n] = FULL_SHARE
            contended = True
    pressure[d.batch * d.nodes] = 0
    return contended


@compiled
def water_fill(t: Tables, d: Sizes, pressure: I4, squeezed: I4) -> None:
    """Grants on contended nodes; ``squeezed`` is asked over got for those who got too little."""
    nodes = d.batch * d.nodes + 1
    total, first_sum = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    unmet_sum = np.zeros(nodes, np.int64)
    used, active_node, request = (
        t.pod[USED[d.tick % 3]],
        t.pod_wide[ACTIVE_NODE],
        t.pod[CPU_REQUEST],
    )
    crowd, count = np.empty(len(used), np.int64), 0
    for i in range(len(used)):
        squeezed[i] = 0
        if pressure[active_node[i]] == FULL_SHARE:
            crowd[count] = i
            count += 1
            total[active_node[i]] += max(whole(request[i]), 1)
    first = np.empty(count, np.int64)
    for k in range(count):
        i, n = crowd[k], active_node[crowd[k]]
        # What a contended node uses is all it can give.
        fair = t.node[N_CPU_USED, n] * max(whole(request[i]), 1) // total[n]
        first[k] = min(whole(used[i]), fair)
        first_sum[n] += first[k]
        unmet_sum[n] += used[i] - first[k]
    for k in range(count):
        i, n = crowd[k], active_node[crowd[k]]
        want, left = whole(used[i]), t.node[N_CPU_USED, n] - first_sum[n]
        more = left * (want - first[k]) // max(unmet_sum[n], 1)
        granted = min(want, first[k] + more)
        used[i] = granted
        if granted < want:
            squeezed[i] = min(want * SHARE // max(granted, 1), 2 * SHARE)


@compiled
def serve(t: Tables, d: Sizes, demand: I4, pressure: I4, squeezed: I4, finished: I8) -> int:
    """Latency by workload and batch work by pod; returns how many pods may have finished."""
    active_work, active_node = t.pod_wide[ACTIVE_WORK], t.pod_wide[ACTIVE_NODE]
    used, held = t.pod[USED[d.tick % 3]], t.pod[HELD[d.tick % 3]]
    ratio, peak = t.pod[CPU_RATIO], t.pod[PEAK]
    is_batch, remaining = t.pod[IS_BATCH], t.pod[REMAINING]
    packed = np.zeros(d.batch * d.workloads + 1, np.int64)
    done, contended = 0, len(squeezed) > 0
    for i in range(len(used)):
        busy = max(half(demand[i] * ratio[i]) >> (RATIO_BITS - 10), pressure[active_node[i]])
        if contended:
            busy = max(busy, squeezed[i])
        packed[active_work[i]] += PACKED_LATENCY[min(busy, 2 * SHARE)]
        left = remaining[i] - used[i] * is_batch[i]
        remaining[i] = left
        if held[i] > peak[i]:
            peak[i] = held[i]
        if left <= 0:
            finished[done] = i
            done += 1
    for w in range(d.batch * d.workloads + 1):
        latency(t, w, packed[w])
    return done


@compiled
def latency(t: Tables, w: int, packed: int) -> None:
    if t.work_flag[W_KIND, w] != SERVICE or t.work_flag[W_EXISTS, w] != 1:
        t.work[W_LATENCY, w] = 0
        t.work_flag[W_VIOLATION, w] = 0
        return
    plain, squares = packed & ((1 << PACK) - 1), packed >> PACK
    base, ready = whole(t.work[W_BASE_MS, w]), whole(t.work[W_READY, w])
    value = 60 * base
    if ready > 0:
        queueing = whole(base * squares / max(plain * FACTOR, 1))
        value = queueing + whole(t.work[W_NETWORK_MS, w] / ready)
    t.work[W_LATENCY, w] = value
    broken = value > t.work[W_OBJECTIVE_MS, w] or ready < t.work[W_MIN_AVAILABLE, w]
    broken = broken or (ready == 0 and t.work[W_LOAD, w] > 0)
    t.work_flag[W_VIOLATION, w] = 1 if broken else 0


@compiled
def kill_for_memory(t: Tables, d: Sizes, thrashing: I8) -> None:
    """The worst of each full node is found before anybody dies."""
    held, nobody = t.pod[HELD[d.tick % 3]], d.batch * d.nodes
    worst, full = np.full(nobody + 1, -1, np.int64), 0
    for n in range(nobody):
        full += t.node[N_MEMORY_USED, n] > t.node[N_MEMORY, n]
    if full:
        for i in range(len(held)):
            n = t.pod_wide[ACTIVE_NODE, i]
            if n == nobody or t.node[N_MEMORY_USED, n] <= t.node[N_MEMORY, n]:
                continue
            if worst[n] < 0 or is_worse(t, held, i, worst[n]):
                worst[n] = i
    for i in thrashing:
        if held[i] > t.pod[MEMORY_LIMIT, i]:
            crash(t, d, i)
    if full:
        for n in range(nobody):
            if worst[n] >= 0 and t.pod_flag[PHASE, worst[n]] == RUNNING:
                crash(t, d, worst[n])


@compiled
def is_worse(t: Tables, held: I4, i: int, other: int) -> bool:
    """Further above its request; among equals the youngest."""
    excess, least = held[i] - t.pod[MEMORY_REQUEST, i], held[other] - t.pod[MEMORY_REQUEST, other]
    return excess > least or (excess == least and t.pod_wide[UID, i] > t.pod_wide[UID, other])


# --- owners and gates


@compiled
def missing_pods(t: Tables, d: Sizes) -> int:
    """How many pods owners will create."""
    total = 0
    for w in range(d.batch * d.workloads):
        if t.work_flag[W_KIND, w] == SERVICE:
            total += max(t.work[W_DESIRED, w] - t.work[W_HAVE, w], 0)
    return total


@compiled
def reconcile(t: Tables, d: Sizes, missing: int, reborn: I8) -> None:
    """Creates first, so that the slots of the surplus are not used again in this tick."""
    slots, place, surplus = free_slots(t, missing), 0, False
    for w in range(d.batch * d.workloads):
        count = whole(t.work[W_DESIRED, w] - t.work[W_HAVE, w])
        if t.work_flag[W_KIND, w] != SERVICE or count == 0:
            continue
        if count < 0:
            surplus = True
            continue
        first, owed = whole(t.work[W_CREATED, w]), whole(t.work[W_OWED, w])
        t.work[W_CREATED, w] += count
        for within in range(count):
            i = slots[place]
            place += 1
            create(t, d, i, w, first + within)
            t.pod_flag[DOWN, i] = 1 if within < owed else 0
            t.pod_wide[AVOID, i] = t.work[W_AVOID, w]
        t.work[W_OWED, w] = max(owed - count, 0)
        t.work[W_AVOID, w] = -1
    if surplus:
        for w in range(d.batch * d.workloads):
            count = whole(t.work[W_HAVE, w] - t.work[W_DESIRED, w])
            if t.work_flag[W_KIND, w] == SERVICE and count > 0:
                remove_surplus(t, d, w, count, reborn)


@compiled
def remove_surplus(t: Tables, d: Sizes, w: int, count: int, reborn: I8) -> None:
    """Not yet running first, then the youngest."""
    for _ in range(count):
        slot = -1
        for i in range(t.pod_wide.shape[1]):
            if t.pod_wide[WORK, i] != w or t.pod_flag[PHASE, i] == TERMINATING:
                continue
            serves = t.pod_flag[PHASE, i] == RUNNING
            other = slot >= 0 and t.pod_flag[PHASE, slot] == RUNNING
            younger = slot < 0 or t.pod_wide[UID, i] > t.pod_wide[UID, slot]
            if slot < 0 or (other and not serves) or (other == serves and younger):
                slot = i
        if slot >= 0:
            terminate(t, d, slot, False, reborn)
    t.work[W_OWED, w] = 0


@compiled
def find_pending(t: Tables) -> I8:
    phase = t.pod_flag[PHASE]
    found, count = np.empty(len(phase), np.int64), 0
    for i in range(len(phase)):
        if phase[i] == PENDING:
            found[count] = i
            count += 1
    return found[:count]


@compiled
def open_gates(t: Tables, d: Sizes, pending: I8) -> None:
    """The oldest of each namespace whose gate is open, again and again up to the tick's number."""
    for _ in range(RELEASES_PER_TICK):
        oldest = np.full(d.batch * d.spaces, -1, np.int64)
        held = False
        for i in pending:
            if not t.pod_flag[GATED, i]:
                continue
            work = t.pod_wide[WORK, i]
            space = t.pod_wide[HOME, i] * d.spaces + t.work[W_SPACE, work]
            if t.space_flag[S_GATE, space] == QUEUE:
                continue
            held = True
            if oldest[space] < 0 or t.pod_wide[UID, i] < t.pod_wide[UID, oldest[space]]:
                oldest[space] = i
        if not held:
            return
        for slot in oldest:
            if slot >= 0:
                t.pod_flag[GATED, slot] = 0
                t.pod_flag[CAUSE, slot] = NO_CAUSE


# --- scheduling


@compiled
def schedule(t: Tables, d: Sizes, pending: I8) -> None:
    queue, bounds = find_queue(t, d, pending)
    if not len(queue):
        return
    hopeless = np.zeros(d.batch * d.workloads, np.int8)
    shut, values = np.empty(d.nodes, np.float64), np.empty(d.nodes, np.float64)
    for c in range(d.batch):
        begin, end = bounds[c], bounds[c + 1]
        if begin < end:
            find_shut(t, d, c, shut)
            if end - begin > 1:
                sort_queue(t, d, queue, begin, end)
            limit = max(BINDINGS_PER_TICK, t.cluster[C_NODES, c] // 4)
            for i in queue[begin : min(end, begin + limit)]:
                node = choose(t, d, i, c, hopeless, shut, values)
                if node >= 0:
                    bind(t, d, i, node)
                else:
                    give_up(t, d, i, c)


@compiled
def find_shut(t: Tables, d: Sizes, cluster: int, shut: Numbers) -> None:
    """By node of a cluster: nothing, or what keeps every score below zero."""
    for at in range(d.nodes):
        n, flag = cluster * d.nodes + at, t.node_flag
        ready = flag[N_EXISTS, n] == 1 and flag[N_READY, n] == 1
        takes = ready and flag[N_POWER, n] == AWAKE and flag[N_TAINT, n] == 0
        shut[at] = 0.0 if takes else CLOSED


@compiled
def find_queue(t: Tables, d: Sizes, pending: I8) -> tuple[I8, I8]:
    """Pods to try now, cluster by cluster, and where each cluster's begin."""
    bounds = np.zeros(d.batch + 2, np.int64)
    for i in pending:
        if is_due(t, d, i):
            bounds[t.pod_wide[HOME, i] + 2] += 1
    for c in range(2, d.batch + 2):
        bounds[c] += bounds[c - 1]
    queue = np.empty(bounds[d.batch + 1], np.int64)
    for i in pending:
        if is_due(t, d, i):
            c = t.pod_wide[HOME, i] + 1
            queue[bounds[c]] = i
            bounds[c] += 1
    return queue, bounds


@compiled
def is_due(t: Tables, d: Sizes, i: int) -> bool:
    if t.pod_flag[GATED, i]:
        return False
    tried = t.pod[TRIED, i]
    if tried < 0 or d.tick - tried >= RETRY_TICKS:
        return True
    return t.cluster[C_FREED, t.pod_wide[HOME, i]] > tried


@compiled
def sort_queue(t: Tables, d: Sizes, queue: I8, begin: int, end: int) -> None:
    """Shell's sort: queues are short, now and then a few thousand."""
    gap = 1
    while gap < (end - begin) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for place in range(begin + gap, end):
            pod, at = queue[place], place
            while at - gap >= begin and goes_before(t, d, pod, queue[at - gap]):
                queue[at] = queue[at - gap]
                at -= gap
            queue[at] = pod
        gap //= 3


@compiled
def goes_before(t: Tables, d: Sizes, a: int, b: int) -> bool:
    last_a, last_b = comes_last(t, d, a), comes_last(t, d, b)
    if last_a != last_b:
        return last_b
    rank_a = t.work[W_PRIORITY, t.pod_wide[WORK, a]]
    rank_b = t.work[W_PRIORITY, t.pod_wide[WORK, b]]
    if rank_a != rank_b:
        return rank_a > rank_b
    return t.pod_wide[UID, a] < t.pod_wide[UID, b]


@compiled
def comes_last(t: Tables, d: Sizes, i: int) -> bool:
    space = t.pod_wide[HOME, i] * d.spaces + t.work[W_SPACE, t.pod_wide[WORK, i]]
    return t.pod[IS_BATCH, i] == 1 and t.space_flag[S_GATE, space] == LAST


@compiled
def choose(
    t: Tables, d: Sizes, i: int, cluster: int, hopeless: B1, shut: Numbers, values: Numbers
) -> int:
    """The best node, or -1. Room only shrinks within a tick: what fits nowhere is not tried again.

    Clusters of up to a hundred nodes look at all of them; larger ones at enough feasible nodes,
    from where the last search ended.
    """
    work, avoid = t.pod_wide[WORK, i], t.pod_wide[AVOID, i]
    small = d.nodes <= ALL_NODES
    usual = not small or t.pod[MEMORY_REQUEST, i] == t.work[W_MEMORY_REQUEST, work]
    usual = usual and avoid < 0
    if usual and hopeless[work]:
        return -1
    count = d.nodes if small else whole(t.cluster[C_NODES, cluster])
    wanted = count if small else sample_size(count)
    at = 0 if small else whole(t.cluster[C_SAMPLE, cluster])
    base, best, best_node = cluster * d.nodes, -1.0, -1
    found = seen = 0
    while seen < count and found < wanted:
        last = min(at + max(wanted, ALL_NODES), count, at + count - seen)
        score(t, i, base, at, last, shut, values)
        while at < last and found < wanted:
            if values[at] >= 0.0 and base + at != avoid:
                found += 1
                if values[at] > best:
                    best, best_node = values[at], base + at
            seen += 1
            at += 1
        at = 0 if at == count else at
    if not small:
        t.cluster[C_SAMPLE, cluster] = at
    if best_node < 0 and usual:
        hopeless[work] = 1
    return best_node


@compiled
def sample_size(nodes: int) -> int:
    if nodes <= ALL_NODES:
        return nodes
    return max(nodes * max(50 - nodes // 125, 5) // 100, ALL_NODES)


@compiled
def score(
    t: Tables, i: int, base: int, first: int, last: int, shut: Numbers, values: Numbers
) -> None:
    """As ``fit.score`` with the tie-break added, below zero for misfits; straight, for speed."""
    node, key = t.node, t.pod_key[KEY, i]
    cpu, memory = t.pod[CPU_REQUEST, i], t.pod[MEMORY_REQUEST, i]
    for at in range(first, last):
        n = base + at
        all_cpu, all_memory = float(node[N_CPU, n]), float(node[N_MEMORY, n])
        want_cpu = float(node[N_CPU_REQUESTED, n] + cpu)
        want_memory = float(node[N_MEMORY_REQUESTED, n] + memory)
        free_cpu = np.floor(100.0 * (all_cpu - want_cpu) / all_cpu)
        free_memory = np.floor(100.0 * (all_memory - want_memory) / all_memory)
        cpu_share = np.floor(1000.0 * want_cpu / all_cpu)
        memory_share = np.floor(1000.0 * want_memory / all_memory)
        lean = np.floor(abs(cpu_share - memory_share) * 0.05)
        value = (np.floor((free_cpu + free_memory) * 0.5) - lean + 100.0) * SCALE
        value += float(tie_word(key, at)) + shut[at]
        values[at] = MISFIT if min(free_cpu, free_memory) < 0.0 else value
    zone = t.work[W_ZONE, t.pod_wide[WORK, i]]
    if zone >= 0:
        for at in range(first, last):
            if node[N_ZONE, base + at] != zone:
                values[at] = MISFIT


@compiled
def give_up(t: Tables, d: Sizes, i: int, cluster: int) -> None:
    t.pod[TRIED, i] = d.tick
    cause = NO_ROOM
    for n in range(cluster * d.nodes, (cluster + 1) * d.nodes):
        if t.node_flag[N_POWER, n] == BOOTING:
            cause = NODE_COMES
    if t.work[W_ZONE, t.pod_wide[WORK, i]] == NOWHERE:
        cause = NO_MATCH
    t.pod_flag[CAUSE, i] = cause


# --- the bill


@compiled
def settle(t: Tables, d: Sizes, pending: I8) -> None:
    price, carbon = np.empty(d.batch * d.zones, np.int64), np.empty(d.batch * d.zones, np.int64)
    for c in range(d.batch):
        day = whole(t.cluster[C_DAY, c])
        noon, light = whole(DAY[(day + 950) % 1000]), whole(DAY[day])
        for z in range(c * d.zones, (c + 1) * d.zones):
            price[z] = t.zone[Z_PRICE, z] * (800 + noon * 2 // 5) // 1000
            carbon[z] = t.zone[Z_CARBON, z] * (1200 - light * 2 // 5) // 1000
        energy = cost = grams = whole(0)
        for n in range(c * d.nodes, (c + 1) * d.nodes):
            power, z = power_of(t, n), t.node_wide[N_PLACE, n]
            t.node[N_POWER_MW, n] = power
            energy += power
            cost += power * price[z]
            grams += power * carbon[z]
        t.cluster_wide[C_ENERGY, c] += energy
        t.cluster_wide[C_COST, c] += cost
        t.cluster_wide[C_CARBON, c] += grams
    count_violations(t, d, pending)


@compiled
def power_of(t: Tables, n: int) -> int:
    """Milliwatts."""
    state, idle = t.node_flag[N_POWER, n], whole(t.node[N_IDLE_MW, n])
    if state != AWAKE:
        if state == DEAD or t.node_flag[N_EXISTS, n] == 0:
            return 0
        if state == ASLEEP:
            return ASLEEP_MW
        if state == BOOTING:
            return idle * BOOT_PERMILLE // 1000
    dynamic = whole(t.node[N_CPU_USED, n]) * t.node[N_CPU_RATE, n] >> 10
    frequency = whole(t.node[N_FREQUENCY, n])
    if frequency != 1000:
        dynamic = dynamic * (frequency * frequency) // 1_000_000
    return idle + dynamic + (whole(t.node[N_MEMORY_USED, n]) * t.node[N_MEMORY_RATE, n] >> 10)


@compiled
def count_violations(t: Tables, d: Sizes, pending: I8) -> None:
    for c in range(d.batch):
        for w in range(c * d.workloads, (c + 1) * d.workloads):
            if t.work_flag[W_VIOLATION, w]:
                t.cluster_wide[C_VIOLATION, c] += 1000
    for i in pending:
        if t.pod_flag[PHASE, i] != PENDING:
            continue  # bound in this tick
        c = t.pod_wide[HOME, i]
        t.cluster_wide[C_WAITING, c] += 1
        if t.pod[IS_BATCH, i] == 1 and d.tick - t.pod[CREATED, i] > WAIT_GRACE_TICKS:
            t.cluster_wide[C_VIOLATION, c] += t.cluster[C_LATENESS, c]
    down, deadline = t.pod_flag[DOWN], t.pod[DEADLINE]
    for i in range(len(down)):
        if down[i]:
            t.cluster_wide[C_FAILED, t.pod_wide[HOME, i]] += 1
    for i in range(len(deadline)):
        if deadline[i] < d.tick and t.pod_flag[PHASE, i] != PENDING:
            c = t.pod_wide[HOME, i]
            t.cluster_wide[C_VIOLATION, c] += t.cluster[C_LATENESS, c]


# --- one tick, in the three parts between which the caller makes room or lets others act


@compiled
def prepare(t: Tables, d: Sizes, table: U4, count: I4, reborn: I8) -> int:
    """Machines, timers, offered load, arrivals; returns how many pods will be admitted."""
    advance(t, d)
    time_comes(t, d, reborn)
    offer_load(t, d)
    return arrivals(t, d, table, count)


@compiled
def use(t: Tables, d: Sizes, count: I4, admitted: int) -> None:
    """Arrivals are admitted, and everybody works."""
    admit(t, d, count, admitted)
    consume(t, d)


@compiled
def conclude(t: Tables, d: Sizes, missing: int, reborn: I8) -> None:
    """Owners, drains, gates, the scheduler and the bill."""
    reconcile(t, d, missing, reborn)
    drain(t, d, reborn)
    pending = find_pending(t)
    open_gates(t, d, pending)
    schedule(t, d, pending)
    settle(t, d, pending)


class CompiledTick:
    """The rules as compiled loops."""

    def live(self, s: State, arriving: I4) -> None:
        reborn = _room_for_jobs(s)
        admitted = prepare(s.tables, _sizes(s), curves.poisson_table(), arriving, reborn)
        _remember(s, _oldest_first(reborn))
        pods.make_room(s, admitted)
        use(s.tables, _sizes(s), arriving, admitted)

    def settle(self, s: State) -> None:
        pods.recreate(s)
        missing = missing_pods(s.tables, _sizes(s))
        pods.make_room(s, missing)
        reborn = _room_for_jobs(s)
        conclude(s.tables, _sizes(s), missing, reborn)
        _remember(s, reborn[1 : reborn[0, 0] + 1])


def _sizes(s: State) -> Sizes:
    return Sizes(s.tick, s.batch, s.nodes, s.workloads, s.spaces, s.zones)


def _room_for_jobs(s: State) -> I8:
    """One row for the number of jobs to start over, then one for each that may come."""
    jobs = np.empty((len(s.uid) + 1, 7), dtype=np.int64)
    jobs[0, 0] = 0
    return jobs


def _oldest_first(reborn: I8) -> I8:
    """By cluster and age: these ended at the same time."""
    rows = reborn[1 : reborn[0, 0] + 1]
    oldest: I8 = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    return oldest


def _remember(s: State, rows: I8) -> None:
    s.reborn += [(w, key, made, due, down) for w, key, made, due, down in rows[:, 2:].tolist()]
