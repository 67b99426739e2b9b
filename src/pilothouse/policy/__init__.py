# SPDX-License-Identifier: Apache-2.0
"""Load a trained placement policy and score nodes with it; inference only, NumPy only.

A policy is a small set network and the card that says what it is. The same function runs in
training (JAX), here, and in the scheduler (Go); the golden fixtures in ``api/fixtures/placement``
hold the three together.
"""

from pilothouse.policy.artifact import (
    Card,
    Policy,
    Shape,
    files_of,
    read,
    shipped,
    shipped_names,
    write,
)
from pilothouse.policy.choice import choose, to_ranks, to_scores
from pilothouse.policy.features import FEATURES, NODE_FEATURES, POD_FEATURES, Nodes, Pods, build
from pilothouse.policy.network import Network

__all__ = [
    "FEATURES",
    "NODE_FEATURES",
    "POD_FEATURES",
    "Card",
    "Network",
    "Nodes",
    "Pods",
    "Policy",
    "Shape",
    "build",
    "choose",
    "files_of",
    "read",
    "shipped",
    "shipped_names",
    "to_ranks",
    "to_scores",
    "write",
]
