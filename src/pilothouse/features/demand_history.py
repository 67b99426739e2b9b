# SPDX-License-Identifier: Apache-2.0
"""CPU demand of nodes and workloads over time, as the steps a demand forecaster looks at.

A step is the mean of the samples of one stretch of time; stretches end at the newest sample, so
the newest step is as fresh as the snapshot. Training walks through recorded or simulated snapshots
with this very class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import Power, Snapshot
from pilothouse.domain.snapshot import Uids
from pilothouse.features.demand import workload_demand_millicores
from pilothouse.features.live import Ring
from pilothouse.features.series import HISTORY, live_features

Matrix = NDArray[np.float32]
Column = NDArray[np.float32]
SCOPES = ("nodes", "workloads")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandRows:
    """What is seen of every row of one table."""

    uid: Uids
    features: Matrix  # (rows, LIVE)
    level: Column  # millicores; what the features are relative to
    now: Column  # the newest step, millicores; NaN where unknown
    steps: NDArray[np.int64]  # how many steps are known


class DemandHistory:
    """Steps of both tables; a clock that went back or changed its pace starts anew."""

    def __init__(self, step_seconds: int) -> None:
        self._step_seconds = step_seconds
        self._forget()

    def _forget(self) -> None:
        self._at: int | None = None
        self._length = 0
        self._rings = {scope: Ring(1, 1) for scope in SCOPES}

    def see(self, snapshot: Snapshot) -> None:
        """Take in the next snapshot; the first one only tells the time."""
        if self._at is not None and snapshot.taken_seconds < self._at:
            self._forget()
        before, self._at = self._at, snapshot.taken_seconds
        if before is None or before == self._at:
            return
        length = max(1, round(self._step_seconds / (self._at - before)))
        if length != self._length:
            self._length = length
            self._rings = {scope: Ring(1, HISTORY * length) for scope in SCOPES}
        self._sample(snapshot)

    def _sample(self, snapshot: Snapshot) -> None:
        nodes, workloads = snapshot.nodes, snapshot.workloads
        works = (nodes.power == Power.AWAKE) & (nodes.ready == 1)
        used = np.where(works, nodes.cpu_used_millicores, np.float32(np.nan))
        self._rings["nodes"].take(nodes.uid, [used], ~works)
        wanted = workload_demand_millicores(snapshot)
        self._rings["workloads"].take(workloads.uid, [wanted], np.zeros(len(workloads), bool))

    def newest(self, scope: str) -> tuple[Uids, Column]:
        """The newest step of one table's rows, millicores; NaN where unknown."""
        ring = self._rings[scope]
        return ring.uid, ring.windows(0, max(self._length, 1), 1)[:, 0]

    def rows(self, scope: str) -> DemandRows:
        """The newest snapshot's rows of one table; none before the second snapshot."""
        ring = self._rings[scope]
        steps = ring.windows(0, max(self._length, 1), HISTORY)
        features, level = live_features(steps)
        known = np.isfinite(steps).sum(axis=1)
        return DemandRows(
            uid=ring.uid, features=features, level=level, now=steps[:, 0], steps=known
        )
