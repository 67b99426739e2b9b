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
        paths = self._paths()
        out[:, -1] = self.bias + float((paths.value * paths.share.prod(axis=1)).sum())
        gains = _product_games(paths, self._followed(paths, rows))
        for player in range(self.depth):
            real = paths.feature[:, player] >= 0
            np.add.at(out.T, paths.feature[real, player], gains[real, player])
        return out

    def _paths(self) -> _Paths:
        """Every leaf of every tree with the distinct features on its way down."""
        inner, leaves = 2**self.depth - 1, 2**self.depth
        nodes = np.empty((leaves, self.depth), np.int64)
        rights = np.empty((leaves, self.depth), np.bool_)
        for leaf in range(leaves):
            node = leaf + inner
            for level in reversed(range(self.depth)):
                rights[leaf, level] = node % 2 == 0
                node = (node - 1) // 2
                nodes[leaf, level] = node
        below = 2 * nodes + 1 + rights
        above = self.cover[:, nodes].astype(float)
        ratio = np.divide(
            self.cover[:, below].astype(float), above, out=np.zeros_like(above), where=above > 0
        )
        feature = self.feature[:, nodes].astype(np.int64)  # (trees, leaves, depth)
        # A feature that comes again on the same path is one player, at its first place.
        slot = np.argmax(feature[..., :, None] == feature[..., None, :], axis=-1)
        share = np.ones_like(ratio)
        for level in range(self.depth):
            place = slot[..., level : level + 1]
            now = np.take_along_axis(share, place, axis=-1) * ratio[..., level : level + 1]
            np.put_along_axis(share, place, now, axis=-1)
        player = np.where(slot == np.arange(self.depth), feature, -1)
        return _Paths(
            value=self.leaf.astype(float).reshape(-1),
            feature=player.reshape(-1, self.depth),
            share=share.reshape(-1, self.depth),
            slot=slot.reshape(-1, self.depth),
            nodes=nodes,
            rights=rights,
        )

    def _followed(self, paths: _Paths, rows: Matrix) -> NDArray[np.bool_]:
        """(paths, players, rows): whether a row goes along with all of a player's splits."""
        values = rows.T[self.feature]  # (trees, inner, rows)
        absent = np.isnan(values)
        right = (values >= self.threshold[..., None]) | (absent & ~self.missing_left[..., None])
        goes = right[:, paths.nodes] == paths.rights[None, :, :, None]
        goes = goes.reshape(len(paths.value), self.depth, len(rows))
        followed: NDArray[np.bool_] = np.ones_like(goes)
        every = np.arange(len(paths.value))
        for level in range(self.depth):
            place = paths.slot[:, level]
            followed[every, place] &= goes[:, level]
        return followed

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Paths:
    """All leaves of an ensemble as product games; a place without a player is a null player."""

    value: Floats  # (paths,)
    feature: NDArray[np.int64]  # (paths, depth), -1 where an earlier place has the feature
    share: Floats  # (paths, depth), of the rows of training that go along
    slot: NDArray[np.int64]  # (paths, depth), the player's place of each level
    nodes: NDArray[np.int64]  # (leaves, depth)
    rights: NDArray[np.bool_]  # (leaves, depth)


def _product_games(paths: _Paths, followed: NDArray[np.bool_]) -> Floats:
    """Shapley values of v(S) = value * prod(in S: followed) * prod(not in S: share).

    (paths, players, rows). Null players change nothing, so every game has ``depth`` of them.
    """
    players = paths.share.shape[1]
    inside = followed.astype(np.float64)
    outside = paths.share[:, :, None]
    out = np.zeros(inside.shape)
    for player in range(players):
        others = [p for p in range(players) if p != player]
        total = np.zeros(inside[:, 0].shape)
        for size in range(players):
            weight = factorial(size) * factorial(players - size - 1) / factorial(players)
            for chosen in combinations(others, size):
                product = np.full(total.shape, weight)
                for p in others:
                    product *= inside[:, p] if p in chosen else outside[:, p]
                total += product
        out[:, player] = paths.value[:, None] * (inside[:, player] - outside[:, player]) * total
    return out
