# SPDX-License-Identifier: Apache-2.0
"""Full, read-only and torn: what a journal does when the disk does not."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pilothouse.errors import JournalCorrupt, JournalUnwritable, MissingFile
from pilothouse.journal import Journal, JournalReader, digest_of, verify

PRELUDE = """
import os, resource, sys
from pathlib import Path
from pilothouse.errors import JournalUnwritable
from pilothouse.journal import Checkpoint, Cycle, Ingested, Journal, Run, verify
from pilothouse.testing.builders import a_decision, a_forecast, a_snapshot, an_action
path = Path(sys.argv[1])
run = Run(run_id="r", cluster="sim", scenario="harbor", seed=0, version="0.1")
"""


def python(program: str, path: Path, *before: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter with the prelude; its answer is what it prints."""
    command = [*before, sys.executable, "-c", PRELUDE + textwrap.dedent(program), str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


FILL = """
    journal = Journal.open(path)
    journal.begin(run)
    {limit}
    written = 0
    try:
        while written < 1000:
            journal.append(Ingested(source="scorer", content={{"data": os.urandom(9000)}}))
            written += 1
    except JournalUnwritable as error:
        print(error)
    head = journal.head
    try:
        journal.append(Ingested(source="scorer", content={{"data": os.urandom(9000)}}))
    except JournalUnwritable:
        print("still full")
    assert journal.head == head
    report = verify(path, head)
    print(report.ok, report.records == written + 1, written > 3)
    {relief}
    journal.append(Ingested(source="scorer", content={{"data": b"after"}}))
    journal.close()
    print(verify(path, journal.head).ok, verify(path).records == written + 2)
"""


def test_at_a_file_size_limit_nothing_half_written_shows_and_it_recovers(path: Path) -> None:
    done = python(
        FILL.format(
            limit="resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))",
            relief="resource.setrlimit(resource.RLIMIT_FSIZE, "
            "(resource.RLIM_INFINITY, resource.RLIM_INFINITY))",
        ),
        path,
    )

    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert "Cannot write the journal" in first
    assert "Nothing will be changed until it can be written" in first
    assert rest == ["still full", "True True True", "True True"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let us mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_on_a_full_disk_nothing_half_written_shows_and_it_recovers(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(200_000))

    done = python(
        FILL.format(limit="", relief="(path.parent / 'ballast').unlink()"), small_disk / "run.db"
    )

    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert "the disk is full. Free some space, or give another --journal" in first
    assert rest == ["still full", "True True True", "True True"]


def test_a_full_disk_stops_a_new_journal_with_one_line(small_disk: Path) -> None:
    with (small_disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
        while ballast.write(bytes(4096)):
            pass

    with pytest.raises(JournalUnwritable) as caught:
        Journal.open(small_disk / "run.db")
    assert "\n" not in str(caught.value)


def test_a_read_only_directory_is_refused_with_one_line(path: Path) -> None:
    path.parent.chmod(0o555)
    for parent in path.parents[1:4]:
        parent.chmod(parent.stat().st_mode | 0o055)

    done = python(
        """
        if os.geteuid() == 0:
            os.setuid(65534)
        try:
            Journal.open(path)
        except JournalUnwritable as error:
            print(error)
        """,
        path,
    )

    assert "Permission denied. Make its directory writable" in done.stdout, done.stderr
    assert done.stdout.count("\n") == 1


def test_a_read_only_file_is_refused_with_one_line(opened: Any, path: Path) -> None:
    opened().journal.close()
    path.chmod(0o444)
    path.parent.chmod(0o777)
    for parent in path.parents[1:4]:
        parent.chmod(parent.stat().st_mode | 0o055)

    done = python(
        """
        if os.geteuid() == 0:
            os.setuid(65534)
        try:
            Journal.open(path)
        except JournalUnwritable as error:
            print(error)
        """,
        path,
    )

    assert "is read-only. Make it writable" in done.stdout, done.stderr


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalUnwritable, match=r"nowhere does not exist. Create it"):
        Journal.open(tmp_path / "nowhere" / "run.db")


def test_a_directory_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalUnwritable, match="it is a directory"):
        Journal.open(tmp_path)


DIE = """
    import signal
    journal = Journal.open(path)
    journal.begin(run)
    snapshot = a_snapshot(nodes=3, pods=9)
    forecast = a_forecast(snapshot)
    for cycle in range(6):
        decision = a_decision(cycle, actions=(an_action(f"{cycle:08x}"),))
        journal.append_cycle(Cycle(decision=decision), snapshot, forecast)
        print(journal.seq, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def killed(path: Path) -> Path:
    done = python(DIE, path)
    assert done.returncode == -9, done.stderr
    assert done.stdout.split() == ["2", "3", "4", "5", "6", "7"]
    return path


def test_what_was_acknowledged_survives_kill_9(killed: Path) -> None:
    assert verify(killed).records == 7

    with Journal.open(killed) as journal:
        assert journal.seq == 7
    assert verify(killed).records == 7


def test_a_reader_neither_checkpoints_nor_removes_what_a_killed_writer_left(killed: Path) -> None:
    wal = killed.with_name("run.db-wal")
    before = killed.read_bytes(), wal.read_bytes()

    assert len(list(JournalReader(killed).entries())) == 7
    assert verify(killed).ok

    assert (killed.read_bytes(), wal.read_bytes()) == before


@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_a_torn_log_gives_a_good_prefix_or_a_refusal(
    killed: Path, tmp_path: Path, how: str
) -> None:
    whole = [entry.link for entry in JournalReader(killed).entries()]
    log = killed.with_name("run.db-wal").read_bytes()
    draw = random.Random(3)
    lengths = set()
    for number in range(60):
        folder = tmp_path / f"{how}{number}"
        folder.mkdir()
        torn = folder / "run.db"
        shutil.copy(killed, torn)
        at = draw.randrange(len(log))
        broken = bytearray(log)
        if how == "cut":
            del broken[at:]
        else:
            broken[at] ^= 1 << draw.randrange(8)
        (folder / "run.db-wal").write_bytes(broken)
        try:
            with Journal.open(torn) as journal:
                links = [entry.link for entry in journal.reader().entries()]
                assert journal.seq == len(links)
        except JournalCorrupt:
            continue
        assert links == whole[: len(links)]
        lengths.add(len(links))
    assert len(lengths) > 3


def test_every_append_reaches_the_disk_before_it_returns(path: Path, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    log = tmp_path / "calls"
    if strace is None or subprocess.run([strace, "true"], capture_output=True).returncode:
        pytest.skip("strace is not available")

    done = python(
        """
        journal = Journal.open(path)
        journal.begin(run)
        for number in range(10):
            journal.append(Ingested(source="scorer", content={"n": number}))
            os.write(2, b"acknowledged")
        """,
        path,
        strace,
        "-f",
        "-e",
        "trace=fsync,fdatasync,write",
        "-o",
        str(log),
    )

    assert done.returncode == 0, done.stderr
    synced, acknowledged = False, 0
    for line in log.read_text().splitlines():
        if "acknowledged" in line:
            assert synced, "an append returned before anything was synced"
            synced, acknowledged = False, acknowledged + 1
        elif "sync(" in line:
            synced = True
    assert acknowledged == 10


def test_a_failed_sync_is_a_failed_append_and_the_next_one_works(path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "true"], capture_output=True).returncode:
        pytest.skip("strace is not available")

    done = python(
        """
        journal = Journal.open(path)
        journal.begin(run)
        done = 1
        for number in range(12):
            before = journal.head, journal.seq
            try:
                journal.append(Ingested(source="scorer", content={"n": number}))
                done += 1
            except JournalUnwritable as error:
                print(error)
                assert (journal.head, journal.seq) == before
        journal.close()
        report = verify(path, journal.head)
        print(report.ok, report.records == done)
        """,
        path,
        strace,
        "-f",
        "-o",
        "/dev/null",
        "-e",
        "inject=fdatasync:error=EIO:when=10..11",
    )

    assert done.returncode == 0, done.stderr
    *failures, last = done.stdout.splitlines()
    assert len(failures) == 2
    assert all("the disk reports an error. Check the disk" in line for line in failures)
    assert last == "True True"


def test_what_a_killed_rotation_left_behind_is_not_mixed_into_a_new_one(
    opened: Any, path: Path
) -> None:
    book = opened()
    book.turns(2)
    for end in ("", "-wal", "-journal"):
        path.with_name(f"run.db.new{end}").write_bytes(b"half of a file" * 999)
    book.journal.close()

    again = opened()

    assert not list(path.parent.glob("*.new*"))
    assert again.resume.cycle == 1


def test_a_journal_that_was_never_finished_is_made_anew(opened: Any, path: Path) -> None:
    for end in ("", "-wal"):
        path.with_name(f"run.db.new{end}").write_bytes(b"half of a file" * 999)

    assert opened().resume is None


def test_a_file_nobody_wrote_to_yet_is_named_as_such(path: Path) -> None:
    path.touch()

    with pytest.raises(MissingFile, match="Nothing has been recorded"):
        verify(path)


class Interrupted:
    """A connection during whose commit a signal came: Python hears it when SQLite is done."""

    def __init__(self, connection: Any, when: str) -> None:
        self._connection, self._when = connection, when

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *more: Any) -> Any:
        if sql == self._when == "BEGIN IMMEDIATE":
            raise KeyboardInterrupt
        done = self._connection.execute(sql, *more)
        if sql == self._when:
            raise KeyboardInterrupt
        return done


@pytest.mark.parametrize(("when", "stored"), [("BEGIN IMMEDIATE", 0), ("COMMIT", 1)])
def test_an_interrupted_append_is_known_for_what_it_is(
    opened: Any, path: Path, when: str, stored: int
) -> None:
    book = opened()
    book.turns(2)
    real = book.journal._connection
    book.journal._connection = Interrupted(real, when)
    with pytest.raises(KeyboardInterrupt):
        book.turn()
    book.journal._connection = real

    assert verify(path, book.journal.head).ok
    assert verify(path).cycles == 2 + stored
    assert len(book.journal.open_intents) == stored
    book.cycle += stored
    book.turn()
    turns = list(JournalReader(path).cycles())
    assert [digest_of(t.snapshot) for t in turns] == [
        t.cycle.decision.snapshot_digest for t in turns
    ]
