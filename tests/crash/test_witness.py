# SPDX-License-Identifier: Apache-2.0
"""The witness sees every kind of disagreement between a journal and a command log."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pilothouse.domain import Receipt, Status
from pilothouse.journal import Cycle, Journal, JournalReader, Receipts
from pilothouse.run import Runner
from pilothouse.scenarios import load
from pilothouse.settings import RunSettings, Settings
from pilothouse.sim.cluster import SimCluster
from pilothouse.sim.remote import RemoteCluster
from pilothouse.sim.serve import Server
from pilothouse.testing.witness import judge


@pytest.fixture(scope="module")
def evidence(tmp_path_factory) -> Path:
    """A folder with the journal and the command log of an honest run."""
    folder = tmp_path_factory.mktemp("evidence")
    settings = Settings(run=RunSettings(seed=3))
    cluster = SimCluster(load("harbor"), seed=3, name="sim")
    server = Server(cluster, "127.0.0.1", 0, folder / "commands.jsonl")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with Journal.open(folder / "run.db", settings=settings.journal) as journal:
            remote = RemoteCluster(server.url)
            list(Runner(settings=settings, journal=journal, cluster=remote).cycles(40))
            remote.close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return folder


@pytest.fixture
def lines(evidence) -> list[dict]:
    return [json.loads(line) for line in (evidence / "commands.jsonl").read_text().splitlines()]


def rules(evidence: Path, log: Path) -> set[str]:
    return {finding.rule for finding in judge(evidence / "run.db", log).findings}


def test_honest_run_is_acquitted_and_had_something_to_hide(evidence):
    judgment = judge(evidence / "run.db", evidence / "commands.jsonl")
    assert judgment.findings == ()
    assert judgment.numbers["commands"] == judgment.numbers["receipts done"] > 5


def without_the_last(lines):
    return lines[:-1]


def with_one_twice(lines):
    return [*lines, lines[0]]


def with_a_stranger(lines):
    return [*lines, {**lines[0], "intent": "0123.0.0"}]


def with_another_value(lines):
    return [{**lines[0], "value": 7}, *lines[1:]]


def with_another_answer(lines):
    return [{**lines[0], "status": "refused"}, *lines[1:]]


def with_one_before_its_intent(lines):
    return [{**lines[0], "wall": 1.0}, *lines[1:]]


@pytest.mark.parametrize(
    ("doctored", "expected"),
    [
        (without_the_last, {"receipt-invented"}),
        (with_one_twice, {"sent-twice", "done-twice"}),
        (with_a_stranger, {"no-intent", "receipt-lost"}),
        (with_another_value, {"other-write"}),
        (with_another_answer, {"receipt-differs"}),
        (with_one_before_its_intent, {"intent-late"}),
    ],
)
def test_disagreement_is_noticed_in_a_log(evidence, lines, tmp_path, doctored, expected):
    log = tmp_path / "commands.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in doctored(lines)))
    assert rules(evidence, log) == expected


def test_second_receipt_is_noticed(evidence, tmp_path):
    settings = Settings(run=RunSettings(seed=3))
    journal_path = tmp_path / "run.db"
    journal_path.write_bytes((evidence / "run.db").read_bytes())
    records = [entry.record for entry in JournalReader(journal_path).entries()]
    intents = [
        w.intent
        for r in records
        if isinstance(r, Cycle)
        for a in r.decision.actions
        for w in a.writes
    ]
    again = Receipt(intent=intents[0], status=Status.SKIPPED, detail="", at_seconds=0)
    with Journal.open(journal_path, settings=settings.journal) as journal:
        journal.append(Receipts(decision=intents[0].partition(".")[0], receipts=(again,)))
    found = {f.rule for f in judge(journal_path, evidence / "commands.jsonl").findings}
    assert found == {"receipt-twice", "receipt-differs"}


def test_witness_knows_nothing_of_the_loop_or_the_guard():
    code = (
        "import sys, pilothouse.testing.witness; "
        "known = [m for m in sys.modules if m.startswith('pilothouse.')]; "
        "print(*sorted({m.split('.')[1] for m in known}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["domain", "errors", "journal", "settings", "testing"]
