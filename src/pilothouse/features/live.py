# SPDX-License-Identifier: Apache-2.0
"""Snapshots over time, kept as the windows the core schema asks for.

Each pod and node keeps its last few dozen samples in a ring; a window is the mean of the samples of
a minute. A container that restarted starts empty, so its old level cannot read as a fall. Rows are
matched by uid; a row's history never depends on which other rows exist. The arithmetic after the
windows is the core schema's, the same that traces go through.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import Phase, Power, Snapshot, WorkloadKind
from pilothouse.domain.snapshot import Uids
from pilothouse.features.core import CORE, LAGS, Past, Windows, core_features, slope_per_hour

Matrix = NDArray[np.float32]
Column = NDArray[np.float32]
WINDOW_SECONDS = 60  # of the shipped forecasters; those of a trace have the trace's windows
NEVER = -1.0e9

NODE = (
    "errors",
    "errors_window",
    "errors_lag_1",
    "errors_lag_2",
    "errors_lag_4",
    "errors_slope",
    "lag",
    "lag_window",
    "lag_lag_1",
    "lag_lag_2",
    "lag_lag_4",
    "lag_slope",
    "cpu_pressure",
    "memory_pressure",
    "memory_slope",
    "failures",
    "hours_since_failure",
)
# Neither the machine's size nor how long it has been watched: a forecaster would learn the calendar
# of its training runs by heart, and every run that lasts longer would look strange to it.


class Ring:
    """The last samples of every row of one table, newest at ``head``."""

    def __init__(self, columns: int, samples: int) -> None:
        self._samples, self._columns = samples, columns
        self.uid: Uids = np.zeros(0, np.int64)
        self.values = np.full((columns, 0, samples), np.nan, np.float32)
        self.head = 0

    def take(self, uid: Uids, samples: list[NDArray[np.generic]], anew: NDArray[np.bool_]) -> None:
        """Add one sample per row; rows that are new, or start anew, have no past."""
        if not np.array_equal(uid, self.uid):
            self._follow(uid)
        self.values[:, anew] = np.nan
        self.head = (self.head + 1) % self._samples
        for column, values in enumerate(samples):
            self.values[column, :, self.head] = values

    def _follow(self, uid: Uids) -> None:
        place = np.searchsorted(self.uid, uid)
        inside = np.minimum(place, max(len(self.uid) - 1, 0))
        known = self.uid[inside] == uid if len(self.uid) else np.zeros(len(uid), bool)
        values = np.full((self._columns, len(uid), self._samples), np.nan, np.float32)
        values[:, known] = self.values[:, inside[known]]
        self.values, self.uid = values, uid

    def newest(self, column: int) -> Column:
        return np.asarray(self.values[column, :, self.head], np.float32)

    def windows(self, column: int, length: int, count: int = LAGS) -> Matrix:
        """(rows, count) means of consecutive stretches of ``length`` samples, newest first."""
        order = (self.head - np.arange(count * length)) % self._samples
        stretch = self.values[column][:, order].reshape(-1, count, length)
        known = np.isfinite(stretch)
        number = known.sum(axis=2)
        total = np.where(known, stretch, np.float32(0)).sum(axis=2)
        mean = total / np.maximum(number, 1)
        # Half a window is needed: a single sample is noise, not a window.
        return np.where(number * 2 >= length, mean, np.float32(np.nan)).astype(np.float32)

    def highest(self, column: int, length: int) -> Column:
        order = (self.head - np.arange(length)) % self._samples
        stretch = self.values[column][:, order]
        known = np.isfinite(stretch)
        highest = np.where(known, stretch, -np.inf).max(axis=1)
        return np.asarray(np.where(known.any(axis=1), highest, np.nan), np.float32)


@dataclass(slots=True)
class _Counts:
    """Failures and ends of groups (workloads, namespaces, nodes) so far, by their own uid."""

    failures: dict[int, float]
    ends: dict[int, float]
    last: dict[int, float]

    @classmethod
    def empty(cls) -> _Counts:
        return cls({}, {}, {})

    def add(self, groups: NDArray[np.generic], now: int, *, failed: bool) -> None:
        for group in groups.tolist():
            self.ends[group] = self.ends.get(group, 0.0) + 1
            if failed:
                self.failures[group] = self.failures.get(group, 0.0) + 1
                self.last[group] = float(now)

    def of(self, uids: NDArray[np.generic], now: int) -> tuple[Column, Column, Column]:
        """Failures, ends and seconds since the last failure (NaN without) of each uid."""
        keys = uids.tolist()
        failures = np.array([self.failures.get(k, 0.0) for k in keys], np.float32)
        ends = np.array([self.ends.get(k, 0.0) for k in keys], np.float32)
        last = np.array([self.last.get(k, np.nan) for k in keys], np.float64)
        return failures, ends, (now - last).astype(np.float32)


class LiveHistory:
    """What the snapshots so far say, as feature rows for pods and nodes."""

    def __init__(self, window_seconds: int = WINDOW_SECONDS) -> None:
        self.window_seconds = window_seconds
        self._forget()

    def _forget(self) -> None:
        self._before: Snapshot | None = None
        self._length = 0
        self._began = 0
        self._pods = Ring(2, 1)
        self._nodes = Ring(4, 1)
        self._jobs, self._users, self._machines = (
            _Counts.empty(),
            _Counts.empty(),
            _Counts.empty(),
        )

    @property
    def warm_seconds(self) -> int:
        """How much history there is."""
        return 0 if self._before is None else self._before.taken_seconds - self._began

    def see(self, snapshot: Snapshot) -> None:
        """Take in the next snapshot; a clock that went back or changed pace starts anew."""
        before = self._before
        if before is not None:
            step = snapshot.taken_seconds - before.taken_seconds
            length = max(1, round(self.window_seconds / step)) if step > 0 else 0
            if self._length and length != self._length:
                self._forget()
                before = None
            elif not self._length:
                self._start(length)
        if before is None:
            self._began = snapshot.taken_seconds
            self._before = snapshot
            return
        self._count_failures(before, snapshot)
        self._sample(before, snapshot)
        self._before = snapshot

    def _start(self, length: int) -> None:
        self._length = length
        self._pods, self._nodes = Ring(2, LAGS * length), Ring(4, LAGS * length)

    def _count_failures(self, before: Snapshot, now: Snapshot) -> None:
        fails = pod_failures(before, now)
        at = now.taken_seconds
        workloads = now.workloads
        owner = now.pods.workload[fails]
        self._jobs.add(workloads.uid[owner], at, failed=True)
        self._users.add(now.namespaces.uid[workloads.namespace[owner]], at, failed=True)
        gone = ~np.isin(before.pods.uid, now.pods.uid)
        left = before.pods.workload[gone]
        self._jobs.add(before.workloads.uid[left], at, failed=False)
        spaces = before.namespaces.uid[before.workloads.namespace[left]]
        self._users.add(spaces, at, failed=False)
        dead = now.nodes.uid[node_failures(before, now)]
        self._machines.add(dead, at, failed=True)

    def _sample(self, before: Snapshot, now: Snapshot) -> None:
        pods, nodes = now.pods, now.nodes
        request = np.maximum(pods.cpu_request_millicores, 1)
        limit = memory_limit(now)
        running = pods.phase == Phase.RUNNING
        restarted = _newly(before.pods.uid, before.pods.restarts, pods.uid, pods.restarts)
        nan = np.float32(np.nan)
        self._pods.take(
            pods.uid,
            [
                np.where(running, pods.cpu_used_millicores / request, nan),
                np.where(running, pods.memory_used_mib / limit, nan),
            ],
            restarted,
        )
        self._nodes.take(
            nodes.uid,
            [
                nodes.errors_per_minute,
                nodes.heartbeat_lag_ms / 1000.0,
                nodes.cpu_used_millicores / np.maximum(nodes.cpu_capacity_millicores, 1),
                nodes.memory_used_mib / np.maximum(nodes.memory_capacity_mib, 1),
            ],
            np.asarray((nodes.power != Power.AWAKE) | (nodes.ready != 1)),
        )

    def pod_features(self) -> Matrix:
        """(pods, CORE) of the newest snapshot; NaN rows while there is no window yet."""
        snapshot = self._before
        assert snapshot is not None  # see() was called
        pods, now = snapshot.pods, snapshot.taken_seconds
        if not self._length or not np.array_equal(self._pods.uid, pods.uid):
            return np.full((len(pods), len(CORE)), np.nan, np.float32)
        largest_cpu, largest_memory = _largest(snapshot)
        service = snapshot.workloads.kind[pods.workload] == WorkloadKind.SERVICE
        memory = self._pods.windows(1, self._length)
        windows = Windows(
            cpu=self._pods.windows(0, self._length),
            memory=memory,
            cpu_peak=self._pods.highest(0, self._length),
            memory_peak=(pods.memory_peak_mib / memory_limit(snapshot)).astype(np.float32),
            window_hours=self.window_seconds / 3600.0,
            age_seconds=(now - pods.created_seconds).astype(np.float32),
            restarts=pods.restarts.astype(np.float32),
            tier=np.where(service, 3, 0).astype(np.float32),
            cpu_request=(pods.cpu_request_millicores / largest_cpu).astype(np.float32),
            memory_request=(memory_limit(snapshot) / largest_memory).astype(np.float32),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # NaN means missing, not a mistake
            return core_features(windows, self._past(snapshot))

    def _past(self, snapshot: Snapshot) -> Past:
        pods, now = snapshot.pods, snapshot.taken_seconds
        by_job = self._jobs.of(snapshot.workloads.uid, now)
        by_user = self._users.of(snapshot.namespaces.uid, now)
        by_node = self._machines.of(snapshot.nodes.uid, now)
        job = pods.workload
        user = snapshot.workloads.namespace[job]
        bound = pods.node >= 0
        node = np.maximum(pods.node, 0)
        nan = np.float32(np.nan)
        none = len(snapshot.nodes) == 0
        return Past(
            job_failures=by_job[0][job],
            job_ends=by_job[1][job],
            job_seconds_since_failure=by_job[2][job],
            user_failures=by_user[0][user],
            user_ends=by_user[1][user],
            machine_failures=np.zeros(len(pods), np.float32)
            if none
            else np.where(bound, by_node[0][node], np.float32(0)),
            machine_seconds_since_failure=np.full(len(pods), nan)
            if none
            else np.where(bound, by_node[2][node], nan),
        )

    def node_features(self) -> Matrix:
        """(nodes, NODE) of the newest snapshot."""
        snapshot = self._before
        assert snapshot is not None  # see() was called
        nodes, now, length = snapshot.nodes, snapshot.taken_seconds, self._length
        out = np.full((len(nodes), len(NODE)), np.nan, np.float32)
        if not length or not np.array_equal(self._nodes.uid, nodes.uid):
            return out
        columns: list[NDArray[np.generic]] = []
        for column in (0, 1):
            windows = self._nodes.windows(column, length)
            columns += [self._nodes.newest(column), windows[:, 0]]
            columns += [windows[:, 1], windows[:, 2], windows[:, 4]]
            columns.append(self._slope(windows))
        memory = self._nodes.windows(3, length)
        failures, _, since = self._machines.of(nodes.uid, now)
        columns += [
            self._nodes.windows(2, length)[:, 0],
            memory[:, 0],
            self._slope(memory),
            failures,
            since / 3600.0,
        ]
        return np.stack([np.asarray(c, np.float32) for c in columns], axis=1)

    def _slope(self, windows: Matrix) -> Column:
        return slope_per_hour(windows, self.window_seconds / 3600.0)


def memory_limit(snapshot: Snapshot) -> NDArray[np.float64]:
    """What a pod dies at: its limit, or its request where it has none; MiB, at least 1."""
    pods = snapshot.pods
    limit = np.where(pods.memory_limit_mib > 0, pods.memory_limit_mib, pods.memory_request_mib)
    return np.maximum(limit, 1).astype(np.float64)


def pod_failures(before: Snapshot, now: Snapshot) -> NDArray[np.intp]:
    """Rows of pods that failed by themselves since: a restart or a failed phase, node alive."""
    pods = now.pods
    failed = _newly(before.pods.uid, before.pods.restarts, pods.uid, pods.restarts)
    was = (before.pods.phase == Phase.FAILED).astype(np.int32)
    failed |= _newly(before.pods.uid, was, pods.uid, (pods.phase == Phase.FAILED).astype(np.int32))
    bound = pods.node >= 0
    alive = np.zeros(len(pods), bool)
    node = pods.node[bound]
    alive[bound] = (now.nodes.power[node] != Power.DEAD) & (now.nodes.ready[node] == 1)
    return np.flatnonzero(failed & alive)


def node_failures(before: Snapshot, now: Snapshot) -> NDArray[np.intp]:
    """Rows of nodes that died since; going to sleep is no failure."""
    dead = (now.nodes.power == Power.DEAD).astype(np.int32)
    was = (before.nodes.power == Power.DEAD).astype(np.int32)
    return np.flatnonzero(_newly(before.nodes.uid, was, now.nodes.uid, dead))


def _newly(
    uid_before: Uids, before: NDArray[np.int32], uid: Uids, now: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Where a counter rose for a row that was there before."""
    if not len(uid_before):
        return np.zeros(len(uid), bool)
    place = np.minimum(np.searchsorted(uid_before, uid), len(uid_before) - 1)
    known = uid_before[place] == uid
    return np.asarray(known & (now > before[place]))


def _largest(snapshot: Snapshot) -> tuple[float, float]:
    nodes = snapshot.nodes
    if not len(nodes):
        return 1.0, 1.0
    return float(nodes.cpu_capacity_millicores.max()), float(nodes.memory_capacity_mib.max())
