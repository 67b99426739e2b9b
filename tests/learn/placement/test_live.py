# SPDX-License-Identifier: Apache-2.0
"""A fleet of one real cluster, here on a stand-in: it steps as the simulator's fleet does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from pilothouse.errors import InvalidSetting
from pilothouse.learn.placement.chooser import heuristic
from pilothouse.learn.placement.cluster import BY_HAND, Look
from pilothouse.learn.placement.course import Courses, Family, draw
from pilothouse.learn.placement.fleet import Fleet
from pilothouse.learn.placement.live import LiveFleet, fitted
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


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_real_cluster_steps_as_the_simulator_does(seed: int) -> None:
    course = draw(Family(nodes=(3, 5), steps=30, load_percent=(60, 110)), seed=seed, count=1)
    cluster = stand_in(course)
    moved: list[dict[str, float]] = []

    def set_latency(wanted: dict[str, float]) -> None:
        follow(cluster, course, len(moved))
        moved.append(dict(wanted))

    sim = Fleet(course.rows(slice(None)).padded(6))
    live = LiveFleet(cluster, course, width=6, set_latency=set_latency)  # type: ignore[arg-type]
    rule = heuristic("near-used-first")
    for _ in range(30):
        np.testing.assert_allclose(live.features(), sim.features(), atol=1e-6)
        np.testing.assert_array_equal(live.feasible(), sim.feasible())
        choice = rule.choose(sim)
        np.testing.assert_array_equal(rule.choose(live), choice)
        real, simulated = live.place(choice), sim.place(choice)
        assert (real.bound == simulated.bound).all()
        assert (real.hopeless == simulated.hopeless).all()
        for what in ("counted_after", "disk", "cpu"):
            np.testing.assert_array_equal(
                getattr(real.placed, what)[live.open], getattr(simulated.placed, what)[sim.open]
            )
    assert len(moved) == len(set(course.epoch[0].tolist()))
    assert len(cluster.where) == sim.counted.sum()


def small(steps: int = 8) -> Courses:
    family = Family(nodes=(3, 3), steps=steps, load_percent=(10, 15), cores=(8,), churn=0.0)
    return draw(replace(family, background_percent=(0, 0)), seed=1, count=1)


def test_an_invalid_choice_leaves_the_real_pod_pending() -> None:
    cluster = stand_in(small())
    fleet = LiveFleet(cluster, small(), width=4)  # type: ignore[arg-type]

    step = fleet.place(np.array([3]))

    assert step.invalid.all()
    assert np.isnan(step.pending_seconds).all()
    assert list(cluster.pods) == ["placed-1"]
    assert cluster.where == {}
    assert fleet.place(np.array([0])).bound.all()
    assert cluster.where == {"placed-1": "worker-1"}


def test_pods_of_a_node_that_went_are_created_again_and_a_new_node_is_seen() -> None:
    cluster = stand_in(small())
    fleet = LiveFleet(cluster, small(), width=4)  # type: ignore[arg-type]
    for _ in range(3):
        fleet.place(np.array([0]))
    lost = cluster.nodes.pop("worker-1")
    cluster.nodes["worker-9"] = replace(lost, name="worker-9")
    fleet.place(np.array([1]))  # the look after this one notices

    assert fleet.names[3] == "worker-9"
    assert fleet.open.tolist() == [[False, True, True, True]]
    assert sorted(cluster.forced) == ["placed-1", "placed-2", "placed-3"]
    while fleet.step_number[0] < 8:
        assert fleet.place(np.array([3])).bound.all()
    assert set(cluster.where.values()) == {"worker-2", "worker-9"}
    assert len(cluster.where) == 8, "every pod of the course runs somewhere"


def test_a_scheduler_that_is_named_chooses_and_is_only_watched() -> None:
    cluster = stand_in(small())
    cluster.picks = "worker-3"
    fleet = LiveFleet(cluster, small(), width=3, scheduler="default-scheduler")  # type: ignore[arg-type]

    step = fleet.place(np.array([0]))

    assert step.bound.all()
    assert step.placed.chosen.tolist() == [[False, False, True]]
    cluster.picks = ""
    assert fleet.place(np.array([0])).hopeless.all(), "a pod that stays pending is given up"
    assert list(cluster.pods) == ["placed-1"]


def test_a_pod_that_its_kubelet_refuses_is_given_up() -> None:
    cluster = stand_in(small())
    cluster.refuses = {"placed-1"}
    fleet = LiveFleet(cluster, small(), width=3)  # type: ignore[arg-type]

    step = fleet.place(np.array([0]))

    assert step.hopeless.all()
    assert "placed-1" not in cluster.pods
    assert fleet.place(np.array([0])).bound.all()


def test_pods_are_scaled_to_what_the_cluster_has_free_and_never_up() -> None:
    course = small()
    cluster = stand_in(course)
    for name, machine in cluster.nodes.items():
        cluster.nodes[name] = replace(machine, cpu_allocatable=machine.cpu_allocatable // 4)

    sized = fitted(course, cluster.look())

    np.testing.assert_allclose(sized.pod_cpu, course.pod_cpu / 4, atol=1.0)
    np.testing.assert_array_equal(sized.pod_memory, course.pod_memory)


def test_more_nodes_than_actions_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="3 nodes that take ordinary pods"):
        LiveFleet(stand_in(small()), small(), width=2)  # type: ignore[arg-type]
