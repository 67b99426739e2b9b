# SPDX-License-Identifier: Apache-2.0
"""Does what is seen now still look like what was trained on?

Every feature's training rows are cut into ten bins; live rows are counted into the same bins and
fade with a half-life of an hour. The population stability index compares the two: below 0.1 nothing
moved, above 0.25 the forecaster had better be trained again. Drift is told, never acted on: whether
a single input is too strange to forecast is the business of ranges and familiarity.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Matrix = NDArray[np.float32]
BINS = 10
HALF_LIFE_SECONDS = 3_600
MOST_ROWS = 256  # of one snapshot; a sample is enough to see a population move
LEAST_ROWS = 1_000.0  # counted, before anything is said
SMALLEST_SHARE = 1e-3  # an empty bin must not make the index infinite


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bins:
    """Bins of every feature and the share of training rows in each."""

    edges: Floats  # (features, BINS - 1)
    shares: Floats  # (features, BINS)

    @classmethod
    def of(cls, rows: Matrix) -> Bins:
        # A feature that was never known has no quantiles; zeros put it into one bin.
        known = np.where(np.isnan(rows).all(axis=0), np.float32(0), rows)
        levels = np.linspace(0, 1, BINS + 1)[1:-1]
        edges = np.nanquantile(known, levels, axis=0).T.astype(np.float64)
        edges = np.vectorize(lambda v: float(f"{v:.5g}"))(edges)
        counts = _count(edges, rows)
        total = np.maximum(counts.sum(axis=1, keepdims=True), 1)
        return cls(edges=edges, shares=np.round(counts / total, 5))

    def to_dict(self) -> dict[str, Any]:
        return {"edges": self.edges.tolist(), "shares": self.shares.tolist()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Bins:
        return cls(edges=np.array(data["edges"], float), shares=np.array(data["shares"], float))


class Drift:
    """Live rows in the bins of training; one per table."""

    def __init__(self, bins: Bins) -> None:
        self._bins = bins
        self._counts = np.zeros_like(bins.shares)
        self._seen = 0.0

    def take(self, rows: Matrix, elapsed_seconds: int) -> None:
        """Count one snapshot's rows; older ones fade."""
        step = max(len(rows) // MOST_ROWS, 1)
        sample = rows[::step]
        fade = 0.5 ** (max(elapsed_seconds, 0) / HALF_LIFE_SECONDS)
        self._counts = self._counts * fade + _count(self._bins.edges, sample)
        self._seen = self._seen * fade + len(sample)

    def index(self) -> Floats | None:
        """(features,) the stability index, or None while too few rows were counted."""
        if self._seen < LEAST_ROWS:
            return None
        total = np.maximum(self._counts.sum(axis=1, keepdims=True), 1.0)
        now = np.maximum(self._counts / total, SMALLEST_SHARE)
        then = np.maximum(self._bins.shares, SMALLEST_SHARE)
        return np.asarray(((now - then) * np.log(now / then)).sum(axis=1))


def _count(edges: Floats, rows: Matrix) -> Floats:
    """(features, BINS) known values by bin."""
    out = np.zeros((len(edges), BINS))
    for feature, cuts in enumerate(edges):
        values = rows[:, feature]
        place = np.searchsorted(cuts, values[np.isfinite(values)], side="right")
        out[feature] = np.bincount(place, minlength=BINS)
    return out
