# SPDX-License-Identifier: Apache-2.0
"""What a person gives wrongly to ``up`` and its neighbors, driven through the real command.

One line that names what was given, a non-zero exit, nothing lost, and nothing done without a
durable intent. Disks are small file systems in memory; without root they cannot be mounted.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pilothouse import cli
from pilothouse.journal import Cycle, Journal, JournalReader, verify
from pilothouse.run import Runner
from pilothouse.scenarios import load
from pilothouse.settings import RunSettings, Settings
from pilothouse.sim.cluster import SimCluster
from pilothouse.sim.serve import Server

HEAD = "apiVersion: pilothouse.dev/v1alpha1\nkind: Configuration\n"
RUN = ("--no-serve", "--interval", "0", "--cycles", "2")
SEED = 4


def pilothouse(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pilothouse.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
    )


def complaint(*arguments: str | Path, code: int) -> str:
    """The one line that the command ended with."""
    done = pilothouse(*arguments)
    assert done.returncode == code, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("pilothouse: ")
    assert "bug" not in lines[0]
    return lines[0]


def complaint_here(capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int) -> str:
    """The same within this process, for what needs no process of its own."""
    assert cli.main([str(argument) for argument in arguments]) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("pilothouse: ")
    return lines[0]


def recorded(path: Path, cycles: int = 3) -> Path:
    settings = Settings(run=RunSettings(seed=SEED))
    with Journal.open(path, settings=settings.journal) as journal:
        list(Runner(settings=settings, journal=journal).cycles(cycles))
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("finished") / "run.db")


@pytest.fixture
def journal(finished: Path, tmp_path: Path) -> Path:
    """An existing journal of a run with another seed than the default."""
    return Path(shutil.copy(finished, tmp_path / "run.db"))


@contextmanager
def disk(folder: Path, size: str) -> Iterator[Callable[[], None]]:
    """A small file system at ``folder``; call what it gives to make it read-only."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small or read-only file system")
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "pilothouse-test", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine does not let us mount a file system")

    def lock() -> None:
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)

    try:
        yield lock
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("guard: {per_agnet: 3}", ["guard.per_agnet", "per_agent", ":3"]),
        ("run: {seed: soon}", ["run.seed", "soon", "whole number", ":3"]),
        ("safety: {migrate_risk: 1.7}", ["safety.migrate_risk", "1.7", ":3"]),
        ("guard: {per_agent: -1}", ["guard.per_agent", "-1", "between", ":3"]),
    ],
    ids=["unknown", "type", "threshold", "range"],
)
def test_a_bad_setting_is_named_with_its_line_and_starts_nothing(tmp_path, text, named):
    config, journal = tmp_path / "c.yaml", tmp_path / "run.db"
    config.write_text(HEAD + text + "\n", encoding="utf-8")
    line = complaint("up", *RUN, "--config", config, "--journal", journal, code=2)
    assert all(part in line for part in (*named, "c.yaml")), line
    assert not journal.exists()


def test_a_missing_settings_file_is_named_and_starts_nothing(tmp_path):
    config, journal = tmp_path / "nowhere.yaml", tmp_path / "run.db"
    line = complaint("up", *RUN, "--config", config, "--journal", journal, code=2)
    assert "nowhere.yaml does not exist" in line
    assert not journal.exists()


def test_a_port_in_use_is_named_and_the_journal_stays_untouched(journal):
    before = journal.read_bytes()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = ("--seed", str(SEED), "--port", port, "--journal", journal)
        line = complaint("up", "--cycles", "1", *arguments, code=2)
    assert port in line
    assert journal.read_bytes() == before
    assert verify(journal).ok


def test_a_journal_of_a_newer_schema_is_refused_and_unchanged(journal):
    with closing(sqlite3.connect(journal)) as connection:
        connection.execute("PRAGMA user_version=99")
    before = journal.read_bytes()
    line = complaint("up", *RUN, "--seed", str(SEED), "--journal", journal, code=3)
    assert "run.db" in line
    assert "99" in line
    assert journal.read_bytes() == before


def test_a_file_that_is_no_journal_is_refused_and_unchanged(tmp_path):
    journal = tmp_path / "notes.db"
    journal.write_text("my notes\n" * 400, encoding="utf-8")
    before = journal.read_bytes()
    assert "notes.db" in complaint("up", *RUN, "--journal", journal, code=3)
    assert journal.read_bytes() == before


def test_another_seed_than_the_journals_is_refused_and_nothing_is_added(journal):
    head = verify(journal).head
    line = complaint("up", *RUN, "--seed", "5", "--journal", journal, code=2)
    assert "seed 4" in line
    assert "5 was given" in line
    assert verify(journal).head == head


def test_a_read_only_disk_is_named_and_what_it_holds_still_verifies(tmp_path, finished):
    folder = tmp_path / "disk"
    with disk(folder, "4m") as lock:
        journal = Path(shutil.copy(finished, folder / "run.db"))
        lock()
        for path in (journal, folder / "new.db"):
            line = complaint("up", *RUN, "--seed", str(SEED), "--journal", path, code=3)
            assert str(path) in line
            assert "ead-only" in line
        assert verify(journal).head == verify(finished).head


def test_a_full_disk_stops_the_run_before_anything_undocumented_is_done(tmp_path, server):
    """The disk fills up in the middle: every write the cluster saw has its durable intent."""
    folder = tmp_path / "disk"
    with disk(folder, "400k"):
        journal = folder / "run.db"
        line = complaint(
            *("up", "--no-serve", "--interval", "0", "--cycles", "400"),
            *("--sim", server.url, "--journal", journal),
            code=3,
        )
        assert str(journal) in line
        assert "the disk is full" in line
        report = verify(journal)
        assert report.ok
        assert report.cycles > 0
        announced = {
            write.intent
            for entry in JournalReader(journal).entries()
            if isinstance(entry.record, Cycle)
            for action in entry.record.decision.actions
            for write in action.writes
        }
    done = [json.loads(text) for text in (tmp_path / "commands.jsonl").read_text().splitlines()]
    ours = {command["intent"] for command in done if command["intent"]}
    assert ours
    assert ours <= announced


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    cluster = SimCluster(load("harbor"), seed=SEED)
    serving = Server(cluster, "127.0.0.1", 0, tmp_path / "commands.jsonl")
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield serving
    serving.shutdown()
    thread.join()
    serving.server_close()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("--seed", "7"), ["seed 4", "7 was given"]),
        (("--scenario", "idle"), ["scenario harbor", "idle was given"]),
    ],
)
def test_a_simulator_of_another_run_is_refused(tmp_path, server, capsys, given, named):
    arguments = (*RUN, "--sim", server.url, "--journal", tmp_path / "run.db")
    line = complaint_here(capsys, "up", *arguments, *given, code=2)
    assert all(part in line for part in named), line


def test_the_journal_names_the_simulator_it_is_really_about(tmp_path, server):
    path = tmp_path / "run.db"
    assert cli.main(["up", *RUN, "--sim", server.url, "--journal", str(path)]) == 0
    run = next(iter(JournalReader(path).entries())).record
    assert (run.cluster, run.scenario, run.seed) == ("sim", "harbor", SEED)


def test_a_simulator_that_was_restarted_is_refused(journal, server, capsys):
    head = verify(journal).head
    arguments = (*RUN, "--sim", server.url, "--journal", journal)
    line = complaint_here(capsys, "up", *arguments, code=2)
    assert "is at 0 s, the journal at 45 s: it was restarted" in line
    assert verify(journal).head == head


@pytest.mark.parametrize("url", ["garbage", "http://127.0.0.1:abc", "https://127.0.0.1:1"])
def test_an_address_that_is_none_is_the_users_to_correct(capsys, url):
    line = complaint_here(capsys, "up", *RUN, "--sim", url, code=2)
    assert f"but got {url}" in line


@pytest.mark.parametrize("value", ["0", "x"])
def test_a_refused_option_shows_the_value_given(capsys, value):
    line = complaint_here(capsys, "up", "--cycles", value, code=2)
    assert "'--cycles'" in line
    assert f"but got {value}." in line


def test_a_mistyped_head_is_told_apart_from_a_lost_one(journal, capsys):
    line = complaint_here(capsys, "verify", journal, "--head", "zzz", code=2)
    assert 'must be 64 hex digits, as `up` printed it, but got "zzz"' in line
    assert "nowhere in the chain" in complaint_here(
        capsys, "verify", journal, "--head", "0" * 64, code=3
    )


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_a_settings_file_is_written_whole_or_not_at_all(tmp_path, capsys, force):
    folder = tmp_path / "disk"
    with disk(folder, "8k"):
        path = folder / "c.yaml"
        if force:
            path.write_text("precious", encoding="utf-8")
        line = complaint_here(capsys, "config", "init", path, *force, code=2)
        assert f"{path} cannot be written: No space left on device." in line
        assert "name another file" in line
        assert [p.read_text() for p in folder.iterdir()] == (["precious"] if force else [])
