# SPDX-License-Identifier: Apache-2.0
"""A fleet: many courses played at once on the simulator's own state and rules.

Pods are created, bound and removed by the simulator's functions and requests are summed by them;
what a full tick would add (usage, faults, autoscalers) does not happen between two placements, so
that a step is one placement. A pod that fits nowhere is given up and counted; a pod whose choice
was invalid stays pending and is offered again. Pods of a node that goes away are created again, as
their owner would.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilothouse.learn.placement.course import UNKNOWN_MS, Courses, Flags
from pilothouse.learn.placement.placed import Placed
from pilothouse.policy import Nodes, Pods, build
from pilothouse.policy.features import BesideCPU
from pilothouse.sim import pods
from pilothouse.sim.state import AWAKE, I8, State

Floats = NDArray[np.float32]
MOST_WATTS = 260  # of the simulator's reference machine, idle included


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """What a step did, by course."""

    placed: Placed  # the state around the placement, as rewards see it
    bound: Flags  # the pod was bound
    invalid: Flags  # the choice was not feasible although some node was
    hopeless: Flags  # no node was feasible; the pod was given up
    over: Flags  # the course has ended
    pending_seconds: NDArray[
        np.float64
    ]  # until it was bound; NaN: never, or its choice was invalid


class Fleet:
    """Courses in play; every array is (courses, nodes) or (courses,)."""

    def __init__(self, courses: Courses) -> None:
        self.courses = courses
        count, nodes = courses.exists.shape
        self._rows = np.arange(count)
        self.state = State(
            batch=count, nodes=nodes, workloads=1, spaces=1, zones=1, slots=count * 8
        )
        self.step_number = np.zeros(count, np.int64)
        self._slot_of: I8 = np.full((count, courses.steps + 1), -1)
        self._again: list[list[int]] = [[] for _ in range(count)]
        self._pod = np.zeros(count, np.int64)  # number of the pod on offer
        self.counted = np.zeros((count, nodes), np.int64)
        self.disk = np.zeros((count, nodes), np.int64)  # MiB requested; not the simulator's
        self.open: Flags = np.zeros((count, nodes), np.bool_)
        self._nodes_move = courses.nodes_move
        self.restart(self._rows)

    def restart(self, rows: I8, courses: Courses | None = None) -> None:
        """Start these courses over; ``courses`` (one per row) replaces them first."""
        if courses is not None:
            for name in Courses.__slots__:
                getattr(self.courses, name)[rows] = getattr(courses, name)
            self._nodes_move = self.courses.nodes_move
        s, c = self.state, self.courses
        pods.remove(s, np.flatnonzero(np.isin(s.home, rows) & (s.uid > 0)))
        flat = (rows[:, None] * s.nodes + np.arange(s.nodes)[None, :]).ravel()
        s.n_exists[flat] = c.exists[rows].ravel()
        s.n_cpu[flat] = c.cpu[rows].ravel()
        s.n_memory[flat] = c.memory[rows].ravel()
        s.n_idle_mw[flat] = c.idle_permille[rows].ravel() * MOST_WATTS
        s.n_ready[flat], s.n_power[flat] = 1, AWAKE
        s.n_cpu_requested[flat] = c.cpu_background[rows].ravel()
        s.n_memory_requested[flat] = c.memory_background[rows].ravel()
        s.n_pods[flat] = c.pods_background[rows].ravel()
        s.w_exists[rows] = 1
        s.w_home[rows] = rows
        self.counted[rows] = 0
        self.disk[rows] = c.disk_background[rows]
        self.step_number[rows] = 0
        self._slot_of[rows] = -1
        self.open[rows] = c.exists[rows] & (c.open_from[rows] <= 0)
        for row in rows.tolist():
            self._again[row].clear()
        self._arrive(rows)

    def _arrive(self, rows: I8) -> None:
        """Departures and changes before this step, then its pod, for these courses."""
        s, c = self.state, self.courses
        now = self.step_number[rows]
        leaving = c.leavers[rows, now]
        who, which = np.nonzero(leaving >= 0)
        self._remove(rows[who], leaving[who, which])
        if self._watches_nodes:
            self._move_nodes(rows)
        latency = c.latency_ms[rows, c.epoch[rows, now]]
        flat = rows[:, None] * s.nodes + np.arange(s.nodes)[None, :]
        s.n_latency[flat] = latency
        self._offer(rows, now)

    @property
    def _watches_nodes(self) -> bool:
        return self._nodes_move

    def _move_nodes(self, rows: I8) -> None:
        """Nodes that come are empty; the pods of one that goes wait to be created again."""
        s = self.state
        there = self._there(rows)
        for row, gone in zip(rows.tolist(), self.open[rows] & ~there, strict=True):
            for node in np.flatnonzero(gone).tolist():
                slots = self._slot_of[row]
                here = (slots >= 0) & (s.node[slots] == row * s.nodes + node)
                lost = np.flatnonzero(here)
                self._remove(np.full(len(lost), row), lost)
                self._again[row].extend(lost.tolist())
        self.open[rows] = there
        self.state.n_ready[: s.nobody_node] = self.open.ravel()

    def _there(self, rows: I8) -> Flags:
        """Which nodes there are at this step of these courses."""
        c, now = self.courses, self.step_number[rows][:, None]
        there: Flags = c.exists[rows] & (c.open_from[rows] <= now) & (now < c.open_until[rows])
        return there

    def _remove(self, rows: I8, numbers: NDArray[np.integer]) -> None:
        s = self.state
        slots = self._slot_of[rows, numbers]
        for row, number in zip(rows[slots < 0].tolist(), numbers[slots < 0].tolist(), strict=True):
            if number in self._again[row]:
                self._again[row].remove(number)
        rows, numbers, slots = rows[slots >= 0], numbers[slots >= 0], slots[slots >= 0]
        node = s.node[slots]
        np.subtract.at(self.counted, (rows, node - rows * s.nodes), 1)
        written = self.courses.pod_disk[rows, numbers]
        np.subtract.at(self.disk, (rows, node - rows * s.nodes), written)
        pods.remove(s, slots)
        self._slot_of[rows, numbers] = -1

    def _offer(self, rows: I8, numbers: NDArray[np.integer]) -> None:
        """Create these pods; they wait for a choice."""
        s, c = self.state, self.courses
        slots = pods.create(s, rows, np.zeros(len(rows), np.uint32))
        s.cpu_request[slots] = c.pod_cpu[rows, numbers]
        s.memory_request[slots] = c.pod_memory[rows, numbers]
        self._slot_of[rows, numbers] = slots
        self._pod[rows] = numbers

    @property
    def slots(self) -> I8:
        """Pod slots of the simulator that hold the pods on offer."""
        slots: I8 = self._slot_of[self._rows, self._pod]
        return slots

    @property
    def disk_request(self) -> NDArray[np.int32]:
        """MiB that the pods on offer ask for."""
        asked: NDArray[np.int32] = self.courses.pod_disk[self._rows, self._pod]
        return asked

    def feasible(self) -> Flags:
        """Which nodes could take the pod on offer: there, ready, and with room for its requests."""
        s, shape = self.state, self.counted.shape
        free_cpu = (s.n_cpu - s.n_cpu_requested)[:-1].reshape(shape)
        free_memory = (s.n_memory - s.n_memory_requested)[:-1].reshape(shape)
        slots = self.slots
        fits: Flags = self.open & (free_cpu >= s.cpu_request[slots][:, None])
        fits &= free_memory >= s.memory_request[slots][:, None]
        return fits & (s.n_pods[:-1].reshape(shape) < self.courses.pod_capacity)

    def limits(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Soft and hard limit of the pod on offer, in ms; 0 is none."""
        c = self.courses
        return c.soft_ms[self._rows, self._pod], c.hard_ms[self._rows, self._pod]

    def features(self, beside_cpu: BesideCPU = "memory") -> Floats:
        """What a policy sees (courses, nodes, features), unscaled; zeros where there is no node."""
        s, shape, slots = self.state, self.counted.shape, self.slots
        soft, hard = self.limits()

        def column(name: str) -> NDArray[np.float64]:
            values: NDArray[np.float64] = getattr(s, name)[:-1].reshape(shape).astype(np.float64)
            return values

        latency = column("n_latency")
        nodes = Nodes(
            pods=column("n_pods"),
            pod_capacity=self.courses.pod_capacity,
            cpu_requested=column("n_cpu_requested"),
            cpu_allocatable=column("n_cpu"),
            memory_requested=column("n_memory_requested"),
            memory_allocatable=column("n_memory"),
            disk_requested=self.disk,
            disk_allocatable=self.courses.disk,
            active=self.counted > 0,
            latency_ms=np.where(latency == UNKNOWN_MS, np.nan, latency),
            idle_power_share=self.courses.idle_permille / 1000,
            feasible=self.feasible(),
        )
        ask = Pods(
            cpu_request=s.cpu_request[slots],
            memory_request=s.memory_request[slots],
            disk_request=self.disk_request,
            soft_limit_ms=soft,
            hard_limit_ms=hard,
        )
        return build(nodes, ask, valid=self.open, beside_cpu=beside_cpu)

    def place(self, choice: NDArray[np.integer]) -> Step:
        """Bind the pods on offer where chosen, then let time pass to the next ones."""
        feasible = self.feasible()
        some = feasible.any(axis=1)
        bound = some & feasible[self._rows, choice]
        before = self._around(feasible, choice, bound)
        s, rows = self.state, self._rows[bound]
        pods.bind(s, self.slots[bound], rows * s.nodes + choice[bound])
        self.counted[rows, choice[bound]] += 1
        self.disk[rows, choice[bound]] += self.courses.pod_disk[rows, self._pod[rows]]
        hopeless: Flags = np.logical_not(some)
        given_up = self.slots[hopeless]
        pods.remove(s, given_up)
        self._slot_of[self._rows[hopeless], self._pod[hopeless]] = -1
        self._next(self._rows[bound | hopeless])
        return Step(
            placed=before,
            bound=bound,
            invalid=some & ~bound,
            hopeless=hopeless,
            over=self.step_number >= self.courses.steps,
            pending_seconds=np.where(bound, 0.0, np.nan),  # simulated time stands still meanwhile
        )

    def _next(self, rows: I8) -> None:
        """The next pod: one that lost its node first, else the course's next."""
        waiting = np.array([bool(self._again[r]) for r in rows.tolist()], np.bool_)
        for row in rows[waiting].tolist():
            self._offer(np.array([row]), np.array([self._again[row].pop(0)]))
        fresh = rows[~waiting]
        self.step_number[fresh] += 1
        self._arrive(fresh[self.step_number[fresh] <= self.courses.steps])

    def _around(self, feasible: Flags, choice: NDArray[np.integer], bound: Flags) -> Placed:
        """What rewards see: the state before, and what the choice makes of it."""
        s, shape, slots = self.state, self.counted.shape, self.slots
        soft, hard = self.limits()
        return Placed(
            exists=self.open,
            feasible=feasible,
            chosen=(np.arange(shape[1])[None, :] == choice[:, None]) & bound[:, None],
            counted=self.counted.copy(),
            pods=s.n_pods[:-1].reshape(shape).copy(),
            pod_capacity=self.courses.pod_capacity,
            cpu=s.n_cpu_requested[:-1].reshape(shape).copy(),
            cpu_room=s.n_cpu[:-1].reshape(shape).copy(),
            memory=s.n_memory_requested[:-1].reshape(shape).copy(),
            memory_room=s.n_memory[:-1].reshape(shape).copy(),
            disk=self.disk.copy(),
            disk_room=self.courses.disk,
            idle_permille=self.courses.idle_permille,
            latency_ms=s.n_latency[:-1].reshape(shape).copy(),
            pod_cpu=s.cpu_request[slots],
            pod_memory=s.memory_request[slots],
            pod_disk=self.disk_request,
            soft_ms=soft,
            hard_ms=hard,
        )
