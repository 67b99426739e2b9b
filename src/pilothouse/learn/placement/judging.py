# SPDX-License-Identifier: Apache-2.0
"""Does a policy hold what it promises? Lines with a figure, a bound and a verdict.

An *exam* is a set of held-out courses, with what a policy is compared to. "No worse" is a paired
comparison: over courses, the upper 95 % bound of the mean difference (Student's t), as a share of
the other's mean, is at most 2 %. The same lines are put to rules, and to random and wrongly trained
networks, which must fail them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from pilothouse.learn.placement import references
from pilothouse.learn.placement.chooser import Chooser, Heuristic, heuristic
from pilothouse.learn.placement.course import Courses, Family, draw
from pilothouse.learn.placement.intervals import t95
from pilothouse.learn.placement.placed import Resource
from pilothouse.learn.placement.playing import F8, Played, play

NO_WORSE = 0.02
PATIENCE = 3  # placements within which a latency change is followed
NOWHERE = 0.005  # share of all pods: how many more than a rule's may fit nowhere
EXAM_SEED = 900_000  # validation; the final figures use others
KINDS = ("ee", "lb", "el-rl")
PACKERS = ("best-fit", "used-first")
LEVELERS = ("least-allocated", "evenest")
RULE_KEEPERS = ("heuristic", "near-used-first")  # obey soft before hard before anywhere


class Ratio(NamedTuple):
    """One mean over another, with its 95 % interval by paired differences."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One promise, in numbers."""

    what: str
    value: float
    bound: float
    at_least: bool = False
    guard: bool = False  # only has to hold: more room below its bound is no merit
    ratio: Ratio | None = None  # to what it is compared with, where it is

    @property
    def holds(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "what": self.what,
            "value": round(self.value, 5),
            "bound": self.bound,
            "at_least": self.at_least,
            "holds": self.holds,
        }
        if self.guard:
            told["guard"] = True
        if self.ratio is not None:
            told["ratio"] = [round(x, 5) for x in self.ratio]
        return told


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Marks:
    """What lines ask of one play: by course, or of all its pods."""

    active: F8  # (courses,), used nodes over time
    spread: F8  # (courses,), most minus least load share over time
    in_hard: float  # share of the pods that a feasible node kept within
    in_soft: float
    followed: int  # placements after half of the course until all keep the soft limit
    pods: int
    nowhere: int  # pods that no node had room for
    left: int  # choices of a node without room although another had room

    @classmethod
    def of(cls, played: Played, *, half: int) -> Marks:
        return cls(
            active=played.mean_active(),
            spread=played.mean_spread(),
            in_hard=played.share(played.in_hard),
            in_soft=played.share(played.in_soft),
            followed=played.followed_after(half),
            pods=int(np.isfinite(played.hopeless).sum() - np.nansum(played.left)),
            nowhere=int(np.nansum(played.hopeless)),
            left=int(np.nansum(played.left)),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"active": self.active.tolist(), "spread": self.spread.tolist()}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Marks:
        arrays = {name: np.array(told[name], np.float64) for name in ("active", "spread")}
        return cls(**(told | arrays))


class Exam:
    """Held-out courses; what a policy is compared to is worked out when first asked for."""

    def __init__(
        self,
        identical: Courses,
        mixed: Courses,
        change: Courses,
        resource: Resource = "requests",  # what load means
    ) -> None:
        self.resource = resource
        self.identical = identical
        self.mixed = mixed
        self.change = change
        self.known: dict[tuple[str, str], Marks] = {}  # by part and name

    def marks(self, part: str, chooser: Chooser) -> Marks:
        """What a chooser reaches in a part: "identical", "mixed" or "change"."""
        key = part, chooser.name
        if key in self.known:
            return self.known[key]
        courses: Courses = getattr(self, part)
        marks = Marks.of(play(courses, chooser, resource=self.resource), half=courses.steps // 2)
        if isinstance(chooser, Heuristic):  # networks may share a name
            self.known[key] = marks
        return marks

    def rival(self, name: str) -> Marks:
        """A heuristic's marks of the mixed courses."""
        return self.marks("mixed", heuristic(name, self.resource))

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


def exam(
    nodes: tuple[int, int],
    *,
    seed: int = EXAM_SEED,
    count: int = 48,
    steps: int = 0,
    resource: Resource = "requests",
) -> Exam:
    """An exam on clusters of this size; four pods per node of the largest unless told."""
    family = Family(nodes=nodes, steps=steps or 4 * nodes[1])
    return Exam(
        identical=draw(replace(family, identical=True, churn=0.0), seed=seed, count=count),
        mixed=draw(family, seed=seed + 1, count=count),
        change=latency_change(seed=seed + 2, count=count, nodes=nodes),
        resource=resource,
    )


def latency_change(*, seed: int, count: int, nodes: tuple[int, int] = (3, 3)) -> Courses:
    """The nearest node becomes too far halfway, and a far one becomes near; pods want 20 and 30.

    On many nodes the pods are as large as on eight, or the few there are would fit nowhere.
    """
    family = Family(nodes=nodes, steps=24, load_percent=(15, 25), cores=(8,), unknown=0)
    drawn = draw(replace(family, identical=True, churn=1.0), seed=seed, count=count)
    many = drawn.exists.sum(axis=1, keepdims=True)
    share = np.minimum(many, 8) / many
    dice = np.random.default_rng(seed)
    latency = dice.integers(40, 60, drawn.latency_ms.shape).astype(np.int32)
    order = np.where(drawn.exists, dice.random(drawn.exists.shape), 1).argsort(axis=1)
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


def compared(own: F8, other: F8) -> Ratio:
    """The mean over the other's, course by course the same pods."""
    difference = own - other
    half = t95(len(difference)) * difference.std(ddof=1) / np.sqrt(len(difference))
    mean, whole = difference.mean(), other.mean()
    low, value, high = (float(1 + x / whole) for x in (mean - half, mean, mean + half))
    return Ratio(value, low, high)


def paired_bound(own: F8, other: F8) -> float:
    """Upper 95 % bound of the mean difference, as a share of the other's mean."""
    return compared(own, other).high - 1


def judge(policy: str, chooser: Chooser, on: Exam) -> list[Line]:
    """The lines of a policy: ``ee``, ``lb`` or ``el-rl``."""
    return {"ee": _judge_ee, "lb": _judge_lb, "el-rl": _judge_el_rl}[policy](chooser, on)


PARTS_OF = {"ee": ("identical", "mixed"), "lb": ("mixed",), "el-rl": ("mixed", "change")}
"""The parts of an exam that a policy's lines look at."""


def _judge_ee(chooser: Chooser, on: Exam) -> list[Line]:
    same, mixed = (on.marks(part, chooser) for part in PARTS_OF["ee"])
    best = min((on.rival(name) for name in PACKERS), key=lambda rival: rival.active.sum())
    return [
        _at_most(1.05, "used nodes over the exact fewest, identical pods", same.active, on.fewest),
        _no_worse(
            "used nodes against best fit, mixed sizes, paired bound",
            mixed.active,
            on.rival("best-fit").active,
        ),
        _at_most(
            1.05, "used nodes over the best online rule, mixed sizes", mixed.active, best.active
        ),
        *_placed(best, mixed, same),
    ]


def _judge_lb(chooser: Chooser, on: Exam) -> list[Line]:
    mixed = on.marks("mixed", chooser)
    best = min((on.rival(name) for name in LEVELERS), key=lambda rival: rival.spread.sum())
    load = "load" if on.resource == "requests" else on.resource
    return [
        _no_worse(
            f"max-min {load} share against least allocated, paired bound",
            mixed.spread,
            on.rival("least-allocated").spread,
        ),
        _at_most(
            1.05, f"max-min {load} share over the best balancing rule", mixed.spread, best.spread
        ),
        *_placed(best, mixed),
    ]


def _judge_el_rl(chooser: Chooser, on: Exam) -> list[Line]:
    mixed, change = (on.marks(part, chooser) for part in PARTS_OF["el-rl"])
    best = min((on.rival(name) for name in RULE_KEEPERS), key=lambda rival: rival.active.sum())
    return [
        Line(what="within hard", value=mixed.in_hard, bound=0.99, at_least=True),
        Line(what="within soft", value=mixed.in_soft, bound=0.95, at_least=True),
        _at_most(
            1.1, "used nodes over the best heuristic of the same rule", mixed.active, best.active
        ),
        Line(
            what="placements until a latency change is followed",
            value=change.followed,
            bound=PATIENCE,
        ),
        *_placed(best, mixed, change),
    ]


def _at_most(bound: float, what: str, own: F8, other: F8) -> Line:
    ratio = compared(own, other)
    return Line(what=what, value=ratio.value, bound=bound, ratio=ratio)


def _no_worse(what: str, own: F8, other: F8) -> Line:
    ratio = compared(own, other)
    return Line(what=what, value=ratio.high - 1, bound=NO_WORSE, ratio=ratio)


def _placed(rival: Marks, mixed: Marks, *others: Marks) -> list[Line]:
    """Nodes are easily saved, and loads evened out, by leaving pods pending."""
    return [
        Line(
            what="pods left pending although a node had room",
            value=mixed.left + sum(marks.left for marks in others),
            bound=0,
            guard=True,
        ),
        Line(
            what="pods that fitted nowhere, share above the best rule's",
            value=(mixed.nowhere - rival.nowhere) / rival.pods,
            bound=NOWHERE,
            guard=True,
        ),
    ]
