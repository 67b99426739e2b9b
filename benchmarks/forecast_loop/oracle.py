# SPDX-License-Identifier: Apache-2.0
"""A forecaster that knows: the simulator's own faults, through the same agents and the same guard.

It tells the ceiling. Nobody can do better at *what will fail*; what is lost beside it is lost to
pods that may not be moved, to the guard's budgets and to the price of moving itself. It speaks up
only ``NOTICE_SECONDS`` ahead: earlier it would only keep places that others need.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pilothouse.domain import HORIZONS_SECONDS, Driver, Forecast, Snapshot
from pilothouse.predict.baseline import EwmaTrend
from pilothouse.settings import Settings
from pilothouse.sim.blueprint import TICK_SECONDS
from pilothouse.sim.cluster import SimCluster
from pilothouse.sim.timeline import Fault

CERTAIN = 999
NOTICE_SECONDS = 240


class Oracle:
    """Node risk from the simulator's state; everything else from the transparent baseline."""

    name = "oracle/1"

    def __init__(self, settings: Settings, cluster: SimCluster) -> None:
        self._baseline = EwmaTrend(settings.forecast)
        self._cluster = cluster

    def predict(self, snapshot: Snapshot) -> Forecast:
        base = self._baseline.predict(snapshot)
        s = self._cluster._simulation.state
        left = (s.n_fault_tick + s.n_fault_ticks - s.tick) * TICK_SECONDS
        doomed = (s.n_fault == Fault.DEGRADATION) & (left <= NOTICE_SECONDS)
        dying = np.isin(base.node_risk.uid, s.n_uid[: len(doomed)][doomed])
        known = base.node_risk.driver == Driver.UNREADY
        risk = base.node_risk.risk_permille.copy()
        risk[~known] = 0
        risk[dying & ~known] = np.array([CERTAIN] * len(HORIZONS_SECONDS), np.int32)
        table = replace(base.node_risk, risk_permille=risk)
        return replace(base, forecaster=self.name, node_risk=table)
