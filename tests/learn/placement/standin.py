# SPDX-License-Identifier: Apache-2.0
"""A cluster in memory that answers as the client of a real one does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pilothouse.learn.placement.cluster import BY_HAND, Look
from pilothouse.learn.placement.course import Courses
from pilothouse.policy.machines import Machine, Request


@dataclass
class StandIn:
    """Nodes and pods in memory, under the names a real cluster's client has."""

    nodes: dict[str, Machine]
    latency: dict[str, float] = field(default_factory=dict)
    pods: dict[str, Request] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    forced: list[str] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)  # pods whose kubelet says no
    picks: str = ""  # what its scheduler would choose; empty: nothing

    def look(self) -> Look:
        return Look(
            machines=tuple(self._loaded(m) for m in self.nodes.values()),
            latency_ms={name: self.latency.get(name, float("nan")) for name in self.nodes},
            own={name: self.where.get(name, "") for name in self.pods},
        )

    def _loaded(self, machine: Machine) -> Machine:
        here = [self.pods[name] for name, node in self.where.items() if node == machine.name]
        return replace(
            machine,
            pods=machine.pods + len(here),
            cpu_requested=machine.cpu_requested + int(sum(r.cpu_millicores for r in here)),
            memory_requested=machine.memory_requested + int(sum(r.memory_mib for r in here)),
            disk_requested=machine.disk_requested + int(sum(r.disk_mib for r in here)),
        )

    def create(self, name: str, request: Request, *, scheduler: str) -> None:
        assert name not in self.pods, "a name is used once"
        self.pods[name] = request
        if scheduler != BY_HAND and self.picks:
            self.where[name] = self.picks

    def bind(self, name: str, node: str) -> None:
        assert name not in self.where, "a pod is bound once"
        self.where[name] = node

    def wait_bound(self, name: str) -> str:
        return self.where.get(name, "")

    def wait_running(self, name: str) -> bool:
        return name not in self.refuses

    def delete(self, names: Sequence[str], *, force: bool = False) -> None:
        for name in names:
            del self.pods[name]
            self.where.pop(name, None)
            self.forced += [name] if force else []

    def clear(self) -> None:
        self.delete(list(self.pods))


def stand_in(course: Courses) -> StandIn:
    """The course's own nodes as a cluster."""
    nodes = {}
    for row in np.flatnonzero(course.exists[0]).tolist():
        name = f"worker-{row + 1}"
        nodes[name] = Machine(
            name=name,
            address="",
            ready=True,
            pods=int(course.pods_background[0, row]),
            counted_pods=0,
            pod_capacity=int(course.pod_capacity[0, row]),
            cpu_requested=int(course.cpu_background[0, row]),
            cpu_allocatable=int(course.cpu[0, row]),
            memory_requested=int(course.memory_background[0, row]),
            memory_allocatable=int(course.memory[0, row]),
            idle_power_share=int(course.idle_permille[0, row]) / 1000,
            disk_requested=int(course.disk_background[0, row]),
            disk_allocatable=int(course.disk[0, row]),
        )
    cluster = StandIn(nodes)
    follow(cluster, course, 0)
    return cluster


def follow(cluster: StandIn, course: Courses, epoch: int) -> None:
    for name, ms in zip(cluster.nodes, course.latency_ms[0, epoch].tolist(), strict=False):
        cluster.latency[name] = float("nan") if ms < 0 else float(ms)
