# SPDX-License-Identifier: Apache-2.0
"""Two ways people write this pipeline in pandas: as the tutorials do, and vectorized.

Both read the imported tables and give, per usage window with a known future, the thirty features of
the core schema and a label for each of four horizons: exactly what ``traces features`` gives. The
idiomatic one is made of groupby, shift, rolling, cumsum and merge_asof; the vectorized one works on
arrays, with a matrix of lags and one sorted key per history.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

KEYS = ["job", "instance"]
LAGS = 6
HOURS = 300 / 3600
HOUR_US = 3_600_000_000
HIGHEST = 50.0
HORIZONS = (300, 900, 1800, 3600)
FAILURES = ["FAIL", "LOST"]
ENDS = ["EVICT", "FAIL", "FINISH", "KILL", "LOST"]
STARTS = ["SUBMIT", "QUEUE", "ENABLE", "SCHEDULE"]
FEATURES = [
    "cpu_over_request", "cpu_peak_over_request", "cpu_burst", "cpu_lag_1", "cpu_lag_2",
    "cpu_change", "cpu_mean", "cpu_spread", "cpu_highest", "memory_over_limit",
    "memory_peak_over_limit", "memory_lag_1", "memory_lag_2", "memory_change", "memory_slope",
    "memory_highest", "memory_hours_left", "windows_seen", "age_hours", "restarts", "tier",
    "cpu_request", "memory_request", "job_failures", "job_failure_share",
    "job_hours_since_failure", "user_failures", "user_failure_share", "machine_failures",
    "machine_hours_since_failure",
]  # fmt: skip
LABELS = [f"label_{seconds}" for seconds in HORIZONS]
COLUMNS = [*KEYS, "end_us", *FEATURES, *LABELS]


def read(dataset: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    usage = pd.read_parquet(
        dataset / "usage",
        columns=[*KEYS, "machine", "start_us", "end_us", "cpu_mean", "cpu_max", "memory_mean",
                 "memory_max"],
    )  # fmt: skip
    events = pd.read_parquet(
        dataset / "events",
        columns=[*KEYS, "time_us", "event", "machine", "user", "tier", "cpu_request",
                 "memory_request"],
    )  # fmt: skip
    return usage, events


# As the tutorials do it.


def idiomatic(dataset: Path) -> pd.DataFrame:
    """groupby, shift, rolling and merge_asof, one call per column."""
    usage, events = read(dataset)
    events = events.sort_values("time_us", ignore_index=True)
    frame = usage.sort_values([*KEYS, "end_us", "start_us"], ignore_index=True)
    said = events.dropna(subset=["cpu_request"])
    frame = as_of(frame, said, KEYS, ["tier", "cpu_request", "memory_request"])
    frame["cpu"] = frame["cpu_mean"] / frame["cpu_request"]
    frame["cpu_burst"] = (frame["cpu_max"] / frame["cpu_request"]) / frame["cpu"]
    frame["cpu_burst"] = frame["cpu_burst"].where(frame["cpu"] > 0).clip(upper=HIGHEST)
    frame["cpu"] = frame["cpu"].clip(upper=HIGHEST)
    frame["memory"] = (frame["memory_mean"] / frame["memory_request"]).clip(upper=HIGHEST)
    frame["cpu_peak_over_request"] = (frame["cpu_max"] / frame["cpu_request"]).clip(upper=HIGHEST)
    frame["memory_peak_over_limit"] = (frame["memory_max"] / frame["memory_request"]).clip(
        upper=HIGHEST
    )
    groups = frame.groupby(KEYS, sort=False)
    for what, name in (("cpu", "cpu_over_request"), ("memory", "memory_over_limit")):
        frame[name] = frame[what]
        frame[f"{what}_lag_1"] = groups[what].shift(1)
        frame[f"{what}_lag_2"] = groups[what].shift(2)
        frame[f"{what}_change"] = groups[what].diff()
        frame[f"{what}_highest"] = groups[what].rolling(LAGS, min_periods=1).max().to_numpy()
    rolling = groups["cpu"].rolling(LAGS, min_periods=1)
    frame["cpu_mean"] = rolling.mean().to_numpy()
    frame["cpu_spread"] = rolling.std(ddof=0).to_numpy()
    frame["windows_seen"] = groups.cumcount().clip(upper=LAGS - 1) + 1
    frame["memory_slope"] = rolling_slope(frame)
    left = (1.0 - frame["memory"]).clip(lower=0) / frame["memory_slope"]
    frame["memory_hours_left"] = left.clip(upper=100.0).where(frame["memory_slope"] > 1e-3, 100.0)
    first = events.groupby(KEYS)["time_us"].min().rename("first_event").reset_index()
    frame = frame.merge(first, on=KEYS, how="left")
    begun = np.minimum(frame.groupby(KEYS)["start_us"].transform("min"), frame["first_event"])
    frame["age_hours"] = (frame["end_us"] - begun) / HOUR_US
    frame = idiomatic_past(frame, events)
    return idiomatic_labels(frame, events)[COLUMNS]


def as_of(
    frame: pd.DataFrame, known: pd.DataFrame, by: list[str], columns: list[str]
) -> pd.DataFrame:
    """The latest known row of the group at or before each window's end."""
    frame = frame.drop(columns=[c for c in columns if c in frame])
    joined = pd.merge_asof(
        frame.sort_values("end_us"),
        known[[*by, "time_us", *columns]],
        left_on="end_us",
        right_on="time_us",
        by=by,
    ).drop(columns="time_us")
    return joined.sort_values([*KEYS, "end_us", "start_us"], ignore_index=True)


def rolling_slope(frame: pd.DataFrame) -> pd.Series:
    """Least squares over six windows from rolling means of products."""
    k = frame.groupby(KEYS, sort=False).cumcount().astype(float)
    wide = frame[KEYS].assign(k=k, y=frame["memory"], ky=k * frame["memory"], kk=k * k)
    means = wide.groupby(KEYS, sort=False)[["k", "y", "ky", "kk"]]
    means = means.rolling(LAGS, min_periods=1).mean().reset_index(drop=True)
    top = means["ky"] - means["k"] * means["y"]
    bottom = means["kk"] - means["k"] * means["k"]
    return (top / bottom.where(bottom > 1e-9)).fillna(0.0) / HOURS


def idiomatic_past(frame: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """Counts so far by cumsum, looked up by merge_asof."""
    events = events.assign(
        failed=events["event"].isin(FAILURES).astype(int),
        scheduled=(events["event"] == "SCHEDULE").astype(int),
    )
    events["starts"] = events.groupby(KEYS)["scheduled"].cumsum()
    frame = as_of(frame, events, KEYS, ["starts"])
    frame["restarts"] = (frame["starts"].fillna(0) - 1).clip(lower=0)
    user_of = events.dropna(subset=["user"]).groupby("job", as_index=False)["user"].first()
    frame = frame.merge(user_of, on="job", how="left")
    ends = events[events["event"].isin(ENDS)].copy()
    for name in ("job", "user"):
        groups = ends.groupby(name)
        ends[f"{name}_failed"] = groups["failed"].cumsum()
        ends[f"{name}_ends"] = groups.cumcount() + 1
        frame = as_of(frame, ends, [name], [f"{name}_failed", f"{name}_ends"])
        failed, ended = frame[f"{name}_failed"].fillna(0), frame[f"{name}_ends"].fillna(0)
        frame[f"{name}_failures"] = np.log1p(failed)
        frame[f"{name}_failure_share"] = failed / (ended + 2.0)
    failures = ends[ends["failed"] == 1].copy()
    failures["at"] = failures["time_us"]
    failures["count"] = failures.groupby("machine").cumcount() + 1
    for name in ("job", "machine"):
        frame = as_of(frame, failures, [name], ["at", "count"])
        frame[f"{name}_hours_since_failure"] = (frame["end_us"] - frame["at"]) / HOUR_US
    frame["machine_failures"] = np.log1p(frame["count"].fillna(0))
    return frame


def idiomatic_labels(frame: pd.DataFrame, events: pd.DataFrame) -> pd.DataFrame:
    """The next failure and kill after each window, and whether it was alive, by merge_asof."""
    frame = frame.sort_values("end_us", ignore_index=True)
    kinds = {"next_failure": FAILURES, "next_kill": ["KILL"]}
    for name, which in kinds.items():
        chosen = events[events["event"].isin(which)]
        after = pd.merge_asof(
            frame[[*KEYS, "end_us"]], chosen[[*KEYS, "time_us"]], left_on="end_us",
            right_on="time_us", by=KEYS, direction="forward", allow_exact_matches=False,
        )  # fmt: skip
        frame[name] = after["time_us"].to_numpy()
    for name, which in {"last_end": ENDS, "last_start": STARTS}.items():
        chosen = events[events["event"].isin(which)]
        before = pd.merge_asof(
            frame[[*KEYS, "end_us"]], chosen[[*KEYS, "time_us"]], left_on="end_us",
            right_on="time_us", by=KEYS,
        )  # fmt: skip
        frame[name] = before["time_us"].to_numpy()
    trace_end = events["time_us"].max()
    for seconds, name in zip(HORIZONS, LABELS, strict=True):
        limit = frame["end_us"] + seconds * 1_000_000
        killed = (frame["next_kill"] <= limit) & ~(frame["next_kill"] >= frame["next_failure"])
        fails = (frame["next_failure"] <= limit) & ~killed
        known = (limit <= trace_end) & ~killed
        frame[name] = np.where(fails, 1, np.where(known, 0, -1)).astype(np.int8)
    alive = frame["last_end"].isna() | (frame["last_start"] > frame["last_end"])
    frame = frame[alive & (frame[LABELS] != -1).any(axis=1)]
    return frame.sort_values([*KEYS, "end_us"], ignore_index=True)


# Vectorized.


class Events:
    """Events of groups in order of time, asked as of a moment through one sorted key."""

    def __init__(self, group: np.ndarray, time: np.ndarray) -> None:
        self.names, number = np.unique(group, return_inverse=True)
        self.span = int(time.max(initial=0)) + 2
        key = number * self.span + time
        self.order = np.argsort(key, kind="stable")
        self.key, self.time = key[self.order], time[self.order]
        self.first = np.searchsorted(self.key, np.arange(len(self.names)) * self.span)

    def until(self, group: np.ndarray, time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and last place of each question's known events."""
        if not len(self.names):
            return np.zeros(len(group), np.int64), np.zeros(len(group), np.int64)
        number = np.minimum(np.searchsorted(self.names, group), len(self.names) - 1)
        key = number * self.span + np.minimum(time, self.span - 1)
        start = self.first[number]
        stop = np.maximum(np.searchsorted(self.key, key, side="right"), start)
        return start, np.where(self.names[number] == group, stop, start)

    def last(self, group: np.ndarray, time: np.ndarray) -> np.ndarray:
        start, stop = self.until(group, time)
        if not len(self.time):
            return np.full(len(group), np.nan)
        return np.where(stop > start, self.time[np.maximum(stop - 1, 0)], np.nan)

    def next(self, group: np.ndarray, time: np.ndarray) -> np.ndarray:
        if not len(self.time):
            return np.full(len(group), np.inf)
        number = np.minimum(np.searchsorted(self.names, group), len(self.names) - 1)
        _, stop = self.until(group, time)
        known = self.names[number] == group
        border = np.append(self.first, len(self.key))[number + 1]
        found = known & (stop < border)
        return np.where(found, self.time[np.minimum(stop, len(self.time) - 1)], np.inf)


def vectorized(dataset: Path) -> pd.DataFrame:
    """Arrays inside: shifts masked at group borders, sums over a matrix of lags."""
    usage, events = read(dataset)
    frame = usage.sort_values([*KEYS, "end_us", "start_us"], ignore_index=True)
    events = events.sort_values([*KEYS, "time_us"], ignore_index=True, kind="stable")
    own = frame["job"].to_numpy() * 1_000 + frame["instance"].to_numpy()
    number = np.cumsum(np.append(0, own[1:] != own[:-1]))
    theirs = events["job"].to_numpy() * 1_000 + events["instance"].to_numpy()
    end, time = frame["end_us"].to_numpy(), events["time_us"].to_numpy()
    said = Events(theirs, time)
    start, stop = said.until(own, end)
    place = said.order[np.maximum(stop - 1, 0)]
    request = {
        c: np.where(stop > start, events[c].to_numpy()[place], np.nan).astype(np.float32)
        for c in ("tier", "cpu_request", "memory_request")
    }
    out = {**request, **vectorized_usage(frame, number, request)}
    begins = np.flatnonzero(np.append(True, number[1:] != number[:-1]))
    begun = np.minimum(frame["start_us"].to_numpy()[begins][number], said.time[start])
    out["age_hours"] = (end - begun) / HOUR_US
    kind = events["event"].astype("category")
    name = kind.cat.categories.to_numpy()
    code = kind.cat.codes.to_numpy()

    def of(which: list[str]) -> np.ndarray:
        return np.isin(name, which)[code]

    scheduled = of(["SCHEDULE"])
    s0, s1 = Events(theirs[scheduled], time[scheduled]).until(own, end)
    out["restarts"] = np.maximum(s1 - s0 - 1, 0)
    out |= vectorized_past(frame, events, of(ENDS), of(FAILURES))
    failed, killed = of(FAILURES), of(["KILL"])
    next_failure = Events(theirs[failed], time[failed]).next(own, end)
    next_kill = Events(theirs[killed], time[killed]).next(own, end)
    labels = np.empty((len(end), len(HORIZONS)), np.int8)
    trace_end = time.max()
    for column, seconds in enumerate(HORIZONS):
        limit = end + seconds * 1_000_000
        dead = (next_kill <= limit) & (next_kill < next_failure)
        quiet = np.where((limit <= trace_end) & ~dead, 0, -1)
        labels[:, column] = np.where((next_failure <= limit) & ~dead, 1, quiet)
    over, begun = of(ENDS), of(STARTS)
    last_end = Events(theirs[over], time[over]).last(own, end)
    last_start = Events(theirs[begun], time[begun]).last(own, end)
    keep = (np.isnan(last_end) | (last_start > last_end)) & (labels != -1).any(axis=1)
    made = frame[[*KEYS, "end_us"]].assign(
        **{n: out[n] for n in FEATURES}, **dict(zip(LABELS, labels.T, strict=True))
    )
    return made[keep].reset_index(drop=True)


def vectorized_usage(
    frame: pd.DataFrame, number: np.ndarray, request: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    cpu_raw = frame["cpu_mean"].to_numpy() / request["cpu_request"]
    peak = frame["cpu_max"].to_numpy() / request["cpu_request"]
    memory = np.minimum(frame["memory_mean"].to_numpy() / request["memory_request"], HIGHEST)
    memory_peak = frame["memory_max"].to_numpy() / request["memory_request"]
    same = [np.append(np.zeros(k, bool), number[k:] == number[:-k]) for k in range(1, LAGS)]

    def lags(values: np.ndarray) -> np.ndarray:
        out = np.full((LAGS, len(values)), np.nan, np.float32)
        out[0] = values
        for k in range(1, LAGS):
            out[k, k:] = np.where(same[k - 1][k:], values[:-k], np.nan)
        return out

    cpu = lags(np.minimum(cpu_raw, HIGHEST))
    y = lags(memory)
    seen = np.isfinite(cpu)
    count = seen.sum(axis=0)
    mean = np.where(seen, cpu, 0).sum(axis=0) / count
    off = np.where(seen, cpu - mean, 0)
    there = np.isfinite(y)
    total = there.sum(axis=0)
    x = np.where(there, -np.arange(LAGS, dtype=np.float32)[:, None] * np.float32(HOURS), 0)
    off_x = np.where(there, x - x.sum(axis=0) / total, 0)
    off_y = np.where(there, y - np.where(there, y, 0).sum(axis=0) / total, 0)
    top, bottom = (off_x * off_y).sum(axis=0), (off_x * off_x).sum(axis=0)
    slope = np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)
    left = np.divide(
        np.maximum(1 - y[0], 0), slope, out=np.full_like(slope, 100.0), where=slope > 1e-3
    )
    burst = np.divide(peak, cpu_raw, out=np.full_like(peak, np.nan), where=cpu_raw > 0)
    return {
        "cpu_over_request": cpu[0],
        "cpu_peak_over_request": np.minimum(peak, HIGHEST),
        "cpu_burst": np.minimum(burst, HIGHEST),
        "cpu_lag_1": cpu[1],
        "cpu_lag_2": cpu[2],
        "cpu_change": cpu[0] - cpu[1],
        "cpu_mean": mean,
        "cpu_spread": np.sqrt((off * off).sum(axis=0) / count),
        "cpu_highest": np.fmax.reduce(cpu, axis=0),
        "memory_over_limit": y[0],
        "memory_peak_over_limit": np.minimum(memory_peak, HIGHEST),
        "memory_lag_1": y[1],
        "memory_lag_2": y[2],
        "memory_change": y[0] - y[1],
        "memory_slope": slope,
        "memory_highest": np.fmax.reduce(y, axis=0),
        "memory_hours_left": np.minimum(left, 100.0),
        "windows_seen": count,
    }


def vectorized_past(
    frame: pd.DataFrame, events: pd.DataFrame, over: np.ndarray, failed: np.ndarray
) -> dict[str, np.ndarray]:
    end = frame["end_us"].to_numpy()
    users = events["user"].astype("category").cat.codes.to_numpy().astype(np.int64)
    job = events["job"].to_numpy()
    jobs, where = np.unique(job, return_index=True)
    own_user = users[where][np.searchsorted(jobs, frame["job"].to_numpy())]
    time, machine = events["time_us"].to_numpy(), events["machine"].to_numpy()
    out: dict[str, np.ndarray] = {}
    for name, group, own in (
        ("job", job, frame["job"].to_numpy()),
        ("user", users, own_user),
    ):
        ends = Events(group[over], time[over])
        start, stop = ends.until(own, end)
        running = np.append(0, np.cumsum(failed[over][ends.order]))
        failures = running[stop] - running[start]
        out[f"{name}_failures"] = np.log1p(failures)
        out[f"{name}_failure_share"] = failures / (stop - start + 2.0)
    for name, group, own in (
        ("job", job, frame["job"].to_numpy()),
        ("machine", machine, frame["machine"].to_numpy()),
    ):
        failures = Events(group[failed], time[failed])
        start, stop = failures.until(own, end)
        known = stop > start
        last = failures.time[np.maximum(stop - 1, 0)]
        out[f"{name}_hours_since_failure"] = np.where(known, (end - last) / HOUR_US, np.nan)
        if name == "machine":
            out["machine_failures"] = np.log1p(stop - start)
    return out
