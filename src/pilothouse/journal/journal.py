# SPDX-License-Identifier: Apache-2.0
"""The writer: appends records durably, one transaction each, and never changes one.

``append`` returns after the fsync; until then nothing may act on what was appended. After a failed
append nothing of it is visible, and the next one works again as soon as the cause is gone. One
that was interrupted is there whole, and counts, or not at all.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from pilothouse.domain import Forecast, Snapshot, Write
from pilothouse.errors import InternalError, JournalMismatch, JournalUnwritable
from pilothouse.journal import frames, records, rotation
from pilothouse.journal.chain import GENESIS, NO_DIGEST, Row, digest_of, link_of
from pilothouse.journal.files import (
    COLUMNS,
    FileLock,
    check_identity,
    connect_reader,
    connect_writer,
    create_schema,
    enter_wal,
    is_blank,
    leave_wal,
    renaming,
    segments_of,
    writing,
)
from pilothouse.journal.frames import Frame
from pilothouse.journal.reader import JournalReader, opening_link
from pilothouse.journal.records import (
    Checkpoint,
    Cycle,
    Receipts,
    Record,
    Rotated,
    Run,
    SettingsChange,
)
from pilothouse.journal.resume import Resume, read_resume
from pilothouse.journal.rows import checked, typed
from pilothouse.settings import JournalSettings

_TAIL_ROWS = 32  # checked when a journal is opened; `verify` checks all
_Tail = tuple[int, bytes, bytes]  # sequence number, link, digest
_INSERT = f"INSERT INTO records({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"


class Journal:
    """The one writer of a journal. Safe to append to from several threads."""

    def __init__(
        self,
        path: Path,
        settings: JournalSettings,
        clock: Callable[[], float],
        connection: sqlite3.Connection,
        lock: FileLock,
    ) -> None:
        self.path = path
        self._settings = settings
        self._clock = clock
        self._connection = connection
        self._lock = lock
        self._turn = threading.RLock()
        self._seq, self._cycle = 0, 0
        self._link, self._digest = GENESIS, NO_DIGEST
        self._suspect = self._closed = False
        self._run: Run | None = None
        self._last_settings: SettingsChange | None = None
        self._open: dict[str, Write] = {}
        self._before: Frame | None = None
        self._since_keyframe = 0
        self._grown = False  # since this file was taken up
        self._began = rotation.Began(segment=0, wall=clock())

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        settings: JournalSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Journal:
        """Create the file or take it up; its newest records are checked, ``verify`` checks all."""
        path = Path(path)
        if path.is_dir():
            raise JournalUnwritable(
                f"Cannot write the journal {path}: it is a directory. Give a file."
            )
        with writing(path):
            lock = FileLock(path)
            try:
                rotation.finish(path)
                connection = _connect(path)
            except BaseException:
                lock.release()
                raise
        journal = cls(path, settings or JournalSettings(), clock, connection, lock)
        try:
            with writing(path):
                journal._load_tail()
        except BaseException:
            journal.close()
            raise
        return journal

    def begin(self, run: Run) -> Resume | None:
        """Start the run, or say where it stands; another seed, scenario or cluster is refused."""
        with self._turn:
            if self._seq == 0:
                self.append(run, cycle=0)
                return None
            resume = read_resume(self.path)
            _refuse_other_run(self.path, resume.run, run)
            self._run, self._last_settings = resume.run, resume.settings
            self._open = {write.intent: write for write in resume.open_intents}
            return resume

    def append(self, *items: Record, cycle: int | None = None) -> int:
        """Make all of them durable together and give the last one's sequence number.

        Without a cycle they belong to the current one.
        """
        with self._turn:
            self._commit([(item, None) for item in items], self._cycle if cycle is None else cycle)
            return self._seq

    def append_cycle(
        self, record: Cycle, snapshot: Snapshot, forecast: Forecast, *others: Record
    ) -> None:
        """A decision with what it was made from; ``others`` become durable together with it.

        The arrays must not change afterwards: the next cycle is stored as the difference to them.
        """
        frame = Frame(snapshot=snapshot, forecast=forecast)
        with self._turn:
            is_key = self._before is None or self._since_keyframe >= self._settings.keyframe_cycles
            packed = frames.encode(frame, None if is_key else self._before)
            self._before = None  # where this one fails, the next one is a keyframe
            items: list[tuple[Record, bytes | None]] = [(record, packed)]
            items += [(other, None) for other in others]
            self._commit(items, record.decision.cycle)
            self._before = frame
            self._since_keyframe = 1 if is_key else self._since_keyframe + 1

    @property
    def head(self) -> str:
        """The newest link: given to ``verify``, it also finds a cut tail or a re-linked copy."""
        return self._link.hex()

    @property
    def digest(self) -> str:
        """Names the deterministic content: the same seed gives the same digest."""
        return self._digest.hex()

    @property
    def seq(self) -> int:
        return self._seq

    @property
    def cycle(self) -> int:
        return self._cycle

    @property
    def size(self) -> int:
        """Bytes of the current file."""
        with self._turn, writing(self.path):
            pages = int(self._connection.execute("PRAGMA page_count").fetchone()[0])
            return pages * int(self._connection.execute("PRAGMA page_size").fetchone()[0])

    @property
    def open_intents(self) -> tuple[Write, ...]:
        """Intents that are durable and not answered yet."""
        with self._turn:
            return tuple(self._open.values())

    @property
    def rotation_due(self) -> bool:
        """Ask between cycles, or between batches where there are none; then ``rotate``."""
        if not self._grown:  # or an idle journal would leave a trail of empty files
            return False
        age_seconds = self._clock() - self._began.wall
        limit_bytes = self._settings.segment_mib * 1024 * 1024
        return self.size >= limit_bytes or age_seconds >= self._settings.segment_hours * 3600

    def rotate(self, *, state: dict[str, Any] | None = None, simulator: bytes = b"") -> bool:
        """Close this file and carry the chain on in a new one; False while somebody reads it.

        ``state`` and ``simulator`` are what a checkpoint would hold: the earlier files may go.
        """
        with self._turn, writing(self.path):
            self._refuse_open_intents("rotated")
            if self._run is None:
                raise InternalError("A journal without a run cannot be rotated.")
            record = Rotated(
                segment=self._began.segment + 1,
                previous_head=self.head,
                run=self._run,
                settings=self._last_settings,
                state=state or {},
                simulator=simulator,
            )
            row = self._row(record, None, self._cycle, (self._seq, self._link, self._digest))
            rotation.refuse_existing(self.path, record.segment)
            with renaming(self.path) as alone:
                if not alone:
                    return False
                self._suspect = True  # until it is done: an append returns to write-ahead mode
                if not leave_wal(self._connection):
                    return False
                rotation.prepare(self.path, row)
                self._connection.close()
                try:
                    self._connection = rotation.swap(self.path, record.segment)
                finally:
                    if rotation.is_put_aside(self.path, record.segment):
                        self._seq, self._link, self._before = row.seq, row.link, None
                        self._grown = False
                    elif self.path.exists():  # nothing was renamed: this file goes on
                        self._connection = rotation.connected(self.path)
                self._began = rotation.Began(segment=record.segment, wall=row.wall)
                self._suspect = False
            rotation.prune(self.path, self._settings, self._clock())
            return True

    def reader(self) -> JournalReader:
        return JournalReader(self.path)

    def close(self) -> None:
        """Checkpoint and let go; a second call does nothing.

        The file stays in write-ahead mode: who reads it does not keep the next writer out.
        """
        with self._turn:
            if not self._closed:
                self._closed = True
                self._connection.close()
                self._lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _commit(self, items: list[tuple[Record, bytes | None]], cycle: int) -> None:
        rows: list[Row] = []
        tail = (self._seq, self._link, self._digest)
        for item, frame in items:
            if isinstance(item, Checkpoint):
                self._refuse_open_intents("checkpointed", items)
            row = self._row(item, frame, cycle, tail)
            tail = (row.seq, row.link, row.digest)
            rows.append(row)
        with writing(self.path):
            self._check_suspicion()
            try:
                self._store(rows)
                self._believe(tail, cycle, items)
            except BaseException as error:
                # A stop often comes while the disk is waited for, and is heard when all is written.
                if not isinstance(error, sqlite3.Error) and self._ends_at(tail):
                    self._believe(tail, cycle, items)
                raise

    def _believe(
        self, tail: _Tail, cycle: int, items: Iterable[tuple[Record, bytes | None]]
    ) -> None:
        """These records are durable."""
        self._seq, self._link, self._digest = tail
        self._cycle, self._grown = max(self._cycle, cycle), True
        for item, _ in items:
            self._remember(item)

    def _ends_at(self, tail: _Tail) -> bool:
        with suppress(sqlite3.Error):
            return not self._connection.in_transaction and self._end() == tail[:2]
        return False

    def _end(self) -> tuple[int, bytes]:
        newest = "SELECT seq, link FROM records ORDER BY seq DESC LIMIT 1"
        found: tuple[int, bytes] | None = self._connection.execute(newest).fetchone()
        return found or (0, GENESIS)

    def _row(self, item: Record, frame: bytes | None, cycle: int, tail: _Tail) -> Row:
        seq, link, digest = tail
        if isinstance(item, Checkpoint | Rotated) and item.simulator:
            frame = records.compress(item.simulator)
        body = records.compress(records.encode(item))
        digest = digest_of(digest, item.KIND, cycle, item.key, body)
        wall = float(self._clock())
        values = (seq + 1, item.KIND, cycle, item.key, wall, body, frame, digest)
        return Row(
            seq=seq + 1,
            kind=item.KIND,
            cycle=cycle,
            key=item.key,
            wall=wall,
            body=body,
            frame=frame,
            digest=digest,
            link=link_of(link, values),
        )

    def _store(self, rows: Iterable[Row]) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_INSERT, [(*row.values, row.link) for row in rows])
            self._connection.execute("COMMIT")
        except BaseException:
            self._suspect = True
            # SQLite may have rolled back by itself, or be unable to now; the next append looks.
            with suppress(sqlite3.Error):
                self._connection.rollback()
            raise

    def _check_suspicion(self) -> None:
        """After a failure: go on only if the file ends where we believe it does."""
        if not self._suspect:
            return
        self._connection.rollback()
        enter_wal(self._connection)
        found = self._end()
        if found != (self._seq, self._link):
            raise JournalUnwritable(
                f"The journal {self.path} ends at record {found[0]}, but {self._seq} was expected "
                "after a failed write. Restart to take it up where it really ends."
            )
        self._suspect = False

    def _remember(self, item: Record) -> None:
        match item:
            case Run():
                self._run = item
            case SettingsChange():
                self._last_settings = item
            case Cycle():
                writes = (w for action in item.decision.actions for w in action.writes)
                self._open.update((write.intent, write) for write in writes)
            case Receipts():
                for receipt in item.receipts:
                    self._open.pop(receipt.intent, None)

    def _refuse_open_intents(
        self, what: str, together: Iterable[tuple[Record, bytes | None]] = ()
    ) -> None:
        answered = {
            receipt.intent
            for item, _ in together
            if isinstance(item, Receipts)
            for receipt in item.receipts
        }
        waiting = [intent for intent in self._open if intent not in answered]
        if waiting:
            raise InternalError(
                f"The journal cannot be {what} while {len(waiting)} intents are open, "
                f"the first {waiting[0]}. This is a bug in pilothouse."
            )

    def _load_tail(self) -> None:
        self._connection.text_factory = bytearray
        rows = self._connection.execute(
            f"SELECT {COLUMNS} FROM records ORDER BY seq DESC LIMIT {_TAIL_ROWS + 1}"
        ).fetchall()[::-1]
        if not rows:
            return
        before = opening_link(rows[0])
        for values in rows:
            row = typed(values) if before is None else checked(values, before)
            before = row.link
        self._seq, self._link, self._digest, self._cycle = row.seq, row.link, row.digest, row.cycle
        self._began = rotation.began(self.path)


def _connect(path: Path) -> sqlite3.Connection:
    if not path.exists():
        _refuse_orphans(path)
        rotation.create(path)
    # Looked at before the writer touches it: a file that is not ours stays as it is.
    with closing(connect_reader(path)) as reader:
        blank = is_blank(reader)
        if not blank:
            check_identity(reader, path)
    connection = connect_writer(path)
    try:
        if blank:
            create_schema(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_orphans(path: Path) -> None:
    """A new chain beside closed files of an old one would read as one broken chain."""
    if closed := segments_of(path):
        raise JournalMismatch(
            f"{path} is gone, but {closed[-1][1].name} of an earlier journal lies beside it. "
            "Put the file back, move the old ones away, or give another --journal."
        )


def _refuse_other_run(path: Path, recorded: Run, given: Run) -> None:
    for name in ("cluster", "scenario", "seed"):
        was, now = getattr(recorded, name), getattr(given, name)
        if was != now:
            raise JournalMismatch(
                f"The journal {path} was started with {name} {was}, but {now} was given. "
                f"Give {name} {was} to go on, or another --journal to start anew."
            )
