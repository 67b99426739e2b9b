# SPDX-License-Identifier: Apache-2.0
"""Courses: placement episodes on paper, drawn in batches before anybody acts.

A course says which nodes there are, what already runs on them, how far they are from the user, and
which pods come when and leave when. Nothing in it depends on what a policy does, so every policy
that is compared meets the very same pods. Drawing randomizes sizes, capacities, background load
and latency together, so that no single feature decides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

I4: TypeAlias = NDArray[np.int32]
F8: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

EPOCHS = 3  # latencies change at two points, as in the thesis's second test
LEAVERS = 4  # pods that may leave in one step; the rest leave in the next
FOREVER = 2**31 - 1
UNKNOWN_MS = -1
NO_LIMIT = 0
POD_CAPACITY = 110  # what a kubelet takes unless told otherwise


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Courses:
    """A batch of courses, padded to the same number of nodes; units as in the simulator."""

    exists: Flags  # (courses, nodes); false is padding
    cpu: I4  # (courses, nodes), millicores
    memory: I4  # (courses, nodes), MiB
    cpu_background: I4  # (courses, nodes), requested by pods that do not count
    memory_background: I4  # (courses, nodes)
    disk: I4  # (courses, nodes), MiB of ephemeral storage; modelled, and never in the way of a pod
    disk_background: I4  # (courses, nodes)
    pods_background: I4  # (courses, nodes)
    pod_capacity: I4  # (courses, nodes)
    idle_permille: I4  # (courses, nodes), idle watts over most watts
    open_from: I4  # (courses, nodes), first step at which the node is there
    open_until: I4  # (courses, nodes), first step at which it is gone
    latency_ms: I4  # (courses, epochs, nodes); -1: nobody measured it
    epoch: I4  # (courses, steps + 1)
    pod_cpu: I4  # (courses, steps + 1); the last pod is only ever looked at
    pod_memory: I4  # (courses, steps + 1)
    pod_disk: I4  # (courses, steps + 1)
    soft_ms: I4  # (courses, steps + 1); 0: no limit
    hard_ms: I4  # (courses, steps + 1)
    leavers: I4  # (courses, steps + 1, any), pods that leave before that step; -1: nobody

    @property
    def count(self) -> int:
        return int(self.exists.shape[0])

    @property
    def nodes(self) -> int:
        return int(self.exists.shape[1])

    @property
    def steps(self) -> int:
        return int(self.pod_cpu.shape[1]) - 1

    @property
    def nodes_move(self) -> bool:
        """Whether a node comes or goes during a course."""
        return bool((self.open_from > 0).any() or (self.open_until <= self.steps).any())

    def rows(self, index: NDArray[np.int64] | slice) -> Courses:
        """Some of the courses."""
        return Courses(**{name: getattr(self, name)[index] for name in self.__slots__})

    def padded(self, nodes: int) -> Courses:
        """The same courses in a wider shape; what is added does not exist."""
        extra = nodes - self.nodes
        if extra == 0:
            return self
        wide = {}
        for name in NODE_FIELDS:
            column = getattr(self, name)
            shape = [(0, 0)] * (column.ndim - 1) + [(0, extra)]
            wide[name] = np.pad(column, shape, constant_values=_PADDING.get(name, 0))
        return replace(self, **wide)


NODE_FIELDS = (
    "exists",
    "cpu",
    "memory",
    "cpu_background",
    "memory_background",
    "disk",
    "disk_background",
    "pods_background",
    "pod_capacity",
    "idle_permille",
    "open_from",
    "open_until",
    "latency_ms",
)
_PADDING = {"cpu": 1, "memory": 1, "disk": 1, "open_until": FOREVER, "latency_ms": UNKNOWN_MS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How courses of one kind are drawn; ranges include both ends."""

    nodes: tuple[int, int] = (3, 8)
    steps: int = 64
    identical: bool = False  # all pods of a course ask for the same
    churn: float = 0.6  # share of courses in which pods leave again
    load_percent: tuple[int, int] = (35, 80)  # of the free room, at the fullest moment
    background_percent: tuple[int, int] = (0, 45)
    cores: tuple[int, ...] = (2, 4, 8, 16)
    sigma: float = 0.6  # of the logarithm of pod sizes
    limited: float = 0.85  # share of pods with latency limits
    unknown: float = 0.03  # share of node latencies nobody measured
    latency_ms: tuple[int, int] = (3, 60)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodSizes:
    """Pods of a real cluster to draw from: relative sizes and lifetimes, in their order."""

    cpu: F8  # (pods,), any unit
    memory: F8  # (pods,)
    lifetime: F8  # (pods,), any unit
    name: str = ""


def draw(
    family: Family, *, seed: int, count: int, width: int = 0, real: PodSizes | None = None
) -> Courses:
    """``count`` courses of a family; the same seed gives the same courses."""
    dice = np.random.default_rng([seed, count, family.steps, *family.nodes])
    return _draw(family, dice, count, width or family.nodes[1], real)


def _draw(
    family: Family, dice: np.random.Generator, count: int, width: int, real: PodSizes | None
) -> Courses:
    steps = family.steps
    many = dice.integers(family.nodes[0], family.nodes[1], size=count, endpoint=True)
    exists = np.arange(width)[None, :] < many[:, None]
    cpu = 1000 * dice.choice(np.array(family.cores), size=(count, width))
    memory = cpu * dice.integers(1500, 6000, size=(count, width)) // 1000
    shape = (count, width)
    low, high = family.background_percent
    # A background share per course, around which its nodes vary: some clusters are nearly empty.
    top = dice.integers(low, high, size=(count, 1), endpoint=True)
    cpu_back = cpu * dice.uniform(0, 1, shape) * top / 100
    memory_back = memory * dice.uniform(0, 1, shape) * top / 100
    leaves_at = _lifetimes(family, dice, count, real)
    shares = _sizes(family, dice, count, real)
    free = ((cpu - cpu_back) * exists).sum(1), ((memory - memory_back) * exists).sum(1)
    load = dice.integers(*family.load_percent, size=count, endpoint=True) / 100
    pods = [_scaled(s, leaves_at, f * load) for s, f in zip(shares, free, strict=True)]
    soft, hard = _limits(family, dice, (count, steps + 1))
    disk, disk_back, pod_disk = _disks(family, dice, cpu, exists, leaves_at)
    changes = np.sort(dice.integers(steps // 6, max(5 * steps // 6, 1), (count, EPOCHS - 1)), 1)
    epoch = (np.arange(steps + 1)[None, :, None] >= changes[:, None, :]).sum(2)
    return Courses(
        exists=exists,
        cpu=np.where(exists, cpu, 1).astype(np.int32),
        memory=np.where(exists, memory, 1).astype(np.int32),
        cpu_background=(cpu_back * exists).astype(np.int32),
        memory_background=(memory_back * exists).astype(np.int32),
        disk=np.where(exists, disk, 1).astype(np.int32),
        disk_background=(disk_back * exists).astype(np.int32),
        pods_background=(dice.integers(0, 12, shape) * exists).astype(np.int32),
        pod_capacity=(POD_CAPACITY * exists).astype(np.int32),
        idle_permille=dice.integers(300, 600, shape).astype(np.int32),
        open_from=np.zeros(shape, np.int32),
        open_until=np.full(shape, FOREVER, np.int32),
        latency_ms=_latencies(family, dice, count, width),
        epoch=epoch.astype(np.int32),
        pod_cpu=np.maximum(pods[0], 10).astype(np.int32),
        pod_memory=np.maximum(pods[1], 8).astype(np.int32),
        pod_disk=pod_disk.astype(np.int32),
        soft_ms=soft,
        hard_ms=hard,
        leavers=leavers(leaves_at),
    )


def _disks(
    family: Family,
    dice: np.random.Generator,
    cpu: NDArray[np.int64],
    exists: Flags,
    leaves_at: NDArray[np.int64],
) -> tuple[F8, F8, F8]:
    """Disks of nodes, what is on them, and what pods write; drawn apart, so that no other draw
    depends on them."""
    own = np.random.default_rng(dice.bit_generator.seed_seq.spawn(1)[0])  # type: ignore[attr-defined]
    disk = cpu * own.uniform(8, 24, cpu.shape)
    background = disk * own.uniform(0.05, 0.4, cpu.shape)
    share = np.exp(family.sigma * own.standard_normal(leaves_at.shape))
    if family.identical:
        share[:] = 1.0
    free = ((disk - background) * exists).sum(axis=1)
    return disk, background, np.maximum(_scaled(share, leaves_at, 0.5 * free), 1)


def _lifetimes(
    family: Family, dice: np.random.Generator, count: int, real: PodSizes | None
) -> NDArray[np.int64]:
    """(courses, steps + 1): the step before which a pod leaves; past the end means never."""
    steps = family.steps
    shape = (count, steps + 1)
    churns = dice.uniform(size=(count, 1)) < family.churn
    mean = steps * dice.uniform(0.15, 0.6, size=(count, 1))
    if real is None:
        lives = dice.exponential(1.0, shape) * mean
    else:
        drawn = real.lifetime[_picked(dice, count, steps, len(real.lifetime))]
        lives = drawn / np.median(drawn, axis=1, keepdims=True) * mean
    until = np.arange(steps + 1)[None, :] + 1 + np.minimum(lives, 4 * steps).astype(np.int64)
    return np.where(churns, until, 8 * steps)


def _sizes(
    family: Family, dice: np.random.Generator, count: int, real: PodSizes | None
) -> tuple[F8, F8]:
    """Relative CPU and memory of each pod (courses, steps + 1)."""
    shape = (count, family.steps + 1)
    if real is not None:
        index = _picked(dice, count, family.steps, len(real.cpu))
        return real.cpu[index], real.memory[index]
    cpu = np.exp(family.sigma * dice.standard_normal(shape))
    memory = cpu * np.exp(0.5 * family.sigma * dice.standard_normal(shape))
    if family.identical:
        return np.repeat(cpu[:, :1], shape[1], 1), np.repeat(memory[:, :1], shape[1], 1)
    return cpu, memory


def _picked(dice: np.random.Generator, count: int, steps: int, many: int) -> NDArray[np.int64]:
    """Runs of neighbors from a list of pods: users who deploy together stay together."""
    start = dice.integers(0, many, size=(count, 1))
    return (start + np.arange(steps + 1)[None, :]) % many


def _scaled(share: F8, leaves_at: NDArray[np.int64], wanted: F8) -> F8:
    """Sizes such that what is alive at the fullest moment asks for ``wanted`` in all."""
    count, pods = share.shape
    rows = np.repeat(np.arange(count), pods)
    change = share.copy()
    gone = np.minimum(leaves_at, pods).ravel()
    ends = np.zeros((count, pods + 1))
    np.add.at(ends, (rows, gone), share.ravel())
    peak = np.cumsum(change - ends[:, :pods], axis=1).max(axis=1)
    scaled: F8 = share * (wanted / np.maximum(peak, 1e-9))[:, None]
    return scaled


def _limits(family: Family, dice: np.random.Generator, shape: tuple[int, int]) -> tuple[I4, I4]:
    """Soft and hard limits; the thesis's 20 and 30 ms for four pods in ten that have any."""
    usual = dice.uniform(size=shape) < 0.4
    soft = np.where(usual, 20, dice.integers(8, 45, shape))
    hard = np.where(usual, 30, soft + dice.integers(4, 25, shape))
    has = dice.uniform(size=shape) < family.limited
    return np.where(has, soft, NO_LIMIT).astype(np.int32), np.where(has, hard, NO_LIMIT).astype(
        np.int32
    )


def _latencies(family: Family, dice: np.random.Generator, count: int, width: int) -> I4:
    """(courses, epochs, nodes): at each change about half of the nodes move."""
    low, high = family.latency_ms
    shape = (count, EPOCHS, width)
    fresh = dice.integers(low, high, shape, endpoint=True)
    moves = dice.uniform(size=shape) < 0.5
    for epoch in range(1, EPOCHS):
        fresh[:, epoch] = np.where(moves[:, epoch], fresh[:, epoch], fresh[:, epoch - 1])
    hidden = dice.uniform(size=(count, 1, width)) < family.unknown
    return np.where(hidden, UNKNOWN_MS, fresh).astype(np.int32)


def leavers(leaves_at: NDArray[np.int64], most: int = LEAVERS) -> I4:
    """(courses, steps + 1, most): who leaves before each step, at most ``most`` at once."""
    count, pods = leaves_at.shape
    table = np.full((count, pods, most), -1, np.int32)
    for row in range(count):
        waiting: list[int] = []
        by_step: dict[int, list[int]] = {}
        for pod in np.flatnonzero(leaves_at[row] < pods).tolist():
            by_step.setdefault(int(leaves_at[row, pod]), []).append(pod)
        for step in range(pods):
            waiting += by_step.get(step, [])
            now, waiting = waiting[:most], waiting[most:]
            table[row, step, : len(now)] = now
    return table
