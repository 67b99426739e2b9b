# SPDX-License-Identifier: Apache-2.0
"""Latency limits first, then few used nodes: hard before soft before packing."""

from __future__ import annotations

from pilothouse.learn.placement.placed import Resource
from pilothouse.learn.placement.rewards.mixture import Mixture


def nearby(resource: Resource = "requests") -> Mixture:
    """Latency limits first, then few used nodes: hard before soft before packing."""
    weights = (
        ("hard-limit", 2.0),
        ("soft-limit", 1.0),
        ("near-new-node", 0.4),
        ("near-snug", 0.3),
        ("near-roomy", 0.4),
    )
    return Mixture(name="nearby", resource=resource, weights=weights)
