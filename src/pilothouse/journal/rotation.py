# SPDX-License-Identifier: Apache-2.0
"""Closing a file of the journal and carrying the chain on in a new one.

A database that somebody has open in write-ahead mode must not be renamed: its log is found by name
and the other would read or reset the wrong one. So the file first leaves that mode, which SQLite
allows only while nobody else is connected, and until the new file is in use nobody may connect;
where either cannot be had the rotation waits for a later cycle. The new file is complete and
durable before the two renames, and ``finish`` completes them after a crash.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pilothouse.errors import JournalUnwritable
from pilothouse.journal.chain import Row
from pilothouse.journal.files import (
    COLUMNS,
    connect_reader,
    connect_writer,
    create_schema,
    segment_path,
    segments_of,
    sync_directory,
)
from pilothouse.settings import JournalSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """How the current file began."""

    segment: int  # number of the file before it, 0: there was none
    wall: float


def began(path: Path) -> Began:
    with closing(connect_reader(path)) as connection:
        kind, key, wall = connection.execute(
            "SELECT kind, key, wall FROM records ORDER BY seq LIMIT 1"
        ).fetchone()
    return Began(segment=int(key) if kind == b"rotated" else 0, wall=wall)


def refuse_existing(path: Path, segment: int) -> None:
    """A rename would silently replace what has the name already."""
    aside = segment_path(path, segment)
    if aside.exists():
        raise JournalUnwritable(
            f"Cannot rotate the journal {path}: {aside} is in the way. Move it elsewhere."
        )


def create(path: Path) -> None:
    """An empty journal, complete before it has its name: a reader never meets half of one."""
    prepare(path)
    os.rename(_fresh(path), path)
    sync_directory(path)


def prepare(path: Path, *rows: Row) -> None:
    """Write the next file beside this one, with its first record."""
    fresh = _fresh(path)
    _discard(fresh)
    try:
        with closing(connect_writer(fresh)) as connection:
            create_schema(connection)
            connection.executemany(
                f"INSERT INTO records({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(*row.values, row.link) for row in rows],
            )
    except BaseException:
        _discard(fresh)
        raise


def swap(path: Path, segment: int) -> sqlite3.Connection:
    """Put the closed file aside and the next one in its place."""
    os.rename(path, segment_path(path, segment))
    os.rename(_fresh(path), path)
    sync_directory(path)
    return connected(path)


def connected(path: Path) -> sqlite3.Connection:
    """To the file that is current, as the journal reads its rows."""
    connection = connect_writer(path)
    connection.text_factory = bytearray
    return connection


def is_put_aside(path: Path, segment: int) -> bool:
    """Whether the next file counts by now, even if a crash left the second rename to ``finish``."""
    return segment_path(path, segment).exists()


def finish(path: Path) -> None:
    """Complete or forget a rotation that a crash interrupted."""
    fresh = _fresh(path)
    if not fresh.exists():
        return
    if path.exists() or not segments_of(path):
        _discard(fresh)  # perhaps incomplete, and nothing depends on it
    else:
        os.rename(fresh, path)
    sync_directory(path)


def _discard(fresh: Path) -> None:
    """Remove a file that was never finished, with its logs: a later namesake must not read them."""
    for end in ("", "-journal", "-wal", "-shm"):
        fresh.with_name(fresh.name + end).unlink(missing_ok=True)


def prune(path: Path, settings: JournalSettings, now: float) -> None:
    """Delete closed files beyond the number or the age that is kept."""
    closed = segments_of(path)
    excess = len(closed) - settings.keep_segments
    oldest = now - settings.keep_days * 86_400
    for place, (_, segment) in enumerate(closed):
        # Only from the old end: a gap in the middle would break the chain.
        if place >= excess and _ended(segment) >= oldest:
            break
        segment.unlink()


def _ended(path: Path) -> float:
    with closing(connect_reader(path)) as connection:
        wall = connection.execute("SELECT wall FROM records ORDER BY seq DESC LIMIT 1").fetchone()
    return float(wall[0])


def _fresh(path: Path) -> Path:
    return path.with_name(path.name + ".new")
