# SPDX-License-Identifier: Apache-2.0
"""What every arm reaches on every exam: played once, side by side, and kept.

A play on thousands of nodes takes minutes, so each is a task of its own: rules are played once for
all networks that are compared with them, and with a folder to keep marks in, a run that was stopped
goes on where it was.
"""

from __future__ import annotations

import json
import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pilothouse import policy as policies
from pilothouse.learn.placement import judging
from pilothouse.learn.placement.chooser import HEURISTICS, SINGLE_FEATURES, Chooser, Learned
from pilothouse.learn.placement.judging import Exam, Marks
from pilothouse.policy import Policy, shipped

HELD_OUT = 500_000
# label: nodes, clusters (at least), pods
SIZES = {
    "3": ((3, 3), 48, 30),
    "6-32": ((6, 32), 64, 128),
    "500": ((500, 500), 32, 1_500),
    "5000": ((5_000, 5_000), 4, 15_000),
}
# The most less the least of thousands of loads varies more from cluster to cluster than a count.
MORE_CLUSTERS = {("lb", "5000"): 8}
TRAINED_ON, BEYOND = ("3", "6-32"), ("500", "5000")
BEST_RULE = {"ee": "used-first", "lb": "evenest", "el-rl": "near-used-first"}
COMPARED = {"ee": judging.PACKERS, "lb": judging.LEVELERS, "el-rl": judging.RULE_KEEPERS}


class Arm(NamedTuple):
    """Who plays: a rule by its name, a shipped policy by its kind, a trained one by its file."""

    where: str

    @property
    def is_rule(self) -> bool:
        return self.where in HEURISTICS or self.where in SINGLE_FEATURES

    def policy(self) -> Policy:
        known = self.where in judging.KINDS
        return shipped(self.where) if known else policies.read(Path(self.where))

    @property
    def name(self) -> str:
        """Differs between networks that differ."""
        return self.where if self.is_rule else self.policy().card.weights_sha256[:12]

    def chooser(self) -> Chooser:
        if self.is_rule:
            return (HEURISTICS | SINGLE_FEATURES)[self.where]
        return Learned(self.name, self.policy().network)


class Task(NamedTuple):
    """One arm's play of one part of the exam of one size."""

    size: str
    clusters: int
    part: str
    arm: Arm
    keep: Path
    until: float  # Unix time after which nothing new is begun

    @property
    def file(self) -> Path:
        name = self.arm.name.replace(" ", "-")
        return self.keep / f"{self.size}-{self.clusters}-{self.part}-{name}.json"


def clusters_of(kind: str, size: str) -> int:
    return MORE_CLUSTERS.get((kind, size), SIZES[size][1])


@lru_cache(maxsize=1)
def exam_of(size: str, clusters: int = 0) -> Exam:
    """Of so many clusters, or as many as that size has at least."""
    nodes, least, steps = SIZES[size]
    return judging.exam(nodes, seed=HELD_OUT, count=clusters or least, steps=steps)


def played(task: Task) -> Marks | None:
    """The marks; None when there was no time left to play."""
    if task.file.exists():
        return Marks.from_json(json.loads(task.file.read_text(encoding="utf-8")))
    if time.time() > task.until:
        return None
    marks = exam_of(task.size, task.clusters).marks(task.part, task.arm.chooser())
    half = task.file.with_suffix(".half")
    half.write_text(json.dumps(marks.to_json()), encoding="utf-8")
    half.replace(task.file)
    return marks


def tasks_of(
    sizes: list[str], arms: dict[str, list[Arm]], *, keep: Path, until: float
) -> list[Task]:
    """All plays: small clusters first; rules before networks, and of those the shipped first."""
    found: dict[tuple[str, int, str, Arm], Task] = {}
    for size in sizes:
        wanted = [
            (clusters_of(kind, size), part, Arm(rule))
            for kind in arms
            for rule in dict.fromkeys((*COMPARED[kind], "heuristic"))
            for part in (judging.PARTS_OF[kind] if rule in beside(kind) else ("mixed",))
        ]
        longest = max(map(len, arms.values()))
        for place in range(longest):
            for kind, own in arms.items():
                clusters = clusters_of(kind, size)
                parts = judging.PARTS_OF[kind] if own[place:] else ()
                wanted += [(clusters, part, own[place]) for part in parts]
        for what in wanted:
            found.setdefault((size, *what), Task(size, *what, keep, until))
    return list(found.values())


def beside(kind: str) -> tuple[str, ...]:
    """Rules whose figures stand beside the learned ones."""
    return ("heuristic", BEST_RULE[kind])
