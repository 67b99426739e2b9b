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
    AWAKE,
    BOOTING,
    DEAD,
    I4,
    PENDING,
    State,
)

ASLEEP_MW = 5_000
BOOT_PERMILLE = 1_300  # of idle power while booting
_DAY = day_table()


def settle(s: State) -> None:
    """Add this tick to the cumulative tolls."""
    _energy(s)
    _violations(s)


def zone_price(s: State) -> I4:
    """Micros per kWh by zone now: dearest at noon plus a bit."""
    level = _DAY[(s.c_day + 950) % 1000]
    return s.z_price * (800 + np.repeat(level, s.zones) * 2 // 5) // 1000


def zone_carbon(s: State) -> I4:
    """Grams per kWh by zone now: the sun helps at noon."""
    level = _DAY[s.c_day]
    return s.z_carbon * (1200 - np.repeat(level, s.zones) * 2 // 5) // 1000


def _energy(s: State) -> None:
    dynamic = s.n_cpu_used * s.n_cpu_rate >> 10
    slow = np.flatnonzero(s.n_frequency != 1000)
    dynamic[slow] = dynamic[slow] * s.n_frequency[slow].astype(np.int64) ** 2 // 1_000_000
    power = s.n_idle_mw + dynamic + (s.n_memory_used * s.n_memory_rate >> 10)
    odd = np.flatnonzero(s.n_power != AWAKE)
    state = s.n_power[odd]
    special = np.where(state == BOOTING, s.n_idle_mw[odd] * BOOT_PERMILLE // 1000, power[odd])
    special = np.where(state == ASLEEP, ASLEEP_MW, special)
    power[odd] = np.where((state == DEAD) | (s.n_exists[odd] == 0), 0, special)
    s.n_power_mw[:] = power
    by_zone = np.bincount(s.n_place[:-1], power[:-1], minlength=len(s.z_price)).astype(np.int64)
    shape = (s.batch, s.zones)
    s.c_energy += by_zone.reshape(shape).sum(axis=1)
    s.c_cost += (by_zone * zone_price(s)).reshape(shape).sum(axis=1)
    s.c_carbon += (by_zone * zone_carbon(s)).reshape(shape).sum(axis=1)


def _violations(s: State) -> None:
    pending = np.flatnonzero(s.phase == PENDING)
    s.c_waiting += np.bincount(s.home[pending], minlength=s.batch)
    down = np.flatnonzero(s.down.view(np.bool_))
    s.c_failed += np.bincount(s.home[down], minlength=s.batch)
    broken = np.flatnonzero(s.w_violation.view(np.bool_))
    slow = pending[s.is_batch[pending] == 1]
    slow = slow[s.tick - s.created[slow] > WAIT_GRACE_TICKS]
    late = np.flatnonzero(s.deadline < s.tick)
    late = late[s.phase[late] != PENDING]
    both = np.bincount(s.home[np.concatenate((slow, late))], minlength=s.batch)
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
