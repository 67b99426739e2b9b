# SPDX-License-Identifier: Apache-2.0
"""Usage windows of a trace become feature rows with labels, a bucket of jobs at a time.

Windows and events are spread over buckets by job, so that all of a job is in one bucket and the
memory needed is that of one bucket, however long the trace; what crosses jobs is in ``pasts``.
Inside a bucket everything is one sort and a few passes over columns; the features are those of
``features.core``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
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
from pilothouse.learn.crew import HERE, Crew
from pilothouse.learn.dataset.labels import SECOND_US, Fates, Labelled, LabelSettings, label
from pilothouse.learn.dataset.pasts import ENDS, FAILURES, Pasts, event_frames, jobs_of
from pilothouse.learn.traces.importing import ROW_GROUP

BUCKET_ROWS = 400_000
SPREAD_ROWS = 400_000  # spread over the buckets at a time
# What only a trace has; an ablation.
EXTRAS = ("cpi", "mapi", "cpu_p50", "cpu_p90", "scheduling_class", "vertical_scaling", "scheduler")
_SUBMITTED = ("cpu_request", "memory_request", "tier", "scheduling_class")
_KEYS = ["cell", "job", "instance"]
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
    crew: Crew = HERE,
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
            "Jobs at submission need none: pilothouse evaluate risk --dataset "
            f"{dataset.name}"
        )
    buckets = max(1, -(-rows // settings.bucket_rows))
    kept = 0
    with artifacts.replacing(target) as folder:
        spread = _Spread(folder / ".buckets", buckets)
        work = partial(_make_rows, spread, _spread_out(dataset, settings, spread), settings)
        for number, rows_made in enumerate(crew.map(work, range(buckets))):
            kept += rows_made
            progress(number + 1, buckets)
        shutil.rmtree(spread.folder, ignore_errors=True)
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


def _spread_out(dataset: Path, settings: DatasetSettings, spread: _Spread) -> Pasts:
    """All windows and events of a job in one bucket, after one pass over each table."""
    complete = bool(artifacts.load(dataset).facts["complete"])
    columns = list(dict.fromkeys([*_USAGE, *_SUBMITTED, "user", "name"]))
    columns += [c for c in EXTRAS if settings.extras and c not in columns]
    files = sorted((dataset / "usage").glob("*.parquet"))
    events = spread.through("events", event_frames(dataset))
    past = Pasts.from_events(events, jobs_of(dataset), complete=complete)
    for _ in spread.through("usage", (pl.read_parquet(f, columns=columns) for f in files)):
        pass
    return past


def _make_rows(spread: _Spread, past: Pasts, settings: DatasetSettings, number: int) -> int:
    """Write the rows of one bucket beside the buckets; how many there are."""
    frame, events = spread.bucket("usage", number), spread.bucket("events", number)
    made = features_of(frame, events, past, settings)
    if len(made):
        path = spread.folder.with_name(f"rows-{number:05d}.parquet")
        made.write_parquet(path, row_group_size=ROW_GROUP, compression="lz4")
    return len(made)


class _Spread:
    """Rows by job on disk; with a single bucket they stay where they are, in memory."""

    def __init__(self, folder: Path, buckets: int) -> None:
        self.folder, self.buckets = folder, buckets
        self._held: dict[str, list[pl.DataFrame]] = {}
        self._like: dict[str, pl.DataFrame] = {}
        self._parts = 0

    def through(self, table: str, frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Hand frames on, and keep a copy of each row in the bucket of its job."""
        held: list[pl.DataFrame] = []
        for frame in frames:
            self._like[table] = frame.clear()
            held.append(frame)
            # Small files are gathered: a part per file and bucket would be thousands of crumbs.
            if self.buckets > 1 and sum(map(len, held)) >= SPREAD_ROWS:
                self._write(table, held)
            yield frame
        if self.buckets == 1:
            self._held[table] = held
        elif held:
            self._write(table, held)

    def _write(self, table: str, held: list[pl.DataFrame]) -> None:
        frame = pl.concat(held)
        held.clear()
        bucket = (frame["job"].hash(0) % self.buckets).cast(pl.UInt32).alias("bucket")
        parts = frame.with_columns(bucket).partition_by("bucket", as_dict=True, include_key=False)
        self._parts += 1
        for (which,), part in parts.items():
            folder = self.folder / table / f"{which:05d}"
            folder.mkdir(parents=True, exist_ok=True)
            part.write_ipc(folder / f"{self._parts:05d}.arrow", compression="lz4")

    def bucket(self, table: str, number: int) -> pl.DataFrame:
        if self.buckets == 1:
            parts = self._held.pop(table)
        else:
            files = sorted((self.folder / table / f"{number:05d}").glob("*.arrow"))
            parts = [pl.read_ipc(file) for file in files]
        return pl.concat(parts) if parts else self._like[table]


def features_of(
    frame: pl.DataFrame, events: pl.DataFrame, past: Pasts, settings: DatasetSettings
) -> pl.DataFrame:
    """Rows of these windows; ``events`` are all events of their jobs, and may be of others too."""
    if not len(frame):
        return pl.DataFrame()
    frame, numbered = _in_order(frame.with_columns(pl.col("cell").cast(pl.Categorical)), past)
    first = np.flatnonzero(np.append(True, numbered[1:] != numbered[:-1]))
    own = events.join(
        frame[first].select(*_KEYS, "number"), on=_KEYS, how="inner", maintain_order="left"
    )
    requests = _requests(frame, own)
    end = frame["end_us"].to_numpy()
    labelled = _labelled(frame, numbered, end, own, past, settings.labels)
    keep = np.flatnonzero(labelled.alive & (labelled.labels != -1).any(axis=1))
    if not len(keep):
        return pl.DataFrame()
    kept = frame if len(keep) == len(frame) else frame[keep]
    features = core_features(
        _windows(frame, numbered, end, own, requests, keep, settings.window_seconds),
        _past(kept, events, past, requests["machine"][keep]),
    )
    columns = {name: features[:, i] for i, name in enumerate(CORE)}
    for column, seconds in enumerate(settings.labels.horizons_seconds):
        columns[f"label_{seconds}"] = labelled.labels[keep, column]
    if settings.extras:
        columns |= {c: kept[c].cast(pl.Float32).fill_null(float("nan")).to_numpy() for c in EXTRAS}
        columns["scheduling_class"] = requests["scheduling_class"][keep]
    return kept.select(*_KEYS, "end_us", "name", "user").with_columns(
        pl.col("cell").cast(pl.String), *(pl.Series(n, values) for n, values in columns.items())
    )


def _in_order(frame: pl.DataFrame, past: Pasts) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """Windows of an instance side by side in order of time, and a number for each instance."""
    job, instance = past.key(frame, "job"), frame["instance"].to_numpy()
    # Four columns of numbers sort in half the time that a sort of the whole frame takes.
    order = np.lexsort((frame["start_us"].to_numpy(), frame["end_us"].to_numpy(), instance, job))
    job, instance = job[order], instance[order]
    new = (job[1:] != job[:-1]) | (instance[1:] != instance[:-1])
    numbered = np.append(0, np.cumsum(new)).astype(np.int64)
    return frame[order].with_columns(number=pl.Series(numbered)), numbered


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
    past: Pasts,
    settings: LabelSettings,
) -> Labelled:
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
    # By column: everything later works on one lag of all rows at a time.
    out = np.full((len(keep), LAGS), np.nan, np.float32, order="F")
    whole = len(keep) == len(values)
    out[:, 0] = values if whole else values[keep]
    for lag in range(1, min(LAGS, len(values))):
        before = np.full(len(values), np.nan, np.float32)
        np.copyto(before[lag:], values[:-lag], where=numbered[lag:] == numbered[:-lag])
        out[:, lag] = before if whole else before[keep]
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


def _past(
    rows: pl.DataFrame, events: pl.DataFrame, past: Pasts, machine: NDArray[np.int64]
) -> Past:
    end = rows["end_us"].to_numpy()
    job = past.key(rows, "job")
    users = rows.select("cell", "job").join(
        past.user_of, on=["cell", "job"], how="left", maintain_order="left"
    )
    user = users["user_number"].fill_null(-1).to_numpy()
    place = past.key(rows.select("cell", machine=pl.Series(machine)), "machine")
    ends = events.filter(pl.col("event").is_in(ENDS))
    failed = ends["event"].is_in(FAILURES).to_numpy()
    ended, at = past.key(ends, "job"), ends["time_us"].to_numpy()
    by_job, by_user = AsOf(ended, at, failed=failed).at(job, end), past.user.at(user, end)
    job_failed = AsOf(ended[failed], at[failed]).at(job, end)
    by_machine = past.machine.at(place, end)
    unknown = user < 0

    def column(values: NDArray[Any]) -> NDArray[np.float32]:
        return np.asarray(values, np.float32)

    return Past(
        job_failures=column(by_job.sum("failed")),
        job_ends=column(by_job.count),
        job_seconds_since_failure=column(job_failed.elapsed()),
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
