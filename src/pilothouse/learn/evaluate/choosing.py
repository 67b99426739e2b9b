# SPDX-License-Identifier: Apache-2.0
"""Choose a forecaster, or a mixture of several, by how each did on cells it had not seen.

Greedy selection with replacement: start from nothing, add whatever helps the mixture's average
precision most, stop after a few rounds and keep the best mixture on the way. One forecaster, a
blend and a static rule are all possible answers. Mixtures average ranks, because the scores of a
tree, a line and a plain rate have no common unit; equal scores keep equal ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilothouse.learn.evaluate import metrics

Floats = NDArray[np.float64]
ROUNDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One held-out part: what happened there, and what each kind had said."""

    outcome: NDArray[np.generic]
    scores: Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Kinds with how often each was added, and what the mixture reached on the folds."""

    parts: tuple[tuple[str, int], ...]
    inside: float

    @property
    def sentence(self) -> str:
        return " + ".join(f"{count} × {name}" for name, count in self.parts)

    def blend(self, scores: Mapping[str, NDArray[np.generic]]) -> Floats:
        """The mixture's score on rows every part has scored."""
        return mixture([(rank(scores[name]), count) for name, count in self.parts])


def mixture(parts: Sequence[tuple[Floats, int]]) -> Floats:
    total = sum(count for _, count in parts)
    return np.asarray(sum(count * values for values, count in parts) / total)


def rank(values: NDArray[np.generic]) -> Floats:
    """Ranks from 0 to 1, equal values sharing the middle of theirs."""
    _, member, count = np.unique(values, return_inverse=True, return_counts=True)
    above = np.cumsum(count)
    middle = (above - count + above - 1) / 2
    return np.asarray(middle[member] / max(len(values) - 1, 1))


def inside(folds: Sequence[Fold], name: str) -> float:
    """Mean average precision of one kind over the folds."""
    return float(np.mean([metrics.average_precision(f.outcome, f.scores[name]) for f in folds]))


def choose(folds: Sequence[Fold], *, rounds: int = ROUNDS) -> Choice:
    """Greedy selection with replacement over all kinds the folds have scores of."""
    names = sorted(folds[0].scores)
    ranked = [{name: rank(fold.scores[name]) for name in names} for fold in folds]
    totals: list[Floats] = [np.zeros(len(fold.outcome)) for fold in folds]
    picked: list[str] = []
    best: tuple[float, tuple[str, ...]] = (-1.0, ())
    for _ in range(rounds):
        value, name = max(
            (_mean(folds, [t + r[name] for t, r in zip(totals, ranked, strict=True)]), name)
            for name in names
        )
        picked.append(name)
        totals = [t + r[name] for t, r in zip(totals, ranked, strict=True)]
        if value > best[0]:
            best = (value, tuple(picked))
    return Choice(parts=tuple(Counter(best[1]).most_common()), inside=best[0])


def _mean(folds: Sequence[Fold], scores: Sequence[Floats]) -> float:
    pairs = zip(folds, scores, strict=True)
    return float(np.mean([metrics.average_precision(f.outcome, s) for f, s in pairs]))
