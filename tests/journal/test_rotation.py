# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pilothouse.errors import (
    InternalError,
    JournalCorrupt,
    JournalMismatch,
    JournalUnwritable,
    PilothouseError,
)
from pilothouse.journal import (
    Checkpoint,
    JournalReader,
    SettingsChange,
    digest_of,
    rotation,
    verify,
)


def files(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir() if file.suffix == ".db")


def test_a_rotated_journal_reads_and_verifies_as_one(opened: Any, path: Path) -> None:
    book = opened()
    book.turns(3)
    assert book.journal.rotate(state={"spent": 3})
    book.turns(2)
    assert book.journal.rotate()
    book.turns(2)

    report = verify(path, book.journal.head)
    assert report.ok
    assert (report.files, report.records, report.cycles) == (3, 17, 7)
    assert files(path) == ["run.000001.db", "run.000002.db", "run.db"]
    turns = list(JournalReader(path).cycles())
    assert [turn.cycle.decision.cycle for turn in turns] == list(range(7))
    assert [digest_of(t.snapshot) for t in turns] == [
        t.cycle.decision.snapshot_digest for t in turns
    ]


def test_rotation_does_not_change_the_digest(opened: Any, path: Path, tmp_path: Path) -> None:
    whole = opened(tmp_path / "whole.db")
    whole.turns(4)
    book = opened()
    book.turns(2)
    book.journal.rotate()
    book.turns(2)

    assert book.journal.digest == whole.journal.digest
    assert verify(path).digest == whole.journal.digest


def test_the_chain_is_known_from_the_oldest_file_that_is_kept(opened: Any, path: Path) -> None:
    book = opened(keep_segments=1)
    for _ in range(3):
        book.turns(2)
        book.journal.rotate()
    book.turn()

    report = verify(path, book.journal.head)
    assert files(path) == ["run.000003.db", "run.db"]
    assert report.ok
    assert report.first == 11
    assert "known from record 11 on" in report.sentence


def test_files_are_kept_by_age(opened: Any, path: Path, clock: Any) -> None:
    book = opened(keep_days=2)
    for _ in range(3):
        book.turn()
        book.journal.rotate()
        clock.now += 86_400

    assert files(path) == ["run.000001.db", "run.000002.db", "run.000003.db", "run.db"]
    book.turn()
    clock.now += 86_400
    book.journal.rotate()
    assert files(path) == ["run.000003.db", "run.000004.db", "run.db"]


def test_a_missing_file_in_the_middle_is_found(opened: Any, path: Path) -> None:
    book = opened()
    for _ in range(3):
        book.turn()
        book.journal.rotate()
    (path.parent / "run.000002.db").unlink()

    assert not verify(path).ok
    with pytest.raises(JournalCorrupt):
        list(JournalReader(path).entries())


def test_a_changed_closed_file_is_found(opened: Any, path: Path) -> None:
    book = opened()
    book.turns(2)
    book.journal.rotate()
    book.turn()
    with closing(
        sqlite3.connect(path.parent / "run.000001.db", isolation_level=None)
    ) as connection:
        connection.execute("UPDATE records SET key = 'x' WHERE seq = 2")

    assert "Record 2" in verify(path).problem


def test_a_rotated_journal_resumes_from_what_rotation_carried(opened: Any) -> None:
    book = opened(keep_segments=0)
    settings = SettingsChange(settings={"a": 1}, forecaster="f/1", reason="start")
    book.journal.append(settings)
    book.turns(2)
    book.journal.rotate(state={"spent": 2}, simulator=b"world")
    book.turn()
    head = book.journal.head
    book.journal.close()

    again = opened()

    assert again.resume.settings == settings
    assert again.resume.run.seed == 0
    assert (again.resume.cycle, again.resume.state) == (2, {"spent": 2})
    assert again.resume.simulator == b"world"
    assert again.journal.head == head
    again.turn()
    assert again.journal.rotate()
    assert again.journal.reader().newest("rotated").record.segment == 2


def test_rotation_is_due_by_size_and_by_age(opened: Any, clock: Any) -> None:
    book = opened(segment_hours=2)
    assert not book.journal.rotation_due
    book.turn()
    assert not book.journal.rotation_due
    clock.now += 7_200
    assert book.journal.rotation_due
    book.journal.rotate()
    book.turn()
    assert not book.journal.rotation_due


def test_rotation_is_due_by_size(opened: Any) -> None:
    book = opened(segment_mib=1)
    book.turn()
    assert not book.journal.rotation_due
    book.journal.append(Checkpoint(simulator=os.urandom(1024 * 1024)))
    assert book.journal.rotation_due


def test_rotation_waits_while_somebody_reads(opened: Any, path: Path) -> None:
    book = opened()
    book.turns(12)
    walk = book.journal.reader().entries()
    next(walk)

    assert not book.journal.rotate()
    book.turn()
    assert len(list(walk)) == 26
    assert book.journal.rotate()
    book.turn()
    assert verify(path, book.journal.head).ok


def test_a_new_journal_is_not_started_beside_closed_files_of_an_old_one(
    opened: Any, path: Path
) -> None:
    book = opened()
    book.turn()
    book.journal.rotate()
    book.journal.close()
    path.unlink()

    with pytest.raises(JournalMismatch, match=r"run\.000001\.db of an earlier journal"):
        opened()


def test_a_file_in_the_way_is_not_replaced(opened: Any, path: Path) -> None:
    book = opened()
    book.turn()
    aside = path.parent / "run.000001.db"
    aside.write_bytes(b"somebody's")

    with pytest.raises(JournalUnwritable, match="is in the way"):
        book.journal.rotate()
    book.turn()
    assert aside.read_bytes() == b"somebody's"


def test_a_namesake_is_not_taken_for_a_closed_file(opened: Any, path: Path) -> None:
    other = opened(path.parent / "run.2.db")
    other.turn()
    book = opened(keep_segments=0)
    book.turn()
    book.journal.rotate()

    assert verify(path).files == 1
    assert verify(path.parent / "run.2.db").ok


def test_rotation_with_open_intents_is_a_bug(opened: Any) -> None:
    book = opened()
    book.turn(answered=False)

    with pytest.raises(InternalError, match="cannot be rotated"):
        book.journal.rotate()


def test_a_crash_between_the_renames_is_completed(
    opened: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = opened()
    book.turns(2)
    real, calls = os.rename, []

    def dies_at_the_second(source: Any, target: Any) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(5, "Input/output error")
        real(source, target)

    monkeypatch.setattr(rotation.os, "rename", dies_at_the_second)
    with pytest.raises(JournalUnwritable, match="Input/output error"):
        book.journal.rotate(state={"spent": 2})
    book.journal.close()
    monkeypatch.undo()
    assert files(path) == ["run.000001.db"]
    assert len(list(JournalReader(path).cycles())) == 2

    again = opened()
    again.snapshot = book.snapshot
    again.turn()

    assert again.resume.state == {"spent": 2}
    assert verify(path, again.journal.head).cycles == 3


def test_a_rotation_that_cannot_be_prepared_leaves_the_journal_as_it_was(
    opened: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = opened()
    book.turns(2)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rotation, "create_schema", full)
    with pytest.raises(JournalUnwritable, match="No space left"):
        book.journal.rotate()
    monkeypatch.undo()
    book.turn()

    assert files(path) == ["run.db"]
    assert not list(path.parent.glob("*.new*"))
    assert verify(path, book.journal.head).ok
    assert book.journal._connection.execute("PRAGMA journal_mode").fetchone()[0] == b"wal"


def test_readers_never_notice_a_rotation(opened: Any, path: Path) -> None:
    book = opened(keyframe_cycles=3, keep_segments=100)
    book.turn()
    stop, walks, problems = threading.Event(), [], []

    def read_on() -> None:
        while not stop.is_set():
            try:
                reader = JournalReader(path)
                walks.append([entry.seq for entry in reader.entries()])
                reader.last_cycle()
            except PilothouseError as error:
                problems.append(error)

    reader = threading.Thread(target=read_on)
    reader.start()
    rotations = 0
    for _ in range(20):
        book.turn()
        rotations += book.journal.rotate()
    stop.set()
    reader.join()

    assert problems == []
    assert all(walk == list(range(1, len(walk) + 1)) for walk in walks)
    assert rotations > 0
    assert verify(path, book.journal.head).ok
