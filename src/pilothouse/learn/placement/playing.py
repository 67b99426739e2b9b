# SPDX-License-Identifier: Apache-2.0
"""Play courses with a chooser and keep what happened at each step.

Latency limits are judged only where they could be kept: a pod counts for its hard limit when a
feasible node kept it, and likewise for its soft one. Energy is modelled: a used node draws its
idle power and the rest by its CPU requests; an unused one is taken to be asleep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pilothouse.errors import InternalError
from pilothouse.learn.placement.chooser import Chooser
from pilothouse.learn.placement.course import Courses
from pilothouse.learn.placement.fleet import MOST_WATTS, Fleet, Step
from pilothouse.learn.placement.placed import Placed, Resource
from pilothouse.learn.placement.rewards import Reward, worth

F8: TypeAlias = NDArray[np.float64]

MOST_TRIES = 100  # for one pod; who always chooses alike would never end


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Played:
    """Arrays (steps, courses) after each placement; NaN where a figure has no meaning.

    Courses whose nodes move place lost pods again, so some end before others: NaN from there on.
    """

    active: F8  # used nodes
    spread: F8  # most minus least load share; unless told, of the mean of CPU and memory
    latency_ms: F8  # of the chosen node
    in_hard: F8  # 1 or 0; NaN: no limit, or no feasible node kept it
    in_soft: F8
    over_hard: F8  # 1 or 0, whether or not it could be kept; NaN: no limit
    over_soft: F8
    watts: F8  # modelled
    node: F8  # chosen node; NaN: the pod fitted nowhere
    hopeless: F8  # 1 or 0: no node had room
    left: F8  # 1 or 0: a node had room, but one without was chosen; the pod is offered again
    pending_seconds: F8  # until it was bound; NaN: it was not

    def mean_active(self) -> F8:
        """(courses,), used nodes over time."""
        mean: F8 = np.nanmean(self.active, axis=0)
        return mean

    def mean_spread(self) -> F8:
        mean: F8 = np.nanmean(self.spread, axis=0)
        return mean

    def followed_after(self, change: int, until: int | None = None) -> int:
        """Placements from a change on until every course keeps the soft limit for good.

        More than were played when one course never did, or could not be seen to.
        """
        kept = self.in_soft[change:until]
        worst = 1
        for course in kept.T:
            known = np.flatnonzero(np.isfinite(course))
            if not len(known) or course[known[-1]] == 0:
                return len(kept) + 1
            wrong = np.flatnonzero(course == 0)
            worst = max(worst, int(wrong[-1]) + 2 if len(wrong) else 1)
        return worst

    def share(self, flags: F8) -> float:
        """Share of ones among what has a meaning."""
        return float(np.nanmean(flags)) if np.isfinite(flags).any() else 1.0


def play(
    courses: Courses,
    chooser: Chooser,
    *,
    resource: Resource = "requests",
    told: Callable[[], None] = lambda: None,
) -> Played:
    """All steps of all courses; courses whose nodes move take a few steps more."""
    return play_on(Fleet(courses), chooser, resource=resource, told=told)


def play_on(
    fleet: Fleet,
    chooser: Chooser,
    *,
    resource: Resource = "requests",
    told: Callable[[], None] = lambda: None,
) -> Played:
    """All steps of a fleet that has just begun; ``resource`` is what load means."""
    rows: list[dict[str, F8]] = []
    tries = np.zeros(fleet.courses.count, np.int64)
    while (going := fleet.step_number < fleet.courses.steps).any():
        step = fleet.place(chooser.choose(fleet))
        figures = _told(step, resource)
        rows.append({name: np.where(going, own, np.nan) for name, own in figures.items()})
        tries = np.where(step.invalid & going, tries + 1, 0)
        if (tries >= MOST_TRIES).any():
            raise InternalError(
                f"{chooser.name} chose a node without room {MOST_TRIES} times for one pod although "
                "another had room, and would go on. Let it choose among the feasible nodes."
            )
        told()
    return Played(**{name: np.stack([row[name] for row in rows]) for name in rows[0]})


def returns(courses: Courses, chooser: Chooser, reward: Reward) -> F8:
    """(courses,), what a reward adds up to until a course is over, or until it ends the episode."""
    fleet = Fleet(courses)
    total, going = np.zeros(courses.count), np.ones(courses.count, np.bool_)
    while (going := going & (fleet.step_number < courses.steps)).any():
        value, ended = worth(reward, fleet.place(chooser.choose(fleet)).placed)
        total += np.where(going, value, 0.0)
        going = going & ~ended
    return total


def joined(runs: Sequence[Played]) -> Played:
    """Runs of one course each, side by side; NaN where one was shorter."""
    longest = max(len(run.active) for run in runs)

    def column(name: str) -> F8:
        parts = []
        for run in runs:
            own: F8 = getattr(run, name)
            missing = ((0, longest - len(own)), (0, 0))
            parts.append(np.pad(own, missing, constant_values=np.nan))
        return np.concatenate(parts, axis=1)

    return Played(**{name: column(name) for name in Played.__slots__})


def _told(step: Step, resource: Resource) -> dict[str, F8]:
    p = step.placed
    active = (p.exists & (p.counted_after > 0)).astype(np.float64)
    load = p.load_after(resource)
    high = np.where(p.exists, load, -np.inf).max(axis=1)
    low = np.where(p.exists, load, np.inf).min(axis=1)
    latency = p.at_choice(p.latency_ms).astype(np.float64)
    latency = np.where(step.bound & (latency >= 0), latency, np.nan)
    hard_kept, hard_over = _judged(p, p.hard_ms, step)
    soft_kept, soft_over = _judged(p, p.soft_ms, step)
    return {
        "active": active.sum(axis=1),
        "spread": high - low,
        "latency_ms": latency,
        "in_hard": hard_kept,
        "in_soft": soft_kept,
        "over_hard": hard_over,
        "over_soft": soft_over,
        "watts": _watts(p, active).sum(axis=1),
        "node": np.where(step.bound, p.chosen.argmax(axis=1), np.nan),
        "hopeless": step.hopeless.astype(np.float64),
        "left": step.invalid.astype(np.float64),
        "pending_seconds": step.pending_seconds,
    }


def _watts(p: Placed, active: F8) -> F8:
    """Modelled: a larger machine draws in proportion; requests stand for use."""
    size = p.cpu_room / 12_000
    idle = p.idle_permille / 1000
    share: F8 = idle + (1 - idle) * np.minimum(p.load_after("cpu"), 1)
    watts: F8 = active * size * MOST_WATTS * share
    return watts


def _judged(p: Placed, limit: NDArray[np.int32], step: Step) -> tuple[F8, F8]:
    inside = p.within(limit)
    kept = p.at_choice(inside).astype(np.float64)
    could = step.bound & (limit > 0) & (inside & p.feasible).any(axis=1)
    has = step.bound & (limit > 0)
    return np.where(could, kept, np.nan), np.where(has, 1 - kept, np.nan)
