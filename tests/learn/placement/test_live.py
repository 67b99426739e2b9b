# SPDX-License-Identifier: Apache-2.0
"""A fleet of one real cluster, here on a stand-in: it steps as the simulator's fleet does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pilothouse.errors import InvalidSetting
from pilothouse.learn.placement.chooser import heuristic
from pilothouse.learn.placement.course import Courses, Family, draw
from pilothouse.learn.placement.fleet import Fleet
from pilothouse.learn.placement.live import LiveFleet, fitted
from tests.learn.placement.standin import follow, stand_in


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
