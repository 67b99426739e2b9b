# SPDX-License-Identifier: Apache-2.0
"""Figures of merit, each small enough to check by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Vector = NDArray[np.generic]
Numbers = NDArray[np.floating]
RESAMPLES = 300


def average_precision(outcome: Vector, score: Vector) -> float:
    """Area under precision over recall, ties taken together; NaN without positives."""
    y = np.asarray(outcome, np.float64)
    total = y.sum()
    if total == 0:
        return float("nan")
    order = np.argsort(-np.asarray(score, np.float64), kind="stable")
    s, y = np.asarray(score, np.float64)[order], y[order]
    last = np.append(np.flatnonzero(np.diff(s)), len(s) - 1)  # end of each group of equal scores
    hits = np.cumsum(y)[last]
    precision = hits / (last + 1)
    gained = np.diff(np.append(0.0, hits))
    return float((precision * gained).sum() / total)


def brier(outcome: Vector, probability: Vector) -> float:
    return float(np.mean((np.asarray(outcome, float) - np.asarray(probability, float)) ** 2))


def brier_skill(outcome: Vector, probability: Vector, base_rate: float) -> float:
    """1 is perfect, 0 is no better than always saying the training base rate."""
    y = np.asarray(outcome, float)
    return 1.0 - brier(y, probability) / max(brier(y, np.full(len(y), base_rate)), 1e-12)


def calibration_slope(outcome: Vector, probability: Vector) -> float:
    """Slope of outcomes over log-odds: 1 is right, below 1 is overconfident."""
    p = np.clip(np.asarray(probability, float), 1e-6, 1 - 1e-6)
    y = np.asarray(outcome, float)
    x = np.stack([np.ones(len(p)), np.log(p / (1 - p))], axis=1)
    return float(newton(x, y, np.ones(len(y)), 1e-9 * np.eye(2))[1])


def newton(x: Floats, y: Floats, weight: Floats, penalty: Floats) -> Floats:
    """Weights of a penalized logistic regression; a step that makes it worse is halved."""
    w = np.zeros(x.shape[1])

    def loss(candidate: Floats) -> float:
        z = x @ candidate
        return float(weight @ (np.logaddexp(0, z) - y * z) + 0.5 * candidate @ penalty @ candidate)

    now = loss(w)
    for _ in range(60):
        mu = 1 / (1 + np.exp(-np.clip(x @ w, -30, 30)))
        gradient = x.T @ (weight * (y - mu)) - penalty @ w
        hessian = (x * (weight * mu * (1 - mu))[:, None]).T @ x + penalty
        step = np.linalg.solve(hessian + 1e-9 * np.eye(len(w)), gradient)
        size = 1.0
        while size > 1e-6 and loss(w + size * step) > now:
            size /= 2
        if size <= 1e-6 or np.abs(size * step).max() < 1e-7:
            break
        w = w + size * step
        now = loss(w)
    return w


def top_ratio(outcome: Vector, probability: Vector, share: float = 0.01) -> float:
    """Observed over predicted among the highest scores."""
    p = np.asarray(probability, float)
    number = max(int(len(p) * share), 1)
    rows = np.argsort(-p, kind="stable")[:number]
    return float(np.asarray(outcome, float)[rows].sum() / max(p[rows].sum(), 1e-9))


def at_budgets(
    outcome: Vector, score: Vector, budgets: tuple[float, ...] = (0.001, 0.01, 0.05)
) -> dict[str, dict[str, float]]:
    """Precision and recall when only so large a share of rows may raise an alert."""
    y = np.asarray(outcome, float)
    order = np.argsort(-np.asarray(score, float), kind="stable")
    out = {}
    for budget in budgets:
        number = max(int(len(y) * budget), 1)
        hits = float(y[order[:number]].sum())
        recall = hits / max(float(y.sum()), 1.0)
        out[f"{100 * budget:g} %"] = {"precision": hits / number, "recall": recall}
    return out


def pinball(actual: Numbers, forecast: Numbers, quantile: float) -> float:
    error = actual - forecast
    return float(np.mean(np.maximum(quantile * error, (quantile - 1) * error)))


def bootstrap(
    group: Vector, figure: Callable[[NDArray[np.intp]], float], *, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """95 % interval of a figure when whole groups (jobs) are drawn again."""
    names, member = np.unique(group, return_inverse=True)
    order = np.argsort(member, kind="stable")
    starts = np.searchsorted(member[order], np.arange(len(names) + 1))
    rows_of = [order[starts[i] : starts[i + 1]] for i in range(len(names))]
    dice = np.random.default_rng(0)
    values = []
    for _ in range(resamples):
        drawn = dice.integers(0, len(names), len(names))
        values.append(figure(np.concatenate([rows_of[i] for i in drawn])))
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return float(low), float(high)


def psi(expected: Floats, actual: Floats, bins: int = 10) -> float:
    """Population stability index: 0 is the same distribution, above 0.25 is drift."""
    edges = np.unique(np.nanquantile(expected, np.linspace(0, 1, bins + 1)[1:-1]))
    a = np.bincount(np.searchsorted(edges, expected), minlength=len(edges) + 1) / len(expected)
    b = np.bincount(np.searchsorted(edges, actual), minlength=len(edges) + 1) / len(actual)
    a, b = np.maximum(a, 1e-4), np.maximum(b, 1e-4)
    return float(((b - a) * np.log(b / a)).sum())
