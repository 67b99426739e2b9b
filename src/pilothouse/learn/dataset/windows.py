# SPDX-License-Identifier: Apache-2.0
"""Usage windows of a trace become feature rows with labels, a bucket of jobs at a time.

Windows are spread over buckets by job, so that all of an instance is in one bucket and the memory
needed is that of one bucket, however long the trace. Inside a bucket everything is one sort and a
few passes over arrays; the features are those of ``features.core``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pilothouse.errors import TraceUnreadable
from pilothouse.features.core import CORE, LAGS, Past, Windows, core_features
from pilothouse.features.history import AsOf
from pilothouse.learn import artifacts
from pilothouse.learn.artifacts import Manifest
from pilothouse.learn.dataset.labels import SECOND_US, Fates, LabelSettings, label
from pilothouse.learn.traces.importing import ROW_GROUP, table

BUCKET_ROWS = 400_000
# What only a trace has; an ablation.
EXTRAS = ("cpi", "mapi", "cpu_p50", "cpu_p90", "scheduling_class", "vertical_scaling", "scheduler")
_SUBMITTED = ("cpu_request", "memory_request", "tier", "scheduling_class")
_USAGE = [
    "cell",
    "job",
    "instance",
    "machine",
    "start_us",
    "end_us",
    "cpu_mean",
    "cpu_max",
    "memory_mean",
    "memory_max",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSettings:
    """How windows become rows."""

    labels: LabelSettings = field(default_factory=LabelSettings)
    extras: bool = False
    """Also keep what only a trace has, as an ablation."""
    bucket_rows: int = BUCKET_ROWS
    window_seconds: int = 300
    """Nominal distance of two windows, for slopes. Not measured: that would look at all rows."""


def build(
    dataset: Path,
    settings: DatasetSettings | None = None,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Manifest:
    """Write ``features/`` beside the imported tables, whole or not at all."""
    settings = settings or DatasetSettings()
    source = artifacts.load(dataset)
    target = dataset.with_name(f"{dataset.name}-features")
    rows = source.facts["rows"].get("usage", 0)
    if not rows:
        raise TraceUnreadable(
            f"{dataset.name} has no usage windows, so there is nothing to make features of. "
            "Tracks without usage: google-2011 job events are trained with: pilothouse train jobs."
        )
    buckets = max(1, -(-rows // settings.bucket_rows))
    kept = 0
    with artifacts.replacing(target) as folder:
        spread = folder / ".buckets"
        past = _Pasts.of(dataset, complete=bool(source.facts["complete"]))
        for number, frame in enumerate(_bucketed(dataset, spread, buckets)):
            made = _features_of(frame, past, settings)
            kept += len(made)
            if len(made):
                path = folder / f"rows-{number:05d}.parquet"
                made.write_parquet(path, row_group_size=ROW_GROUP, compression="lz4")
            progress(number + 1, buckets)
        shutil.rmtree(spread, ignore_errors=True)
        artifacts.seal(
            folder,
            name=target.name,
            kind="features",
            track=source.track,
            inputs=source.files,
            settings=_plain(asdict(settings)),
            facts={"rows": kept, "windows": rows, "features": list(CORE)},
        )
    return artifacts.load(target)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _bucketed(dataset: Path, spread: Path, buckets: int) -> Iterator[pl.DataFrame]:
    """All windows of a job together; one bucket needs no detour over the disk."""
    columns = list(dict.fromkeys([*_USAGE, *EXTRAS, *_SUBMITTED, "user", "name"]))
    files = sorted((dataset / "usage").glob("*.parquet"))
    if buckets == 1:
        yield pl.read_parquet(files, columns=columns)
        return
    spread.mkdir(parents=True)
    for number, file in enumerate(files):
        frame = pl.read_parquet(file, columns=columns)
        # A multiplicative hash: consecutive job numbers must not share a bucket by their tail.
        bucket = (frame["job"].hash(0) % buckets).cast(pl.UInt32).alias("bucket")
        for (which,), part in (
            frame.with_columns(bucket)
            .partition_by("bucket", as_dict=True, include_key=False)
            .items()
        ):
            folder = spread / f"{which:05d}"
            folder.mkdir(exist_ok=True)
            part.write_ipc(folder / f"{number:05d}.arrow", compression="lz4")
    for which in range(buckets):
        parts = sorted((spread / f"{which:05d}").glob("*.arrow"))
        if parts:
            yield pl.concat([pl.read_ipc(part) for part in parts])
        else:
            yield pl.DataFrame(schema=dict.fromkeys(columns, pl.Float32)).clear()


@dataclass(slots=True)
class _Pasts:
    """Everything about events that rows of any bucket may ask for, as of their own time."""

    events: pl.DataFrame
    trace_end: dict[str, int]
    complete: bool
    job: AsOf
    job_failed: AsOf
    user: AsOf
    machine: AsOf
    user_of: pl.DataFrame

    @classmethod
    def of(cls, dataset: Path, *, complete: bool) -> _Pasts:
        events = (
            table(dataset, "events")
            .select(
                "cell",
                "job",
                "instance",
                "time_us",
                "event",
                "machine",
                "user",
                "tier",
                "scheduling_class",
                "cpu_request",
                "memory_request",
            )
            .filter(pl.col("time_us") < 2**62)
            .with_columns(
                user=pl.col("user").cast(pl.Categorical), cell=pl.col("cell").cast(pl.Categorical)
            )
            .collect()
        )
        if not len(events):
            raise TraceUnreadable(
                f"{dataset.name} has usage but no events, so nothing to forecast."
            )
        jobs = table(dataset, "jobs").select("cell", "job", "user").collect()
        user_of = pl.concat(
            [
                jobs.with_columns(
                    pl.col("cell").cast(pl.Categorical), pl.col("user").cast(pl.Categorical)
                ),
                events.select("cell", "job", "user"),
            ]
        )
        user_of = (
            user_of.drop_nulls("user")
            .unique(subset=["cell", "job"], keep="first", maintain_order=True)
            .with_columns(user_number=pl.struct("cell", "user").rank("dense").cast(pl.Int64))
            .select("cell", "job", "user_number")
        )
        return cls.from_events(events, user_of, complete)

    @classmethod
    def from_events(cls, events: pl.DataFrame, user_of: pl.DataFrame, complete: bool) -> _Pasts:
        """The pasts that these events make."""
        ends = events.filter(
            pl.col("event").cast(pl.String).is_in(["EVICT", "FAIL", "FINISH", "KILL", "LOST"])
        ).join(user_of, on=["cell", "job"], how="left")
        failed = ends["event"].cast(pl.String).is_in(["FAIL", "LOST"]).to_numpy()
        time = ends["time_us"].to_numpy()
        job = _cell_key(ends, "job")
        user = ends["user_number"].fill_null(0).to_numpy()
        machine = _cell_key(ends.with_columns(pl.col("machine").fill_null(0)), "machine")
        trace_end = dict(events.group_by("cell").agg(pl.col("time_us").max()).iter_rows())
        return cls(
            events=events,
            trace_end={str(k): int(v) for k, v in trace_end.items()},
            complete=complete,
            job=AsOf(job, time, failed=failed),
            job_failed=AsOf(job[failed], time[failed]),
            user=AsOf(user, time, failed=failed),
            machine=AsOf(machine[failed], time[failed]),
            user_of=user_of,
        )


def _cell_key(frame: pl.DataFrame, column: str) -> NDArray[np.int64]:
    """One number per (cell, value); cells are few and values are below 2^40 in every trace."""
    cell = frame["cell"].cast(pl.Categorical).to_physical().cast(pl.Int64).to_numpy()
    value = frame[column].to_numpy().astype(np.int64)
    return np.asarray((cell << 48) ^ value, np.int64)


def _features_of(frame: pl.DataFrame, past: _Pasts, settings: DatasetSettings) -> pl.DataFrame:
    if not len(frame):
        return pl.DataFrame()
    keys = ["cell", "job", "instance"]
    frame = frame.with_columns(pl.col("cell").cast(pl.Categorical)).sort(
        *keys, "end_us", "start_us"
    )
    numbered = frame.select(pl.struct(keys).rle_id().cast(pl.Int64)).to_series().to_numpy()
    frame = frame.with_columns(number=pl.Series(numbered))
    names = frame.unique(subset="number", keep="first", maintain_order=True).select(*keys, "number")
    events = past.events.join(names, on=keys, how="inner", maintain_order="left")
    requests = _requests(frame, events)
    end = frame["end_us"].to_numpy()
    labelled = _labelled(frame, numbered, end, events, past, settings.labels)
    keep = np.flatnonzero(labelled.alive & (labelled.labels != -1).any(axis=1))
    if not len(keep):
        return pl.DataFrame()
    features = core_features(
        _windows(frame, numbered, end, events, requests, keep, settings.window_seconds),
        _past(frame[keep], past, requests["machine"][keep]),
    )
    out = (
        frame[keep]
        .select("cell", "job", "instance", "end_us", "name", "user")
        .with_columns(pl.col("cell").cast(pl.String))
    )
    columns = {name: features[:, i] for i, name in enumerate(CORE)}
    for column, seconds in enumerate(settings.labels.horizons_seconds):
        columns[f"label_{seconds}"] = labelled.labels[keep, column]
    if settings.extras:
        kept = frame[keep]
        columns |= {c: kept[c].cast(pl.Float32).fill_null(float("nan")).to_numpy() for c in EXTRAS}
        columns["scheduling_class"] = requests["scheduling_class"][keep]
    return out.with_columns(pl.Series(name, values) for name, values in columns.items())


def _requests(frame: pl.DataFrame, events: pl.DataFrame) -> dict[str, NDArray[Any]]:
    """Requests, tier and machine as the latest event at or before the window's end said them."""
    columns = list(_SUBMITTED)
    known = events.filter(pl.col("cpu_request").is_not_null()).sort("time_us")
    order = frame.select("number", "end_us").with_row_index("place").sort("end_us")
    joined = order.join_asof(
        known.select("number", "time_us", *columns),
        left_on="end_us",
        right_on="time_us",
        by="number",
        strategy="backward",
        check_sortedness=False,
    ).sort("place")
    # What the trace published beside the window wins: it was said about this very window.
    out: dict[str, NDArray[Any]] = {
        c: pl.select(frame[c].cast(pl.Float32).fill_null(joined[c].cast(pl.Float32)))
        .to_series()
        .fill_null(float("nan"))
        .to_numpy()
        .copy()
        for c in columns
    }
    out["machine"] = frame["machine"].fill_null(0).to_numpy()
    return out


def _labelled(
    frame: pl.DataFrame,
    numbered: NDArray[np.int64],
    end: NDArray[np.int64],
    events: pl.DataFrame,
    past: _Pasts,
    settings: LabelSettings,
) -> Any:
    from pilothouse.learn.dataset.labels import Labelled

    fates = Fates(
        instance=events["number"].to_numpy(),
        time_us=events["time_us"].to_numpy(),
        event=events["event"].cast(pl.String).to_numpy(),
    )
    cells = frame["cell"].cast(pl.String)
    alive = np.zeros(len(frame), bool)
    labels = np.full((len(frame), len(settings.horizons_seconds)), -1, np.int8)
    for cell in cells.unique().to_list():
        rows = np.flatnonzero((cells == cell).to_numpy())
        part = label(
            numbered[rows],
            end[rows],
            fates,
            trace_end_us=past.trace_end.get(str(cell), 0),
            complete=past.complete,
            settings=settings,
        )
        alive[rows], labels[rows] = part.alive, part.labels
    return Labelled(alive=alive, labels=labels)


def _windows(
    frame: pl.DataFrame,
    numbered: NDArray[np.int64],
    end: NDArray[np.int64],
    events: pl.DataFrame,
    requests: dict[str, NDArray[Any]],
    keep: NDArray[np.intp],
    window_seconds: int,
) -> Windows:
    cpu_request = _positive(requests["cpu_request"])
    memory_request = _positive(requests["memory_request"])
    start = frame["start_us"].to_numpy()
    starts = AsOf(
        events["number"].to_numpy(),
        events["time_us"].to_numpy(),
        scheduled=(events["event"].cast(pl.String) == "SCHEDULE").to_numpy(),
    )
    moment = starts.at(numbered[keep], end[keep])
    first = _first_time(events, numbered[keep], start, numbered, keep)
    return Windows(
        cpu=_lags(_column(frame, "cpu_mean") / cpu_request, numbered, keep),
        memory=_lags(_column(frame, "memory_mean") / memory_request, numbered, keep),
        cpu_peak=(_column(frame, "cpu_max") / cpu_request)[keep],
        memory_peak=(_column(frame, "memory_max") / memory_request)[keep],
        window_hours=window_seconds / 3600.0,
        age_seconds=((end[keep] - first) / SECOND_US).astype(np.float32),
        restarts=np.maximum(moment.sum("scheduled") - 1, 0).astype(np.float32),
        tier=requests["tier"][keep],
        cpu_request=requests["cpu_request"][keep],
        memory_request=requests["memory_request"][keep],
    )


def _column(frame: pl.DataFrame, name: str) -> NDArray[np.float32]:
    return np.asarray(frame[name].to_numpy(), np.float32)


def _positive(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.where(values > 0, values, np.float32(np.nan))


def _lags(
    values: NDArray[np.float32], numbered: NDArray[np.int64], keep: NDArray[np.intp]
) -> NDArray[np.float32]:
    """(rows, LAGS) of the same instance's windows, newest first, NaN before its first."""
    out = np.full((len(keep), LAGS), np.nan, np.float32)
    for lag in range(LAGS):
        back = keep - lag
        inside = back >= 0
        same = inside & (numbered[np.maximum(back, 0)] == numbered[keep])
        out[same, lag] = values[back[same]]
    return out


def _first_time(
    events: pl.DataFrame,
    instance: NDArray[np.int64],
    start: NDArray[np.int64],
    numbered: NDArray[np.int64],
    keep: NDArray[np.intp],
) -> NDArray[np.int64]:
    """When the instance was first heard of at or before each row: an event or a window."""
    begins = np.flatnonzero(np.append(True, numbered[1:] != numbered[:-1]))
    first_window = start[begins][np.searchsorted(begins, keep, side="right") - 1]
    earliest = events.group_by("number").agg(pl.col("time_us").min()).sort("number")
    number, time = earliest["number"].to_numpy(), earliest["time_us"].to_numpy()
    if not len(number):
        return first_window
    place = np.minimum(np.searchsorted(number, instance), len(number) - 1)
    known = number[place] == instance
    # An event later than the first window would be from the future of some row: the window wins.
    return np.where(known, np.minimum(time[place], first_window), first_window)


def _past(rows: pl.DataFrame, past: _Pasts, machine: NDArray[np.int64]) -> Past:
    end = rows["end_us"].to_numpy()
    job = _cell_key(rows, "job")
    users = rows.join(past.user_of, on=["cell", "job"], how="left", maintain_order="left")
    user = users["user_number"].fill_null(-1).to_numpy()
    place = _cell_key(rows.with_columns(machine=pl.Series(machine)), "machine")
    by_job, by_user = past.job.at(job, end), past.user.at(user, end)
    by_machine = past.machine.at(place, end)
    unknown = user < 0

    def column(values: NDArray[Any]) -> NDArray[np.float32]:
        return np.asarray(values, np.float32)

    return Past(
        job_failures=column(by_job.sum("failed")),
        job_ends=column(by_job.count),
        job_seconds_since_failure=column(past.job_failed.at(job, end).elapsed()),
        # An unknown user has no history; it must look like a user nobody has seen before.
        user_failures=column(np.where(unknown, 0, by_user.sum("failed"))),
        user_ends=column(np.where(unknown, 0, by_user.count)),
        machine_failures=column(by_machine.count),
        machine_seconds_since_failure=column(by_machine.elapsed()),
    )


def load(features: Path, columns: list[str] | None = None) -> pl.DataFrame:
    """Rows of a features artefact."""
    artifacts.load(features)
    files = sorted(features.glob("rows-*.parquet"))
    return pl.read_parquet(files, columns=columns) if files else pl.DataFrame()
