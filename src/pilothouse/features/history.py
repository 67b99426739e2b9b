# SPDX-License-Identifier: Apache-2.0
"""What was known about a group at a moment: counts, sums and recency, looked up as of then.

Events of a group (a job, a user, a machine) are kept in order of time with running sums. A question
carries its own time and only ever sees events at or before it, so the answer cannot depend on what
comes later: that is the whole protection against leaks, and it is one ``searchsorted``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]


class AsOf:
    """Events by group and time; ask for what had happened by a time."""

    def __init__(self, group: Longs, time: Longs, **sums: NDArray[np.generic]) -> None:
        order = np.lexsort((time, group))
        self._group, self._time = group[order], time[order]
        self._groups, starts = np.unique(self._group, return_index=True)
        self._starts = np.append(starts, len(order)).astype(np.int64)
        # One sorted key for all groups: the rank of the group, then the time since the earliest.
        self._origin = int(self._time.min()) if len(order) else 0
        span = int(self._time.max()) - self._origin + 2 if len(order) else 2
        self._span = span
        rank = np.searchsorted(self._groups, self._group)
        self._key = rank.astype(np.int64) * span + (self._time - self._origin)
        if len(self._groups) * span >= 2**62:
            raise OverflowError("too many groups over too long a time for one sorted key")
        self._sums = {
            name: np.concatenate([[0.0], np.cumsum(values[order], dtype=np.float64)])
            for name, values in sums.items()
        }

    def at(self, group: Longs, time: Longs) -> Moment:
        """A moment for every row: its group's events up to and including its time."""
        rank = np.searchsorted(self._groups, group)
        rank = np.minimum(rank, max(len(self._groups) - 1, 0))
        known = self._groups[rank] == group if len(self._groups) else np.zeros(len(group), bool)
        since = np.clip(time - self._origin, -1, self._span - 1)
        key = rank.astype(np.int64) * self._span + since
        stop = np.searchsorted(self._key, key, side="right")
        start = self._starts[rank]
        stop = np.where(known, np.maximum(stop, start), start)
        return Moment(self, group, time, start, stop.astype(np.int64))


class Moment:
    """Rows of questions, each with the span of events that were known."""

    def __init__(self, history: AsOf, group: Longs, time: Longs, start: Longs, stop: Longs) -> None:
        self._history, self._group, self._time = history, group, time
        self._start, self._stop = start, stop

    @property
    def count(self) -> Longs:
        return self._stop - self._start

    def sum(self, name: str) -> Floats:
        running: Floats = self._history._sums[name]
        return np.asarray(running[self._stop] - running[self._start])

    def mean_of_last(self, name: str, last: int) -> Floats:
        """Mean over the last few events; NaN where there was none."""
        running = self._history._sums[name]
        start = np.maximum(self._stop - last, self._start)
        number = self._stop - start
        total = running[self._stop] - running[start]
        return np.where(number > 0, total / np.maximum(number, 1), np.nan)

    def since(self, microseconds: int) -> Moment:
        """The same questions, limited to the events of the last so many microseconds."""
        before = self._history.at(self._group, self._time - microseconds)
        start = np.maximum(before._stop, self._start)
        return Moment(self._history, self._group, self._time, start, np.maximum(self._stop, start))

    def elapsed(self) -> Floats:
        """Seconds since the last known event; NaN where there was none."""
        if not len(self._history._time):
            return np.full(len(self._time), np.nan)
        last = self._history._time[np.maximum(self._stop - 1, 0)]
        return np.where(self.count > 0, (self._time - last) / 1e6, np.nan)
