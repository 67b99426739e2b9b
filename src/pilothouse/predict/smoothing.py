# SPDX-License-Identifier: Apache-2.0
"""Exponentially weighted level and slope of one column, row by row, matched by uid.

Rows come and go between two snapshots; a row keeps its history for as long as its uid is there.
Everything is elementwise, so a row's numbers never depend on which other rows exist.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain.snapshot import Uids

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Match:
    """Where the rows of one snapshot were in the one before."""

    found: NDArray[np.bool_]  # (rows,) the uid was there before
    position: NDArray[np.intp]  # (rows,) its old row; meaningless where not found

    @classmethod
    def of(cls, before: Uids, now: Uids) -> Match:
        position = np.searchsorted(before, now)
        inside = position < len(before)
        position = np.where(inside, position, 0)
        found = inside & (before[position] == now) if len(before) else np.zeros(len(now), bool)
        return cls(found, position)

    def carry(self, old: Floats, fresh: Floats | float) -> Floats:
        """The old values of rows that stayed; ``fresh`` for rows never seen."""
        if not len(old):
            return np.broadcast_to(np.asarray(fresh, np.float64), self.found.shape).copy()
        return np.where(self.found, old[self.position], fresh)


def weight(elapsed_seconds: int, half_life_seconds: int) -> float:
    """How much a new sample counts after this much time."""
    return float(1.0 - 0.5 ** (elapsed_seconds / half_life_seconds))


@dataclass(slots=True)
class Trend:
    """Level, slope per second and spread of one column.

    The slope is a weighted mean of increments, divided by the weight seen so far: a young row has
    a noisy slope instead of one that is biased towards zero.
    """

    level: Floats
    increments: Floats
    seen: Floats
    variance: Floats

    @classmethod
    def empty(cls) -> Trend:
        none = np.zeros(0)
        return cls(none, none, none, none)

    def follow(self, values: Floats, match: Match, elapsed: int, level: int, slope: int) -> None:
        """Take a new sample. ``level`` and ``slope`` are half-lives in seconds."""
        held = match.carry(self.level, values)
        increments = match.carry(self.increments, 0.0)
        seen = match.carry(self.seen, 0.0)
        variance = match.carry(self.variance, 0.0)
        if elapsed <= 0:
            self.level, self.increments, self.seen, self.variance = held, increments, seen, variance
            return
        fast, slow = weight(elapsed, level), weight(elapsed, slope)
        known = match.found
        error = values - (held + elapsed * _ratio(increments, seen))
        lifted = held + elapsed * _ratio(increments, seen) + fast * error
        self.level = np.where(known, lifted, values)
        gain = (self.level - held) / elapsed
        self.increments = np.where(known, increments + slow * (gain - increments), 0.0)
        self.seen = np.where(known, seen + slow * (1.0 - seen), 0.0)
        self.variance = np.where(known, variance + fast * (error * error - variance), 0.0)

    @property
    def slope(self) -> Floats:
        """Change per second."""
        return _ratio(self.increments, self.seen)

    @property
    def spread(self) -> Floats:
        """Standard deviation of the one-step error."""
        return np.sqrt(self.variance)


def _ratio(top: Floats, bottom: Floats) -> Floats:
    return np.divide(top, bottom, out=np.zeros_like(top), where=bottom > 0)
