# SPDX-License-Identifier: Apache-2.0
"""The trainer's twin of ``fleet``: the same courses and the same steps as pure functions of JAX.

It exists for speed alone: a trainer wants thousands of placements between two updates without
leaving the compiled program. Tests play random courses on both and assert equal integers and
features. It knows neither nodes that come and go nor pods that stay pending: the trainer chooses
feasible nodes only.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pilothouse.errors import InternalError
from pilothouse.learn.placement.course import Courses
from pilothouse.learn.placement.placed import Placed
from pilothouse.policy.features import MOST_MS, MOST_SHARE, NODE_FEATURES, BesideCPU

FEASIBLE = NODE_FEATURES.index("feasible")

Array = jax.Array

jax.tree_util.register_dataclass(Placed, [field.name for field in fields(Placed)], [])


class Sight(NamedTuple):
    """What a policy sees of many clusters."""

    nodes: Array  # (envs, nodes, node features), unscaled
    pod: Array  # (envs, pod features), unscaled
    valid: Array  # (envs, nodes)

    @property
    def feasible(self) -> Array:
        return self.nodes[..., FEASIBLE] > 0

    @property
    def features(self) -> Array:
        """(envs, nodes, features), as ``pilothouse.policy.build`` makes them."""
        shape = (*self.nodes.shape[:-1], self.pod.shape[-1])
        pod = jnp.broadcast_to(self.pod[..., None, :], shape)
        return jnp.concatenate([self.nodes, pod * self.valid[..., None]], axis=-1)


class Envs(NamedTuple):
    """Clusters in play."""

    course: Array  # (envs,)
    step: Array  # (envs,)
    cpu: Array  # (envs, nodes), millicores requested
    memory: Array  # (envs, nodes), MiB requested
    disk: Array  # (envs, nodes), MiB requested
    pods: Array  # (envs, nodes)
    counted: Array  # (envs, nodes)
    where: Array  # (envs, steps + 1), the node of each pod; -1: none


def load(courses: Courses) -> dict[str, Any]:
    """Courses as a dictionary of arrays, which is what compiled functions take."""
    if courses.nodes_move:
        raise InternalError("The trainer's world has no nodes that come and go; use Fleet.")
    return {field.name: getattr(courses, field.name) for field in fields(courses)}


def start(courses: dict[str, Array], course: Array) -> Envs:
    """The beginning of these courses."""
    steps = courses["pod_cpu"].shape[1]
    return Envs(
        course=course,
        step=jnp.zeros_like(course),
        cpu=courses["cpu_background"][course],
        memory=courses["memory_background"][course],
        disk=courses["disk_background"][course],
        pods=courses["pods_background"][course],
        counted=jnp.zeros_like(courses["pods_background"][course]),
        where=jnp.full((course.shape[0], steps), -1, jnp.int32),
    )


def see(courses: dict[str, Array], envs: Envs, beside_cpu: BesideCPU = "memory") -> Sight:
    """Features of the pod that is waiting and of the nodes it could go to."""
    c, at = envs.course, (envs.course, envs.step)
    exists = courses["exists"][c]
    cpu_room, memory_room = courses["cpu"][c], courses["memory"][c]
    cpu, memory = courses["pod_cpu"][at][:, None], courses["pod_memory"][at][:, None]
    soft, hard = courses["soft_ms"][at][:, None], courses["hard_ms"][at][:, None]
    latency = courses["latency_ms"][c, courses["epoch"][at]]
    known = latency >= 0
    capacity = courses["pod_capacity"][c]
    feasible = exists & (cpu_room - envs.cpu >= cpu) & (memory_room - envs.memory >= memory)
    feasible &= envs.pods < capacity
    taken = envs.disk if beside_cpu == "disk" else envs.memory
    room, ask = courses[beside_cpu][c], courses[f"pod_{beside_cpu}"][at][:, None]
    columns = (
        _share(envs.pods, capacity),
        _share(envs.cpu, cpu_room),
        _share(taken, room),
        _share(envs.cpu + cpu, cpu_room),
        _share(taken + ask, room),
        envs.counted > 0,
        jnp.clip(latency, 0, MOST_MS),
        known,
        courses["idle_permille"][c] / 1000,
        feasible,
        _over(latency, known, soft),
        _over(latency, known, hard),
    )
    nodes = jnp.stack([x.astype(jnp.float32) for x in columns], axis=-1)
    pod = (
        _share(cpu, jnp.where(exists, cpu_room, 0).max(axis=1, keepdims=True)),
        _share(ask, jnp.where(exists, room, 0).max(axis=1, keepdims=True)),
        soft,
        hard,
        soft > 0,
        hard > 0,
    )
    return Sight(
        nodes=nodes * exists[..., None],
        pod=jnp.concatenate([x.astype(jnp.float32) for x in pod], axis=-1),
        valid=exists,
    )


def place(
    courses: dict[str, Array], envs: Envs, sight: Sight, choice: Array
) -> tuple[Envs, Placed]:
    """Bind where chosen (nowhere, when no node is feasible), then the next step's departures."""
    c, at = envs.course, (envs.course, envs.step)
    rows = jnp.arange(choice.shape[0])
    some = sight.feasible.any(axis=1)
    chosen = (jnp.arange(sight.valid.shape[1])[None, :] == choice[:, None]) & some[:, None]
    placed = Placed(
        exists=sight.valid,
        feasible=sight.feasible,
        chosen=chosen,
        counted=envs.counted,
        pods=envs.pods,
        pod_capacity=courses["pod_capacity"][c],
        cpu=envs.cpu,
        cpu_room=courses["cpu"][c],
        memory=envs.memory,
        memory_room=courses["memory"][c],
        disk=envs.disk,
        disk_room=courses["disk"][c],
        idle_permille=courses["idle_permille"][c],
        latency_ms=courses["latency_ms"][c, courses["epoch"][at]],
        pod_cpu=courses["pod_cpu"][at],
        pod_memory=courses["pod_memory"][at],
        pod_disk=courses["pod_disk"][at],
        soft_ms=courses["soft_ms"][at],
        hard_ms=courses["hard_ms"][at],
    )
    where = envs.where.at[rows, envs.step].set(jnp.where(some, choice, -1).astype(jnp.int32))
    # A sum over the pods that leave: one-hot on nodes, so that no scatter is needed.
    step = envs.step + 1
    leaving = courses["leavers"][c, step]  # (envs, leavers)
    node = jnp.where(leaving >= 0, jnp.take_along_axis(where, leaving, axis=1), -1)
    left = node[..., None] == jnp.arange(sight.valid.shape[1])  # (envs, leavers, nodes)
    gone_cpu = jnp.take_along_axis(courses["pod_cpu"][c], leaving, axis=1)
    gone_disk = jnp.take_along_axis(courses["pod_disk"][c], leaving, axis=1)
    gone_memory = jnp.take_along_axis(courses["pod_memory"][c], leaving, axis=1)
    return (
        Envs(
            course=c,
            step=step,
            cpu=envs.cpu + chosen * placed.pod_cpu[:, None] - _summed(left, gone_cpu),
            memory=envs.memory + chosen * placed.pod_memory[:, None] - _summed(left, gone_memory),
            disk=envs.disk + chosen * placed.pod_disk[:, None] - _summed(left, gone_disk),
            pods=envs.pods + chosen - left.sum(axis=1),
            counted=envs.counted + chosen - left.sum(axis=1),
            where=where,
        ),
        placed,
    )


def restart(courses: dict[str, Array], envs: Envs, over: Array, course: Array) -> Envs:
    """Where ``over``, begin this other course."""
    fresh = start(courses, course)
    begun: Envs = jax.tree.map(
        lambda new, old: jnp.where(over.reshape((-1,) + (1,) * (old.ndim - 1)), new, old),
        fresh,
        envs,
    )
    return begun


def _share(part: Array, whole: Array) -> Array:
    return jnp.clip(jnp.where(whole > 0, part / jnp.maximum(whole, 1), 1.0), 0.0, MOST_SHARE)


def _over(latency: Array, known: Array, limit: Array) -> Array:
    over = (latency - limit) / jnp.maximum(limit, 1)
    return jnp.where((limit > 0) & known, jnp.clip(over, -1.0, 1.0), 0.0)


def _summed(left: Array, amount: Array) -> Array:
    return (left * amount[..., None]).sum(axis=1)


def to_numpy(tree: Any) -> Any:
    """The same structure with arrays of NumPy."""
    return jax.tree.map(np.asarray, tree)
