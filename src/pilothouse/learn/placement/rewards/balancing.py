# SPDX-License-Identifier: Apache-2.0
"""Even load: prefer the node that will be least loaded, and the one that is."""

from __future__ import annotations

from pilothouse.learn.placement.placed import Resource
from pilothouse.learn.placement.rewards.mixture import Mixture


def balancing(resource: Resource = "requests") -> Mixture:
    """Even load: prefer the node that will be least loaded, and the one that is."""
    # Either alone is worse: "level" spares small nodes, "lowest" lifts the emptiest.
    weights = (("level", 2.0), ("lowest", 2.0))
    return Mixture(name="balancing", resource=resource, weights=weights)
