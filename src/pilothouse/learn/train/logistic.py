# SPDX-License-Identifier: Apache-2.0
"""Logistic regression on squashed features: the baseline that is hard to beat on little data.

Features are squashed with a signed logarithm and standardized; a missing value becomes the mean.
Newton's method with a ridge, so that it needs no library and always ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilothouse.learn.evaluate.metrics import newton

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Logistic:
    """Weights over standardized features, the last one being the intercept."""

    mean: Floats
    scale: Floats
    weights: Floats

    @classmethod
    def fit(
        cls,
        rows: Matrix,
        outcome: NDArray[np.generic],
        *,
        weight: NDArray[np.generic] | None = None,
        ridge: float = 10.0,
    ) -> Logistic:
        x = squash(rows)
        mean, scale = _moments(x)
        x = np.append(_standard(x, mean, scale), np.ones((len(x), 1)), axis=1)
        y = np.asarray(outcome, float)
        w = np.ones(len(y)) if weight is None else np.asarray(weight, float)
        penalty = ridge * np.eye(x.shape[1])
        penalty[-1, -1] = 1e-6
        return cls(mean=mean, scale=scale, weights=newton(x, y, w, penalty))

    def margin(self, rows: Matrix) -> Floats:
        x = _standard(squash(rows), self.mean, self.scale)
        return np.asarray(x @ self.weights[:-1] + self.weights[-1])


def _moments(x: Floats) -> tuple[Floats, Floats]:
    """Mean and spread of what is known; a column nobody knows is 0 everywhere."""
    known = np.isfinite(x)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, x, 0.0).sum(axis=0) / count
    off = np.where(known, x - mean, 0.0)
    return mean, np.sqrt((off * off).sum(axis=0) / count) + 1e-9


def squash(rows: Matrix) -> Floats:
    x = np.asarray(rows, np.float64)
    return np.asarray(np.sign(x) * np.log1p(np.abs(x) * 10))


def _standard(x: Floats, mean: Floats, scale: Floats) -> Floats:
    return np.nan_to_num(np.clip((x - mean) / scale, -8, 8))
