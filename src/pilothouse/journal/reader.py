# SPDX-License-Identifier: Apache-2.0
"""Reads a journal, also one that is being written, across its closed files.

Every row is checked against its link before it is handed out: a wrong record is never accepted.
Rows are fetched a few at a time and connections are short, so that a long read holds up neither the
writer's checkpoints nor its rotation.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pilothouse.domain import Forecast, Snapshot
from pilothouse.errors import JournalCorrupt, MissingFile, UnknownName
from pilothouse.journal import frames, records
from pilothouse.journal.chain import GENESIS, Row, link_of
from pilothouse.journal.files import (
    COLUMNS,
    check_identity,
    connect_reader,
    reading,
    segments_of,
)
from pilothouse.journal.frames import Frame
from pilothouse.journal.records import Cycle, Outcome, Receipts, Record, Rotated, Run, expand

_BATCH = 16  # rows per query: at most some 10 MB at the largest scale
Values = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record with its place in the journal."""

    seq: int
    cycle: int
    wall: float  # seconds since the epoch; outside the digest
    link: str
    record: Record
    frame_bytes: bytes | None

    @property
    def kind(self) -> str:
        return self.record.KIND


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedCycle:
    """One decision with the very snapshot and forecast it was made from."""

    seq: int
    wall: float
    cycle: Cycle
    snapshot: Snapshot
    forecast: Forecast


class JournalReader:
    """A journal to read; ``path`` is the current file, closed ones beside it are followed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not files_of(path):
            raise MissingFile(f"No journal at {path}. Give the file that `up --journal` wrote.")

    def entries(self, after: int = 0) -> Iterator[Entry]:
        """Every record with a higher sequence number, oldest first, each checked."""
        link: bytes | None = None
        for values in stored_rows(self.path, after):
            if link is None:
                link = self.link_before(values)
            row = checked(values, link)
            link = row.link
            yield entry_of(row)

    def cycles(self, after: int = 0) -> Iterator[RecordedCycle]:
        """Every decision with its snapshot and forecast, oldest first."""
        start = after and self._keyframe_at_or_before(after + 1)
        for entry, frame in self.story(max(start - 1, 0)):
            if frame is not None and entry.seq > after and isinstance(entry.record, Cycle):
                yield RecordedCycle(
                    seq=entry.seq,
                    wall=entry.wall,
                    cycle=entry.record,
                    snapshot=frame.snapshot,
                    forecast=frame.forecast,
                )

    def story(self, after: int = 0) -> Iterator[tuple[Entry, Frame | None]]:
        """Every record in order, decisions with their frame; what a replay walks through.

        Begin at 0 or right before a keyframe: a difference needs the frame before it.
        """
        before: Frame | None = None
        for entry in self.entries(after):
            frame = None
            if isinstance(entry.record, Cycle) and entry.frame_bytes is not None:
                frame = before = frames.decode(entry.frame_bytes, before)
            yield entry, frame

    def last_cycle(self) -> Entry | None:
        """The newest decision, without its frame."""
        return self._newest("kind = 'cycle'")

    def newest(self, kind: str) -> Entry | None:
        """The newest record of a kind."""
        return self._newest("kind = ?", kind)

    def run(self) -> Run | None:
        """What this journal is about; None while it is empty."""
        first = next(self.entries(), None)
        match first.record if first else None:
            case Run() as run:
                return run
            case Rotated() as rotated:
                return rotated.run
        return None

    def find(self, prefix: str) -> Entry:
        """The decision whose id begins so; an error where none or several do."""
        found = self._matching(
            "kind = 'cycle' AND substr(key, 1, length(?)) = ?", prefix, prefix, limit=2
        )
        if not found:
            raise UnknownName(
                f'No decision in {self.path} begins with "{prefix}". '
                "Ids are in the page and in the lines that `up` prints."
            )
        if len(found) > 1:
            raise UnknownName(f'Several decisions begin with "{prefix}". Give more characters.')
        return found[0]

    def frame_of(self, entry: Entry) -> Frame:
        """The snapshot and forecast of one decision, from the keyframe before it on."""
        frame: Frame | None = None
        for other in self.entries(self._keyframe_at_or_before(entry.seq) - 1):
            if isinstance(other.record, Cycle) and other.frame_bytes is not None:
                frame = frames.decode(other.frame_bytes, frame)
            if other.seq == entry.seq:
                break
        if frame is None:
            raise JournalCorrupt(f"Record {entry.seq} has no snapshot.")
        return frame

    def outcomes_of(self, decision: str) -> list[Receipts | Outcome]:
        """Receipts and results of a decision, oldest first."""
        found = self._matching(
            "kind IN ('receipts', 'outcome') AND (key = ? OR substr(key, 1, length(?) + 1) = ?)",
            decision,
            decision,
            f"{decision}.",
        )
        return [e.record for e in found if isinstance(e.record, Receipts | Outcome)]

    def _newest(self, where: str, *arguments: str) -> Entry | None:
        for path in reversed(files_of(self.path)):
            found = self._in_file(path, f"{where} ORDER BY seq DESC LIMIT 1", arguments)
            if found:
                return found[0]
        return None

    def _matching(self, where: str, *arguments: str, limit: int = -1) -> list[Entry]:
        found: list[Entry] = []
        for path in files_of(self.path):
            found += self._in_file(path, f"{where} ORDER BY seq LIMIT {limit}", arguments)
        return found

    def _in_file(self, path: Path, clause: str, arguments: tuple[str, ...]) -> list[Entry]:
        with reading(path), closing(connect_reader(path)) as connection:
            check_identity(connection, path)
            sql = f"SELECT {COLUMNS} FROM records WHERE {clause}"
            rows = connection.execute(sql, arguments).fetchall()
        return [entry_of(checked(values, self.link_before(values))) for values in rows]

    def link_before(self, values: Values) -> bytes:
        """The link of the row before this one, or what stands in its place at the start."""
        seq = values[0]
        if seq == 1:
            return GENESIS
        if values[1] == b"rotated":
            record = unchecked(values).record
            if isinstance(record, Rotated):
                return bytes.fromhex(record.previous_head)
        for path in reversed(files_of(self.path)):
            with reading(path), closing(connect_reader(path)) as connection:
                before = connection.execute(
                    "SELECT link FROM records WHERE seq = ? - 1", (seq,)
                ).fetchone()
            if before is not None and isinstance(before[0], bytes):
                return before[0]
        raise JournalCorrupt(f"The record before {seq} is missing.")

    def _keyframe_at_or_before(self, seq: int) -> int:
        for path in reversed(files_of(self.path)):
            with reading(path), closing(connect_reader(path)) as connection:
                found = connection.execute(
                    "SELECT seq FROM records WHERE kind = 'cycle' AND seq <= ? "
                    "AND substr(frame, 1, 1) = x'4b' ORDER BY seq DESC LIMIT 1",
                    (seq,),
                ).fetchone()
            if found is not None:
                return int(found[0])
        return 1


def files_of(path: Path) -> list[Path]:
    """The files of a journal, oldest first."""
    closed = [segment for _, segment in segments_of(path)]
    return [*closed, path] if path.exists() else closed


def stored_rows(path: Path, after: int = 0) -> Iterator[Values]:
    """Rows as they are stored, in order, over all files; unchecked."""
    done: set[Path] = set()
    while True:
        # Listed again after each file: a rotation meanwhile moves the current one.
        todo = [file for file in files_of(path) if file not in done]
        if not todo:
            return
        with reading(todo[0]), closing(connect_reader(todo[0])) as connection:
            check_identity(connection, todo[0])
            # While we are connected nobody rotates. If somebody did just before, this file is not
            # the one that was listed, and the one that was is now among the closed ones.
            if any(file not in done for file in files_of(path)[: files_of(path).index(todo[0])]):
                continue
            for values in _batches(connection, after):
                after = values[0]
                yield values
        done.add(todo[0])


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


def unchecked(values: Values) -> Entry:
    return entry_of(typed(values))


def entry_of(row: Row) -> Entry:
    record = records.decode(row.kind, expand(row.body), row.frame)
    return Entry(
        seq=row.seq,
        cycle=row.cycle,
        wall=row.wall,
        link=row.link.hex(),
        record=record,
        frame_bytes=row.frame,
    )
