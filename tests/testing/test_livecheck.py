# SPDX-License-Identifier: Apache-2.0
"""The live witness: it finds each planted violation, and none in an honest record."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pilothouse.domain import ActionKind, Forecast, Proposal, Snapshot
from pilothouse.journal import Journal
from pilothouse.propose.registry import Registration
from pilothouse.run import Runner
from pilothouse.settings import RunSettings, Settings
from pilothouse.testing.builders import a_proposal
from pilothouse.testing.livecheck.audit import JANITOR, read_log
from pilothouse.testing.livecheck.books import read_books
from pilothouse.testing.livecheck.rules import RULES, Evidence, check, known_tickets
from tests.testing.forgery import Plant, a_line, a_ticket, damaged, forged, names, plants, scenery

NOW = 4_070_908_800.0  # long after any journal of ours was written
INVARIANTS = {f"I{number}" for number in range(1, 11)}


class Slower:
    """Wants one node's clock lowered, once."""

    name = "efficiency"
    title = "AgentB"

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> Sequence[Proposal]:
        if snapshot.taken_seconds != 45:
            return ()
        wish = a_proposal(snapshot.node_ref(0), agent=self.name, label="AgentB:dvfs")
        changes = {"kind": ActionKind.DVFS, "payload": {"frequency_permille": 800}}
        return [a_proposal(wish.target, agent=self.name, label=wish.label, **changes)]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The journal of a loop that lowered one clock."""
    path, settings = tmp_path_factory.mktemp("honest") / "a.db", Settings(run=RunSettings(seed=1))
    with Journal.open(path, settings=settings.journal) as journal:
        agents = [Registration(Slower(), 30, "AgentB")]
        list(Runner(settings=settings, journal=journal, agents=agents).cycles(8))
    return path


@pytest.fixture(scope="module")
def intent(honest: Path) -> str:
    (one,) = read_books([honest], again=False).intents
    return one


def found(journal: Path, plant: Plant) -> list[str]:
    deeds, scene = read_log([*scenery(NOW), *plant.lines])
    books = read_books([journal], again=plant.change is not None)
    return check(
        Evidence(deeds=deeds, scene=scene, books=books, tickets=plant.tickets, now=NOW + 60)
    )


def test_honest_record_has_no_violation(honest: Path, intent: str) -> None:
    plain = Plant(words="", lines=(a_line(intent, "nodes", "node-0", NOW),), change=lambda r: r)
    assert found(honest, plain) == []


def test_dry_run_is_no_deed(honest: Path) -> None:
    tried = a_line("x.0.0", "nodes", "node-0", NOW, address="/x?fieldManager=y&dryRun=All")
    assert found(honest, Plant(words="", lines=(tried,))) == []


@pytest.mark.parametrize("number", range(len(plants("x.0.0", NOW))))
def test_planted_violation_is_found(honest: Path, intent: str, tmp_path: Path, number: int) -> None:
    plant = plants(intent, NOW)[number]
    journal = honest if plant.change is None else forged(honest, tmp_path / "f.db", plant.change)
    assert any(line.startswith(plant.words) for line in found(journal, plant)), plant.words


def test_damaged_journal_is_found(honest: Path, tmp_path: Path) -> None:
    journal = damaged(honest, tmp_path / "damaged.db")
    assert names(found(journal, Plant(words="I3"))) == {"I3"}


def test_ticket_that_was_forgotten_is_known_from_the_log(honest: Path) -> None:
    ticket = a_ticket(NOW - 900, NOW - 100)
    more = {"namespace": "pilothouse-system", "response": ticket}
    made = a_line("x", "tickets", "", NOW - 900, verb="create", **more)
    inverse = a_line("janitor.0123456789ab.7.0", "nodes", "n", NOW - 90, user=JANITOR)
    for lines, expected in (([inverse], {"I1"}), ([made, inverse], {"I10"})):  # it was not closed
        deeds, scene = read_log([*scenery(NOW), *lines])
        tickets = known_tickets(scene, [], since=NOW - 1_000)
        books = read_books([honest], again=False)
        evidence = Evidence(deeds=deeds, scene=scene, books=books, tickets=tickets, now=NOW)
        assert names(check(evidence)) == expected
    assert known_tickets(scene, [], since=NOW) == []


def test_every_invariant_has_a_rule_and_a_planted_violation() -> None:
    ruled = {line.partition(":")[0] for rule in RULES for line in [rule.__doc__ or ""]}
    planted = {plant.invariant for plant in plants("x.0.0", NOW)} | {"I3"}
    assert ruled == planted == INVARIANTS


def test_program_ends_with_one_when_something_was_planted(
    honest: Path, intent: str, tmp_path: Path
) -> None:
    tickets, log = tmp_path / "tickets.json", tmp_path / "audit.log"
    tickets.write_text(json.dumps({"items": []}))
    command = [sys.executable, "-m", "pilothouse.testing.livecheck", "--audit", str(log)]
    command += ["--journal", str(honest), "--tickets", str(tickets), "--now", str(NOW + 60)]
    line = a_line(intent, "nodes", "node-0", NOW)
    for lines, status in (([line], 0), ([line, line], 1)):
        log.write_text("\n".join([*scenery(NOW), *lines, '{"half a li']))
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode == status, ended.stdout + ended.stderr
        assert f"{status} violations" in ended.stderr
