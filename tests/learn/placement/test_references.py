# SPDX-License-Identifier: Apache-2.0
"""References that nobody can beat: checked by hand, against each other and against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from pilothouse.errors import InvalidSetting
from pilothouse.learn.placement import references
from pilothouse.learn.placement.chooser import HEURISTICS
from pilothouse.learn.placement.course import Courses, Family, draw
from pilothouse.learn.placement.playing import play

SMALL = Family(nodes=(3, 4), steps=6, churn=0.0, load_percent=(50, 80))


def brute_force(courses: Courses, row: int) -> int | None:
    """Try every assignment of the pods alive at the end."""
    nodes = np.flatnonzero(courses.exists[row])
    pods = np.flatnonzero(references.alive(courses, row))
    best = None
    for places in product(range(len(nodes)), repeat=len(pods)):
        fits = True
        for room, taken, ask in (
            (courses.cpu, courses.cpu_background, courses.pod_cpu),
            (courses.memory, courses.memory_background, courses.pod_memory),
        ):
            load = np.bincount(places, weights=ask[row, pods], minlength=len(nodes))
            fits &= bool((load <= (room - taken)[row, nodes]).all())
        if fits and (best is None or len(set(places)) < best):
            best = len(set(places))
    return best


def test_exact_answers_equal_brute_force() -> None:
    courses = draw(SMALL, seed=4, count=8)

    assert [references.fewest_mixed(courses, r) for r in range(8)] == [
        brute_force(courses, r) for r in range(8)
    ]


def test_identical_pods_have_the_exact_answer_of_the_general_solver() -> None:
    courses = draw(replace(SMALL, identical=True, steps=8), seed=5, count=8)
    for row in range(8):
        mixed = references.fewest_mixed(courses, row)
        if mixed is not None:
            assert references.fewest_identical(courses, row)[-1] == mixed


def test_bounds_are_never_above_what_anybody_reaches() -> None:
    courses = draw(Family(nodes=(3, 8), steps=32), seed=6, count=12)
    bound = np.array([references.volume_bound(courses, r) for r in range(12)]).T
    for rule in HEURISTICS.values():
        played = play(courses, rule)
        all_fit = played.hopeless.sum(axis=0) == 0
        assert (played.active >= bound)[:, all_fit].all()


def test_exact_answer_refuses_what_it_cannot_solve() -> None:
    with pytest.raises(InvalidSetting, match="Use the volume bound"):
        references.fewest_mixed(draw(Family(nodes=(9, 9), steps=12), seed=1, count=1), 0)
