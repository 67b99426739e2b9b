# SPDX-License-Identifier: Apache-2.0
"""What a forecaster says about the next hour, in the same integer columns as the snapshot.

Probabilities are per mille. A forecaster that cannot know abstains, for one object or for all,
and says until when; whoever acts on a forecast must do less where it abstains.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain.snapshot import IF_ANY, Ints, Uids

HORIZONS_SECONDS = (300, 900, 1800, 3600)
Grid = NDArray[np.int32]  # (rows, horizons)


class Driver(IntEnum):
    """What moved a risk most; the value beside it is in the unit named here."""

    NONE = 0
    ERRORS = 1  # errors per minute
    HEARTBEAT = 2  # heartbeat lag, ms
    MEMORY_GROWTH = 3  # MiB per minute, positive while growing
    RESTARTS = 4  # restarts in the last window
    CPU_PRESSURE = 5  # per mille of capacity
    UNREADY = 6  # seconds since the node was last ready
    LATENCY = 7  # p95 ms


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RiskTable:
    """Failure risk by row, for the uids of one snapshot table."""

    uid: Uids
    risk_permille: Grid  # (rows, horizons), never falls with the horizon
    driver: Ints  # Driver
    driver_value: Ints
    abstains: Ints  # 1: the row's numbers are placeholders and must not be acted on

    def __len__(self) -> int:
        return len(self.uid)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DemandTable:
    """CPU demand by row, millicores."""

    uid: Uids
    median_millicores: Grid  # (rows, horizons)
    upper_millicores: Grid  # (rows, horizons), 95th percentile
    abstains: Ints

    def __len__(self) -> int:
        return len(self.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Abstention:
    """Why a whole scope has no forecast."""

    scope: str  # "nodes", "pods", "workloads", "demand of nodes", "demand of workloads" or "all"
    reason: str
    until_seconds: int | None  # cluster clock; None when nobody knows


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """What one feature added to the forecast of one row: an exact Shapley value, in integers."""

    scope: str  # risk of "nodes" or "pods"; "demand of nodes" or "demand of workloads"
    uid: int
    feature: str
    value_thousandths: int  # the feature's own number
    adds_thousandths: int  # log-odds of a failure, or demand in units of the row's usual level


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """A feature whose population moved away from training, by the stability index."""

    scope: str  # "nodes" or "pods"
    feature: str
    index_thousandths: int  # above 250 the forecaster had better be trained again


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forecast:
    """Risk and demand for the snapshot taken at ``made_seconds``."""

    cluster: str
    made_seconds: int
    forecaster: str  # name and version, "ewma-trend/1"
    node_risk: RiskTable
    pod_risk: RiskTable
    workload_risk: RiskTable
    node_demand: DemandTable
    workload_demand: DemandTable
    abstentions: tuple[Abstention, ...] = ()
    # Only of rows at risk, and only where a forecaster learned; see IF_ANY.
    attributions: tuple[Attribution, ...] = field(default=(), metadata=IF_ANY)
    drift: tuple[Shift, ...] = field(default=(), metadata=IF_ANY)
    demand_by: str = field(default="", metadata=IF_ANY)  # where another than ``forecaster`` said it

    def attributed(self, scope: str, uid: int) -> tuple[Attribution, ...]:
        """What moved one row's forecast, most first."""
        return tuple(a for a in self.attributions if (a.scope, a.uid) == (scope, uid))


def horizon_column(seconds: int) -> int:
    """The column of a horizon; agents name horizons, never columns."""
    return HORIZONS_SECONDS.index(seconds)
