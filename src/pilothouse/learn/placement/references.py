# SPDX-License-Identifier: Apache-2.0
"""What nobody can beat: the fewest nodes that could hold the pods, exactly or as a bound.

Identical pods have an exact answer. Pods of mixed sizes have a clairvoyant one (HiGHS, small
cases) and a volume bound (any size), which only asks whether the sums of CPU and memory fit.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pilothouse.errors import InvalidSetting
from pilothouse.learn.extras import need
from pilothouse.learn.placement.course import Courses

I8: TypeAlias = NDArray[np.int64]

MOST_NODES, MOST_PODS = 8, 40  # beyond, HiGHS takes minutes


def alive(courses: Courses, row: int) -> NDArray[np.bool_]:
    """(pods,): which pods run after the last placement, if all fit."""
    left = courses.leavers[row, : courses.steps]
    running = np.ones(courses.steps, np.bool_)
    running[left[left >= 0]] = False
    return running


def asked(courses: Courses, row: int, each: NDArray[np.integer]) -> I8:
    """(steps,): the sum, over the pods that run after each placement, of what each counts."""
    left = courses.leavers[row, : courses.steps]
    gone = np.where(left >= 0, each[left], 0).sum(axis=1)
    total: I8 = np.cumsum(each[: courses.steps].astype(np.int64) - gone)
    return total


def fewest_identical(courses: Courses, row: int) -> I8:
    """(steps,): the fewest nodes that hold the identical pods alive after each step.

    ``most[j]``, the most pods that j nodes can hold, follows node by node: most[j] =
    max(most[j], most[j - 1] + slots). The answer is the first j with most[j] >= pods.
    """
    slots = _slots(courses, row)
    most = np.zeros(len(slots) + 1, np.int64)
    for one in slots:
        most[1:] = np.maximum(most[1:], most[:-1] + one)
    pods = np.minimum(asked(courses, row, np.ones(courses.steps + 1, np.int64)), most[-1])
    fewest: I8 = np.searchsorted(most, pods)
    return fewest


def _slots(courses: Courses, row: int) -> I8:
    c, there = courses, courses.exists[row]
    cpu = (c.cpu[row] - c.cpu_background[row]) // c.pod_cpu[row, 0]
    memory = (c.memory[row] - c.memory_background[row]) // c.pod_memory[row, 0]
    free = c.pod_capacity[row] - c.pods_background[row]
    slots: I8 = np.where(there, np.minimum(np.minimum(cpu, memory), free), 0).astype(np.int64)
    return slots


def volume_bound(courses: Courses, row: int) -> I8:
    """(steps,): no fewer nodes have the CPU and the memory that is asked for after each step."""
    c = courses
    bound = np.ones(courses.steps, np.int64)
    for room, taken, ask in (
        (c.cpu, c.cpu_background, c.pod_cpu),
        (c.memory, c.memory_background, c.pod_memory),
    ):
        free = np.sort(np.where(c.exists[row], room[row] - taken[row], 0))[::-1]
        needs = asked(c, row, ask[row])
        bound = np.maximum(bound, np.searchsorted(np.cumsum(free), needs) + 1)
    least: I8 = np.minimum(bound, courses.exists[row].sum())
    return least


def fewest_mixed(courses: Courses, row: int) -> int | None:
    """The fewest nodes that hold the pods alive at the end, by HiGHS; None: not all of them fit."""
    need("scipy")
    from scipy.optimize import Bounds, LinearConstraint, milp

    c = courses
    nodes = np.flatnonzero(c.exists[row])
    pods = np.flatnonzero(alive(c, row))
    if len(nodes) > MOST_NODES or len(pods) > MOST_PODS:
        raise InvalidSetting(
            f"The exact answer is for up to {MOST_NODES} nodes and {MOST_PODS} pods, but got "
            f"{len(nodes)} and {len(pods)}. Use the volume bound."
        )
    many = len(pods) * len(nodes)
    cost = np.concatenate([np.zeros(many), np.ones(len(nodes))])
    once = np.zeros((len(pods), many + len(nodes)))
    for p in range(len(pods)):
        once[p, p * len(nodes) : (p + 1) * len(nodes)] = 1
    fits = []
    for room, taken, ask in (
        (c.cpu, c.cpu_background, c.pod_cpu),
        (c.memory, c.memory_background, c.pod_memory),
    ):
        block = np.zeros((len(nodes), many + len(nodes)))
        for n, node in enumerate(nodes):
            block[n, n : many : len(nodes)] = ask[row, pods]
            block[n, many + n] = -float(room[row, node] - taken[row, node])
        fits.append(block)
    answer = milp(
        cost,
        constraints=[LinearConstraint(once, 1, 1), LinearConstraint(np.vstack(fits), -np.inf, 0)],
        integrality=np.ones(len(cost)),
        bounds=Bounds(0, 1),
        options={"time_limit": 20.0},
    )
    return round(answer.fun) if answer.status == 0 else None
