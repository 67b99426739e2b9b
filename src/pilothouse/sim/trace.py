# SPDX-License-Identifier: Apache-2.0
"""Arrivals replayed from a table instead of drawn: one row per batch pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pilothouse.errors import InvalidSetting
from pilothouse.sim.state import I8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """When batch pods arrive, and of which workload; replaces the drawn arrivals of a cluster."""

    tick: I8  # (pods,) 1 is the first tick
    workload: I8  # (pods,) row of a batch workload in the blueprint

    def __post_init__(self) -> None:
        if len(self.tick) != len(self.workload):
            raise InvalidSetting(
                f"A trace needs as many ticks as workloads, but got {len(self.tick)} and "
                f"{len(self.workload)}."
            )


class Replay:
    """The traces of a batch, merged and sorted by tick; what is due is a function of the tick."""

    def __init__(self, traces: Sequence[Trace | None], workloads: int) -> None:
        given = [(c, t) for c, t in enumerate(traces) if t is not None]
        none = np.zeros(0, dtype=np.int64)
        ticks = np.concatenate([none, *(t.tick for _, t in given)])
        rows = np.concatenate([none, *(t.workload + c * workloads for c, t in given)])
        order = np.argsort(ticks, kind="stable")
        self._ticks, self._rows = ticks[order].astype(np.int64), rows[order].astype(np.int64)

    def due(self, tick: int) -> I8:
        """Workload rows of the pods that arrive at this tick, one entry each."""
        first, last = np.searchsorted(self._ticks, [tick, tick + 1])
        return self._rows[first:last]
