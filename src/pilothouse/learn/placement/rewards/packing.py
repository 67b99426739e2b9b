# SPDX-License-Identifier: Apache-2.0
"""Fewest used nodes: do not wake one needlessly, fill the fullest, wake the roomiest."""

from __future__ import annotations

from pilothouse.learn.placement.placed import Resource
from pilothouse.learn.placement.rewards.mixture import Mixture


def packing(resource: Resource = "requests") -> Mixture:
    """Fewest used nodes: do not wake one needlessly, fill the fullest, wake the roomiest."""
    weights = (("new-node", 1.0), ("snug", 0.3), ("roomy", 1.0))
    return Mixture(name="packing", resource=resource, weights=weights)
