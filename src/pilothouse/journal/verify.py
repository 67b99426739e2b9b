# SPDX-License-Identifier: Apache-2.0
"""Checks a whole journal and trusts nothing in it.

Recomputes every link and digest over all files that are still there, decodes every record and frame
and compares the frames with the digests their decisions carry. The first problem ends it, as a
sentence that names the record.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pilothouse.errors import JournalCorrupt, JournalTooNew, MissingFile
from pilothouse.journal import frames
from pilothouse.journal.chain import GENESIS, NO_DIGEST, digest_of
from pilothouse.journal.frames import Frame
from pilothouse.journal.reader import Entry, entry_of
from pilothouse.journal.records import Cycle, Rotated
from pilothouse.journal.rows import Values, checked, files_of, query, stored_rows, typed


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was found; ``problem`` is empty when everything fits."""

    files: int
    records: int
    cycles: int
    first: int  # sequence number from which on the chain is known
    head: str
    digest: str
    problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem

    @property
    def sentence(self) -> str:
        if self.problem:
            return self.problem
        known = "" if self.first <= 1 else f", known from record {self.first} on"
        return f"{self.records} records, {self.cycles} cycles: the chain holds{known}."


def verify(path: Path, head: str | None = None) -> VerifyReport:
    """Check everything; with ``head`` also that the journal ends exactly there."""
    path = Path(path)
    if not files_of(path):
        raise MissingFile(f"No journal at {path}. Give the file that `up --journal` wrote.")
    walk = _Walk(head)
    problem = ""
    try:
        for file in files_of(path):
            _check_pages(file)
        for values in stored_rows(path):
            walk.step(values)
        if walk.records == 0:
            raise JournalCorrupt(f"{path} holds no records.")
        walk.check_head()
    except JournalTooNew:
        raise
    except JournalCorrupt as error:
        problem = str(error)
    return VerifyReport(
        files=len(files_of(path)),
        records=walk.records,
        cycles=walk.cycles,
        first=walk.first,
        head=walk.link.hex(),
        digest=walk.digest.hex(),
        problem=problem,
    )


class _Walk:
    """The state of a verification between two rows."""

    def __init__(self, head: str | None) -> None:
        self.records = self.cycles = self.first = 0
        self.link, self.digest = GENESIS, NO_DIGEST
        self._seq = 0
        self._frame: Frame | None = None
        self._head = None if head is None else head.strip().lower()
        self._head_at = 0  # the record that has it

    def step(self, values: Values) -> None:
        if self.records == 0:
            self._start(values)
        row = typed(values)
        if row.seq != self._seq + 1:
            raise JournalCorrupt(
                f"Record {self._seq + 1} is missing: record {row.seq} follows {self._seq}."
            )
        row = checked(values, self.link)
        entry = entry_of(row)
        if entry.record.key != row.key:
            raise JournalCorrupt(f"Record {row.seq} has a key that is not its content's.")
        if isinstance(entry.record, Rotated) and entry.record.previous_head != self.link.hex():
            raise JournalCorrupt(f"Record {row.seq} carries on from another journal.")
        self.digest = digest_of(self.digest, row.kind, row.cycle, row.key, row.body)
        if self.digest != row.digest:
            raise JournalCorrupt(f"Record {row.seq} carries a digest that is not the run's.")
        self._check_frame(entry)
        self._seq, self.link = row.seq, row.link
        if self._head == row.link.hex():
            self._head_at = row.seq
        self.records += 1

    def check_head(self) -> None:
        if self._head is None or self._head_at == self._seq:
            return
        if not self._head_at:
            raise JournalCorrupt(
                f"The head {self._head} is nowhere in the chain, which ends at record {self._seq} "
                f"with {self.link.hex()}: records were cut off, or the journal was written anew."
            )
        raise JournalCorrupt(
            f"The head {self._head} is record {self._head_at}, but the journal goes on to record "
            f"{self._seq} with {self.link.hex()}. Give the latest head, or distrust what follows."
        )

    def _start(self, values: Values) -> None:
        """A journal begins with its first record, or with the first file that is still there."""
        first = entry_of(typed(values))
        self.first = first.seq
        if isinstance(first.record, Rotated):
            self.link = bytes.fromhex(first.record.previous_head)
            self.digest = typed(values).digest
            self._seq = first.seq - 1
        elif first.kind != "run":
            raise JournalCorrupt(
                f"Record {first.seq} is a {first.kind}, but a journal begins with a run: earlier "
                "records were deleted."
            )

    def _check_frame(self, entry: Entry) -> None:
        if isinstance(entry.record, Rotated):
            self._frame = None
        if not isinstance(entry.record, Cycle):
            return
        self.cycles += 1
        if entry.frame_bytes is None:
            return
        self._frame = frame = frames.decode(entry.frame_bytes, self._frame)
        decision = entry.record.decision
        for name, value, wanted in (
            ("snapshot", frame.snapshot, decision.snapshot_digest),
            ("forecast", frame.forecast, decision.forecast_digest),
        ):
            if wanted and not frames.digest_of(value).startswith(wanted):
                raise JournalCorrupt(
                    f"Record {entry.seq} holds a {name} that is not the one its decision names."
                )


def _check_pages(path: Path) -> None:
    """SQLite's own check of the file's structure."""
    for (found,) in query(path, "PRAGMA integrity_check(1)"):
        text = found.decode(errors="replace") if isinstance(found, bytearray) else str(found)
        if text != "ok":
            raise JournalCorrupt(f"{path} is damaged: {text}.")
