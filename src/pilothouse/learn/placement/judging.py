# SPDX-License-Identifier: Apache-2.0
"""Does a policy hold what it promises? Lines with a figure, a bound and a verdict.

An *exam* is a set of held-out courses, with what a policy is compared to. "No worse" is a paired
comparison: over courses, the upper 95 % bound of the mean difference (Student's t), as a share of
the other's mean, is at most 2 %. The same lines are put to random and to wrongly trained networks,
which must fail them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pilothouse.learn.placement import references
from pilothouse.learn.placement.chooser import HEURISTICS, Chooser
from pilothouse.learn.placement.course import Courses, Family, draw
from pilothouse.learn.placement.intervals import t95
from pilothouse.learn.placement.playing import F8, Played, play

NO_WORSE = 0.02
PATIENCE = 3  # placements within which a latency change is followed
EXAM_SEED = 900_000  # validation; the final figures use others
KINDS = ("ee", "lb", "el-rl")
LEVELERS = ("least-allocated", "evenest")
RULE_KEEPERS = ("heuristic", "near-used-first")  # obey soft before hard before anywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One promise, in numbers."""

    what: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def holds(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "value": round(self.value, 5),
            "bound": self.bound,
            "at_least": self.at_least,
            "holds": self.holds,
        }


class Exam:
    """Held-out courses; what a policy is compared to is worked out when first asked for."""

    def __init__(self, identical: Courses, mixed: Courses, change: Courses) -> None:
        self.identical = identical
        self.mixed = mixed
        self.change = change
        self._rivals: dict[str, Played] = {}

    def rival(self, name: str) -> Played:
        """A heuristic's play of the mixed courses."""
        if name not in self._rivals:
            self._rivals[name] = play(self.mixed, HEURISTICS[name])
        return self._rivals[name]

    @cached_property
    def fewest(self) -> F8:
        """(courses,), exact, of the identical ones."""
        rows = range(self.identical.count)
        return np.array([references.fewest_identical(self.identical, r).mean() for r in rows])

    @cached_property
    def bound(self) -> F8:
        """(courses,), volume bound, of the mixed ones."""
        rows = range(self.mixed.count)
        return np.array([references.volume_bound(self.mixed, r).mean() for r in rows])


def exam(nodes: tuple[int, int], *, seed: int = EXAM_SEED, count: int = 48, steps: int = 0) -> Exam:
    """An exam on clusters of this size; four pods per node of the largest unless told."""
    family = Family(nodes=nodes, steps=steps or 4 * nodes[1])
    return Exam(
        identical=draw(replace(family, identical=True, churn=0.0), seed=seed, count=count),
        mixed=draw(family, seed=seed + 1, count=count),
        change=latency_change(seed=seed + 2, count=count, nodes=nodes[0]),
    )


def latency_change(*, seed: int, count: int, nodes: int = 3) -> Courses:
    """The nearest node becomes too far halfway, and a far one becomes near; pods want 20 and 30.

    On many nodes the pods are as large as on eight, or the few there are would fit nowhere.
    """
    family = Family(nodes=(nodes, nodes), steps=24, load_percent=(15, 25), cores=(8,), unknown=0)
    drawn = draw(replace(family, identical=True, churn=1.0), seed=seed, count=count)
    share = min(nodes, 8) / nodes
    dice = np.random.default_rng(seed)
    latency = dice.integers(40, 60, drawn.latency_ms.shape).astype(np.int32)
    order = dice.permuted(np.tile(np.arange(nodes), (count, 1)), axis=1)
    rows = np.arange(count)
    latency[rows, 0, order[:, 0]] = dice.integers(5, 18, count)
    latency[rows, 1, order[:, 1]] = dice.integers(5, 18, count)
    latency[:, 2] = latency[:, 1]
    epoch = np.zeros_like(drawn.epoch)
    epoch[:, drawn.steps // 2 :] = 1
    return replace(
        drawn,
        latency_ms=latency,
        epoch=epoch,
        pod_cpu=np.maximum(drawn.pod_cpu * share, 10).astype(np.int32),
        pod_memory=np.maximum(drawn.pod_memory * share, 8).astype(np.int32),
        soft_ms=np.full_like(drawn.soft_ms, 20),
        hard_ms=np.full_like(drawn.hard_ms, 30),
    )


def paired_bound(own: F8, other: F8) -> float:
    """Upper 95 % bound of the mean difference, as a share of the other's mean."""
    difference = own - other
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return float((difference.mean() + t95(len(difference)) * error) / other.mean())


def judge(policy: str, chooser: Chooser, on: Exam) -> list[Line]:
    """The lines of a policy: ``ee``, ``lb`` or ``el-rl``."""
    return {"ee": _judge_ee, "lb": _judge_lb, "el-rl": _judge_el_rl}[policy](chooser, on)


def _judge_ee(chooser: Chooser, on: Exam) -> list[Line]:
    same = play(on.identical, chooser).mean_active()
    mixed = play(on.mixed, chooser).mean_active()
    return [
        Line(
            what="used nodes over the exact fewest, identical pods",
            value=float(same.sum() / on.fewest.sum()),
            bound=1.05,
        ),
        Line(
            what="used nodes against best fit, mixed sizes, paired bound",
            value=paired_bound(mixed, on.rival("best-fit").mean_active()),
            bound=NO_WORSE,
        ),
    ]


def _judge_lb(chooser: Chooser, on: Exam) -> list[Line]:
    mixed = play(on.mixed, chooser).mean_spread()
    return [
        Line(
            what="max-min load share against least allocated, paired bound",
            value=paired_bound(mixed, on.rival("least-allocated").mean_spread()),
            bound=NO_WORSE,
        ),
        Line(
            what="max-min load share over the best balancing rule",
            value=float(mixed.sum() / min(on.rival(n).mean_spread().sum() for n in LEVELERS)),
            bound=1.05,
        ),
    ]


def _judge_el_rl(chooser: Chooser, on: Exam) -> list[Line]:
    mixed, change = play(on.mixed, chooser), play(on.change, chooser)
    best = min(on.rival(name).mean_active().sum() for name in RULE_KEEPERS)
    return [
        Line(what="within hard", value=mixed.share(mixed.in_hard), bound=0.99, at_least=True),
        Line(what="within soft", value=mixed.share(mixed.in_soft), bound=0.95, at_least=True),
        Line(
            what="used nodes over the best heuristic of the same rule",
            value=float(mixed.mean_active().sum() / best),
            bound=1.1,
        ),
        Line(
            what="placements until a latency change is followed",
            value=change.followed_after(on.change.steps // 2),
            bound=PATIENCE,
        ),
    ]
