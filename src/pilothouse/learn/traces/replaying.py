# SPDX-License-Identifier: Apache-2.0
"""An imported trace becomes a scenario: its load, arrivals and failures on the simulator.

The simulator has its own machines and pods, so a replay keeps *when* and *how much*, not the names:
the busiest jobs drive the services' load window by window, submissions become batch arrivals, a
failed instance a leak that ends in a kill about when it failed, a removed machine a lost node.
What the trace does not tell (latency, disruption budgets) stays the simulator's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import yaml

from pilothouse.errors import TraceUnreadable
from pilothouse.home import folder
from pilothouse.learn import artifacts
from pilothouse.learn.traces.importing import table

SERVICES = 8
HOURS = 6  # of trace time; more does not fit a scenario file
STEP_SECONDS = 300
LEAK_SECONDS = 300
MOST_EVENTS = 4_000


def scenario_of(dataset: str, *, speed: float = 1.0) -> Path:
    """Write the scenario file of a dataset and say where it is."""
    source = artifacts.find(dataset, "processed")
    script = script_of(source, speed)
    if not script:
        raise TraceUnreadable(
            f"{source.name} has neither usage, submissions nor failures to replay. "
            "Import a trace with instance events."
        )
    document = {
        "description": f"The first {HOURS} hours of {source.name}, {speed:g} times as fast.",
        "services": {"count": SERVICES},
        "load": {"trough_permille": 100, "peak_permille": 200},
        "exerciser": {"script": script},
    }
    path = folder("runtime") / f"trace-{source.name}.yaml"
    artifacts.write_atomically(path, yaml.safe_dump(document, sort_keys=False).encode())
    return path


def script_of(source: Path, speed: float) -> list[dict[str, Any]]:
    """Stresses in order of time."""
    events = table(source, "events").filter(pl.col("time_us") > 0).collect()
    if not len(events):
        return []
    origin = int(events["time_us"].min() or 0)  # type: ignore[arg-type]
    until = origin + HOURS * 3600 * 1_000_000
    events = events.filter(pl.col("time_us") <= until)
    jobs = _busiest(source, origin, until, events)
    clock = _Clock(origin, speed)
    script = [
        *_load(source, jobs, origin, until, clock),
        *_failures(events, jobs, clock),
        *_arrivals(events, clock),
        *_losses(source, origin, until, clock),
    ]
    script.sort(key=lambda told: (told["at_seconds"], told["kind"], told["target"]))
    return script[:MOST_EVENTS]


class _Clock:
    def __init__(self, origin: int, speed: float) -> None:
        self._origin, self._speed = origin, speed

    def seconds(self, time_us: int) -> int:
        return max(int((time_us - self._origin) / 1e6 / self._speed), 0)

    def length(self, seconds: float) -> int:
        return max(int(seconds / self._speed), 5)


def _busiest(
    source: Path, origin: int, until: int, events: pl.DataFrame
) -> dict[tuple[str, int], int]:
    """The jobs with most windows, each a service; without usage, those with most failures."""
    usage = table(source, "usage").filter(pl.col("end_us").is_between(origin, until))
    top = usage.group_by("cell", "job").len().sort("len", "job", descending=True).head(SERVICES)
    rows = top.collect()
    failing = (
        events.filter(pl.col("event").cast(pl.String).is_in(["FAIL", "LOST"]))
        .group_by("cell", "job")
        .len()
        .sort("len", "job", descending=True)
    )
    # Half of the services fail if anything fails: a quiet replay would show nothing.
    chosen = [*failing.head(SERVICES // 2).rows(), *rows.rows()]
    unique = dict.fromkeys((str(cell), int(job)) for cell, job, _ in chosen)
    return {key: number for number, key in enumerate(list(unique)[:SERVICES])}


def _load(
    source: Path, jobs: dict[tuple[str, int], int], origin: int, until: int, clock: _Clock
) -> list[dict[str, Any]]:
    requests = (
        table(source, "events").group_by("cell", "job").agg(request=pl.col("cpu_request").median())
    )
    usage = (
        table(source, "usage")
        .filter(pl.col("end_us").is_between(origin, until))
        .with_columns(step=(pl.col("end_us") - origin) // (STEP_SECONDS * 1_000_000))
        .group_by("cell", "job", "step")
        .agg(cpu=pl.col("cpu_mean").mean())
        .join(requests, on=["cell", "job"])
        .with_columns(level=(1000 * pl.col("cpu") / pl.col("request")).clip(0, 3000))
        .drop_nulls("level")
        .filter(pl.col("level").is_finite())
        .sort("cell", "job", "step")
        .collect()
    )
    out = []
    for cell, job, step, level in usage.select("cell", "job", "step", "level").iter_rows():
        if (str(cell), int(job)) in jobs and level >= 1:
            at = origin + step * STEP_SECONDS * 1_000_000
            out.append(
                _told(
                    "cpu-saturation",
                    clock.seconds(at),
                    clock.length(STEP_SECONDS),
                    int(level),
                    jobs[(str(cell), int(job))],
                )
            )
    return out


def _failures(
    events: pl.DataFrame, jobs: dict[tuple[str, int], int], clock: _Clock
) -> list[dict[str, Any]]:
    failed = events.filter(pl.col("event").cast(pl.String).is_in(["FAIL", "LOST"]))
    # Instances of one job that fail within a window are one leak of its service.
    when = {
        (jobs[(str(cell), int(job))], int(time) // (LEAK_SECONDS * 1_000_000))
        for cell, job, time in failed.select("cell", "job", "time_us").iter_rows()
        if (str(cell), int(job)) in jobs
    }
    out = []
    for service, window in sorted(when):
        at = clock.seconds(window * LEAK_SECONDS * 1_000_000) - LEAK_SECONDS
        # Seven percent of the limit more within the time it takes, whatever the replay's speed.
        out.append(_told("memory-growth", max(at, 0), 2 * LEAK_SECONDS, 140, service))
    return out


def _arrivals(events: pl.DataFrame, clock: _Clock) -> list[dict[str, Any]]:
    steps = (
        events.filter(pl.col("event") == "SUBMIT")
        .with_columns(step=pl.col("time_us") // (STEP_SECONDS * 1_000_000))
        .group_by("step")
        .len()
        .sort("step")
    )
    most = max(int(steps["len"].max() or 1), 1)  # type: ignore[arg-type]
    return [
        _told(
            "queue-surge",
            clock.seconds(step * STEP_SECONDS * 1_000_000),
            clock.length(STEP_SECONDS),
            max(int(200 * count / most), 1),
            0,
        )
        for step, count in steps.iter_rows()
    ]


def _losses(source: Path, origin: int, until: int, clock: _Clock) -> list[dict[str, Any]]:
    removed = (
        table(source, "machines")
        .filter((pl.col("event") == "REMOVE") & pl.col("time_us").is_between(origin, until))
        .sort("time_us", "machine")
        .collect()
    )
    return [
        _told("sudden-node-loss", clock.seconds(time), 5, 1, int(machine) % 97)
        for machine, time in removed.select("machine", "time_us").iter_rows()
    ]


def _told(kind: str, at: int, duration: int, magnitude: int, target: int) -> dict[str, Any]:
    return {
        "kind": kind,
        "at_seconds": at,
        "duration_seconds": duration,
        "magnitude": magnitude,
        "target": target,
    }
