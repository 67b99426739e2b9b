# SPDX-License-Identifier: Apache-2.0
"""How well a pod fits a node: the filters and scores of the scheduler, for many at once.

Scores are LeastAllocated and BalancedAllocation, both 0..100 in integers (upstream computes the
latter in floating point; ours rounds shares to per mille first). Both are quotients of something
linear in what is requested, so a node is kept as four dividends over four divisors:

    100 x free CPU, 100 x free memory, 1000 x requested CPU, 1000 x requested memory

over its CPU and memory, and a pod as the four numbers it adds to them. Everything is a whole
number in a double: divisions that are cut are exact, because operands are far below 2**53.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pilothouse.sim.randomness import GOLDEN, SECOND
from pilothouse.sim.state import I4, I8, U4, State

CLOSED = -float(1 << 50)  # the free CPU of a node that takes no pods
MISFIT = -float(1 << 33)  # stays below zero whatever tie-break is added
SCALE = float(1 << 32)  # scores lie above the tie-break

Numbers: TypeAlias = NDArray[np.float64]


def room_of(s: State, open_nodes: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """Dividends and divisors of all nodes, (4, nodes) each; closed nodes have no room."""
    dividend, divisor = np.empty((4, s.nobody_node)), np.empty((4, s.nobody_node))
    columns = ((s.n_cpu, s.n_cpu_requested), (s.n_memory, s.n_memory_requested))
    for place, (whole, taken) in enumerate(columns):
        divisor[place] = divisor[place + 2] = whole[:-1]
        dividend[place + 2] = taken[:-1]
        np.subtract(divisor[place], dividend[place + 2], out=dividend[place])
    dividend[0:2] *= 100.0
    dividend[2:4] *= 1000.0
    dividend[0, ~open_nodes] = CLOSED
    return dividend, divisor


def ask_of(cpu: I4, memory: I4) -> Numbers:
    """(pods, 4): what a pod adds to the dividends of the node that takes it."""
    ask = np.stack((cpu, memory, cpu, memory), axis=1, dtype=np.float64)
    ask *= (-100.0, -100.0, 1000.0, 1000.0)
    return ask


def score(ask: Numbers, dividend: Numbers, divisor: Numbers) -> Numbers:
    """Score of nodes for pods, times ``SCALE``, and ``MISFIT`` where requests do not fit.

    ``ask`` is (pods, 4), the rest (pods, 4, nodes); gives (pods, nodes).
    """
    after = dividend + ask[:, :, None]
    after /= divisor
    np.floor(after, out=after)
    least, lean = after[:, 0] + after[:, 1], after[:, 2] - after[:, 3]
    least *= 0.5
    np.floor(least, out=least)
    np.abs(lean, out=lean)
    lean *= 0.05
    np.floor(lean, out=lean)
    least -= lean
    least += 100.0
    least *= SCALE
    least[np.minimum(after[:, 0], after[:, 1]) < 0] = MISFIT
    return least


def score_one(ask: list[float], dividend: list[float], divisor: list[float]) -> float:
    """The scalar twin of ``score``: one pod on one node."""
    cpu = (dividend[0] + ask[0]) // divisor[0]
    memory = (dividend[1] + ask[1]) // divisor[1]
    if cpu < 0 or memory < 0:
        return MISFIT
    lean = (dividend[2] + ask[2]) // divisor[2] - (dividend[3] + ask[3]) // divisor[3]
    return SCALE * ((cpu + memory) // 2 + 100 - abs(lean) // 20)


def tie_word(key: U4, places: I8) -> U4:
    """The draw that decides among equal nodes: one round of mixing is enough for that."""
    word = key + (places + 1).astype(np.uint32) * np.uint32(GOLDEN)
    word ^= word >> np.uint32(15)
    word *= np.uint32(SECOND)
    return word
