# SPDX-License-Identifier: Apache-2.0
"""Nodes: precursors and faults, death and repair, boot, drain and sleep.

A degrading node shows it: corrected errors and heartbeat lag rise and part of the CPU goes away,
minutes before it dies. A false alarm rises as well and goes away again. A sudden death shows
nothing. A dead node is reported NotReady after 40 s; it comes back after its repair.
"""

from __future__ import annotations

import numpy as np

from pilothouse.sim import pods
from pilothouse.sim.blueprint import TICK_SECONDS
from pilothouse.sim.randomness import draws
from pilothouse.sim.state import (
    ASLEEP,
    AWAKE,
    BOOTING,
    DEAD,
    DRAINING,
    I8,
    NEVER,
    RUNNING,
    TERMINATING,
    State,
)
from pilothouse.sim.timeline import Fault

NOT_READY_TICKS = 40 // TICK_SECONDS
ERRORS_AT_DEATH = 42  # per minute
LAG_AT_DEATH_MS = 24_000
HEALTH_LOST = 400  # per mille of the CPU gone at the end of a degradation
EVICTIONS_PER_TICK = 2  # of one drain


def inflict(s: State, node: int, fault: int, ticks: int, height: int) -> None:
    """A fault begins; a machine that is dead, asleep or already failing is left alone."""
    if s.n_power[node] not in (AWAKE, DRAINING) or s.n_fault[node] != Fault.NONE:
        return
    s.n_fault[node] = fault
    s.n_fault_tick[node] = s.tick
    s.n_fault_ticks[node] = max(ticks, 1)
    s.n_fault_height[node] = height


def advance(s: State) -> None:
    """One tick of every machine."""
    _show_precursors(s)
    failing = np.flatnonzero(s.n_fault)
    if len(failing):
        _advance_faults(s, failing)
    s.n_ready[s.n_dead_tick == s.tick - NOT_READY_TICKS] = 0
    repaired = np.flatnonzero(s.n_repair_tick == s.tick)
    if len(repaired):
        s.n_repair_tick[repaired] = s.n_dead_tick[repaired] = NEVER
        wake(s, repaired)
    awake = np.flatnonzero(s.n_wake_tick == s.tick)
    if len(awake):
        s.n_wake_tick[awake] = NEVER
        s.n_power[awake] = AWAKE
        s.n_ready[awake] = 1
        s.n_idle_tick[awake] = s.tick
        s.c_freed[awake // s.nodes] = s.tick


def _show_precursors(s: State) -> None:
    """What a healthy machine shows: a stray error now and then, heartbeats nearly on time."""
    noise = draws(s.n_key, s.tick)
    s.n_errors[:] = (noise >> np.uint32(24)) > np.uint32(243)
    s.n_lag_ms[:] = 100 + (noise & np.uint32(511)).astype(np.int32)
    s.n_health[:] = 1000


def _advance_faults(s: State, i: I8) -> None:
    age = s.tick - s.n_fault_tick[i]
    length = s.n_fault_ticks[i]
    kind = s.n_fault[i]
    progress = np.minimum(1000 * age // length, 1000)
    ebb = np.minimum(progress, 1000 - progress) * 2  # a false alarm rises, then goes away
    alarm = kind == Fault.FALSE_ALARM
    level = np.where(alarm, ebb * s.n_fault_height[i] // 1000, progress)
    s.n_errors[i] += ERRORS_AT_DEATH * level // 1000
    s.n_lag_ms[i] += LAG_AT_DEATH_MS * level // 1000
    s.n_health[i] = 1000 - HEALTH_LOST * level // 1000
    over = (age >= length) | (kind == Fault.SUDDEN)
    s.n_fault[i[over & alarm]] = Fault.NONE
    for node in i[over & ~alarm].tolist():
        kill(s, node)


def kill(s: State, node: int) -> None:
    """The machine stops: its pods are lost at once, the cluster notices later."""
    cluster = node // s.nodes
    s.n_fault[node] = Fault.NONE
    s.n_power[node] = DEAD
    s.n_drain[node] = 0
    s.n_wake_tick[node] = NEVER
    s.n_dead_tick[node] = s.tick
    # The length of the repair is keyed by the machine and how often it died.
    s.n_deaths[node] += 1
    word = int(draws(s.n_key[node : node + 1], -int(s.n_deaths[node]))[0])
    low, high = int(s.c_repair_low[cluster]), int(s.c_repair_high[cluster])
    s.n_repair_tick[node] = s.tick + low + (word * (high - low + 1) >> 32)
    pods.lose(s, np.flatnonzero(s.node == node))


def wake(s: State, i: I8) -> None:
    """Power on: the machine takes part after its boot."""
    s.n_power[i] = BOOTING
    s.n_ready[i] = 0
    s.n_drain[i] = 0
    s.n_frequency[i] = 1000
    s.n_wake_tick[i] = s.tick + s.n_boot_ticks[i]


def sleep(s: State, node: int) -> None:
    """Power off an empty machine."""
    s.n_power[node] = ASLEEP
    s.n_ready[node] = 0
    s.n_errors[node] = s.n_lag_ms[node] = 0
    s.n_fault[node] = Fault.NONE


def drain(s: State) -> None:
    """Evict from draining nodes, oldest pods first, as disruption budgets allow."""
    for node in np.flatnonzero((s.n_drain > 0) & (s.n_power == DRAINING)).tolist():
        on_node = np.flatnonzero(s.node == node)
        on_node = on_node[np.argsort(s.uid[on_node])]
        evicted = 0
        for slot in on_node.tolist():
            if evicted == EVICTIONS_PER_TICK:
                break
            if s.w_evictable[s.work[slot]] and s.phase[slot] != TERMINATING:
                evicted += evict(s, slot) == ""
        if not len(on_node) and s.n_drain[node] == 2:
            sleep(s, node)


def evict(s: State, slot: int) -> str:
    """Evict one pod if its disruption budget allows; otherwise say why not."""
    work = int(s.work[slot])
    ready, least = int(s.w_ready[work]), int(s.w_min_available[work])
    if s.phase[slot] == RUNNING and ready - 1 < least:
        return f"disruption budget: ready {ready}, min {least}"
    pods.terminate(s, np.array([slot]), wanted=True)
    return ""
