# SPDX-License-Identifier: Apache-2.0
"""Settings that change at a restart: what was forgotten under the old ones stays forgotten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pilothouse.guard import Ledger
from pilothouse.journal import Journal, JournalReader, Receipts, SettingsChange
from pilothouse.replay import replay
from pilothouse.run import Runner
from pilothouse.scenarios import load
from pilothouse.settings import GuardSettings, RunSettings, ScoreSettings, Settings
from pilothouse.sim.cluster import SimCluster

USUAL = GuardSettings()
LONG = GuardSettings(window_seconds=3600, dwell_seconds=900, quarantine_seconds=7200)
SHORT = GuardSettings(window_seconds=300, dwell_seconds=60, quarantine_seconds=300)


def settings_for(seed: int, guard: GuardSettings) -> Settings:
    return Settings(run=RunSettings(seed=seed), score=ScoreSettings(forks=False), guard=guard)


def run(path: Path, seed: int, guard: GuardSettings, cycles: int) -> Ledger:
    settings = settings_for(seed, guard)
    with Journal.open(path, settings=settings.journal) as journal:
        runner = Runner(settings=settings, journal=journal)
        list(runner.cycles(cycles))
        return runner.loop.ledger


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_replay_is_identical_when_windows_are_raised_and_lowered_at_restarts(tmp_path, seed):
    """Two changes between two checkpoints, raised first, then lowered, then raised again."""
    path = tmp_path / "a.db"
    for guard, cycles in ((USUAL, 93), (LONG, 3), (SHORT, 2), (LONG, 40)):
        run(path, seed, guard, cycles)
    report = replay(path)
    assert (report.cycles, report.identical, report.difference) == (138, 138, "")


@pytest.mark.parametrize("before", [USUAL, SHORT, LONG])
def test_restarted_ledger_is_the_one_that_was_left(tmp_path, before):
    """Also when the first settings of all changed after the only checkpoint."""
    path = tmp_path / "a.db"
    run(path, 1, before, 60)
    kept = run(path, 1, LONG, 30)
    for guard in (SHORT, USUAL):  # no cycle in between: nothing is forgotten by restarting
        again = run(path, 1, guard, 0)
        assert again.to_dict() == kept.to_dict()


class Crash(BaseException):
    """Stands for the process dying."""


class CrashingCluster:
    """Dies on the write it is given."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> object:
        return getattr(self._cluster, name)

    def execute(self, write: object, agent: str) -> None:
        raise Crash


def test_new_settings_are_on_record_before_what_a_restart_finds_out(tmp_path):
    """The ledger takes the receipts in under them, and a replay reads them in this order."""
    path = tmp_path / "a.db"
    cluster = SimCluster(load("harbor"), seed=1, name="sim")
    settings = settings_for(1, USUAL)
    with Journal.open(path, settings=settings.journal) as journal:
        dying = CrashingCluster(cluster)
        runner = Runner(settings=settings, journal=journal, cluster=dying)
        with pytest.raises(Crash):
            list(runner.cycles(200))
    changed = replace(settings, guard=LONG)
    with Journal.open(path, settings=settings.journal) as journal:
        list(Runner(settings=changed, journal=journal, cluster=cluster).cycles(20))
    kinds = [
        type(e.record)
        for e in JournalReader(path).entries()
        if isinstance(e.record, SettingsChange | Receipts)
    ]
    assert kinds[:3] == [SettingsChange, SettingsChange, Receipts]
    assert replay(path).ok
