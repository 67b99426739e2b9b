# SPDX-License-Identifier: Apache-2.0
"""Arms side by side on a real cluster, each under its own scheduler or bound by hand.

The courses are the simulated comparison's: the same pods in the same order, the same latencies at
the same points, set in the cluster by whoever can. One arm plays all its seeds before the next
takes over, because changing a scheduler takes longer than a course.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pilothouse.learn.placement import thesis_tests
from pilothouse.learn.placement.chooser import HEURISTICS, Chooser
from pilothouse.learn.placement.cluster import DEFAULT_SCHEDULER, Cluster, Look
from pilothouse.learn.placement.comparing import Comparison, rows_of
from pilothouse.learn.placement.fleet import Fleet
from pilothouse.learn.placement.live import LiveFleet, SetLatency
from pilothouse.learn.placement.playing import Played, joined, play_on
from pilothouse.learn.placement.thesis_tests import Trial

# Rules that can be bound by hand, for who has no scheduler with such a profile.
BY_HAND = tuple(name for name in HEURISTICS if name not in ("default", "most-allocated"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveArm:
    """Who chooses: a scheduler of the cluster, or a rule whose choices are bound by hand."""

    words: str  # the profile, for whoever reads the figures
    scheduler: str = DEFAULT_SCHEDULER  # empty: by hand
    chooser: Chooser | None = None


class Nodes(Protocol):
    """Who can take a node away and bring another."""

    def gather(self) -> None:
        """All nodes but the one that joins later."""

    def swap(self) -> None:
        """The near one goes, the one that was not there joins."""


class _Nobody:
    """Stands where a scheduler chooses: its choice is never looked at."""

    name = "scheduler"

    def choose(self, fleet: Fleet) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.zeros(fleet.courses.count, np.int64)


def as_it_is(name: str) -> LiveArm:
    """Where schedulers are not ours to change: an arm is one that runs in the cluster."""
    if name in BY_HAND:
        return by_hand(name)
    scheduler = DEFAULT_SCHEDULER if name == "default" else name
    return LiveArm(words=f"scheduler {scheduler} of the cluster", scheduler=scheduler)


def by_hand(name: str) -> LiveArm:
    """A rule of ours on a real cluster; no scheduler and so no profile is involved."""
    return LiveArm(
        words="no scheduler: bound by the rule itself", scheduler="", chooser=HEURISTICS[name]
    )


def on_cluster(trial: Trial, look: Look) -> Trial:
    """The trial with pods of which all fit the smallest node."""
    free = [
        (m.cpu_allocatable - m.cpu_requested, m.memory_allocatable - m.memory_requested)
        for m in look.machines
    ]
    return trial.fitted(min(cpu for cpu, _ in free), min(memory for _, memory in free))


def compare_live(
    trial: Trial,
    arms: Sequence[str],
    cluster: Cluster,
    *,
    seeds: int,
    enter: Callable[[str], LiveArm],  # makes an arm the cluster's own
    set_latency: SetLatency | None = None,
    nodes: Nodes | None = None,  # needed where nodes are to move
    told: Callable[[], None] = lambda: None,
) -> Comparison:
    """Play every arm on the real cluster; ``told`` is called after every placement."""
    cluster.clear()
    sized = on_cluster(trial, cluster.look())
    played: dict[str, Played] = {}
    profiles: dict[str, str] = {}
    for name in arms:
        arm = enter(name)
        runs = []
        for seed in range(seeds):
            fleet = _begun(sized, arm, cluster, seed, set_latency, nodes)
            runs.append(play_on(fleet, arm.chooser or _Nobody(), told=told))
        played[name], profiles[name] = joined(runs), arm.words
    cluster.clear()
    notes = [*sized.deviations()]
    if set_latency is None:
        notes.append("Latencies are the cluster's own and were not changed.")
    return Comparison(
        trial=sized,
        played=played,
        rows=rows_of(played, sized),
        profiles=profiles,
        notes=tuple(notes),
    )


def _begun(
    trial: Trial,
    arm: LiveArm,
    cluster: Cluster,
    seed: int,
    set_latency: SetLatency | None,
    nodes: Nodes | None,
) -> LiveFleet:
    moves = nodes if trial.nodes_move else None

    def pause(step: int) -> None:
        if trial.waits:
            time.sleep(trial.seconds_before(step))
        if moves is not None and step == trial.lost_at:
            moves.swap()

    if moves is None:
        course = thesis_tests.courses(trial, 1, first_seed=seed)
    else:
        cluster.clear()
        moves.gather()
        course = thesis_tests.joining(trial)
    options = {} if set_latency is None else {"set_latency": set_latency}
    width = max(course.nodes, len(cluster.look().machines))
    return LiveFleet(cluster, course, width=width, scheduler=arm.scheduler, pause=pause, **options)
