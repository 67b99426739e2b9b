# SPDX-License-Identifier: Apache-2.0
"""Which loop a command reaches, and what is said when it reaches none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pilothouse import cli
from pilothouse.guard.switch import controls_path
from pilothouse.home import latest_journal
from pilothouse.journal import Journal


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PILOTHOUSE_HOME", str(tmp_path))
    (tmp_path / "runtime").mkdir()
    return tmp_path / "runtime"


def test_halt_reaches_the_running_loop_and_not_the_latest_file(runtime, capsys):
    with Journal.open(runtime / "running-1.db"):
        Journal.open(runtime / "over-1.db").close()
        (runtime / "crashed-1.db").touch()
        (runtime / "crashed-1.db.lock").touch()
        assert cli.main(["halt"]) == 0
    assert "it obeys before its next write" in capsys.readouterr().out
    assert [p.name for p in runtime.glob("*.controls")] == ["running-1.db.controls"]


def test_halt_without_a_running_loop_says_so(runtime, capsys):
    Journal.open(runtime / "over-1.db").close()
    assert cli.main(["halt"]) == 2
    assert "No loop is running" in capsys.readouterr().err
    assert not list(runtime.glob("*.controls"))


def test_halt_with_two_loops_running_lists_them_and_halts_none(runtime, capsys):
    with Journal.open(runtime / "a-1.db"), Journal.open(runtime / "b-1.db"):
        assert cli.main(["halt"]) == 2
    said = capsys.readouterr().err
    assert "2 loops are running" in said
    assert "a-1.db" in said
    assert "b-1.db" in said
    assert not list(runtime.glob("*.controls"))


def test_command_for_a_journal_without_a_loop_waits_for_one(runtime, capsys):
    path = runtime / "over-1.db"
    Journal.open(path).close()
    assert cli.main(["halt", "--journal", str(path)]) == 0
    assert "no loop is running on it" in capsys.readouterr().out
    assert controls_path(path).exists()


def test_controls_path_that_is_a_directory_is_one_clear_line(runtime, capsys):
    path = runtime / "a-1.db"
    Journal.open(path).close()
    controls_path(path).mkdir()
    assert cli.main(["halt", "--journal", str(path)]) == 2
    said = capsys.readouterr().err
    assert "Is a directory" in said
    assert said.count("\n") == 1


def test_unusable_home_is_one_clear_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PILOTHOUSE_HOME", str(tmp_path / "file"))
    assert cli.main(["up", "--cycles", "1", "--no-serve"]) == 2
    said = capsys.readouterr().err
    assert "PILOTHOUSE_HOME" in said
    assert said.count("\n") == 1


def test_token_file_that_cannot_be_written_is_one_clear_line(tmp_path, capsys):
    path = tmp_path / "a.db"
    (tmp_path / "a.db.token").mkdir()
    assert cli.main(["up", "--cycles", "1", "--port", "0", "--journal", str(path)]) == 2
    assert "--no-serve" in capsys.readouterr().err


def test_latest_journal_counts_what_is_still_in_the_log(runtime):
    old, new = runtime / "old.v2-1.db", runtime / "new-1.db"
    for path, seconds in ((old, 1), (new, 2), (runtime / "new-1.000001.db", 4)):
        path.touch()
        os.utime(path, (seconds, seconds))
    assert latest_journal() == new
    log = runtime / "old.v2-1.db-wal"
    log.touch()
    os.utime(log, (3, 3))
    assert latest_journal() == old


def test_cycle_that_was_not_recorded_is_not_counted_at_the_end(tmp_path, monkeypatch, capsys):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pilothouse.loop.Loop.turn", interrupted)
    path = tmp_path / "a.db"
    assert cli.main(["up", "--cycles", "1", "--no-serve", "--json", "--journal", str(path)]) == 0
    assert '"cycles": 0' in capsys.readouterr().out
