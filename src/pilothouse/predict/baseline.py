# SPDX-License-Identifier: Apache-2.0
"""A transparent baseline forecaster: weighted levels, trends and thresholds, nothing learned.

Its probabilities are NOT calibrated. They are monotone in the evidence (more errors, a steeper
leak, a longer lag never lower a risk) and every number can be redone by hand from the breakpoints
below; a learned forecaster takes its place behind the same interface. Pod risk covers what the pod
does to itself (memory, crashes); the risk of its node is the node's and is not counted twice.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import (
    HORIZONS_SECONDS,
    Abstention,
    DemandTable,
    Driver,
    Forecast,
    Phase,
    Power,
    RiskTable,
    Snapshot,
)
from pilothouse.domain.snapshot import Ints, Uids
from pilothouse.features.demand import workload_demand_millicores
from pilothouse.predict.smoothing import Floats, Match, Trend
from pilothouse.settings import ForecastSettings

# Precursor strength (1 = at the alarm level) -> risk per mille, by horizon. Half the alarm is
# noise to a healthy machine; at the alarm a node is a coin toss within 15 minutes; past twice the
# alarm nobody should bet on it.
STRENGTH = (0.0, 0.4, 0.7, 1.0, 1.4, 1.8, 2.5, 4.0)
STRENGTH_RISK = (
    (0, 10, 60, 250, 500, 680, 830, 930),  # 5 min
    (0, 20, 180, 520, 720, 850, 930, 970),  # 15 min
    (0, 30, 260, 600, 780, 880, 950, 980),  # 30 min
    (0, 40, 330, 660, 820, 900, 960, 985),  # 60 min
)
# Seconds until memory is full over the horizon -> risk per mille. The trend may bend, so even
# "well inside the horizon" is not certainty.
FULLNESS = (0.0, 0.4, 0.8, 1.0, 1.5, 2.5, 4.0)
FULLNESS_RISK = (970, 930, 840, 720, 400, 120, 0)
# Crashes that still count (they fade) -> risk per mille of crashing again, by horizon.
CRASHES = (0.0, 0.5, 1.0, 2.0, 3.0, 5.0)
CRASH_RISK = (
    (0, 60, 200, 480, 680, 850),
    (0, 110, 320, 620, 800, 920),
    (0, 130, 380, 680, 840, 940),
    (0, 150, 420, 720, 860, 950),
)
CRASH_HALF_LIFE_SECONDS = 300  # a counter that never fades would keep an old crash a risk for ever
AT_RISK_PERMILLE = 500
# A heartbeat that grew later by nearly all the time since then did not come meanwhile.
SILENT_SHARE = 0.8
SILENT_SECONDS = 3
UPPER_SIGMAS = 1.645  # 95th percentile of a normal error
DAMPING_SECONDS = 300  # trends do not go on for ever: a slope counts fully for about five minutes
MOST_GROWTH = 0.6  # of the level within any horizon: a burst is not the start of a doubling
HIGHEST_PERMILLE = 1000
_HORIZONS = range(len(HORIZONS_SECONDS))
_REACH = tuple(DAMPING_SECONDS * (1.0 - math.exp(-h / DAMPING_SECONDS)) for h in HORIZONS_SECONDS)


class EwmaTrend:
    """Exponentially weighted level and trend per node, workload and pod; see the module."""

    name = "ewma-trend/1"

    def __init__(self, settings: ForecastSettings) -> None:
        self._settings = settings
        self._forget()

    def _forget(self) -> None:
        self._at: int | None = None
        self._began = 0
        self._nodes = _Nodes()
        self._pods = _Pods()
        self._workloads = _Rows()

    def predict(self, snapshot: Snapshot) -> Forecast:
        """Take in one snapshot and look ahead; a clock that went back starts history anew."""
        now = snapshot.taken_seconds
        if self._at is not None and now < self._at:
            self._forget()
        if self._at is None:
            self._began, self._at = now, now
        elapsed, self._at = now - self._at, now
        ready_at = self._began + self._settings.warmup_seconds
        node_risk, node_demand = self._nodes.look_ahead(snapshot, elapsed, self._settings)
        pod_risk = self._pods.look_ahead(snapshot, elapsed, self._settings)
        warm = now >= ready_at
        reason = f"warming up: {now - self._began} s of history, needs "
        return Forecast(
            cluster=snapshot.cluster,
            made_seconds=now,
            forecaster=self.name,
            node_risk=node_risk,
            pod_risk=pod_risk,
            workload_risk=workload_risk(snapshot, pod_risk),
            node_demand=node_demand,
            workload_demand=self._workload_demand(snapshot, elapsed),
            abstentions=()
            if warm
            else (
                Abstention(
                    scope="all",
                    reason=f"{reason}{self._settings.warmup_seconds} s",
                    until_seconds=ready_at,
                ),
            ),
        )

    def _workload_demand(self, snapshot: Snapshot, elapsed: int) -> DemandTable:
        rows, workloads = self._workloads, snapshot.workloads
        match = rows.match(workloads.uid, snapshot.taken_seconds)
        now = workload_demand_millicores(snapshot).astype(np.float64)
        s = self._settings
        rows.trend.follow(now, match, elapsed, s.level_half_life_seconds, s.trend_half_life_seconds)
        young = rows.age(snapshot.taken_seconds) < s.warmup_seconds
        return _demand(workloads.uid, rows.trend, young.astype(np.int32))


class _Rows:
    """Rows of one table over time: their uids, when each was first seen, and one trend."""

    def __init__(self) -> None:
        self.uid: Uids = np.zeros(0, np.int64)
        self.first: Floats = np.zeros(0)
        self.trend = Trend.empty()

    def match(self, uid: Uids, now: int) -> Match:
        match = Match.of(self.uid, uid)
        self.first = match.carry(self.first, float(now))
        self.uid = uid
        return match

    def age(self, now: int) -> Floats:
        return now - self.first


class _Nodes(_Rows):
    def __init__(self) -> None:
        super().__init__()
        self.errors, self.lag, self.memory = Trend.empty(), Trend.empty(), Trend.empty()
        self.last_ready: Floats = np.zeros(0)
        self.last_lag: Floats = np.zeros(0)
        self.heard_at: Floats = np.zeros(0)  # the last look at which the lag had not grown
        self.heard_lag: Floats = np.zeros(0)

    def look_ahead(
        self, snapshot: Snapshot, elapsed: int, s: ForecastSettings
    ) -> tuple[RiskTable, DemandTable]:
        nodes, now = snapshot.nodes, snapshot.taken_seconds
        match = self.match(nodes.uid, now)
        halves = (s.level_half_life_seconds, s.trend_half_life_seconds)
        for trend, column in (
            (self.trend, nodes.cpu_used_millicores),
            (self.errors, nodes.errors_per_minute),
            (self.lag, nodes.heartbeat_lag_ms),
            (self.memory, nodes.memory_used_mib),
        ):
            trend.follow(column.astype(np.float64), match, elapsed, *halves)
        ready = nodes.ready == 1
        self.last_ready = np.where(ready, float(now), match.carry(self.last_ready, float(now)))
        off = (nodes.power == Power.ASLEEP) | (nodes.power == Power.BOOTING)
        unready = ~ready & ~off
        unknown = (self.age(now) < s.warmup_seconds) | (nodes.age_seconds > s.stale_seconds) | off
        silence = self._silence(nodes.heartbeat_lag_ms.astype(np.float64), match, now, s)
        risk = self._risk(snapshot, s, unready, now, silence)
        # That a node is not ready is a fact of the control plane; no metric is needed for it.
        abstains = (unknown & ~unready).astype(np.int32)
        risk = _with_abstentions(risk, abstains)
        demand = _demand(nodes.uid, self.trend, (unknown | unready).astype(np.int32))
        return risk, demand

    def _silence(self, lag: Floats, match: Match, now: int, s: ForecastSettings) -> Floats:
        """(nodes,) how long nobody has answered for, in alarms; 0 where heartbeats still come.

        Silence is a fact and needs no smoothing: every second of it is a second closer to the
        moment at which Kubernetes gives the node up. Where most nodes are silent it is not they
        who are ill, but whoever keeps their heartbeats.
        """
        grows = match.found & (lag > match.carry(self.last_lag, lag))
        self.heard_at = np.where(grows, match.carry(self.heard_at, float(now)), float(now))
        self.heard_lag = np.where(grows, match.carry(self.heard_lag, lag), lag)
        self.last_lag = lag
        waited = now - self.heard_at
        # Looks are timed in whole seconds, so one of them may be the clock's.
        late = lag - self.heard_lag >= 1000 * SILENT_SHARE * (waited - 1)
        silent = late & (waited >= SILENT_SECONDS) & (lag >= s.heartbeat_lag_alarm_ms)
        if 2 * np.count_nonzero(silent) >= len(lag):
            return np.zeros(len(lag))
        return np.where(silent, lag / s.heartbeat_lag_alarm_ms, 0.0)

    def _risk(
        self,
        snapshot: Snapshot,
        s: ForecastSettings,
        unready: NDArray[np.bool_],
        now: int,
        silence: Floats,
    ) -> RiskTable:
        nodes = snapshot.nodes
        errors = _strength(self.errors, float(s.errors_per_minute_alarm))
        lag = np.maximum(_strength(self.lag, float(s.heartbeat_lag_alarm_ms)), silence)
        # Two precursors that agree say more than the worse of them alone.
        both = np.maximum(errors, lag) * 0.75 + np.minimum(errors, lag) * 0.5
        precursor = np.stack([np.interp(both, STRENGTH, row) for row in STRENGTH_RISK], axis=1)
        capacity = nodes.memory_capacity_mib.astype(np.float64)
        # A full node kills one pod, not itself, so memory alone never makes a node certain to die.
        memory = 0.6 * _fullness_risk(self.memory, capacity)
        risk = np.maximum(precursor, memory)
        risk[unready] = HIGHEST_PERMILLE
        by_memory = memory.max(axis=1) > precursor.max(axis=1)
        driver = np.where(errors >= lag, int(Driver.ERRORS), int(Driver.HEARTBEAT))
        value = np.where(errors >= lag, nodes.errors_per_minute, nodes.heartbeat_lag_ms)
        growth = np.rint(self.memory.slope * 60)
        driver = np.where(by_memory, int(Driver.MEMORY_GROWTH), driver)
        value = np.where(by_memory, growth, value)
        driver = np.where(unready, int(Driver.UNREADY), driver)
        value = np.where(unready, now - self.last_ready, value)
        quiet = risk.max(axis=1) < 1
        none = np.where(quiet, int(Driver.NONE), driver)
        return _table(nodes.uid, risk, none, np.where(quiet, 0, value))


class _Pods(_Rows):
    def __init__(self) -> None:
        super().__init__()
        self.restarts: Floats = np.zeros(0)
        self.crashes: Floats = np.zeros(0)

    def look_ahead(self, snapshot: Snapshot, elapsed: int, s: ForecastSettings) -> RiskTable:
        pods, now = snapshot.pods, snapshot.taken_seconds
        match = self.match(pods.uid, now)
        counter = pods.restarts.astype(np.float64)
        new = np.maximum(counter - match.carry(self.restarts, counter), 0.0)
        faded = 0.5 ** (elapsed / CRASH_HALF_LIFE_SECONDS)
        self.crashes = match.carry(self.crashes, 0.0) * faded + new
        self.restarts = counter
        self._follow_memory(snapshot, match, new > 0, elapsed, s)
        running = pods.phase == Phase.RUNNING
        limit = np.where(running, pods.memory_limit_mib, 0).astype(np.float64)
        memory = _fullness_risk(self.trend, limit)
        crash = _interp_grid(self.crashes, CRASHES, CRASH_RISK)
        risk = np.maximum(memory, crash)
        by_memory = memory[:, -1] >= crash[:, -1]
        driver = np.where(by_memory, int(Driver.MEMORY_GROWTH), int(Driver.RESTARTS))
        value = np.where(by_memory, np.rint(self.trend.slope * 60), np.rint(self.crashes))
        quiet = risk[:, -1] < 1
        table = _table(
            pods.uid,
            risk,
            np.where(quiet, int(Driver.NONE), driver),
            np.where(quiet, 0, value),
        )
        bound = pods.node >= 0
        stale = np.zeros(len(pods), bool)
        stale[bound] = snapshot.nodes.age_seconds[pods.node[bound]] > s.stale_seconds
        unknown = ~running & (self.crashes < AT_RISK_PERMILLE / HIGHEST_PERMILLE)
        young = self.age(now) < s.warmup_seconds
        return _with_abstentions(table, (stale | young | unknown).astype(np.int32))

    def _follow_memory(
        self,
        snapshot: Snapshot,
        match: Match,
        crashed: NDArray[np.bool_],
        elapsed: int,
        s: ForecastSettings,
    ) -> None:
        # A restarted container starts empty: its old level would read as a fall, so it starts anew.
        anew = Match(match.found & ~crashed, match.position)
        used = snapshot.pods.memory_used_mib.astype(np.float64)
        halves = (s.level_half_life_seconds, s.trend_half_life_seconds)
        self.trend.follow(used, anew, elapsed, *halves)


def _strength(trend: Trend, alarm: float) -> Floats:
    """Level plus two minutes of a rising trend, over the alarm: a blip has no time to build up."""
    return np.maximum(trend.level + 120.0 * np.maximum(trend.slope, 0.0), 0.0) / alarm


def _fullness_risk(trend: Trend, limit: Floats) -> Floats:
    """Risk that memory reaches its limit by the trend, (rows, horizons); 0 where there is none."""
    risk = np.zeros((len(limit), len(HORIZONS_SECONDS)))
    # One spread per few minutes is what a level wanders without any leak.
    slope = trend.slope - trend.spread / 240.0
    # Growth that would need hours is load, not a leak.
    rows = np.flatnonzero((limit > 0) & (slope * 4 * HORIZONS_SECONDS[-1] > limit - trend.level))
    rows = rows[slope[rows] > 0]
    left = np.maximum(limit[rows] - trend.level[rows], 0.0) / slope[rows]
    for column in _HORIZONS:
        share = left / HORIZONS_SECONDS[column]
        risk[rows, column] = np.interp(share, FULLNESS, FULLNESS_RISK)
    return risk


def _interp_grid(
    values: Floats, points: tuple[float, ...], table: tuple[tuple[int, ...], ...]
) -> Floats:
    risk = np.zeros((len(values), len(table)))
    rows = np.flatnonzero(values > 0.01)
    for column, row in enumerate(table):
        risk[rows, column] = np.interp(values[rows], points, row)
    return risk


def workload_risk(
    snapshot: Snapshot, pods: RiskTable, at_risk_permille: int = AT_RISK_PERMILLE
) -> RiskTable:
    """A workload is at risk as far as the replicas that would be left miss its minimum.

    Where enough would be left, the worst pod counts by the share of replicas at risk with it. From
    which risk on a pod is *at risk* is the forecaster's to say: a calibrated one may never reach
    a half and still be right.
    """
    workloads, owner = snapshot.workloads, snapshot.pods.workload
    count = len(workloads)
    usable = pods.abstains == 0
    grid = np.where(usable[:, None], pods.risk_permille, 0)
    ready = np.maximum(workloads.replicas_ready, 1)
    risk = np.zeros((count, len(HORIZONS_SECONDS)))
    for column in _HORIZONS:
        rows = np.flatnonzero(grid[:, column] > 0)
        worst = np.zeros(count, np.int64)
        np.maximum.at(worst, owner[rows], grid[rows, column])
        endangered = np.bincount(owner[grid[:, column] >= at_risk_permille], minlength=count)
        short = (endangered > 0) & (ready - endangered < np.maximum(workloads.min_available, 1))
        share = np.minimum(endangered / ready, 1.0)
        risk[:, column] = np.where(short, worst, worst * share)
    driver, value = _worst_driver(owner, grid[:, 1], pods, count)
    known = np.bincount(owner[usable], minlength=count) > 0
    quiet = risk[:, -1] < 1
    table = _table(workloads.uid, risk, np.where(quiet, 0, driver), np.where(quiet, 0, value))
    return _with_abstentions(table, (~known).astype(np.int32))


def _worst_driver(
    owner: Ints, risk: NDArray[np.int64], pods: RiskTable, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    driver, value = np.zeros(count, np.int64), np.zeros(count, np.int64)
    rows = np.flatnonzero(risk > 0)
    rows = rows[np.argsort(risk[rows], kind="stable")]  # the worst is written last and stays
    driver[owner[rows]] = pods.driver[rows]
    value[owner[rows]] = pods.driver_value[rows]
    return driver, value


def _demand(uid: Uids, trend: Trend, abstains: Ints) -> DemandTable:
    level = np.maximum(trend.level, 0.0)[:, None]
    ahead = trend.slope[:, None] * np.array(_REACH)[None, :]
    median = level + np.clip(ahead, -MOST_GROWTH * level, MOST_GROWTH * level)
    # Errors of successive steps partly cancel, so the spread widens with the root of the reach.
    widen = np.array([math.sqrt(1.0 + reach / 300.0) for reach in _REACH])
    upper = median + UPPER_SIGMAS * trend.spread[:, None] * widen[None, :]
    return DemandTable(
        uid=uid,
        median_millicores=_to_grid(median),
        upper_millicores=_to_grid(upper),
        abstains=abstains,
    )


def _table(uid: Uids, risk: Floats, driver: NDArray[np.generic], value: Floats) -> RiskTable:
    grid = np.maximum.accumulate(np.clip(risk, 0, HIGHEST_PERMILLE), axis=1)
    return RiskTable(
        uid=uid,
        risk_permille=_to_grid(grid),
        driver=driver.astype(np.int32),
        driver_value=_to_grid(value),
        abstains=np.zeros(len(uid), np.int32),
    )


def _with_abstentions(table: RiskTable, abstains: Ints) -> RiskTable:
    """Placeholders are zeros, so that whoever forgets to look does nothing."""
    keep = abstains == 0
    return RiskTable(
        uid=table.uid,
        risk_permille=np.where(keep[:, None], table.risk_permille, 0).astype(np.int32),
        driver=np.where(keep, table.driver, 0).astype(np.int32),
        driver_value=np.where(keep, table.driver_value, 0).astype(np.int32),
        abstains=abstains,
    )


def _to_grid(values: Floats) -> NDArray[np.int32]:
    return np.rint(np.clip(values, -2_000_000_000, 2_000_000_000)).astype(np.int32)
