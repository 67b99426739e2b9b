# SPDX-License-Identifier: Apache-2.0
"""Boosted trees as plain arrays: evaluated and explained with NumPy alone.

Training needs a boosting library, deciding does not. Trees are padded to complete binary trees, so
that a whole batch walks down level by level without branches. Contributions are exact Shapley
values of the tree's own expectations: each leaf is a product game over the few features on its
path, so summing over their subsets is cheap at the depths used here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilothouse.errors import ArtifactBroken

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]
CHUNK_ROWS = 8_192  # a chunk's scratch stays in the processor's cache


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ensemble:
    """Trees of one depth. A missing value (NaN) goes where the tree learned to send it."""

    depth: int
    bias: float
    feature: NDArray[np.int32]  # (trees, 2**depth - 1)
    threshold: NDArray[np.float32]  # (trees, 2**depth - 1): left when value < threshold
    missing_left: NDArray[np.bool_]  # (trees, 2**depth - 1)
    leaf: NDArray[np.float32]  # (trees, 2**depth)
    cover: NDArray[np.float32]  # (trees, 2**(depth + 1) - 1), rows seen in training

    def margin(self, rows: Matrix) -> Floats:
        """(rows,) sum of leaves and bias."""
        out = np.empty(len(rows))
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk = rows[start : start + CHUNK_ROWS]
            out[start : start + CHUNK_ROWS] = self._margin(chunk)
        return out

    def _margin(self, rows: Matrix) -> Floats:
        columns = np.ascontiguousarray(rows.T)
        total = np.full(len(rows), self.bias)
        inner = 2**self.depth - 1
        flat, number = columns.ravel(), len(rows)
        here = np.arange(number)
        for tree in range(len(self.leaf)):
            feature, threshold = self.feature[tree] * number, self.threshold[tree]
            missing = self.missing_left[tree]
            node = np.zeros(number, np.int64)
            for _ in range(self.depth):
                value = flat[feature[node] + here]
                # not (value >= threshold) is also true for NaN, which then needs its own rule.
                right = value >= threshold[node]
                absent = np.isnan(value)
                if absent.any():
                    right |= absent & ~missing[node]
                node = 2 * node + 1 + right
            total += self.leaf[tree][node - inner]
        return total

    def contributions(self, rows: Matrix) -> Floats:
        """(rows, features + 1): what each feature adds to the margin; the last is the baseline."""
        out = np.zeros((len(rows), rows.shape[1] + 1))
        out[:, -1] = self.bias
        for tree in range(len(self.leaf)):
            self._explain_tree(tree, rows, out)
        return out

    def _explain_tree(self, tree: int, rows: Matrix, out: Floats) -> None:
        inner = 2**self.depth - 1
        for leaf in range(2**self.depth):
            node = leaf + inner
            followed: dict[int, NDArray[np.bool_]] = {}
            share: dict[int, float] = {}
            reachable = 1.0
            while node:
                parent = (node - 1) // 2
                feature = int(self.feature[tree, parent])
                goes = self._goes(tree, parent, rows[:, feature], right=node == 2 * parent + 2)
                above = float(self.cover[tree, parent])
                ratio = float(self.cover[tree, node]) / above if above > 0 else 0.0
                followed[feature] = followed.get(feature, True) & goes
                share[feature] = share.get(feature, 1.0) * ratio
                reachable *= ratio
                node = parent
            value = float(self.leaf[tree, leaf])
            out[:, -1] += value * reachable
            _product_game(value, followed, share, out)

    def _goes(
        self, tree: int, node: int, values: NDArray[np.float32], *, right: bool
    ) -> NDArray[np.bool_]:
        absent = np.isnan(values)
        to_right = (values >= self.threshold[tree, node]) | (
            absent & ~bool(self.missing_left[tree, node])
        )
        return to_right if right else ~to_right

    def to_dict(self) -> dict[str, Any]:
        return {
            "depth": self.depth,
            "bias": self.bias,
            "feature": self.feature.tolist(),
            "threshold": [[float(f"{v:.9g}") for v in row] for row in self.threshold.tolist()],
            "missing_left": self.missing_left.astype(int).tolist(),
            "leaf": [[float(f"{v:.9g}") for v in row] for row in self.leaf.tolist()],
            "cover": [[float(f"{v:.6g}") for v in row] for row in self.cover.tolist()],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Ensemble:
        made = cls(
            depth=int(data["depth"]),
            bias=float(data["bias"]),
            feature=np.array(data["feature"], np.int32).reshape(len(data["leaf"]), -1),
            threshold=np.array(data["threshold"], np.float32).reshape(len(data["leaf"]), -1),
            missing_left=np.array(data["missing_left"], np.bool_).reshape(len(data["leaf"]), -1),
            leaf=np.array(data["leaf"], np.float32).reshape(len(data["leaf"]), -1),
            cover=np.array(data["cover"], np.float32).reshape(len(data["leaf"]), -1),
        )
        inner, leaves = 2**made.depth - 1, 2**made.depth
        if made.feature.shape[1] != inner or made.leaf.shape[1] != leaves:
            raise ArtifactBroken(
                f"A forecaster's trees do not have depth {made.depth}. Train it again."
            )
        if not np.isfinite(made.leaf).all():
            raise ArtifactBroken("A forecaster's trees hold values that are no numbers.")
        return made


def _product_game(
    value: float, followed: dict[int, NDArray[np.bool_]], share: dict[int, float], out: Floats
) -> None:
    """Shapley values of v(S) = value * prod(in S: followed) * prod(not in S: share)."""
    players = list(followed)
    number = len(players)
    for player in players:
        others = [p for p in players if p != player]
        gain = followed[player].astype(np.float64) - share[player]
        total = np.zeros(len(gain))
        for size in range(number):
            weight = factorial(size) * factorial(number - size - 1) / factorial(number)
            for inside in combinations(others, size):
                product = np.full(len(gain), weight)
                for p in others:
                    product = product * (followed[p] if p in inside else share[p])
                total += product
        out[:, player] += value * gain * total
