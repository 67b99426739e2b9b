# SPDX-License-Identifier: Apache-2.0
"""Curves as integer tables, so that the step itself only adds, multiplies, shifts and looks up.

Shares are in 1/1024 here (a shift instead of a division); latency factors are in 1/16.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

SHARE = 1024  # one whole, in the unit of utilization
KNEE = 973  # 95 %: beyond it the waiting time of an open queue explodes, ours grows linearly
FACTOR = 16  # one times the base latency, in the unit of latency factors
PACK = 22  # bits kept for the plain sum below the sum of squares
RATE_UNIT = 64  # arrival rates are multiples of 1/64 per tick
RATE_LEVELS = 1024
ARRIVALS_MAX = 48  # arrivals of one workload in one tick; beyond lies less than 1e-9 at 16 per tick


def latency_factor(share: int) -> int:
    """Waiting and service time over service time alone, M/M/1 up to the knee, then a clipped line.

    The line stands for time-outs: at twice the capacity sixty times the base latency is reached.
    """
    if share < KNEE:
        return FACTOR * SHARE // (SHARE - share)
    return min(320 + (share - KNEE) * 640 // 1075, 960)


def packed_latency_table() -> NDArray[np.float64]:
    """By utilization: the factor's square and the factor, packed into one exact double.

    Summing the packed numbers sums both at once. Their ratio is the contraharmonic mean, which
    stands for the 95th percentile over replicas: one bad replica in eight shows.
    """
    factors = [latency_factor(share) for share in range(2 * SHARE + 1)]
    return np.array([float((f * f << PACK) + f) for f in factors])


def day_level(phase: int) -> int:
    """A smooth daily curve: 0 at phase 0 (night), 1000 at phase 500 (noon), 0 again at 1000."""
    x = phase * 2 if phase <= 500 else (1000 - phase) * 2
    return x * x * (3000 - 2 * x) // 1_000_000


def day_table() -> NDArray[np.int32]:
    """``day_level`` for every phase."""
    return np.array([day_level(phase) for phase in range(1001)], dtype=np.int32)


@cache
def poisson_table() -> NDArray[np.uint32]:
    """Row r: 32-bit thresholds of the cumulative Poisson distribution at r/64 arrivals per tick.

    The number of arrivals is the number of thresholds below a draw. Approximated:
    the rate is rounded down to 1/64 and the tail beyond ``ARRIVALS_MAX`` is cut.
    """
    table = np.empty((RATE_LEVELS, ARRIVALS_MAX), dtype=np.uint32)
    for level in range(RATE_LEVELS):
        rate = level / RATE_UNIT
        term = math.exp(-rate)
        total = 0.0
        for count in range(ARRIVALS_MAX):
            total += term
            term *= rate / (count + 1)
            table[level, count] = min(int(total * 4294967296.0), 4294967295)
    table[0] = 4294967295
    return table
