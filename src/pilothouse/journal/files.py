# SPDX-License-Identifier: Apache-2.0
"""The files of a journal: how they are opened, locked, told apart and lined up.

One process and one connection writes and checkpoints; a lock beside the file enforces it. Readers
open read-only and never checkpoint. What SQLite reports becomes one line that says what to do.
"""

from __future__ import annotations

import fcntl
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from pilothouse.errors import (
    JournalCorrupt,
    JournalError,
    JournalMismatch,
    JournalTooNew,
    JournalUnwritable,
    MissingFile,
)

APPLICATION_ID = 0x50494C4F  # "PILO", so that file(1) and we can tell it from other databases
SCHEMA_VERSION = 1
READERS_SECONDS = 0.1  # how long a rotation waits for readers, who are mostly quick
RENAMING_SECONDS = 5.0  # how long a reader waits for the end of a rotation
COLUMNS = "seq, kind, cycle, key, wall, body, frame, digest, link"
SCHEMA = (
    "CREATE TABLE records(seq INTEGER PRIMARY KEY, kind TEXT, cycle INTEGER, key TEXT, "
    "wall REAL, body BLOB, frame BLOB, digest BLOB, link BLOB)"
)


def connect_writer(path: Path) -> sqlite3.Connection:
    """The one connection that writes; creates the file. Shared by threads behind a lock."""
    # SQLite opens a read-only file without a word; find out now, not at the first record. Asked and
    # not tried: closing a descriptor of ours would drop the locks of readers in this process.
    if path.exists() and not os.access(path, os.W_OK):
        raise JournalUnwritable(
            f"Cannot write the journal {path}: the file is read-only. Make it writable, or give "
            "another --journal."
        )
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    try:
        enter_wal(connection)
        connection.execute("PRAGMA synchronous=FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def enter_wal(connection: sqlite3.Connection) -> None:
    """Begin or go on to use the write-ahead log."""
    if mode_of(connection) != "wal":
        # The change of mode is one write of one page. Without a rollback file for it a crash
        # right then leaves nothing that a reader, who may not write, would have to roll back.
        connection.execute("PRAGMA journal_mode=MEMORY")
        connection.execute("PRAGMA journal_mode=WAL")


def leave_wal(connection: sqlite3.Connection) -> bool:
    """Stop using it; False where somebody else stays connected."""
    connection.execute("PRAGMA busy_timeout=0")
    try:
        return _tried(lambda: _left_wal(connection), READERS_SECONDS)
    finally:
        connection.execute("PRAGMA busy_timeout=5000")


def _left_wal(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("PRAGMA journal_mode=MEMORY")
        return mode_of(connection) != "wal"
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
        return False


def mode_of(connection: sqlite3.Connection) -> str:
    return _text(connection.execute("PRAGMA journal_mode").fetchone()[0])


def connect_reader(path: Path) -> sqlite3.Connection:
    """Read-only, also while somebody writes; text comes as bytearray, unchecked and unchanged.

    From the first read on the connection keeps a rotation from happening, or, on a file that has
    left write-ahead mode, it stays inside one transaction and looks at no log.
    """
    with _names_held(path, fcntl.LOCK_SH, RENAMING_SECONDS) as held:
        if not held:
            raise JournalError(
                f"Cannot open the journal {path}: another process has held a lock on its directory "
                f"for {RENAMING_SECONDS:g} s, as a rotation does for a moment. Find it with "
                f"`lsof {path.parent}` and let it go on, or end it."
            )
        if not path.exists():
            raise _missing(path)
        connection = _connect_read_only(path)
    if mode_of(connection) == "wal":
        connection.execute("COMMIT")
    connection.text_factory = bytearray
    return connection


@contextmanager
def renaming(path: Path) -> Iterator[bool]:
    """Around giving other names to files of the journal; False: do not, a reader is opening one.

    SQLite looks for a file's write-ahead log at the first read, under the name that was opened. If
    that name meant another file by then, the reader would take that one's log, and inside the
    writer's process cut short the shared memory in which the writer works.
    """
    with _names_held(path, fcntl.LOCK_EX, READERS_SECONDS) as held:
        yield held


@contextmanager
def _names_held(path: Path, operation: int, seconds: float) -> Iterator[bool]:
    """What names mean in the journal's directory: shared to open a file, alone to rename one.

    It is the real file's directory, where SQLite looks for the log, whatever link led there.
    """
    try:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        directory = os.open(os.path.dirname(os.path.realpath(path)), flags)
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(path) from None
    try:
        yield _tried(lambda: _locked(directory, operation), seconds)
    finally:
        fcntl.flock(directory, fcntl.LOCK_UN)  # for a child that was forked meanwhile, too
        os.close(directory)


def _missing(path: Path) -> MissingFile:
    return MissingFile(f"No journal at {path}. Give the file that `up --journal` wrote.")


def _locked(fd: int, operation: int) -> bool:
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _tried(attempt: Callable[[], bool], seconds: float) -> bool:
    """Whether it succeeded before the time was over; it is tried at least once."""
    deadline = time.monotonic() + seconds
    while not attempt():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def _connect_read_only(path: Path) -> sqlite3.Connection:
    """Connected, inside a transaction that has read something."""
    uri = f"file:{quote(str(path))}?mode=ro"
    try:
        return _begun(uri)
    except sqlite3.Error as error:
        # A closed journal in a directory that cannot be written: nobody can be writing it either.
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CANTOPEN or wal_of(path).exists():
            raise
        return _begun(f"{uri}&immutable=1")


def _begun(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def wal_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def create_schema(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(SCHEMA)
    connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    connection.execute("COMMIT")


def is_blank(connection: sqlite3.Connection) -> bool:
    """A file nobody has written to yet."""
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    return bool(empty) and _pragma(connection, "application_id") == 0


def check_identity(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is not a journal, or one that a newer Pilothouse wrote."""
    if is_blank(connection):
        raise MissingFile(f"Nothing has been recorded in {path} yet.")
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise JournalMismatch(
            f"{path} is a database, but not a Pilothouse journal. Give another file."
        )
    version = _pragma(connection, "user_version")
    if version < 1:
        raise JournalCorrupt(f"{path} has no journal schema version. Restore it from a copy.")
    if version > SCHEMA_VERSION:
        raise JournalTooNew(
            f"{path} has journal schema {version}; this build reads up to {SCHEMA_VERSION}. "
            "Use the Pilothouse that wrote it, or a newer one."
        )
    objects = connection.execute("SELECT name, sql FROM sqlite_master").fetchall()
    if [(_text(name), _text(sql)) for name, sql in objects] != [("records", SCHEMA)]:
        raise JournalCorrupt(f"{path} holds tables or triggers that no Pilothouse journal has.")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytearray) else str(value)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what SQLite or the system reports into one line."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explained(error, path) from error
    except FileNotFoundError as error:
        raise JournalUnwritable(
            f"Cannot write the journal {path}: the directory {path.parent} does not exist. "
            "Create it, or give another --journal."
        ) from error
    except OSError as error:
        raise JournalUnwritable(
            f"Cannot write the journal {path}: {error.strerror or error}. Make its directory "
            "writable, or give another --journal. Nothing will be changed until it can be written."
        ) from error


@contextmanager
def reading(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            raise MissingFile(
                f"Cannot open the journal {path}: {error}. Check who may read it."
            ) from error
        if code == sqlite3.SQLITE_READONLY:
            raise JournalCorrupt(
                f"Cannot read the journal {path}: its writer was interrupted in the middle of a "
                "change. Let `pilothouse up` open it once; that repairs it."
            ) from error
        raise JournalCorrupt(
            f"Cannot read the journal {path}: {error}. Restore it from a copy."
        ) from error


_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full. Free some space",
    sqlite3.SQLITE_READONLY: "the file or its directory is read-only. Make it writable",
    sqlite3.SQLITE_CANTOPEN: (
        "it cannot be opened or created. Check that its directory exists and is writable"
    ),
    sqlite3.SQLITE_BUSY: "another process holds it. Stop that process",
    sqlite3.SQLITE_LOCKED: "another process holds it. Stop that process",
    sqlite3.SQLITE_PERM: "permission is denied. Make it writable",
    sqlite3.SQLITE_IOERR: "the disk reports an error. Check the disk and its free space",
}


def _explained(error: sqlite3.Error, path: Path) -> JournalError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return JournalCorrupt(
            f"{path} is not a readable journal: {error}. Restore it from a copy or give "
            "another file."
        )
    advice = _ADVICE.get(code, f"{error}. Check the file")
    return JournalUnwritable(
        f"Cannot write the journal {path}: {advice}, or give another --journal. "
        "Nothing will be changed until it can be written."
    )


class FileLock:
    """Held while a journal is written. The file goes away with it."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._fd = self._acquire(path)

    def _acquire(self, path: Path) -> int:
        while True:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                raise JournalUnwritable(
                    f"Cannot write the journal {path}: another process holds it. "
                    "Stop that process, or give another --journal."
                ) from None
            if self._is_current(fd):
                return fd
            os.close(fd)  # released and removed by its last holder between our open and lock

    def _is_current(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


def is_locked(path: Path) -> bool:
    """Whether somebody writes this journal now; a lock file that a crash left says nothing."""
    try:
        fd = os.open(path.with_name(path.name + ".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who ask do not see each other
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def segment_path(path: Path, number: int) -> Path:
    """The name of a closed file. Six digits, so that nobody's ``run.2.db`` is taken for one."""
    return path.with_name(f"{path.stem}.{number:06d}{path.suffix or '.db'}")


def segments_of(path: Path) -> list[tuple[int, Path]]:
    """The closed files beside this one, oldest first."""
    suffix = path.suffix or ".db"
    pattern = re.compile(rf"{re.escape(path.stem)}\.([0-9]{{6,}}){re.escape(suffix)}")
    if not path.parent.is_dir():
        return []
    found = ((pattern.fullmatch(entry.name), entry) for entry in path.parent.iterdir())
    return sorted((int(match[1]), entry) for match, entry in found if match)


def sync_directory(path: Path) -> None:
    """Make creations and renames in the file's directory durable."""
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
