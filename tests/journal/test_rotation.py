# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
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
    journal,
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


def test_rotation_waits_for_a_reader_that_has_opened_the_file_and_not_read_it(
    opened: Any, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite uses whatever log has the file's name by then: the next file's, which the writer of
    the same process has mapped."""
    book = opened(keep_segments=100)
    book.turns(3)
    reading, go_on, found = threading.Event(), threading.Event(), []
    real = sqlite3.connect

    def hesitant(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = real(*args, **kwargs)
        if threading.current_thread() is reader and not reading.is_set():
            reading.set()
            go_on.wait(10)
        return connection

    reader = threading.Thread(
        target=lambda: found.extend(entry.seq for entry in JournalReader(path).entries())
    )
    monkeypatch.setattr(sqlite3, "connect", hesitant)
    reader.start()
    assert reading.wait(10)
    rotated = book.journal.rotate()
    book.turn()
    go_on.set()
    reader.join(10)
    book.turns(3)

    assert not rotated
    assert found[:7] == list(range(1, 8))
    assert book.journal.rotate()
    assert verify(path, book.journal.head).ok


@pytest.mark.parametrize("place", ["leave_wal", "prepare", "sync_directory"])
def test_a_rotation_that_is_interrupted_leaves_a_head_that_verifies(
    opened: Any, path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A stop is heard once the disk has answered."""
    book = opened()
    book.turns(2)
    where = journal if place == "leave_wal" else rotation
    real = getattr(where, place)

    def interrupted(*arguments: Any) -> None:
        real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(where, place, interrupted)
    with pytest.raises(KeyboardInterrupt):
        book.journal.rotate(state={"spent": 2})
    monkeypatch.undo()

    assert verify(path, book.journal.head).ok
    if place != "sync_directory":  # the file is still the one that is open
        book.turn()
        assert book.journal._connection.execute("PRAGMA journal_mode").fetchone()[0] == b"wal"
    book.journal.close()
    again = opened()
    again.snapshot, again.cycle = book.snapshot, book.cycle
    again.turn()
    assert verify(path, again.journal.head).ok


@pytest.mark.parametrize("through_a_link", [False, True])
def test_readers_wait_for_the_end_of_a_rotation(
    opened: Any, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through_a_link: bool
) -> None:
    book = opened(keep_segments=100)
    book.turns(3)
    real, found = os.rename, []
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    given = link if through_a_link else path
    reader = threading.Thread(
        target=lambda: found.extend(entry.seq for entry in JournalReader(given).entries())
    )

    def watched(source: Any, target: Any) -> None:
        real(source, target)
        if target == path:
            reader.start()
            reader.join(0.3)
            found.append("waited" if reader.is_alive() else "did not wait")

    monkeypatch.setattr(rotation.os, "rename", watched)
    assert book.journal.rotate()
    reader.join(10)

    assert found == ["waited", *range(8 if through_a_link else 1, 9)]


@pytest.mark.parametrize("where", ["threads", "processes"])
def test_readers_never_notice_a_rotation(opened: Any, path: Path, where: str) -> None:
    """Several readers without a pause: in the writer's own process, as the page, or in others."""
    book = opened(keyframe_cycles=3, keep_segments=1000)
    book.turn()
    rotations = 0
    with (in_threads if where == "threads" else in_processes)(path) as told:
        for _ in range(60):
            book.turn()
            rotations += book.journal.rotate()

    walks = [line for line in told if not line.startswith("read 1..")]
    assert walks == []
    assert len(told) > 3
    assert rotations > 30
    assert verify(path, book.journal.head).ok


@contextmanager
def in_threads(path: Path) -> Iterator[list[str]]:
    told: list[str] = []
    stop = threading.Event()
    readers = [
        threading.Thread(target=read_on, args=(path, stop.is_set, told.append)) for _ in range(3)
    ]
    for reader in readers:
        reader.start()
    try:
        yield told
    finally:
        stop.set()
        for reader in readers:
            reader.join()


@contextmanager
def in_processes(path: Path) -> Iterator[list[str]]:
    """Each has two threads, so that one's connection can hurt the other's."""
    told: list[str] = []
    command = [sys.executable, "-m", "tests.journal.test_rotation", str(path)]
    readers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline()
        yield told
    finally:
        for reader in readers:
            said, _ = reader.communicate("stop\n", timeout=30)
            told += said.splitlines()
            told += [] if reader.returncode == 0 else [f"exit {reader.returncode}"]


def read_on(path: Path, is_over: Callable[[], bool], tell: Callable[[str], None]) -> None:
    while not is_over():
        try:
            reader = JournalReader(path)
            walk = list(reader.entries())
            newest, seqs = reader.last_cycle(), [entry.seq for entry in walk]
            cycles = [entry.seq for entry in walk if entry.kind == "cycle"]
            if seqs != list(range(1, len(seqs) + 1)):
                tell(f"read with gaps: {seqs}")
            elif newest is None or newest.seq < cycles[-1]:
                tell(f"read up to cycle {cycles[-1]}, but the newest is {newest}")
            else:
                tell(f"read 1..{seqs[-1]}")
        except PilothouseError as error:
            tell(repr(error))


def main() -> None:
    over = threading.Event()
    arguments = (
        Path(sys.argv[1]),
        over.is_set,
        lambda line: print(f"{line}\n", end="", flush=True),
    )
    readers = [threading.Thread(target=read_on, args=arguments) for _ in range(2)]
    for reader in readers:
        reader.start()
    sys.stdin.readline()
    over.set()
    for reader in readers:
        reader.join()


if __name__ == "__main__":
    main()
