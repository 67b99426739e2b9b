# SPDX-License-Identifier: Apache-2.0
"""Who chooses the node: learned policies, and the online heuristics they are measured against.

None of them sees the future. All are written for a fleet, many courses at once; ties go to the
first node, or to a draw where the original draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pilothouse.errors import UnknownName
from pilothouse.learn.placement.course import Flags
from pilothouse.learn.placement.fleet import Fleet
from pilothouse.learn.placement.placed import Resource
from pilothouse.policy import Network, choose, to_scores
from pilothouse.policy.features import MOST_SHARE, NODE_FEATURES
from pilothouse.sim import fit

Choice = NDArray[np.int64]
Scores = NDArray[np.float64]


class Chooser(Protocol):
    """Picks a node for the pod on offer, course by course."""

    name: str

    def choose(self, fleet: Fleet) -> Choice: ...


@dataclass(slots=True)
class Learned:
    """A trained policy; with probability ``epsilon`` any feasible node instead."""

    name: str
    network: Network
    epsilon: float = 0.0
    seed: int = 0

    def choose(self, fleet: Fleet) -> Choice:
        features = fleet.features(self.network.beside_cpu)
        feasible = fleet.feasible()
        choice = choose(self.network(features, fleet.open), feasible)
        if self.epsilon:
            dice = np.random.default_rng([self.seed, int(fleet.step_number.sum())])
            wander = dice.uniform(size=len(choice)) < self.epsilon
            choice = np.where(wander, _top(dice.uniform(size=feasible.shape), feasible), choice)
        return np.maximum(choice, 0)


@dataclass(slots=True)
class Hybrid:
    """The learned score beside the default score plugins, all 0..100, weighted as its profile."""

    network: Network
    name: str = "hybrid"
    weight: float = 3.0  # its profile's, which a test compares; the default plugins score 0..200

    def choose(self, fleet: Fleet) -> Choice:
        feasible = fleet.feasible()
        features = fleet.features(self.network.beside_cpu)
        learned = to_scores(self.network(features, fleet.open), feasible)
        return _top(self.weight * learned + _default(fleet), feasible)


@dataclass(slots=True)
class Heuristic:
    """A rule that scores nodes; the highest feasible score is chosen."""

    name: str
    score: Callable[[Fleet], Scores]

    def choose(self, fleet: Fleet) -> Choice:
        return _top(self.score(fleet), fleet.feasible())


def _top(score: Scores, feasible: Flags) -> Choice:
    top: Choice = np.where(feasible, score, -np.inf).argmax(axis=1)
    return top


def _default(fleet: Fleet) -> Scores:
    """The kube-scheduler of the simulator: its two scores, random among equals."""
    s, (count, nodes) = fleet.state, fleet.counted.shape
    room = fit.room_of(s, np.ones(s.nobody_node, np.bool_))
    dividend, divisor = (x.reshape(4, count, nodes).swapaxes(0, 1) for x in room)
    slots = fleet.slots
    ask = fit.ask_of(s.cpu_request[slots], s.memory_request[slots])
    score = fit.score(ask, dividend, divisor) / fit.SCALE
    return score + 0.5 * _draw(fleet)


def _draw(fleet: Fleet) -> Scores:
    """A draw in [0, 1) by course, step and node."""
    count, nodes = fleet.counted.shape
    key = fleet.step_number.astype(np.uint32)[:, None] * np.uint32(2654435761) + np.arange(
        count, dtype=np.uint32
    )[:, None] * np.uint32(40503)
    words = fit.tie_word(key, np.broadcast_to(np.arange(nodes), (count, nodes)))
    return words.astype(np.float64) / 2**32


def _amounts(fleet: Fleet, kind: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """What nodes have of a resource and what is taken of it (courses, nodes), and what the pod asks
    for (courses, 1)."""
    s, shape = fleet.state, fleet.counted.shape
    if kind == "disk":
        return fleet.courses.disk, fleet.disk, fleet.disk_request[:, None]
    if kind == "pods":
        taken = s.n_pods[:-1].reshape(shape)
        return np.maximum(fleet.courses.pod_capacity, 1), taken, np.ones((shape[0], 1))
    whole, taken = (getattr(s, f"n_{kind}{end}")[:-1].reshape(shape) for end in ("", "_requested"))
    return whole, taken, getattr(s, f"{kind}_request")[fleet.slots][:, None]


def _load(fleet: Fleet, *, added: bool, resource: Resource = "requests") -> Scores:
    """Share of what is requested, with or without the pod; the mean of CPU and memory share.

    Rounded as the features are, so that what is equal to a policy is equal to a rule.
    """
    kinds = ("cpu", "memory") if resource == "requests" else (resource,)
    total = np.zeros(fleet.counted.shape)
    for kind in kinds:
        whole, taken, ask = _amounts(fleet, kind)
        share = np.minimum((taken + ask if added else taken) / whole, MOST_SHARE)
        total += share.astype(np.float32)
    return total / len(kinds)


def _after(fleet: Fleet) -> Scores:
    return _load(fleet, added=True)


def _left(fleet: Fleet) -> Scores:
    """Room left with the pod, in shares of the largest node."""
    left = np.zeros(fleet.counted.shape)
    for kind in ("cpu", "memory"):
        whole, taken, ask = _amounts(fleet, kind)
        left += (whole - taken - ask) / whole.max(axis=1, keepdims=True)
    return left


def _packed(fleet: Fleet) -> Scores:
    """A used node that becomes fullest; else the unused node with the most room."""
    used = fleet.counted > 0
    return np.where(used, 10.0 + _after(fleet), _left(fleet))


def _latency_class(fleet: Fleet) -> Scores:
    """2 within soft, 1 within hard, 0 beyond; an unknown latency is beyond."""
    latency = fleet.state.n_latency[:-1].reshape(fleet.counted.shape)
    soft, hard = (limit[:, None] for limit in fleet.limits())
    inside = [(limit <= 0) | ((latency >= 0) & (latency <= limit)) for limit in (soft, hard)]
    return np.where(inside[0] & inside[1], 2.0, np.where(inside[1], 1.0, 0.0))


def _low(fleet: Fleet, resource: Resource = "requests") -> Scores:
    return -_load(fleet, added=True, resource=resource)


def _even(fleet: Fleet, resource: Resource = "requests") -> Scores:
    return _low(fleet, resource) - _load(fleet, added=False, resource=resource)


_ON_ANY_RESOURCE = {"least-allocated": _low, "evenest": _even}

HEURISTICS: dict[str, Heuristic] = {
    rule.name: rule
    for rule in (
        Heuristic("default", _default),
        Heuristic("least-allocated", _low),
        Heuristic("evenest", _even),
        Heuristic("most-allocated", _after),
        Heuristic("best-fit", lambda fleet: -_left(fleet)),
        Heuristic("used-first", _packed),
        Heuristic("random", _draw),
        Heuristic("heuristic", lambda fleet: 100 * _latency_class(fleet) + _after(fleet)),
        Heuristic("near-used-first", lambda fleet: 100 * _latency_class(fleet) + _packed(fleet)),
    )
}


def _by_feature(place: int, sign: int) -> Callable[[Fleet], Scores]:
    return lambda fleet: sign * fleet.features()[..., place].astype(np.float64)


SINGLE_FEATURES: dict[str, Heuristic] = {
    rule.name: rule
    for place, name in enumerate(NODE_FEATURES)
    for word, sign in (("least", -1), ("most", 1))
    for rule in (Heuristic(f"{word} {name}", _by_feature(place, sign)),)
}
"""Rules that look at one feature alone; a fair exam passes none of them."""


def heuristic(name: str, resource: Resource = "requests") -> Heuristic:
    """A heuristic by name; one that evens out load does so on this resource."""
    if name not in HEURISTICS:
        raise UnknownName.among("heuristic", name, tuple(HEURISTICS))
    if name in _ON_ANY_RESOURCE and resource != "requests":
        return Heuristic(name, partial(_ON_ANY_RESOURCE[name], resource=resource))
    return HEURISTICS[name]
