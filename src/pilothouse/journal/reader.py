# SPDX-License-Identifier: Apache-2.0
"""Reads a journal, also one that is being written, across its closed files.

Every row is checked against its link before it is handed out: a wrong record is never accepted.
Rows are fetched a few at a time and connections are short, so that a long read holds up neither the
writer's checkpoints nor its rotation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pilothouse.domain import Forecast, Snapshot
from pilothouse.errors import JournalCorrupt, MissingFile, UnknownName
from pilothouse.journal import frames, records
from pilothouse.journal.chain import GENESIS, Row
from pilothouse.journal.files import COLUMNS
from pilothouse.journal.frames import Frame
from pilothouse.journal.records import Cycle, Outcome, Receipts, Record, Rotated, Run, expand
from pilothouse.journal.rows import (
    Values,
    checked,
    files_of,
    over_files,
    query,
    stored_rows,
    typed,
)


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
        before: bytes | None = None
        for values in stored_rows(self.path, max(after - 1, 0)):
            if before is None:
                before = opening_link(values)
                if before is None and values[0] != after:
                    raise JournalCorrupt(f"The record before {values[0]} is missing.")
            row = typed(values) if before is None else checked(values, before)
            before = row.link
            if row.seq > after:
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

    def newest(self, *kinds: str, before: int | None = None) -> Entry | None:
        """The newest record of any of these kinds, or the newest before a sequence number."""
        marks = ", ".join("?" * len(kinds))
        older = "" if before is None else f" AND seq < {before:d}"
        return self._newest(f"kind IN ({marks}){older}", *kinds)

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
        clause = f"{where} ORDER BY seq DESC LIMIT 1"

        def newest(files: list[Path]) -> Entry | None:
            answers = (self._in_file(path, clause, arguments) for path in reversed(files))
            return next((found[0] for found in answers if found), None)

        return over_files(self.path, newest)

    def _matching(self, where: str, *arguments: str, limit: int = -1) -> list[Entry]:
        clause = f"{where} ORDER BY seq LIMIT {limit}"
        return over_files(
            self.path,
            lambda files: [e for path in files for e in self._in_file(path, clause, arguments)],
        )

    def _in_file(self, path: Path, clause: str, arguments: tuple[str, ...]) -> list[Entry]:
        before = "(SELECT link FROM records AS b WHERE b.seq = records.seq - 1)"
        sql = f"SELECT {COLUMNS}, {before} FROM records WHERE {clause}"
        return [_checked_alone(*row) for row in query(path, sql, arguments)]

    def seq_before_cycle(self, cycle: int) -> int:
        """The sequence number right before this cycle's decision, or before the first there is."""
        sql = "SELECT seq FROM records WHERE kind = 'cycle' AND cycle >= ? ORDER BY seq LIMIT 1"
        found = over_files(self.path, lambda files: _first_seq(files, sql, cycle))
        return 0 if found is None else found - 1

    def _keyframe_at_or_before(self, seq: int) -> int:
        sql = (
            "SELECT seq FROM records WHERE kind = 'cycle' AND seq <= ? "
            "AND substr(frame, 1, 1) = x'4b' ORDER BY seq DESC LIMIT 1"
        )
        found = over_files(self.path, lambda files: _first_seq(files[::-1], sql, seq))
        return 1 if found is None else found


def _first_seq(files: list[Path], sql: str, bound: int) -> int | None:
    """Of the first file that has an answer."""
    answers = (row[0] for path in files for row in query(path, sql, (bound,)))
    return next((seq for seq in answers if isinstance(seq, int)), None)


def opening_link(values: Values) -> bytes | None:
    """What stands before the first row of a file; None where a row should stand there."""
    if values[0] == 1:
        return GENESIS
    record = entry_of(typed(values)).record if values[1] == b"rotated" else None
    return bytes.fromhex(record.previous_head) if isinstance(record, Rotated) else None


def _checked_alone(*values: object) -> Entry:
    """One row that was read without those before it; the link before it comes last."""
    *own, link = values
    before = link if isinstance(link, bytes) else opening_link(tuple(own))
    if before is None:
        raise JournalCorrupt(f"The record before {values[0]} is missing.")
    return entry_of(checked(tuple(own), before))


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
