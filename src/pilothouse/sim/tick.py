# SPDX-License-Identifier: Apache-2.0
"""One tick of all clusters of a batch, in the two halves between which other controllers act.

There are two ways to take it, bit for bit the same: on arrays here, and as compiled loops in
``kernels``. Arrays need nothing and start at once; compiled loops are several times as fast on a
batch, need the extra ``fast`` and take a second to load, more when they are compiled for the first
time. So one cluster, as the loop steps it, stays on arrays, and batches are compiled where they can
be.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Protocol

import numpy as np

from pilothouse.sim import bill, machines, placement, pods, replicas, usage
from pilothouse.sim.state import FAILED, I4, PENDING, STARTING, TERMINATING, State

WORTH_COMPILING = 16  # clusters; loading takes as long as some thousand ticks of so many on arrays


class Tick(Protocol):
    """The rules of a tick; it keeps nothing but scratch."""

    def live(self, s: State, arriving: I4) -> None:
        """Machines, timers, load, arrivals (those given are added), use of CPU and memory."""

    def settle(self, s: State) -> None:
        """Owners, drains, gates, the scheduler, the bill."""


class ArrayTick:
    """The rules on NumPy arrays."""

    def __init__(self) -> None:
        self._buffers = usage.Buffers(0)

    def live(self, s: State, arriving: I4) -> None:
        machines.advance(s)
        _time_comes(s)
        usage.offer_load(s)
        replicas.admit(s, usage.arrivals(s) + arriving)
        if len(self._buffers.demand) != len(s.uid):
            self._buffers = usage.Buffers(len(s.uid))
        usage.consume(s, self._buffers)
        usage.finish_batch(s, self._buffers)

    def settle(self, s: State) -> None:
        replicas.reconcile(s)
        machines.drain(s)
        pods.open_gates(s)
        placement.schedule(s)
        bill.settle(s)


def can_compile() -> bool:
    """Whether the extra ``fast`` is installed."""
    return find_spec("numba") is not None


def suited(clusters: int) -> Tick:
    """The tick for a batch of this size on this machine."""
    if clusters < WORTH_COMPILING or not can_compile():
        return ArrayTick()
    from pilothouse.sim.kernels import CompiledTick

    return CompiledTick()


def _time_comes(s: State) -> None:
    """Pods whose timer ends: started, back from back-off, terminated, given up, withdrawn."""
    due = np.flatnonzero(s.timer == s.tick)
    if not len(due):
        return
    phase = s.phase[due]
    pending = due[phase == PENDING]
    starting = due[phase == STARTING]
    failed = due[phase == FAILED]
    lost = failed[s.lost[failed] == 1]
    again = failed[s.lost[failed] == 0]
    ended = due[phase == TERMINATING]
    if len(pending):
        pods.remove(s, pending)  # their owner lost patience; everything they asked for was late
    if len(starting):
        pods.run(s, starting)
    if len(again):
        pods.start(s, again)
    if len(lost):
        pods.terminate(s, lost, wanted=True)
        pods.erase(s, lost)
    if len(ended):
        pods.erase(s, ended)
