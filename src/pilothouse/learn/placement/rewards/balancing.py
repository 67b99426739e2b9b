# SPDX-License-Identifier: Apache-2.0
"""Even load: the node that will be least loaded takes the pod."""

from __future__ import annotations

from pilothouse.learn.placement.placed import Resource
from pilothouse.learn.placement.rewards.mixture import Mixture


def balancing(resource: Resource = "requests") -> Mixture:
    """Even load: the node that will be least loaded takes the pod."""
    weights = (("level", 4.0),)
    return Mixture(name="balancing", resource=resource, weights=weights)
