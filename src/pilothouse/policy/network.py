# SPDX-License-Identifier: Apache-2.0
"""The set network: one Q value per node, the same whatever order the nodes come in.

Each node is encoded by itself; what the cluster looks like reaches every node as the mean and the
maximum of all encodings, never as a sum, so that a network trained on few nodes still makes sense
on thousands. Padding is left out of both, so it cannot change a value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilothouse.policy.features import BesideCPU

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """``x @ weight + bias``."""

    weight: Floats  # (in, out)
    bias: Floats  # (out,)

    def __call__(self, x: Floats) -> Floats:
        return x @ self.weight + self.bias


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Network:
    """Encoder and head; calling it is the forward pass."""

    encoder: tuple[Layer, ...]
    head: tuple[Layer, ...]
    scale: Floats  # (features,), what features are multiplied by before the encoder
    beside_cpu: BesideCPU = "memory"  # the resource it sees beside CPU

    def __call__(self, features: Floats, valid: Flags | None = None) -> Floats:
        """Q values (..., nodes) of features (..., nodes, features); padding gets finite noise."""
        if valid is None:
            valid = np.ones(features.shape[:-1], np.bool_)
        encoded = self.encode(features)
        return self.judge(encoded, pool(encoded, valid))

    def judge(self, encoded: Floats, pooled: Floats) -> Floats:
        """Q values (..., nodes) of encodings in a cluster that pools to ``pooled``."""
        first, *rest = self.head
        width = encoded.shape[-1]
        # The pooled part is the same for all nodes of a row: multiply it once, not once per node.
        shared = pooled @ first.weight[width:] + first.bias
        x = encoded @ first.weight[:width] + shared[..., np.newaxis, :]
        for layer in rest:
            x = layer(np.maximum(x, 0))
        q: Floats = x[..., 0]
        return q

    def encode(self, features: Floats) -> Floats:
        """Encodings (..., nodes, width), never negative."""
        x = features.astype(np.float32, copy=False) * self.scale
        for layer in self.encoder:
            x = np.maximum(layer(x), 0)
        return x


def pool(encoded: Floats, valid: Flags) -> Floats:
    """Mean and maximum over the valid nodes (..., 2 x width); zeros when there are none."""
    # Encodings are never negative, so zero is neutral for the maximum too.
    kept = np.where(valid[..., np.newaxis], encoded, np.float32(0))
    count = np.maximum(valid.sum(axis=-1, keepdims=True), 1)
    # Summed in double precision: thousands of nodes must not cost the fourth digit.
    mean = (kept.sum(axis=-2, dtype=np.float64) / count).astype(np.float32)
    most = kept.max(axis=-2, initial=0)
    return np.concatenate([mean, most], axis=-1)
