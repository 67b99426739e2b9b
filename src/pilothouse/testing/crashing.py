# SPDX-License-Identifier: Apache-2.0
"""``pilothouse up --sim URL --journal FILE`` with failpoints and slow writes.

    python -m pilothouse.testing.crashing --failpoint after_write --sim URL --journal run.db

The same settings, journal, cluster and runner as the real command; only the journal and the
cluster are the wrappers of ``failpoints``. It prints ``durable N S`` when cycle N is on disk, after
S seconds of CPU time.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from pilothouse.journal import Journal
from pilothouse.run import Backend, Runner
from pilothouse.settings import Settings
from pilothouse.settings.file import load, with_overrides
from pilothouse.testing.failpoints import (
    CrashingCluster,
    CrashingJournal,
    Failpoints,
    Pause,
    cut_rotation,
)

Wire = Callable[[Journal, CrashingCluster], Backend]


def plainly(journal: Journal, cluster: CrashingCluster) -> Backend:
    """The wiring of a real run; a test may put a wrong one in its place."""
    return cast(Backend, cluster)  # its forks are remote clusters without failpoints


def main(arguments: Sequence[str] | None = None, wire: Wire = plainly) -> None:
    """Run until the failpoint, the last cycle or a kill."""
    given = _parser().parse_args(arguments)
    points = Failpoints(name=given.failpoint, nth=given.nth)
    settings = _settings(given)
    cut_rotation(points)
    CrashingJournal.points = points
    CrashingJournal.rotates_often = points.wants(
        "before_rotation", "prepared_rotation", "mid_rotation", "after_rotation"
    )
    pause = Pause(before=given.pause, after=given.pause)
    with CrashingJournal.open(given.journal, settings=settings.journal) as journal:
        cluster = wire(journal, CrashingCluster(given.sim, points, pause))
        runner = Runner(settings=settings, journal=journal, cluster=cluster)
        for _ in runner.cycles(given.cycles):
            pass


def _settings(given: argparse.Namespace) -> Settings:
    overrides = {"run.seed": given.seed, "run.interval_wall_seconds": 0.0}
    return with_overrides(load(given.config) if given.config else Settings(), overrides)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pilothouse.testing.crashing")
    parser.add_argument("--failpoint", default="")
    parser.add_argument("--nth", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.0, help="Wall seconds around a write.")
    parser.add_argument("--sim", required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cycles", type=int)
    return parser


if __name__ == "__main__":
    main()
