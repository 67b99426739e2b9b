# SPDX-License-Identifier: Apache-2.0
"""Two ways people write this pipeline in pandas: as the tutorials do, and vectorized.

Both read the imported tables and give, per usage window: two lags, mean, spread and highest over
six windows of CPU over request, the memory slope, and whether a failure follows within the hour.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

COLUMNS = ["cpu_lag_1", "cpu_lag_2", "cpu_mean", "cpu_spread", "cpu_highest", "memory_slope"]
KEYS = ["job", "instance"]
LAGS = 6
HOURS = 300 / 3600


def read(dataset: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    usage = pd.read_parquet(
        dataset / "usage",
        columns=["job", "instance", "start_us", "end_us", "cpu_mean", "memory_mean"],
    )
    events = pd.read_parquet(
        dataset / "events",
        columns=["job", "instance", "time_us", "event", "cpu_request", "memory_request"],
    )
    return usage, events


def prepare(usage: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    requests = events.dropna(subset=["cpu_request"]).groupby(KEYS, as_index=False).first()
    frame = usage.merge(requests[[*KEYS, "cpu_request", "memory_request"]], on=KEYS, how="left")
    frame = frame.sort_values([*KEYS, "end_us", "start_us"], ignore_index=True)
    frame["cpu"] = (frame["cpu_mean"] / frame["cpu_request"]).clip(upper=50)
    frame["memory"] = (frame["memory_mean"] / frame["memory_request"]).clip(upper=50)
    return frame


def idiomatic(dataset: Path) -> pd.DataFrame:
    """groupby, shift and rolling, one call per column."""
    usage, events = read(dataset)
    frame = prepare(usage, events)
    groups = frame.groupby(KEYS, sort=False)
    frame["cpu_lag_1"] = groups["cpu"].shift(1)
    frame["cpu_lag_2"] = groups["cpu"].shift(2)
    rolling = groups["cpu"].rolling(LAGS, min_periods=1)
    frame["cpu_mean"] = rolling.mean().to_numpy()
    frame["cpu_spread"] = rolling.std(ddof=0).to_numpy()
    frame["cpu_highest"] = rolling.max().to_numpy()
    frame["k"] = groups.cumcount().astype(float)
    frame["ky"], frame["kk"] = frame["k"] * frame["memory"], frame["k"] * frame["k"]
    means = frame.groupby(KEYS, sort=False)[["k", "memory", "ky", "kk"]]
    means = means.rolling(LAGS, min_periods=1).mean().reset_index(drop=True)
    top = means["ky"] - means["k"] * means["memory"]
    bottom = means["kk"] - means["k"] * means["k"]
    frame["memory_slope"] = (top / bottom.where(bottom > 1e-9)).fillna(0.0) / HOURS
    return label(frame, events)


def vectorized(dataset: Path) -> pd.DataFrame:
    """The same with arrays inside: shifts masked at group borders, sums over a lag matrix."""
    usage, events = read(dataset)
    frame = prepare(usage, events)
    number = frame.groupby(KEYS, sort=False).ngroup().to_numpy()
    cpu, memory = frame["cpu"].to_numpy(np.float64), frame["memory"].to_numpy(np.float64)

    def lags(values: np.ndarray) -> np.ndarray:
        out = np.full((len(values), LAGS), np.nan)
        out[:, 0] = values
        for k in range(1, LAGS):
            same = number[k:] == number[:-k]
            out[k:, k] = np.where(same, values[:-k], np.nan)
        return out

    matrix = lags(cpu)
    frame["cpu_lag_1"], frame["cpu_lag_2"] = matrix[:, 1], matrix[:, 2]
    frame["cpu_mean"] = np.nanmean(matrix, axis=1)
    frame["cpu_spread"] = np.nanstd(matrix, axis=1)
    frame["cpu_highest"] = np.nanmax(matrix, axis=1)
    y = lags(memory)
    x = np.where(np.isnan(y), np.nan, -np.arange(LAGS) * HOURS)
    off = x - np.nanmean(x, axis=1, keepdims=True)
    top = np.nansum(off * (y - np.nanmean(y, axis=1, keepdims=True)), axis=1)
    bottom = np.nansum(off * off, axis=1)
    frame["memory_slope"] = np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)
    return label(frame, events)


def label(frame: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """The next failure after the window's end, by merge_asof."""
    failures = events[events["event"].isin(["FAIL", "LOST"])].sort_values("time_us")
    rows = frame.sort_values("end_us")
    after = pd.merge_asof(
        rows[[*KEYS, "end_us"]],
        failures[[*KEYS, "time_us"]],
        left_on="end_us",
        right_on="time_us",
        by=KEYS,
        direction="forward",
        allow_exact_matches=False,
    )
    soon = (after["time_us"] - after["end_us"]) <= 3_600_000_000
    rows["fails"] = soon.to_numpy()
    return rows.sort_values([*KEYS, "end_us"], ignore_index=True)
