# SPDX-License-Identifier: Apache-2.0
"""The core schema: what a forecaster sees of one instance, from traces and snapshots alike.

The last few usage windows of an instance, newest first, go in as a small matrix; ratios, slopes and
rolling statistics come out. Whoever fills the matrix (a reader of traces or the live history) runs
the very same arithmetic afterwards. Everything is a ratio, a rate or a count, so that a share of
Google's largest machine and a millicore of ours mean the same. Missing lags are NaN, and a row's
numbers never depend on which other rows exist.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LAGS = 6  # windows looked at, the newest included
Matrix = NDArray[np.float32]  # (rows, LAGS), newest first
Column = NDArray[np.float32]  # (rows,)
HIGHEST_RATIO = 50.0  # a request of nearly nothing must not become infinity

CORE = (
    "cpu_over_request",
    "cpu_peak_over_request",
    "cpu_burst",
    "cpu_lag_1",
    "cpu_lag_2",
    "cpu_change",
    "cpu_mean",
    "cpu_spread",
    "cpu_highest",
    "memory_over_limit",
    "memory_peak_over_limit",
    "memory_lag_1",
    "memory_lag_2",
    "memory_change",
    "memory_slope",
    "memory_highest",
    "memory_hours_left",
    "windows_seen",
    "age_hours",
    "restarts",
    "tier",
    "cpu_request",
    "memory_request",
    "job_failures",
    "job_failure_share",
    "job_hours_since_failure",
    "user_failures",
    "user_failure_share",
    "machine_failures",
    "machine_hours_since_failure",
)
INDEX = {name: column for column, name in enumerate(CORE)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """One row per instance at the end of a window."""

    cpu: Matrix  # mean use over request
    memory: Matrix  # mean use over limit
    cpu_peak: Column  # highest use in the newest window, over request
    memory_peak: Column
    window_hours: float
    age_seconds: Column
    restarts: Column
    tier: Column
    cpu_request: Column  # share of the largest machine
    memory_request: Column


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What had happened to the instance's job, user and machine by then."""

    job_failures: Column
    job_ends: Column
    job_seconds_since_failure: Column
    user_failures: Column
    user_ends: Column
    machine_failures: Column
    machine_seconds_since_failure: Column


def core_features(w: Windows, past: Past) -> Matrix:
    """(rows, len(CORE)) in the order of ``CORE``."""
    rows = len(w.age_seconds)
    out = np.empty((rows, len(CORE)), np.float32, order="F")  # filled and read by column

    def put(name: str, values: NDArray[np.floating]) -> None:
        out[:, INDEX[name]] = values

    cpu, memory = _capped(w.cpu), _capped(w.memory)
    seen = np.isfinite(cpu)
    number = seen.sum(axis=1)
    put("cpu_over_request", cpu[:, 0])
    put("cpu_peak_over_request", _capped(w.cpu_peak))
    put("cpu_burst", _capped(_over(w.cpu_peak, w.cpu[:, 0])))
    put("cpu_lag_1", cpu[:, 1])
    put("cpu_lag_2", cpu[:, 2])
    put("cpu_change", cpu[:, 0] - cpu[:, 1])
    mean, spread, highest = _statistics(cpu, seen, number)
    put("cpu_mean", mean)
    put("cpu_spread", spread)
    put("cpu_highest", highest)
    put("memory_over_limit", memory[:, 0])
    put("memory_peak_over_limit", _capped(w.memory_peak))
    put("memory_lag_1", memory[:, 1])
    put("memory_lag_2", memory[:, 2])
    put("memory_change", memory[:, 0] - memory[:, 1])
    slope = slope_per_hour(memory, w.window_hours)
    put("memory_slope", slope)
    known = np.isfinite(memory)
    put("memory_highest", _statistics(memory, known, known.sum(axis=1))[2])
    left = _over(np.maximum(1.0 - memory[:, 0], 0.0), slope)
    put("memory_hours_left", np.where(slope > 1e-3, np.minimum(left, 100.0), 100.0))
    put("windows_seen", number.astype(np.float32))
    put("age_hours", w.age_seconds / 3600.0)
    put("restarts", w.restarts)
    put("tier", w.tier)
    put("cpu_request", w.cpu_request)
    put("memory_request", w.memory_request)
    put("job_failures", np.log1p(past.job_failures))
    put("job_failure_share", past.job_failures / (past.job_ends + 2.0))
    put("job_hours_since_failure", past.job_seconds_since_failure / 3600.0)
    put("user_failures", np.log1p(past.user_failures))
    put("user_failure_share", past.user_failures / (past.user_ends + 2.0))
    put("machine_failures", np.log1p(past.machine_failures))
    put("machine_hours_since_failure", past.machine_seconds_since_failure / 3600.0)
    return out


def _capped(values: Matrix) -> Matrix:
    return np.minimum(values, np.float32(HIGHEST_RATIO))


def _over(top: NDArray[np.floating], bottom: NDArray[np.floating]) -> NDArray[np.floating]:
    out: NDArray[np.floating] = np.full_like(top, np.nan)
    np.divide(top, bottom, out=out, where=bottom > 0)
    return out


def _statistics(
    values: Matrix, seen: NDArray[np.bool_], number: NDArray[np.integer]
) -> tuple[Column, Column, Column]:
    """Mean, standard deviation and maximum over the windows there are."""
    count = np.maximum(number, 1).astype(np.float32)
    filled = np.where(seen, values, np.float32(0))
    mean = filled.sum(axis=1) / count
    off = np.where(seen, values - mean[:, None], np.float32(0))
    spread = np.sqrt((off * off).sum(axis=1) / count)
    highest = np.where(seen, values, -np.inf).max(axis=1)
    none = number == 0
    nan = np.float32(np.nan)
    return (
        np.where(none, nan, mean).astype(np.float32),
        np.where(none, nan, spread).astype(np.float32),
        np.where(none, nan, highest).astype(np.float32),
    )


def slope_per_hour(values: Matrix, window_hours: float) -> Column:
    """Least squares over the windows there are; 0 with fewer than two."""
    seen = np.isfinite(values)
    x = -np.arange(values.shape[1], dtype=np.float32) * np.float32(window_hours)
    count = np.maximum(seen.sum(axis=1), 1).astype(np.float32)
    y = np.where(seen, values, np.float32(0))
    at = np.where(seen, x, np.float32(0))
    x_mean, y_mean = at.sum(axis=1) / count, y.sum(axis=1) / count
    off_x = np.where(seen, x - x_mean[:, None], np.float32(0))
    off_y = np.where(seen, values - y_mean[:, None], np.float32(0))
    top, bottom = (off_x * off_y).sum(axis=1), (off_x * off_x).sum(axis=1)
    slope: Column = np.zeros_like(top, dtype=np.float32)
    np.divide(top, bottom, out=slope, where=bottom > 0)
    return slope
