# SPDX-License-Identifier: Apache-2.0
"""The one schema every trace is read into.

Events carry names, never numbers: the 2011 and 2019 traces of Google use the same small numbers
for different events, and a file whose version nobody knows is refused. Times are microseconds on
the trace's own clock; 0 means "before the trace" and the largest integer "after it". CPU and memory
are shares of the largest machine of the cell, as the Google traces publish them; readers of other
traces divide by the largest machine they know.
"""

from __future__ import annotations

from enum import StrEnum

import polars as pl

from pilothouse.errors import TraceUnreadable

BEFORE_TRACE_US = 0
AFTER_TRACE_US = 2**63 - 1
SECOND_US = 1_000_000


class Event(StrEnum):
    """What can happen to an instance or a job."""

    SUBMIT = "SUBMIT"
    QUEUE = "QUEUE"
    ENABLE = "ENABLE"
    SCHEDULE = "SCHEDULE"
    EVICT = "EVICT"
    FAIL = "FAIL"
    FINISH = "FINISH"
    KILL = "KILL"
    LOST = "LOST"
    UPDATE_PENDING = "UPDATE_PENDING"
    UPDATE_RUNNING = "UPDATE_RUNNING"


class MachineEvent(StrEnum):
    """What can happen to a machine."""

    ADD = "ADD"
    REMOVE = "REMOVE"
    UPDATE = "UPDATE"


TERMINAL = (Event.EVICT, Event.FAIL, Event.FINISH, Event.KILL, Event.LOST)
REVIVING = (Event.SUBMIT, Event.QUEUE, Event.ENABLE, Event.SCHEDULE)

# The numbers of each published version, in order.
CODES: dict[str, tuple[Event, ...]] = {
    "google-2011": (
        Event.SUBMIT,
        Event.SCHEDULE,
        Event.EVICT,
        Event.FAIL,
        Event.FINISH,
        Event.KILL,
        Event.LOST,
        Event.UPDATE_PENDING,
        Event.UPDATE_RUNNING,
    ),
    "google-2019": tuple(Event),
}
MACHINE_CODES = {
    "google-2011": (MachineEvent.ADD, MachineEvent.REMOVE, MachineEvent.UPDATE),
    # 2019 starts at 1; 0 is never published.
    "google-2019": (None, MachineEvent.ADD, MachineEvent.REMOVE, MachineEvent.UPDATE),
}


def event_names(version: str) -> dict[int, str]:
    """Number to name for one version; an unknown version is refused, never guessed."""
    if version not in CODES:
        raise TraceUnreadable(
            f'Unknown trace version "{version}": its event numbers could mean anything. '
            f"Known: {', '.join(sorted(CODES))}."
        )
    return {code: str(event) for code, event in enumerate(CODES[version])}


EVENT = pl.Enum([str(e) for e in Event])
MACHINE_EVENT = pl.Enum([str(e) for e in MachineEvent])

TABLES: dict[str, dict[str, pl.DataType | type[pl.DataType]]] = {
    "events": {  # of instances
        "cell": pl.String,
        "job": pl.Int64,
        "instance": pl.Int32,
        "time_us": pl.Int64,
        "event": EVENT,
        "machine": pl.Int64,
        "user": pl.String,
        "name": pl.String,
        "tier": pl.Int8,
        "scheduling_class": pl.Int8,
        "cpu_request": pl.Float32,
        "memory_request": pl.Float32,
    },
    "usage": {  # of instances, one row per window
        "cell": pl.String,
        "job": pl.Int64,
        "instance": pl.Int32,
        "machine": pl.Int64,
        "start_us": pl.Int64,
        "end_us": pl.Int64,
        "cpu_mean": pl.Float32,
        "cpu_max": pl.Float32,
        "memory_mean": pl.Float32,
        "memory_max": pl.Float32,
        # Only a trace has these; they are an ablation, never part of the core schema.
        "cpi": pl.Float32,
        "mapi": pl.Float32,
        "cpu_p50": pl.Float32,
        "cpu_p90": pl.Float32,
        # Attributes of the submission, where a trace publishes them beside the window.
        "cpu_request": pl.Float32,
        "memory_request": pl.Float32,
        "tier": pl.Int8,
        "scheduling_class": pl.Int8,
        "vertical_scaling": pl.Int8,
        "scheduler": pl.Int8,
        "user": pl.String,
        "name": pl.String,
    },
    "jobs": {
        "cell": pl.String,
        "job": pl.Int64,
        "time_us": pl.Int64,
        "event": EVENT,
        "user": pl.String,
        "name": pl.String,
        "tier": pl.Int8,
        "scheduling_class": pl.Int8,
    },
    "machines": {
        "cell": pl.String,
        "machine": pl.Int64,
        "time_us": pl.Int64,
        "event": MACHINE_EVENT,
        "cpu_capacity": pl.Float32,
        "memory_capacity": pl.Float32,
    },
    "machine_usage": {
        "cell": pl.String,
        "machine": pl.Int64,
        "start_us": pl.Int64,
        "end_us": pl.Int64,
        "cpu_mean": pl.Float32,
        "cpu_max": pl.Float32,
        "memory_mean": pl.Float32,
        "memory_max": pl.Float32,
    },
}
# Without these a row says nothing; everything else may be missing.
REQUIRED: dict[str, tuple[str, ...]] = {
    "events": ("cell", "job", "instance", "time_us", "event"),
    "usage": ("cell", "job", "instance", "start_us", "end_us", "cpu_mean", "memory_mean"),
    "jobs": ("cell", "job", "time_us", "event"),
    "machines": ("cell", "machine", "time_us", "event"),
    "machine_usage": ("cell", "machine", "start_us", "end_us", "cpu_mean"),
}


def tier_2019(priority: pl.Expr) -> pl.Expr:
    """Free, best effort, middle, production: 0 to 3, as the trace's documentation groups them."""
    return (
        pl.when(priority <= 99)
        .then(0)
        .when(priority <= 115)
        .then(1)
        .when(priority <= 119)
        .then(2)
        .otherwise(3)
        .cast(pl.Int8)
    )


def tier_2011(priority: pl.Expr) -> pl.Expr:
    """Gratis, other, production and monitoring, on the same scale of 0 to 3."""
    return pl.when(priority <= 1).then(0).when(priority <= 8).then(1).otherwise(3).cast(pl.Int8)
