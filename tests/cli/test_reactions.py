# SPDX-License-Identifier: Apache-2.0
"""How late autoscaling was comes from the record."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pilothouse.cli import main
from pilothouse.domain import Reaction, Snapshot
from pilothouse.journal import Journal
from pilothouse.run import Runner
from pilothouse.settings import Settings
from pilothouse.sim.cluster import SimCluster

REACTION = Reaction(
    namespace="shop",
    name="cart",
    began_seconds=60,
    decided_seconds=15,
    node_seconds=-1,
    running_seconds=48,
    replicas_before=1,
    replicas_after=3,
)


class Autoscaled:
    """A cluster on which one autoscaler reacted once."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._told = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._cluster, name)

    def observe(self) -> Snapshot:
        seen = self._cluster.observe()
        told, self._told = self._told, True
        return seen if told else replace(seen, reactions=(REACTION,))


def a_journal(path: Path, *, autoscaled: bool) -> Path:
    settings = Settings()
    with Journal.open(path, settings=settings.journal) as journal:
        runner = Runner(settings=settings, journal=journal)
        if autoscaled:
            runner.loop.cluster = Autoscaled(runner.cluster)  # type: ignore[assignment, arg-type]
        for _ in runner.cycles(3):
            pass
    return path


def test_reactions_are_listed_with_their_median(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_journal(tmp_path / "a.db", autoscaled=True)
    assert main(["reactions", "--journal", str(path)]) == 0
    text = capsys.readouterr().out
    assert "shop/cart" in text
    assert "15 s" in text
    assert "never" in text
    assert main(["reactions", "--journal", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["median"] == {
        "decided_seconds": 15,
        "node_seconds": None,
        "running_seconds": 48,
    }
    assert main(["verify", str(path)]) == 0


def test_journal_without_reactions_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_journal(tmp_path / "b.db", autoscaled=False)
    assert main(["reactions", "--journal", str(path)]) == 0
    assert "No autoscaler" in capsys.readouterr().out
