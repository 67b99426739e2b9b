# SPDX-License-Identifier: Apache-2.0
"""A fleet of one real cluster: the same steps as on the simulator, with real pods.

The simulator's state serves as a mirror: it is overwritten by what the cluster says before every
choice, so that features, masks and rewards are computed by the very same code. A pod on offer
is a real pending pod, an accepted choice a real binding, a departure a real deletion. Where a
scheduler is named, the choice is left to it and only watched. Nodes that come and go do so by
themselves; pods of a node that went are created again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pilothouse.errors import InvalidSetting
from pilothouse.learn.placement.cluster import BY_HAND, Cluster, Look
from pilothouse.learn.placement.course import FOREVER, NODE_FIELDS, UNKNOWN_MS, Courses, Flags
from pilothouse.learn.placement.fleet import Fleet, Step
from pilothouse.policy.features import USUAL_IDLE_POWER_SHARE
from pilothouse.policy.machines import Machine, Request
from pilothouse.sim.state import I8

SetLatency = Callable[[Mapping[str, float]], None]


def _leave(_latency: Mapping[str, float]) -> None:
    """Latencies are what they are."""


def _go_on(_step: int) -> None:
    """No waiting between placements."""


class LiveFleet(Fleet):
    """One course played on a real cluster."""

    def __init__(
        self,
        cluster: Cluster,
        course: Courses,
        *,
        width: int,
        scheduler: str = "",  # leave every choice to this one; empty: choices are bound by hand
        set_latency: SetLatency = _leave,
        pause: Callable[[int], None] = _go_on,
    ) -> None:
        self._cluster, self._scheduler = cluster, scheduler
        self._set_latency, self._pause = set_latency, pause
        self._schedule = course.latency_ms[0], course.epoch[0]
        self._epoch = -1
        self._verdict: Flags | None = None
        self._made = 0
        self._name_of: dict[int, str] = {}
        cluster.clear()
        self._look = cluster.look()
        self.names = [machine.name for machine in self._look.machines]
        super().__init__(_on_nodes(course, self._look, width))

    def feasible(self) -> Flags:
        """As observed; once the pod has been bound or refused for real, that counts instead."""
        return super().feasible() if self._verdict is None else self._verdict

    def place(self, choice: NDArray[np.integer]) -> Step:
        """Bind the pod on offer, or watch where the scheduler binds it, until it runs."""
        name, began = self._name_of[int(self._pod[0])], time.monotonic()
        pending = float("nan")
        if self._scheduler:
            self._create(scheduler=self._scheduler)
            node = self._cluster.wait_bound(name)
            pending = time.monotonic() - began
            choice = np.array([max(self._row_of(node), 0)])
            self._judge(name, choice, bound=bool(node))
        elif self.feasible()[0, int(choice[0])]:
            self._cluster.bind(name, self.names[int(choice[0])])
            pending = time.monotonic() - began
            self._judge(name, choice, bound=True)
        elif not self.feasible().any():
            self._cluster.delete([name])
        step = super().place(choice)
        return replace(step, pending_seconds=np.where(step.bound, pending, np.nan))

    def _judge(self, name: str, choice: NDArray[np.integer], *, bound: bool) -> None:
        """What really became of the pod is what counts, whatever the mirror said."""
        runs = bound and self._cluster.wait_running(name)
        if not runs:
            self._cluster.delete([name])
        mask = super().feasible()
        mask[0, choice] = True
        self._verdict = mask if runs else np.zeros_like(mask)

    def _next(self, rows: I8) -> None:
        self._verdict = None  # it was about the pod before
        super()._next(rows)

    def _arrive(self, rows: I8) -> None:
        if len(rows):
            self._pause(int(self.step_number[0]))
        super()._arrive(rows)

    def _remove(self, rows: I8, numbers: NDArray[np.integer]) -> None:
        slots = self._slot_of[rows, numbers]
        there = {machine.name for machine in self._look.machines}
        leaving = [
            (self._name_of.pop(int(number)), self._node_of(int(slot)) in there)
            for number, slot in zip(numbers, slots, strict=True)
            if slot >= 0
        ]
        super()._remove(rows, numbers)
        for force in (False, True):
            if names := [name for name, answers in leaving if answers is not force]:
                self._cluster.delete(names, force=force)

    def _node_of(self, slot: int) -> str:
        row = int(self.state.node[slot])
        return self.names[row] if row < len(self.names) else ""

    def _offer(self, rows: I8, numbers: NDArray[np.integer]) -> None:
        super()._offer(rows, numbers)
        for number in numbers.tolist():
            self._made += 1
            self._name_of[number] = f"placed-{self._made}"
            if not self._scheduler:
                self._create(scheduler=BY_HAND)
        if len(rows):
            self._follow_schedule()
            self._mirror()

    def _create(self, *, scheduler: str) -> None:
        s, slot = self.state, int(self.slots[0])
        soft, hard = self.limits()
        request = Request(
            cpu_millicores=float(s.cpu_request[slot]),
            memory_mib=float(s.memory_request[slot]),
            disk_mib=float(self.courses.pod_disk[0, self._pod[0]]),
            soft_limit_ms=float(soft[0]),
            hard_limit_ms=float(hard[0]),
        )
        self._cluster.create(self._name_of[int(self._pod[0])], request, scheduler=scheduler)

    def _follow_schedule(self) -> None:
        """Tell whoever can move users that the course's latencies have changed."""
        latency, epochs = self._schedule
        epoch = int(epochs[self.step_number[0]])
        if epoch != self._epoch:
            self._epoch = epoch
            wanted = latency[epoch][: len(self.names)]
            self._set_latency(dict(zip(self.names, wanted.tolist(), strict=False)))

    @property
    def _watches_nodes(self) -> bool:
        return True

    def _there(self, rows: I8) -> Flags:
        """Nodes that take pods now; one that was never seen takes the next free row."""
        self._look = self._cluster.look()
        for machine in self._look.machines:
            if machine.name not in self.names and len(self.names) < self.counted.shape[1]:
                self.names.append(machine.name)
        there = np.zeros_like(self.open)
        for machine in self._look.machines:
            if (row := self._row_of(machine.name)) >= 0:
                there[0, row] = self.courses.exists[0, row] = True
        return there

    def _row_of(self, node: str) -> int:
        return self.names.index(node) if node in self.names else -1

    def _mirror(self) -> None:
        """Overwrite the state with what the cluster says."""
        self._look = self._cluster.look()
        s = self.state
        self.counted[:] = 0
        for machine in self._look.machines:
            row = self._row_of(machine.name)
            if row < 0:
                continue  # wider than the action space; nobody can choose it
            for column, value in _columns(machine, self._look).items():
                getattr(s, column)[row] = value
            self.counted[0, row] = self._look.counted(machine.name)
            self.disk[0, row] = machine.disk_requested
            self.courses.disk[0, row] = max(machine.disk_allocatable, 1)
            self.courses.pod_capacity[0, row] = machine.pod_capacity
            self.courses.idle_permille[0, row] = _idle_permille(machine)


def _columns(machine: Machine, look: Look) -> dict[str, int]:
    """The simulator's columns of one node."""
    latency = look.latency_ms[machine.name]
    return {
        "n_exists": 1,
        "n_ready": 1,
        "n_cpu": machine.cpu_allocatable,
        "n_memory": machine.memory_allocatable,
        "n_cpu_requested": machine.cpu_requested,
        "n_memory_requested": machine.memory_requested,
        "n_pods": machine.pods,
        "n_latency": UNKNOWN_MS if np.isnan(latency) else round(latency),
    }


def _idle_permille(machine: Machine) -> int:
    share = machine.idle_power_share
    return round(1000 * (USUAL_IDLE_POWER_SHARE if np.isnan(share) else share))


def _on_nodes(course: Courses, look: Look, width: int) -> Courses:
    """The course with the cluster's nodes instead of its own, in ``width`` rows."""
    many = len(look.machines)
    if not 1 <= many <= width:
        raise InvalidSetting(
            f"The cluster has {many} nodes that take ordinary pods, but max_nodes is {width}."
        )
    columns = {
        name: np.zeros((1, *getattr(course, name).shape[1:-1], width), getattr(course, name).dtype)
        for name in NODE_FIELDS
    }
    columns["exists"][0, :many] = True
    for row, machine in enumerate(look.machines):
        columns["pod_capacity"][0, row] = machine.pod_capacity
        columns["idle_permille"][0, row] = _idle_permille(machine)
    for name in ("cpu", "memory", "disk"):
        columns[name][:] = 1  # until the first look
    columns["latency_ms"][:] = UNKNOWN_MS
    columns["open_until"][:] = FOREVER
    return replace(course, **columns)


def fitted(course: Courses, look: Look) -> Courses:
    """Pods as large on these nodes as they were on the course's own, never larger.

    Where kubelets report no ephemeral storage, pods ask for none.
    """
    machines = look.machines
    scaled = {}
    for what, least, real in (
        ("cpu", 1, sum(m.cpu_allocatable - m.cpu_requested for m in machines)),
        ("memory", 1, sum(m.memory_allocatable - m.memory_requested for m in machines)),
        ("disk", 0, sum(m.disk_allocatable - m.disk_requested for m in machines)),
    ):
        room, taken = getattr(course, what), getattr(course, f"{what}_background")
        free = int(((room - taken) * course.exists).sum())
        share = min(max(real, 0) / max(free, 1), 1.0)
        pods = getattr(course, f"pod_{what}") * share
        scaled[f"pod_{what}"] = np.maximum(pods, least).astype(np.int32)
    return replace(course, **scaled)
