# SPDX-License-Identifier: Apache-2.0
"""A real cluster as placement sees it: one row per node, from the objects of its API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from pilothouse.clients.asked import asked
from pilothouse.clients.quantity import count, mebibytes, millicores, to_mebibytes, to_millicores
from pilothouse.clients.resources import Node, Pod
from pilothouse.policy import Nodes, Pods

UNCOUNTED_NAMESPACES = frozenset({"kube-system"})
FINISHED = ("Succeeded", "Failed")
IDLE_POWER_ANNOTATION = "pilothouse.dev/idle-power-share"
SOFT_ANNOTATION, HARD_ANNOTATION = "latencySoftConstraint", "latencyHardConstraint"
USER_ANNOTATION = "pilothouse.dev/latency-user"
DISK = "ephemeral-storage"
NOTHING = Decimal(0)
PREFIX = "pilothouse.dev/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One node: what it offers, what is asked of it, and where its probe is."""

    name: str
    address: str
    ready: bool
    pods: int
    counted_pods: int
    pod_capacity: int
    cpu_requested: int
    cpu_allocatable: int  # millicores
    memory_requested: int
    memory_allocatable: int  # MiB
    idle_power_share: float  # NaN: unknown
    disk_requested: int = 0
    disk_allocatable: int = 0  # MiB of ephemeral storage; 0: its kubelet reports none


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one pod asks for."""

    cpu_millicores: float = 0.0
    memory_mib: float = 0.0
    disk_mib: float = 0.0
    soft_limit_ms: float = float("nan")
    hard_limit_ms: float = float("nan")
    user: str = ""

    @property
    def asks(self) -> Pods:
        """The policy's columns of the pod."""
        return Pods(
            cpu_request=self.cpu_millicores,
            memory_request=self.memory_mib,
            disk_request=self.disk_mib,
            soft_limit_ms=self.soft_limit_ms,
            hard_limit_ms=self.hard_limit_ms,
        )


class Rows:
    """Rows of a cluster that is looked at again and again: only nodes that changed are worked out
    anew. It counts on objects being replaced, never changed, as a watch cache does."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Node, list[Pod], Machine]] = {}

    def of(self, nodes: Sequence[Node], pods: Sequence[Pod]) -> list[Machine]:
        """By name, from the cached objects."""
        by_node: dict[str, list[Pod]] = {}
        for pod in pods:
            if pod.spec.node_name and pod.status.phase not in FINISHED:
                by_node.setdefault(pod.spec.node_name, []).append(pod)
        known = {}
        for node in nodes:
            name = node.metadata.name
            held = by_node.get(name, [])
            found = self._known.get(name)
            if found is None or found[0] is not node or found[1] != held:
                found = (node, held, _machine(node, held))
            known[name] = found
        self._known = known
        return [known[name][2] for name in sorted(known)]


def machines_of(nodes: Sequence[Node], pods: Sequence[Pod]) -> list[Machine]:
    """Rows by name, for those who look once."""
    return Rows().of(nodes, pods)


def _machine(node: Node, pods: Sequence[Pod]) -> Machine:
    requests = [request_of(pod) for pod in pods]
    offered = node.status.allocatable
    ready = any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)
    addresses = [a.address for a in node.status.addresses if a.type == "InternalIP"]
    return Machine(
        name=node.metadata.name,
        address=addresses[0] if addresses else "",
        ready=ready and not node.spec.unschedulable,
        pods=len(pods),
        counted_pods=sum(counts(pod) for pod in pods),
        pod_capacity=count(offered.get("pods", "0")),
        cpu_requested=int(sum(r.cpu_millicores for r in requests)),
        cpu_allocatable=millicores(offered.get("cpu", "0")),
        memory_requested=int(sum(r.memory_mib for r in requests)),
        memory_allocatable=mebibytes(offered.get("memory", "0")),
        disk_requested=int(sum(r.disk_mib for r in requests)),
        disk_allocatable=mebibytes(offered.get(DISK, "0")),
        idle_power_share=_number(node.metadata.annotations.get(IDLE_POWER_ANNOTATION, "")),
    )


def counts(pod: Pod) -> bool:
    """Pods of DaemonSets and of the system run everywhere and say nothing about activity."""
    daemon = any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)
    return not daemon and pod.metadata.namespace not in UNCOUNTED_NAMESPACES


def request_of(pod: Pod) -> Request:
    """What the scheduler would count for it, and its latency limits."""
    wants = asked(pod)
    return Request(
        cpu_millicores=to_millicores(wants.get("cpu", NOTHING)),
        memory_mib=to_mebibytes(wants.get("memory", NOTHING)),
        disk_mib=to_mebibytes(wants.get(DISK, NOTHING)),
        soft_limit_ms=_limit(pod, SOFT_ANNOTATION),
        hard_limit_ms=_limit(pod, HARD_ANNOTATION),
        user=pod.metadata.annotations.get(USER_ANNOTATION, ""),
    )


def _limit(pod: Pod, name: str) -> float:
    """A limit that is no positive number is none: a typo must not keep a pod from being placed."""
    given = pod.metadata.annotations
    value = _number(given.get(PREFIX + name, given.get(name, "")).strip().removesuffix("ms"))
    return value if value > 0 else float("nan")


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return float("nan")
    return value if np.isfinite(value) else float("nan")


def columns(
    machines: Sequence[Machine], latency_ms: Sequence[float], request: Request
) -> tuple[Nodes, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """The policy's columns, and which nodes could take the pod."""
    fits = np.asarray(
        [
            m.ready
            and m.cpu_requested + request.cpu_millicores <= m.cpu_allocatable
            and m.memory_requested + request.memory_mib <= m.memory_allocatable
            and (not request.disk_mib or m.disk_requested + request.disk_mib <= m.disk_allocatable)
            and m.pods < m.pod_capacity
            for m in machines
        ],
        np.bool_,
    )
    return (
        Nodes(
            pods=[m.pods for m in machines],
            pod_capacity=[m.pod_capacity for m in machines],
            cpu_requested=[m.cpu_requested for m in machines],
            cpu_allocatable=[m.cpu_allocatable for m in machines],
            memory_requested=[m.memory_requested for m in machines],
            memory_allocatable=[m.memory_allocatable for m in machines],
            disk_requested=[m.disk_requested for m in machines],
            disk_allocatable=[m.disk_allocatable for m in machines],
            active=[m.counted_pods > 0 for m in machines],
            latency_ms=list(latency_ms),
            idle_power_share=[m.idle_power_share for m in machines],
            feasible=fits,
        ),
        fits,
    )
