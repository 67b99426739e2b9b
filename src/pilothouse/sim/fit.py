# SPDX-License-Identifier: Apache-2.0
"""How well a pod fits a node: the filters and scores of the scheduler, for many at once.

Scores are LeastAllocated and BalancedAllocation, both 0..100 in integers (upstream computes the
latter in floating point; ours rounds shares to per mille first). Room is an array of
(.., columns, nodes) with the columns CPU, memory, what is requested of both, and zone.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pilothouse.sim.randomness import GOLDEN, SECOND
from pilothouse.sim.state import I4, I8, U4, State

CLOSED = -(1 << 30)  # the CPU of a node that takes no pods: it looks full
MISFIT = -float(1 << 33)  # stays below zero whatever tie-break is added
SCALE = float(1 << 32)  # scores lie above the tie-break

Scores: TypeAlias = NDArray[np.float64]


def room_of(s: State, open_nodes: NDArray[np.bool_]) -> I4:
    """(columns, nodes of all clusters); closed nodes have no room."""
    columns = (s.n_cpu, s.n_memory, s.n_cpu_requested, s.n_memory_requested, s.n_zone)
    room = np.stack([column[:-1] for column in columns])
    room[0, ~open_nodes] = CLOSED
    return room


def score(both: I4, zone: I4, room: I4) -> Scores:
    """Score of each node for each pod, times ``SCALE``; ``MISFIT`` where it does not fit.

    ``both`` is (pods, 2), CPU and memory asked for; ``room`` is (pods, columns, nodes). Divisions
    are made in doubles and cut: exact, because the operands are far below 2**53.
    """
    capacity = room[:, 0:2]
    after = room[:, 2:4] + both[:, :, None]
    free = capacity - after
    misfit = (free[:, 0] | free[:, 1]) < 0
    if (zone >= 0).any():
        misfit |= (zone[:, None] >= 0) & (room[:, 4] != zone[:, None])
    whole = capacity.astype(np.float64)
    left = free * 100.0
    left /= whole
    np.floor(left, out=left)
    taken = after * 1000.0
    taken /= whole
    np.floor(taken, out=taken)
    lean = np.abs(taken[:, 0] - taken[:, 1])
    lean *= 0.05
    total: Scores = left[:, 0] + left[:, 1]
    total *= 0.5
    np.floor(total, out=total)
    total -= np.floor(lean, out=lean)
    total += 100.0
    total *= SCALE
    total[misfit] = MISFIT
    return total


def score_one(cpu: int, memory: int, zone: int, cells: list[int]) -> float:
    """The scalar twin of ``score``: one pod, one node's column of the room."""
    whole_cpu, whole_memory, taken_cpu, taken_memory, node_zone = cells
    cpu += taken_cpu
    memory += taken_memory
    if cpu > whole_cpu or memory > whole_memory or (zone >= 0 and zone != node_zone):
        return MISFIT
    left = (whole_cpu - cpu) * 100 // whole_cpu + (whole_memory - memory) * 100 // whole_memory
    lean = abs(cpu * 1000 // whole_cpu - memory * 1000 // whole_memory)
    return SCALE * (left // 2 + 100 - lean // 20)


def tie_word(key: U4, places: I8) -> U4:
    """The draw that decides among equal nodes: one round of mixing is enough for that."""
    word = key + (places + 1).astype(np.uint32) * np.uint32(GOLDEN)
    word ^= word >> np.uint32(15)
    word *= np.uint32(SECOND)
    return word
