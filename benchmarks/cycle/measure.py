# SPDX-License-Identifier: Apache-2.0
"""Runs the real loop on a simulated cluster of a given size and takes its time.

A cycle's time is from the snapshot to the durable receipt, fsync included. Moving the simulated
cluster is left out and forks are off: a real cluster moves by itself and has no forks. What
scoring against forks costs is measured in a run of its own.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pilothouse.journal import Journal
from pilothouse.run import Runner
from pilothouse.scenarios import load
from pilothouse.settings import RunSettings, ScoreSettings, Settings
from pilothouse.sim.cluster import SimCluster

APART = ("score", "fork")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size and what the loop may cost there."""

    nodes: int
    pods: int
    cycles: int
    limit_ms: float  # p99 of a cycle
    limit_bytes: float  # of journal per cycle

    def __str__(self) -> str:
        return f"{self.nodes:,} nodes / {self.pods:,} pods"


SMALL = Size(nodes=100, pods=1_000, cycles=300, limit_ms=100, limit_bytes=80_000)
LARGE = Size(nodes=5_000, pods=50_000, cycles=60, limit_ms=1_500, limit_bytes=2_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What was measured at one size; times in milliseconds."""

    nodes: int
    pods: int
    cycles: int
    actions: int
    median_ms: float
    p99_ms: float
    worst_ms: float
    cpu_ms: float  # process time per cycle, simulator and forks aside
    bytes_per_cycle: float
    peak_mib: float
    steps_ms: dict[str, float]  # medians

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    size: Size, path: Path, *, seed: int = 1, advance: Callable[[], None] = lambda: None
) -> Cost:
    """Run the loop for ``size.cycles`` cycles with its journal at ``path``."""
    settings = Settings(run=RunSettings(seed=seed), score=ScoreSettings(forks=False))
    cluster = Metered(load("harbor").sized(size.nodes, size.pods), seed=seed)
    walls: list[float] = []
    steps: dict[str, list[float]] = {}
    actions = 0
    with Journal.open(path, settings=settings.journal) as journal:
        runner = Runner(settings=settings, journal=journal, cluster=cluster)
        began, outside = time.process_time(), cluster.cpu_seconds
        for report in runner.cycles(size.cycles):
            timings = report.turn.timings
            walls.append(sum(ms for step, ms in timings.items() if step not in APART))
            for step, ms in timings.items():
                steps.setdefault(step, []).append(ms)
            actions += len(report.turn.decision.actions)
            pods = len(report.turn.snapshot.pods)
            advance()
        cpu = time.process_time() - began - (cluster.cpu_seconds - outside)
        stored = journal.size
    return Cost(
        nodes=size.nodes,
        pods=pods,
        cycles=size.cycles,
        actions=actions,
        median_ms=float(np.median(walls)),
        p99_ms=float(np.percentile(walls, 99)),
        worst_ms=max(walls),
        cpu_ms=1000 * cpu / size.cycles,
        bytes_per_cycle=stored / size.cycles,
        peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        steps_ms={step: round(float(np.median(ms)), 2) for step, ms in steps.items()},
    )


class Metered(SimCluster):
    """The same cluster; the process time it spends moving is counted."""

    cpu_seconds = 0.0

    def advance(self, seconds: int) -> None:
        began = time.process_time()
        super().advance(seconds)
        self.cpu_seconds += time.process_time() - began


def scoring_ms_per_action(size: Size, path: Path, *, seed: int = 1) -> float:
    """Wall milliseconds that forks cost for each action, over the whole settle window."""
    settings = Settings(run=RunSettings(seed=seed))
    cluster = SimCluster(load("harbor").sized(size.nodes, size.pods), seed=seed)
    spent, actions = 0.0, 0
    with Journal.open(path, settings=settings.journal) as journal:
        runner = Runner(settings=settings, journal=journal, cluster=cluster)
        for report in runner.cycles(size.cycles):
            spent += sum(report.turn.timings.get(step, 0.0) for step in APART)
            actions += len(report.turn.decision.actions)
    return spent / max(actions, 1)


def growth(small: Cost, large: Cost) -> float:
    """Cost per pod at the large size over the small one; at most 1 is linear or better."""
    return (large.median_ms / large.pods) / (small.median_ms / small.pods)
