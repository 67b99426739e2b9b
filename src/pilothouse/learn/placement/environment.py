# SPDX-License-Identifier: Apache-2.0
"""``PlacePods-v1``: placement as a Gymnasium environment, one cluster or many at once.

A step places one pod. Actions are node numbers up to a fixed most; the mask of feasible ones is in
the observation and in ``info``. An action that is not feasible leaves the pod pending and costs a
penalty, for trainers that know no masks. The end of a course is a truncation, never a
termination; only a reward that says so terminates. Importing this module registers the id::

    import gymnasium
    import pilothouse.learn.placement.environment

    env = gymnasium.make("PlacePods-v1", reward="packing", max_nodes=8)

With ``resource="disk"`` the features of memory are those of disk (ephemeral storage) instead.

``backend="live"`` steps a real cluster instead, given as ``cluster=Place(kubeconfig=...)``: the
pods of the course are really created, bound and deleted, scaled to what the cluster has free.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from pilothouse.errors import InvalidSetting
from pilothouse.learn.placement import rewards
from pilothouse.learn.placement.cluster import Cluster, Place
from pilothouse.learn.placement.course import Courses, Family, draw
from pilothouse.learn.placement.fleet import Fleet, Step
from pilothouse.learn.placement.live import LiveFleet, fitted
from pilothouse.learn.placement.placed import beside_cpu
from pilothouse.learn.placement.rewards import Reward, worth
from pilothouse.policy.features import MOST_MS, NODE_FEATURES, POD_FEATURES

ID = "PlacePods-v1"
PENALTY = -1.0  # for an action that is not feasible
PATIENCE = 4  # steps per pod of a course before time is up: a pod may stay pending for long
Observation = dict[str, NDArray[Any]]
Backend = Literal["sim", "live"]


class _Courses:
    """Draws courses for an environment, from a family or a given set."""

    def __init__(self, family: Family, max_nodes: int, courses: Courses | None) -> None:
        if family.nodes[1] > max_nodes:
            family = replace(family, nodes=(min(family.nodes[0], max_nodes), max_nodes))
        self._family, self._width, self._given = family, max_nodes, courses

    def next(self, dice: np.random.Generator, count: int) -> Courses:
        if self._given is not None:
            return self._given.rows(dice.integers(0, self._given.count, count)).padded(self._width)
        seed = int(dice.integers(2**31))
        return draw(self._family, seed=seed, count=count, width=self._width)


def _spaces(max_nodes: int) -> Any:
    return spaces.Dict(
        {
            "nodes": spaces.Box(-1.0, MOST_MS, (max_nodes, len(NODE_FEATURES)), np.float32),
            "pod": spaces.Box(0.0, MOST_MS, (len(POD_FEATURES),), np.float32),
            "mask": spaces.MultiBinary(max_nodes),
        }
    )


def _seen(fleet: Fleet, reward: Reward) -> Observation:
    """Features by node, the pod's by themselves, and the mask; (clusters, ...)."""
    features = fleet.features(beside_cpu(reward.resource))
    many = len(NODE_FEATURES)
    # The pod's part is the same for every node that is there: take the first one's.
    first = fleet.open.argmax(axis=1)
    return {
        "nodes": features[..., :many].copy(),
        "pod": features[np.arange(len(features)), first, many:].copy(),
        "mask": fleet.feasible().astype(np.int8),
    }


def _valued(reward: Reward, step: Step) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    value, ends = worth(reward, step.placed)
    return np.where(step.invalid, PENALTY, value), np.asarray(ends, np.bool_)


def _reward(given: str | Reward, resource: str) -> Reward:
    return rewards.find(given, resource) if isinstance(given, str) else given


class PlacePods(gymnasium.Env[Observation, np.int64]):
    """One cluster."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium declares it so)

    def __init__(
        self,
        *,
        max_nodes: int = 8,
        reward: str | Reward = "packing",
        resource: str = "requests",
        family: Family | None = None,
        courses: Courses | None = None,
        backend: Backend = "sim",
        cluster: Place | None = None,
    ) -> None:
        if (backend == "live") != (cluster is not None):
            raise InvalidSetting(
                'backend="live" and cluster=Place(kubeconfig=...) belong together, but got '
                f'backend="{backend}" and cluster={cluster}.'
            )
        self._reward = _reward(reward, resource)
        self._courses = _Courses(family or Family(), max_nodes, courses)
        self._cluster = None if cluster is None else Cluster(cluster)
        self._width = max_nodes
        self.observation_space = _spaces(max_nodes)
        self.action_space = spaces.Discrete(max_nodes)
        self._fleet: Fleet | None = None
        self._taken = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A new course; ``options`` has no meaning here."""
        super().reset(seed=seed)
        self._fleet = self._start(self._courses.next(self.np_random, 1))
        self._taken = 0
        return self._look(self._fleet)

    def _start(self, course: Courses) -> Fleet:
        if self._cluster is None:
            return Fleet(course)
        self._cluster.clear()
        sized = fitted(course, self._cluster.look())
        return LiveFleet(self._cluster, sized, width=self._width)

    def step(self, action: np.int64 | int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Place the waiting pod."""
        fleet = self._fleet
        if fleet is None:
            raise InvalidSetting("PlacePods-v1 must be reset before its first step.")
        step = fleet.place(np.array([action]))
        self._taken += 1
        value, ends = _valued(self._reward, step)
        late = self._taken >= PATIENCE * fleet.courses.steps
        observation, info = self._look(fleet)
        info |= {"invalid": bool(step.invalid[0]), "hopeless": bool(step.hopeless[0])}
        return observation, float(value[0]), bool(ends[0]), bool(step.over[0]) or late, info

    def action_masks(self) -> NDArray[np.bool_]:
        """The mask under the name that mask-aware trainers ask for."""
        if self._fleet is None:
            raise InvalidSetting("PlacePods-v1 must be reset before it has a mask.")
        mask: NDArray[np.bool_] = self._fleet.feasible()[0]
        return mask

    def close(self) -> None:
        """Take the pods of a real cluster away; the simulator has nothing to give back."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _look(self, fleet: Fleet) -> tuple[Observation, dict[str, Any]]:
        seen = {name: array[0] for name, array in _seen(fleet, self._reward).items()}
        return seen, {"action_mask": seen["mask"], "node_mask": fleet.open[0].copy()}


class PlacePodsVector(VectorEnv[Observation, NDArray[np.int64], NDArray[np.float64]]):
    """Many clusters in one batch of the simulator; a finished one begins anew at its next step."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_nodes: int = 8,
        reward: str | Reward = "packing",
        resource: str = "requests",
        family: Family | None = None,
        courses: Courses | None = None,
        backend: Backend = "sim",
    ) -> None:
        if backend != "sim":
            raise InvalidSetting(
                f'A batch steps the simulator only, but got backend="{backend}". One real cluster '
                "is one environment: use gymnasium.make."
            )
        self.num_envs = num_envs
        self._reward = _reward(reward, resource)
        self._courses = _Courses(family or Family(), max_nodes, courses)
        self.single_observation_space = _spaces(max_nodes)
        self.single_action_space = spaces.Discrete(max_nodes)
        batch = gymnasium.vector.utils.batch_space
        self.observation_space = batch(self.single_observation_space, num_envs)
        self.action_space = batch(self.single_action_space, num_envs)
        self._fleet: Fleet | None = None
        self._done = np.zeros(num_envs, np.bool_)
        self._taken = np.zeros(num_envs, np.int64)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """New courses everywhere; one seed serves the whole batch."""
        one = seed[0] if isinstance(seed, list) else seed
        super().reset(seed=one)
        self._fleet = Fleet(self._courses.next(self.np_random, self.num_envs))
        self._done[:], self._taken[:] = False, 0
        seen = _seen(self._fleet, self._reward)
        return seen, {"action_mask": seen["mask"]}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[Observation, NDArray[np.float64], Any, Any, dict[str, Any]]:
        """Place one pod in each cluster; those that had ended begin anew instead."""
        fleet = self._fleet
        if fleet is None:
            raise InvalidSetting("PlacePods-v1 must be reset before its first step.")
        again = np.flatnonzero(self._done)
        step = fleet.place(np.asarray(actions))
        self._taken += 1
        value, ends = _valued(self._reward, step)
        over = step.over | (self._taken >= PATIENCE * fleet.courses.steps)
        if len(again):
            fleet.restart(again, self._courses.next(self.np_random, len(again)))
            self._taken[again] = 0
            value[again], ends[again], over[again] = 0.0, False, False
        self._done = ends | over
        seen = _seen(fleet, self._reward)
        return seen, value, ends, over, {"action_mask": seen["mask"]}


def _register() -> None:
    if ID not in gymnasium.registry:
        gymnasium.register(
            ID,
            entry_point="pilothouse.learn.placement.environment:PlacePods",
            vector_entry_point="pilothouse.learn.placement.environment:PlacePodsVector",
        )


_register()
