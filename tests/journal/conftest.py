# SPDX-License-Identifier: Apache-2.0
"""Journals with a known content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pilothouse.domain import Snapshot
from pilothouse.journal import (
    Check,
    Checkpoint,
    Control,
    Cycle,
    Ingested,
    Journal,
    Outcome,
    Receipts,
    Resume,
    Run,
    SettingsChange,
    Stage,
    digest_of,
)
from pilothouse.settings import JournalSettings
from pilothouse.testing import builders


@dataclass
class Clock:
    """Wall time that moves only when told."""

    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Book:
    """A journal and the cluster it records."""

    journal: Journal
    snapshot: Snapshot = field(default_factory=lambda: builders.a_snapshot(nodes=3, pods=9))
    cycle: int = 0
    resume: Resume | None = None

    def turn(self, *, acts: bool = True, answered: bool = True) -> Cycle:
        """Record the next cycle: intent, then receipt unless the process "dies" between."""
        ident = f"{self.cycle:08x}"
        forecast = builders.a_forecast(self.snapshot)
        actions = (builders.an_action(ident),) if acts else ()
        record = Cycle(
            decision=builders.a_decision(
                self.cycle,
                id=ident,
                actions=actions,
                snapshot_digest=digest_of(self.snapshot),
                forecast_digest=digest_of(forecast),
            ),
            interpreted={"queue_length": 0, "used_permille": 56},
            modes={"safety": "enforce"},
        )
        self.journal.append_cycle(record, self.snapshot, forecast)
        if acts and answered:
            receipts = (builders.a_receipt(f"{ident}.0.0"),)
            self.journal.append(Receipts(decision=ident, receipts=receipts), cycle=self.cycle)
        self.snapshot = builders.moved(self.snapshot, self.cycle)
        self.cycle += 1
        return record

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.turn()

    def one_of_each(self) -> None:
        """A small journal that holds every kind of record but a rotation."""
        self.journal.append(SettingsChange(settings={"a": 1}, forecaster="test/1", reason="start"))
        self.turns(3)
        self.journal.append(
            Outcome(result=builders.a_result("00000000.0")),
            Control(line="halt", command="halt"),
            Stage(name="loop", state="running", done=3, total=9),
            Check(name="samples", ok=True, sentence="3 samples", numbers={"samples": 3}),
            Ingested(source="scorer", content={"pod": "cart-1"}),
            Checkpoint(state={"spent": [1, 2]}, simulator=b"state of the simulator"),
        )
        self.turn()


def a_run(**changes: Any) -> Run:
    values: dict[str, Any] = {
        "run_id": "r0",
        "cluster": "sim",
        "scenario": "harbor",
        "seed": 0,
        "version": "0.1",
    }
    return Run(**{**values, **changes})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


Opener = Callable[..., Book]


@pytest.fixture
def opened(path: Path, clock: Clock) -> Iterator[Opener]:
    """Opens the journal at ``path``; all are closed at the end."""
    books: list[Book] = []

    def open_book(where: Path = path, *, run: Run | None = None, **settings: int) -> Book:
        journal = Journal.open(where, settings=JournalSettings(**settings), clock=clock)
        books.append(Book(journal))
        books[-1].resume = journal.begin(run or a_run())
        books[-1].cycle = journal.cycle + 1 if journal.seq > 1 else 0
        return books[-1]

    yield open_book
    for book in books:
        book.journal.close()
