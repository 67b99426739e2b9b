# SPDX-License-Identifier: Apache-2.0
"""Will this instance fail soon? Yes, no, or nobody can know.

A window that ends at ``e`` is positive for a horizon ``h`` when a failure happens at ``t`` with
``e < t <= e + h``. An instance that is already dead at ``e`` is no row at all. Where the trace ends
before ``e + h``, or somebody killed the instance first, the answer is unknown and the row is left
out rather than called negative. The older rule that also counts a failure at ``e`` itself is kept
under its name, so that the difference can be measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import HORIZONS_SECONDS

Longs = NDArray[np.int64]
Labels = NDArray[np.int8]  # (rows, horizons): 1, 0 or UNKNOWN

UNKNOWN = -1
SECOND_US = 1_000_000
NEVER = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSettings:
    """What counts as a failure, and how long we look ahead."""

    horizons_seconds: tuple[int, ...] = HORIZONS_SECONDS
    failures: tuple[str, ...] = ("FAIL", "LOST")
    kill: Literal["unknown", "end", "failure"] = "unknown"
    """A kill by a user or a parent job: nobody knows what would have been (default), a normal end,
    or a failure."""
    rule: Literal["after", "at-or-after"] = "after"
    """``after``: strictly after the window. ``at-or-after`` is the older rule, for comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """Events of instances that matter for labels, any order. ``instance`` is a dense number."""

    instance: Longs
    time_us: Longs
    event: NDArray[np.object_]  # names


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """Which windows are rows, and their labels."""

    alive: NDArray[np.bool_]  # (windows,)
    labels: Labels  # (windows, horizons)


TERMINAL = ("EVICT", "FAIL", "FINISH", "KILL", "LOST")
REVIVING = ("SUBMIT", "QUEUE", "ENABLE", "SCHEDULE")


def label(
    instance: Longs,
    end_us: Longs,
    fates: Fates,
    *,
    trace_end_us: int,
    complete: bool,
    settings: LabelSettings,
) -> Labelled:
    """Label windows given by instance and end.

    ``complete`` says that every event up to ``trace_end_us`` is known. In a sample it is not: there
    the future of a window is known only when some later event of the instance is.
    """
    failures = set(settings.failures) | ({"KILL"} if settings.kill == "failure" else set())
    strictly = settings.rule == "after"
    is_failure = np.isin(fates.event, sorted(failures))
    next_failure = _next(instance, end_us, fates, is_failure, strictly)
    ends = np.isin(fates.event, TERMINAL)
    starts = np.isin(fates.event, REVIVING)
    last_end = _last(instance, end_us, fates, ends, including=strictly)
    last_start = _last(instance, end_us, fates, starts, including=strictly)
    alive = (last_end < 0) | (last_start > last_end)
    next_kill = np.full(len(instance), NEVER)
    if settings.kill == "unknown":
        next_kill = _next(instance, end_us, fates, fates.event == "KILL", strictly)
    next_any = _next(instance, end_us, fates, np.ones(len(fates.event), bool), True)
    labels = np.empty((len(instance), len(settings.horizons_seconds)), np.int8)
    for column, seconds in enumerate(settings.horizons_seconds):
        limit = end_us + seconds * SECOND_US
        fails = next_failure <= limit
        killed = (next_kill <= limit) & (next_kill < next_failure)
        known = limit <= trace_end_us if complete else next_any < NEVER
        quiet = np.where(known & ~killed, 0, UNKNOWN)
        labels[:, column] = np.where(fails & ~killed, 1, quiet)
    return Labelled(alive=alive, labels=labels)


def _sorted(fates: Fates, keep: NDArray[np.bool_]) -> tuple[Longs, Longs]:
    rows = np.flatnonzero(keep)
    order = np.lexsort((fates.time_us[rows], fates.instance[rows]))
    rows = rows[order]
    return fates.instance[rows], fates.time_us[rows]


def _positions(
    instance: Longs, time: Longs, groups: Longs, times: Longs, side: Literal["left", "right"]
) -> Longs:
    """Where (instance, time) would go among sorted (groups, times)."""
    span = 2 + int(times.max(initial=0))
    clipped = np.clip(time, -1, span - 1)
    return np.searchsorted(groups * span + times, instance * span + clipped, side=side)


def _next(
    instance: Longs, end_us: Longs, fates: Fates, keep: NDArray[np.bool_], strictly: bool
) -> Longs:
    """Time of the instance's next such event, NEVER without one."""
    groups, times = _sorted(fates, keep)
    if not len(groups):
        return np.full(len(instance), NEVER)
    place = _positions(instance, end_us, groups, times, "right" if strictly else "left")
    inside = np.minimum(place, len(groups) - 1)
    found = (place < len(groups)) & (groups[inside] == instance)
    return np.where(found, times[inside], NEVER)


def _last(
    instance: Longs, end_us: Longs, fates: Fates, keep: NDArray[np.bool_], *, including: bool
) -> Longs:
    """Time of the instance's last such event at (or before) the end, -1 without one."""
    groups, times = _sorted(fates, keep)
    if not len(groups):
        return np.full(len(instance), -1)
    place = _positions(instance, end_us, groups, times, "right" if including else "left") - 1
    inside = np.maximum(place, 0)
    found = (place >= 0) & (groups[inside] == instance)
    return np.where(found, times[inside], -1)
