# SPDX-License-Identifier: Apache-2.0
"""One placement, with the state around it: all that a reward may look at.

The arrays are NumPy's or JAX's; what is derived is written once for both. Leading axes are
batches. The stored state is the one *before* the placement, ``*_after`` is what the choice makes
of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pilothouse.policy.features import BesideCPU

Array: TypeAlias = Any  # of NumPy or of JAX; both follow the array API standard

Resource = Literal["requests", "pods", "cpu", "memory", "disk"]
RESOURCES: tuple[Resource, ...] = ("requests", "pods", "cpu", "memory", "disk")
LEAST = -1e9  # stands for "not among those looked at" under a maximum


def beside_cpu(resource: Resource) -> BesideCPU:
    """What a policy sees beside CPU: disk where its reward is about disk, or it learned blindly."""
    return "disk" if resource == "disk" else "memory"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placed:
    """Arrays (..., nodes), and (...) for what belongs to the pod."""

    exists: Array
    feasible: Array
    chosen: Array  # true at the choice
    counted: Array  # pods that count, before
    pods: Array  # all pods, before
    pod_capacity: Array
    cpu: Array  # millicores requested, before
    cpu_room: Array  # millicores in all
    memory: Array  # MiB requested, before
    memory_room: Array
    disk: Array  # MiB of ephemeral storage requested, before
    disk_room: Array
    idle_permille: Array
    latency_ms: Array  # -1: unknown
    pod_cpu: Array
    pod_memory: Array
    pod_disk: Array
    soft_ms: Array  # 0: no limit
    hard_ms: Array

    @property
    def xp(self) -> Any:
        """The array library of these arrays."""
        return self.chosen.__array_namespace__()

    @property
    def counted_after(self) -> Array:
        return self.counted + self.chosen

    def load(self, resource: Resource, *, added: Array) -> Array:
        """Load share of each node, with the pod added where ``added`` is true."""
        if resource == "pods":
            return (self.pods + added) / self.xp.maximum(self.pod_capacity, 1)
        if resource == "disk":
            return (self.disk + added * self.pod_disk[..., None]) / self.disk_room
        cpu = (self.cpu + added * self.pod_cpu[..., None]) / self.cpu_room
        memory = (self.memory + added * self.pod_memory[..., None]) / self.memory_room
        if resource == "cpu":
            return cpu
        return memory if resource == "memory" else 0.5 * (cpu + memory)

    def load_before(self, resource: Resource) -> Array:
        return self.load(resource, added=self.xp.zeros_like(self.chosen))

    def load_after(self, resource: Resource) -> Array:
        """With the pod where it was placed."""
        return self.load(resource, added=self.chosen)

    def load_anywhere(self, resource: Resource) -> Array:
        """What each node's load would be if it took the pod."""
        return self.load(resource, added=self.xp.ones_like(self.chosen))

    @property
    def room_for(self) -> Array:
        """How many pods like this one each node could still take, as a real number."""
        cpu = (self.cpu_room - self.cpu) / self.pod_cpu[..., None]
        memory = (self.memory_room - self.memory) / self.pod_memory[..., None]
        return self.xp.minimum(self.xp.minimum(cpu, memory), self.pod_capacity - self.pods)

    def within(self, limit_ms: Array) -> Array:
        """Nodes inside a latency limit; no limit admits all, an unknown latency none."""
        limit = limit_ms[..., None]
        inside = (self.latency_ms >= 0) & (self.latency_ms <= limit)
        return inside | (limit <= 0)

    @property
    def keepers(self) -> Array:
        """Feasible nodes that keep the limits as well as any can: both, or the hard one where none
        keeps both, or all where none keeps that."""
        hard = self.feasible & self.within(self.hard_ms)
        soft = hard & self.within(self.soft_ms)

        def some(nodes: Array) -> Array:
            return nodes.any(axis=-1)[..., None]

        within_hard = self.xp.where(some(hard), hard, self.feasible)
        return self.xp.where(some(soft), soft, within_hard)

    def at_choice(self, values: Array) -> Array:
        """The value of the chosen node (...); zero when nothing was chosen."""
        return self.xp.where(self.chosen, values, 0).sum(axis=-1)

    def most(self, values: Array, among: Array) -> Array:
        """Largest value among some nodes (...); ``LEAST`` when there are none."""
        return self.xp.where(among, values, LEAST).max(axis=-1)

    def least(self, values: Array, among: Array) -> Array:
        """Smallest value among some nodes (...)."""
        return -self.most(-values, among)
