# SPDX-License-Identifier: Apache-2.0
"""What a placement policy sees of each node, from plain columns.

Everything but latency is a share, so that neither the unit nor the size of a cluster matters. The
state is the one *before* the pod is placed; the two ``_after_`` features say what placing it would
make of it. Leading axes are batches. What is unknown is NaN in the columns and has its own flag in
the features, because a zero would read as "very close".

Beside CPU a policy sees one more resource: memory, or disk when it was trained on disk. Its card
says which by the names of its features; the network is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
BesideCPU = Literal["memory", "disk"]

NODE_FEATURES = (
    "pods_share",
    "cpu_requested_share",
    "memory_requested_share",
    "cpu_after_share",
    "memory_after_share",
    "active",
    "latency_ms",
    "latency_known",
    "idle_power_share",
    "feasible",
    "latency_over_soft",
    "latency_over_hard",
)
POD_FEATURES = (
    "cpu_request_share",
    "memory_request_share",
    "soft_limit_ms",
    "hard_limit_ms",
    "has_soft",
    "has_hard",
)
FEATURES = NODE_FEATURES + POD_FEATURES
SEES_DISK = "disk_requested_share"  # among its features: a policy has disk in place of memory
SCALING = {
    "latency_ms": 100.0,
    "soft_limit_ms": 100.0,
    "hard_limit_ms": 100.0,
    "latency_over_soft": 0.1,
    "latency_over_hard": 0.1,
}
"""Divisors that bring milliseconds near one, and stretch what lies around a latency limit.

A limit is a cliff: one millisecond decides. With thousands of nodes some are always right at it,
and a network tells them apart only if that millisecond is not lost among shares near one.
"""

MOST_MS = 10_000.0  # a measurement or limit beyond ten seconds says no more than ten seconds
MOST_SHARE = 2.0  # overcommitted is overcommitted
USUAL_IDLE_POWER_SHARE = 0.5  # of a node whose power nobody described


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Nodes:
    """Columns of the real nodes of a cluster, each (..., nodes)."""

    pods: ArrayLike
    pod_capacity: ArrayLike
    cpu_requested: ArrayLike  # millicores
    cpu_allocatable: ArrayLike
    memory_requested: ArrayLike  # any unit, the same for all
    memory_allocatable: ArrayLike
    active: ArrayLike  # runs at least one pod that counts
    latency_ms: ArrayLike  # to the user; NaN: unknown
    idle_power_share: ArrayLike  # idle watts over most watts; NaN: unknown
    feasible: ArrayLike  # could take the pod
    disk_requested: ArrayLike = 0.0  # any unit; of ephemeral storage
    disk_allocatable: ArrayLike = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pods:
    """What one pod (or one per batch row) asks for, each (...)."""

    cpu_request: ArrayLike  # millicores
    memory_request: ArrayLike
    soft_limit_ms: ArrayLike = float("nan")  # NaN, zero or less: none
    hard_limit_ms: ArrayLike = float("nan")
    disk_request: ArrayLike = 0.0


def seeing(names: tuple[str, ...], beside_cpu: BesideCPU) -> tuple[str, ...]:
    """Names of features when the columns of memory hold this resource."""
    return tuple(name.replace("memory", beside_cpu) for name in names)


def build(
    nodes: Nodes,
    pods: Pods,
    *,
    valid: ArrayLike | None = None,
    beside_cpu: BesideCPU = "memory",
) -> Floats:
    """The feature array (..., nodes, features), unscaled; padding (not ``valid``) is all zeros."""
    cpu_room, cpu = _column(nodes.cpu_allocatable), _per_pod(pods.cpu_request)
    real = np.ones(cpu_room.shape, np.bool_) if valid is None else np.asarray(valid, np.bool_)
    other, other_room, other_ask = (
        (nodes.disk_requested, nodes.disk_allocatable, pods.disk_request)
        if beside_cpu == "disk"
        else (nodes.memory_requested, nodes.memory_allocatable, pods.memory_request)
    )
    taken, room, ask = _column(other), _column(other_room), _per_pod(other_ask)
    soft, has_soft = _limit(pods.soft_limit_ms)
    hard, has_hard = _limit(pods.hard_limit_ms)
    latency = _column(nodes.latency_ms)
    known = np.isfinite(latency)
    latency = np.where(known, np.clip(np.nan_to_num(latency), 0.0, MOST_MS), np.float32(0))
    power = _column(nodes.idle_power_share)
    columns = (
        _share(_column(nodes.pods), _column(nodes.pod_capacity)),
        _share(_column(nodes.cpu_requested), cpu_room),
        _share(taken, room),
        _share(_column(nodes.cpu_requested) + cpu, cpu_room),
        _share(taken + ask, room),
        _column(nodes.active),
        latency,
        known,
        np.where(np.isfinite(power), np.clip(power, 0.0, 1.0), USUAL_IDLE_POWER_SHARE),
        _column(nodes.feasible),
        _over(latency, known, soft, has_soft),
        _over(latency, known, hard, has_hard),
        _share(cpu, _largest(cpu_room, real)),
        _share(ask, _largest(room, real)),
        soft,
        hard,
        has_soft,
        has_hard,
    )
    shape = np.broadcast_shapes(real.shape, *(column.shape for column in columns))
    stacked = np.stack([np.broadcast_to(c, shape) for c in columns], axis=-1).astype(np.float32)
    return np.where(real[..., np.newaxis], stacked, np.float32(0))


def _column(values: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(values, np.float64)


def _per_pod(values: ArrayLike) -> NDArray[np.float64]:
    """(...) to (..., 1), so that one pod stands against all nodes of its row."""
    return np.asarray(values, np.float64)[..., np.newaxis]


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """A node that offers none of a resource is full, not empty."""
    some = whole > 0
    with np.errstate(over="ignore"):  # next to nothing is offered: infinite, and cut below
        share = part / np.where(some, whole, 1.0)
    return np.clip(np.where(some, share, 1.0), 0.0, MOST_SHARE)


def _largest(room: NDArray[np.float64], real: Flags) -> NDArray[np.float64]:
    largest: NDArray[np.float64] = np.max(
        np.where(real, room, 0.0), axis=-1, keepdims=True, initial=0.0
    )
    return largest


def _limit(values: ArrayLike) -> tuple[NDArray[np.float64], Flags]:
    given = _per_pod(values)
    has = np.isfinite(given) & (given > 0)
    return np.where(has, np.minimum(np.where(has, given, 0.0), MOST_MS), 0.0), has


def _over(
    latency: NDArray[np.float64], known: Flags, limit: NDArray[np.float64], has: Flags
) -> NDArray[np.float64]:
    """How far beyond the limit, in limits: -1 (no latency) to 1 (twice the limit or more)."""
    with np.errstate(over="ignore"):  # as above
        over = (latency - limit) / np.where(has, limit, 1.0)
    return np.where(has & known, np.clip(over, -1.0, 1.0), 0.0)
