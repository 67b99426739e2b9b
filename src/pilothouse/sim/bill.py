# SPDX-License-Identifier: Apache-2.0
"""What a tick costs: energy, price, carbon, failed pods, broken objectives, waiting work.

All energy is modelled: idle power plus a part for CPU and a part for memory by the machine's
profile. A lower clock lowers the CPU part with its square. Violations are counted in per mille of
a workload-tick: a whole one for a service outside its objective, a stated share for each batch pod
that waits beyond its grace or runs beyond its deadline.
"""

from __future__ import annotations

import numpy as np

from pilothouse.domain import Toll
from pilothouse.sim.blueprint import TICK_SECONDS
from pilothouse.sim.curves import day_table
from pilothouse.sim.pods import WAIT_GRACE_TICKS
from pilothouse.sim.state import (
    ASLEEP,
    BOOTING,
    DEAD,
    I4,
    I8,
    PENDING,
    State,
)
from pilothouse.sim.usage import day_phase, quotient

ASLEEP_MW = 5_000
BOOT_PERMILLE = 1_300  # of idle power while booting
_DAY = day_table()


def settle(s: State) -> None:
    """Add this tick to the cumulative tolls."""
    _energy(s)
    _violations(s)


def zone_price(s: State) -> I4:
    """Micros per kWh by zone now: dearest at noon plus a bit."""
    level = _DAY[day_phase(s, 950)]
    return s.z_price * (800 + np.repeat(level, s.zones) * 2 // 5) // 1000


def zone_carbon(s: State) -> I4:
    """Grams per kWh by zone now: the sun helps at noon."""
    level = _DAY[day_phase(s)]
    return s.z_carbon * (1200 - np.repeat(level, s.zones) * 2 // 5) // 1000


def _energy(s: State) -> None:
    cpu, memory = s.n_cpu_used.astype(np.int64), s.n_memory_used.astype(np.int64)
    clock = s.n_frequency.astype(np.int64) ** 2
    dynamic = quotient(quotient(s.n_cpu_mw * cpu, s.n_cpu) * clock, 1_000_000)
    power = s.n_idle_mw + dynamic + quotient(s.n_memory_mw * memory, s.n_memory)
    power = np.where(s.n_power == BOOTING, s.n_idle_mw * BOOT_PERMILLE // 1000, power)
    power = np.where(s.n_power == ASLEEP, ASLEEP_MW, power)
    off = (s.n_power == DEAD) | (s.n_exists == 0)
    power = np.where(off, 0, power)
    s.n_power_mw[:] = power
    rows = slice(0, s.nobody_node)
    by_cluster: I8 = power[rows].reshape(s.batch, s.nodes).astype(np.int64)
    first = np.repeat(np.arange(s.batch), s.nodes) * s.zones
    zone = first + np.maximum(s.n_zone[rows], 0)
    s.c_energy += by_cluster.sum(axis=1)
    s.c_cost += (by_cluster * zone_price(s)[zone].reshape(by_cluster.shape)).sum(axis=1)
    s.c_carbon += (by_cluster * zone_carbon(s)[zone].reshape(by_cluster.shape)).sum(axis=1)


def _violations(s: State) -> None:
    pending = np.flatnonzero(s.phase == PENDING)
    s.c_waiting += np.bincount(pending // s.pods, minlength=s.batch)
    down = np.flatnonzero(s.down.view(np.bool_))
    s.c_failed += np.bincount(down // s.pods, minlength=s.batch)
    broken = np.flatnonzero(s.w_violation.view(np.bool_))
    slow = pending[s.is_batch[pending] == 1]
    slow = slow[s.tick - s.created[slow] > WAIT_GRACE_TICKS]
    late = np.flatnonzero(s.deadline < s.tick)
    late = late[s.phase[late] != PENDING]
    both = np.bincount(np.concatenate((slow, late)) // s.pods, minlength=s.batch)
    s.c_violation += 1000 * np.bincount(broken // s.workloads, minlength=s.batch)
    s.c_violation += both * s.c_lateness


def toll(s: State, cluster: int) -> Toll:
    """The cumulative toll of one cluster."""
    watt_seconds = TICK_SECONDS / 1000
    per_kwh = watt_seconds / 3_600_000
    return Toll(
        failed_pod_seconds=float(s.c_failed[cluster]) * TICK_SECONDS,
        violation_seconds=float(s.c_violation[cluster]) * TICK_SECONDS / 1000,
        waiting_pod_seconds=float(s.c_waiting[cluster]) * TICK_SECONDS,
        energy_joules=float(s.c_energy[cluster]) * watt_seconds,
        energy_cost_micros=float(s.c_cost[cluster]) * per_kwh,
        carbon_grams=float(s.c_carbon[cluster]) * per_kwh,
    )
