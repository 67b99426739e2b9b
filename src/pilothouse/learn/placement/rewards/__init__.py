# SPDX-License-Identifier: Apache-2.0
"""Rewards: what a placement was worth. One file each; this list is the registry.

A reward of your own needs no code: a file of named components and weights, see ``from_file``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pilothouse.errors import UnknownName
from pilothouse.learn.placement.placed import RESOURCES, Resource
from pilothouse.learn.placement.rewards.balancing import balancing
from pilothouse.learn.placement.rewards.mixture import Mixture, Reward, from_file, worth
from pilothouse.learn.placement.rewards.nearby import nearby
from pilothouse.learn.placement.rewards.packing import packing
from pilothouse.learn.placement.rewards.thesis_ee import ThesisEE
from pilothouse.learn.placement.rewards.thesis_el_rl import ThesisElRl
from pilothouse.learn.placement.rewards.thesis_lb import ThesisLB

REWARDS: dict[str, Callable[[Resource], Reward]] = {
    "packing": packing,  # what the shipped EE is trained on
    "balancing": balancing,  # what the shipped LB is trained on
    "nearby": nearby,  # what the shipped EL-RL is trained on
    "thesis-ee": ThesisEE,
    "thesis-lb": ThesisLB,
    "thesis-el-rl": ThesisElRl,
}
OF_POLICY = {"ee": "packing", "lb": "balancing", "el-rl": "nearby"}


def named(name: str, resource: str = "requests") -> Reward:
    """A registered reward on a resource."""
    if resource not in RESOURCES:
        raise UnknownName.among("resource", resource, RESOURCES)
    if name not in REWARDS:
        raise UnknownName.among("reward", name, tuple(REWARDS))
    return REWARDS[name](resource)


def find(given: str, resource: str = "requests") -> Reward:
    """A reward by its name, or from a file of components and weights.

    The resource is for a name and for a file that names none. A known name is never a file.
    """
    path = Path(given)
    if given not in REWARDS and (path.suffix in (".yaml", ".yml") or path.is_file()):
        return from_file(path, resource)
    return named(given, resource)


def is_registered(reward: Reward) -> bool:
    """Whether it is one of the list, and not one of somebody's own under whatever name."""
    return reward.name in REWARDS and named(reward.name, reward.resource) == reward


__all__ = [
    "OF_POLICY",
    "REWARDS",
    "Mixture",
    "Reward",
    "find",
    "from_file",
    "is_registered",
    "named",
    "worth",
]
