# SPDX-License-Identifier: Apache-2.0
"""A margin becomes probabilities that mean what they say, one per horizon.

Each horizon has its own monotone table from margin to probability. A longer horizon can never be
less likely than a shorter one, so the row's running maximum is taken at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """Monotone tables, one per horizon, linear between their points."""

    margins: tuple[Floats, ...]  # ascending
    probabilities: tuple[Floats, ...]  # never falling

    def __call__(self, margin: Floats) -> Floats:
        """(rows, horizons)."""
        out = np.stack(
            [
                np.interp(margin, points, values)
                for points, values in zip(self.margins, self.probabilities, strict=True)
            ],
            axis=1,
        )
        return np.maximum.accumulate(out, axis=1)

    def to_dict(self) -> dict[str, Any]:
        return {
            "margins": [[round(float(v), 6) for v in m] for m in self.margins],
            "probabilities": [[round(float(v), 6) for v in p] for p in self.probabilities],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Calibration:
        return cls(
            margins=tuple(np.array(m, float) for m in data["margins"]),
            probabilities=tuple(np.array(p, float) for p in data["probabilities"]),
        )


def isotonic(
    margin: Floats, outcome: NDArray[np.generic], *, least: int = 50
) -> tuple[Floats, Floats]:
    """The monotone step function closest to the outcomes, as points to interpolate between.

    Pools adjacent violators. Ends are pulled in by ``least`` pseudo rows at the base rate, so that
    a handful of rows cannot claim certainty.
    """
    order = np.argsort(margin, kind="stable")
    x, y = margin[order], np.asarray(outcome, float)[order]
    if not len(x):
        return np.array([0.0]), np.array([0.0])
    base = float(y.mean())
    # Bins of at least `least` rows first: cheap, and a first guard against certainty.
    edges = np.unique(np.append(np.arange(0, len(x), least), len(x)))
    level: list[float] = []
    weight: list[float] = []
    middle: list[float] = []
    for start, stop in pairwise(edges.tolist()):
        level.append(float(y[start:stop].mean()))
        weight.append(float(stop - start))
        middle.append(float(x[start:stop].mean()))
        while len(level) > 1 and level[-2] >= level[-1]:
            total = weight[-2] + weight[-1]
            level[-2:] = [(level[-2] * weight[-2] + level[-1] * weight[-1]) / total]
            middle[-2:] = [(middle[-2] * weight[-2] + middle[-1] * weight[-1]) / total]
            weight[-2:] = [total]
    level, weight, middle = _joined(level, weight, middle)
    shrunk = [
        (value * count + base) / (count + 1.0) for value, count in zip(level, weight, strict=True)
    ]
    values = np.maximum.accumulate(np.clip(shrunk, 0.0, 1.0))
    points = np.maximum.accumulate(np.array(middle))
    return _thin(points, values)


def _joined(
    level: list[float], weight: list[float], middle: list[float]
) -> tuple[list[float], list[float], list[float]]:
    """Blocks at one and the same margin as one block: equal margins deserve equal probabilities."""
    out: tuple[list[float], list[float], list[float]] = ([], [], [])
    for value, count, place in zip(level, weight, middle, strict=True):
        if out[2] and place <= out[2][-1]:
            total = out[1][-1] + count
            out[0][-1] = (out[0][-1] * out[1][-1] + value * count) / total
            out[1][-1] = total
            continue
        for column, number in zip(out, (value, count, place), strict=True):
            column.append(number)
    return out


def _thin(points: Floats, values: Floats, most: int = 64) -> tuple[Floats, Floats]:
    if len(points) <= most:
        return points, values
    keep = np.unique(np.linspace(0, len(points) - 1, most).round().astype(int))
    return points[keep], values[keep]
