# SPDX-License-Identifier: Apache-2.0
"""A fleet on the simulator: sums, departures, nodes that come and go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pilothouse.learn.placement.chooser import heuristic
from pilothouse.learn.placement.course import FOREVER, Family, draw
from pilothouse.learn.placement.fleet import Fleet
from pilothouse.learn.placement.playing import play


def test_nothing_is_left_when_all_pods_have_gone() -> None:
    courses = draw(Family(nodes=(3, 5), steps=20, churn=1.0), seed=3, count=6)
    leavers = np.full((6, 21, 20), -1, np.int32)
    leavers[:, 20] = np.arange(20)
    fleet = Fleet(replace(courses, leavers=leavers))
    for _ in range(20):
        fleet.place(fleet.feasible().argmax(axis=1))

    assert fleet.counted.sum() == 0
    requested = fleet.state.n_cpu_requested[:-1].reshape(fleet.counted.shape)
    np.testing.assert_array_equal(requested, courses.cpu_background)


def test_no_node_is_ever_overcommitted() -> None:
    courses = draw(Family(nodes=(2, 6), steps=40, load_percent=(90, 140)), seed=5, count=16)
    fleet = Fleet(courses)
    for _ in range(40):
        fleet.place(fleet.feasible().argmax(axis=1))
        s = fleet.state
        assert (s.n_cpu_requested <= s.n_cpu)[:-1].all()
        assert (s.n_memory_requested <= s.n_memory)[:-1].all()


def test_padding_changes_nothing() -> None:
    courses = draw(Family(nodes=(3, 6), steps=30), seed=2, count=8)
    rule = heuristic("used-first")

    narrow, wide = play(courses, rule), play(courses.padded(17), rule)

    np.testing.assert_array_equal(narrow.node, wide.node)
    np.testing.assert_array_equal(narrow.active, wide.active)


def test_pods_of_a_lost_node_are_created_again_elsewhere() -> None:
    courses = draw(
        Family(nodes=(3, 3), steps=12, churn=0.0, load_percent=(10, 15), cores=(8,)),
        seed=1,
        count=1,
    )
    until = courses.open_until.copy()
    until[0, 0] = 6
    fleet = Fleet(replace(courses, open_until=until))
    while fleet.step_number[0] < 12:
        first = fleet.feasible()[0].argmax()
        step = fleet.place(np.array([first]))
        assert not step.hopeless.any()
        assert not step.invalid.any()

    assert fleet.counted[0, 0] == 0
    assert fleet.counted.sum() == 12


def test_node_that_joins_late_is_not_feasible_before() -> None:
    courses = draw(Family(nodes=(3, 3), steps=8, load_percent=(5, 10)), seed=1, count=1)
    since = courses.open_from.copy()
    since[0, 2] = 5
    fleet = Fleet(replace(courses, open_from=since))
    seen = []
    for _ in range(8):
        seen.append(bool(fleet.feasible()[0, 2]))
        fleet.place(np.array([0]))

    assert seen == [False] * 5 + [True] * 3
    assert courses.open_until[0, 2] == FOREVER
