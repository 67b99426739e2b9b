# SPDX-License-Identifier: Apache-2.0
"""Journals whose agents are not here any more, or that took over from another leader, replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pilothouse.domain import Action, ActionKind
from pilothouse.guard import Charge
from pilothouse.journal import Journal
from pilothouse.propose.registry import default_agents
from pilothouse.replay import replay
from pilothouse.run import Runner
from pilothouse.scenarios import load
from pilothouse.settings import RunSettings, ScoreSettings, Settings
from pilothouse.sim.cluster import SimCluster
from pilothouse.testing.builders import an_action
from pilothouse.testing.hostile import Recipe, band

SETTINGS = Settings(run=RunSettings(seed=3), score=ScoreSettings(settle_seconds=60))
RECIPES = (Recipe(ActionKind.MIGRATE, "node", 1, {}, 1.0, 0, 60, ""),)


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with eleven hostile agents among the honest ones."""
    path = tmp_path_factory.mktemp("strangers") / "a.db"
    agents = [*default_agents(SETTINGS), *band(SETTINGS, RECIPES)]
    with Journal.open(path, settings=SETTINGS.journal) as journal:
        list(Runner(settings=SETTINGS, journal=journal, agents=agents).cycles(15))
    return path


def test_strangers_answers_are_taken_from_the_record(strangers: Path) -> None:
    report = replay(strangers, as_heard=True)
    assert (report.cycles, report.identical, report.difference) == (15, 15, "")


def test_another_guard_decides_otherwise_and_it_shows(
    strangers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pilothouse.guard.guard.RAILS", ())
    assert not replay(strangers, as_heard=True).ok


class Inherited(SimCluster):
    """A simulator on which somebody else acted before."""

    def handover(self) -> Sequence[tuple[Action, Charge, bool]]:
        if self.clock_seconds != 150:
            return ()
        action = an_action("0123456789ab", target=self.observe().node_ref(0))
        charge = Charge(
            action=action.id,
            agent="safety",
            at=140,
            nodes=(),
            workloads=(),
            namespaces=("shop",),
            disturbs=0,
        )
        return [(action, charge, True)]


def test_what_was_taken_over_from_another_leader_is_taken_over_in_a_replay(tmp_path: Path) -> None:
    path, run = tmp_path / "a.db", SETTINGS.run
    cluster = Inherited(load(run.scenario), seed=run.seed, name=run.cluster)
    with Journal.open(path, settings=SETTINGS.journal) as journal:
        runner = Runner(settings=SETTINGS, journal=journal, cluster=cluster)
        list(runner.cycles(12))
        assert any(c.action == "0123456789ab.0" for c in runner.loop.ledger.charges)
        list(runner.cycles(48))
    report = replay(path)
    assert (report.identical, report.difference) == (60, "")
