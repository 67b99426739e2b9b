# SPDX-License-Identifier: Apache-2.0
"""Rows as they are stored, over all files of a journal, while somebody may be writing them.

While a reader is connected nobody rotates; between two connections files may move or go, so they
are listed anew each time. Nothing here trusts what it reads: ``typed`` and ``checked`` do that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from pilothouse.errors import JournalCorrupt, MissingFile
from pilothouse.journal.chain import Row, link_of
from pilothouse.journal.files import COLUMNS, check_identity, connect_reader, reading, segments_of

_BATCH = 16  # rows per query: at most some 10 MB at the largest scale
Values = tuple[object, ...]
T = TypeVar("T")


def files_of(path: Path) -> list[Path]:
    """The files of a journal, oldest first."""
    while True:
        closed = segments_of(path)
        current = [path] if path.exists() else []
        # A rotation between the two looks would hide the file that was just closed.
        if segments_of(path) == closed:
            return [*(segment for _, segment in closed), *current]


def over_files(path: Path, ask: Callable[[list[Path]], T]) -> T:
    """The answer over all files, oldest first; asked again where a rotation moved one meanwhile."""
    while True:
        files = files_of(path)
        answer = ask(files)
        if files_of(path) == files:
            return answer


def query(path: Path, sql: str, arguments: tuple[object, ...] = ()) -> list[Values]:
    """The answer of one file; nothing where a rotation or retention took it away meanwhile."""
    try:
        with reading(path), closing(connect_reader(path)) as connection:
            check_identity(connection, path)
            return connection.execute(sql, arguments).fetchall()
    except MissingFile:
        if path.exists():
            raise
        return []


def stored_rows(path: Path, after: int = 0) -> Iterator[Values]:
    """Every row with a higher sequence number, in order; unchecked."""
    done: set[Path] = set()
    while todo := [file for file in files_of(path) if file not in done]:
        file = todo[0]
        try:
            with reading(file), closing(connect_reader(file)) as connection:
                check_identity(connection, file)
                if _moved(path, file, done):
                    continue
                for values in _batches(connection, after):
                    after = values[0]
                    yield values
        except MissingFile:
            if file.exists():
                raise
            continue  # taken away after it was listed
        done.add(file)


def _moved(path: Path, file: Path, done: set[Path]) -> bool:
    """A rotation after the listing put an unread file before this one."""
    listed = files_of(path)
    return file in listed and any(other not in done for other in listed[: listed.index(file)])


def _batches(connection: sqlite3.Connection, after: int) -> Iterator[tuple[int, *Values]]:
    while True:
        rows = connection.execute(
            f"SELECT {COLUMNS} FROM records WHERE seq > ? ORDER BY seq LIMIT {_BATCH}", (after,)
        ).fetchall()
        if not rows:
            return
        yield from rows
        after = rows[-1][0]


def checked(values: Values, before: bytes) -> Row:
    """The row, if its link fits the row before."""
    row = typed(values)
    if link_of(before, row.values) != row.link:
        raise JournalCorrupt(
            f"Record {row.seq} does not match the chain: it or the record before it was changed. "
            "Run `pilothouse verify` on the file."
        )
    return row


def typed(values: Values) -> Row:
    """The row, if every stored value has its type."""
    match values:
        case (
            int() as seq,
            bytearray() as kind,
            int() as cycle,
            bytearray() as key,
            float() as wall,
            bytes() as body,
            (None | bytes()) as frame,
            bytes() as digest,
            bytes() as link,
        ):
            return Row(
                seq=seq,
                kind=_text(kind, seq),
                cycle=cycle,
                key=_text(key, seq),
                wall=wall,
                body=body,
                frame=frame,
                digest=digest,
                link=link,
            )
    raise JournalCorrupt(f"Record {values[0]} holds a value of the wrong type.")


def _text(stored: bytearray, seq: int) -> str:
    try:
        return stored.decode()
    except UnicodeDecodeError as error:
        raise JournalCorrupt(f"Record {seq} holds text that is not UTF-8.") from error
