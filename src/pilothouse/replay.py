# SPDX-License-Identifier: Apache-2.0
"""Deciding every recorded cycle again, and comparing.

The guard's ledger and the settings are rebuilt from the journal as it is read; each decision is
made anew from the recorded snapshot and forecast and must come out identical, field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec

from pilothouse.decide import Inputs, decide
from pilothouse.domain import Mode
from pilothouse.errors import JournalCorrupt
from pilothouse.guard import Guard, Ledger
from pilothouse.journal import (
    Cycle,
    Frame,
    JournalReader,
    Receipts,
    Rotated,
    Run,
    SettingsChange,
    digest_of,
)
from pilothouse.propose.registry import Registration, default_agents
from pilothouse.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """How many cycles came out the same, and where the first did not."""

    cycles: int
    identical: int
    difference: str = ""  # the first one, as a sentence

    @property
    def ok(self) -> bool:
        return self.cycles == self.identical


class _Bench:
    """The decision core under the settings in force at some point of the journal."""

    def __init__(self, settings: Settings, agents: Sequence[Registration] | None) -> None:
        self.settings = settings
        self.agents = tuple(agents) if agents is not None else default_agents(settings)
        self.guard = Guard(settings, self.agents)


class Replay:
    """Walks a journal once; ``step`` takes one record at a time."""

    def __init__(self, agents: Sequence[Registration] | None = None) -> None:
        self._agents = agents
        self._run_id = ""
        self._bench: _Bench | None = None
        self._ledger: Ledger | None = None
        self.cycles = 0
        self.identical = 0
        self.difference = ""

    def step(self, record: object, frame: Frame | None) -> None:
        match record:
            case Run():
                self._run_id = record.run_id
            case Rotated():
                self._begin_segment(record)
            case SettingsChange():
                self._change(record)
            case Cycle() if frame is not None:
                self._redecide(record, frame)
            case Receipts() if self._ledger is not None:
                self._ledger.settle(record.receipts)

    def _begin_segment(self, record: Rotated) -> None:
        """Go on; where the earlier files are gone, from the ledger that this one carries."""
        self._run_id = record.run.run_id
        if self._bench is not None or record.settings is None:
            return
        self._change(record.settings)
        guard = msgspec.convert(record.settings.settings, Settings).guard
        self._ledger = Ledger.from_dict(record.state["ledger"], guard)

    def _change(self, record: SettingsChange) -> None:
        settings = msgspec.convert(record.settings, Settings)
        self._bench = _Bench(settings, self._agents)
        state = None if self._ledger is None else self._ledger.to_dict()
        self._ledger = (
            Ledger(settings.guard) if state is None else Ledger.from_dict(state, settings.guard)
        )

    def _redecide(self, record: Cycle, frame: Frame) -> None:
        if self._bench is None or self._ledger is None:
            raise JournalCorrupt("A decision is recorded before the settings it was made under.")
        recorded = record.decision
        inputs = Inputs(
            run_id=self._run_id,
            cycle=recorded.cycle,
            snapshot=frame.snapshot,
            forecast=frame.forecast,
            snapshot_digest=digest_of(frame.snapshot),
            forecast_digest=digest_of(frame.forecast),
            modes={key: Mode(mode) for key, mode in record.modes.items()},
            halted=recorded.halted,
            halted_because=recorded.halted_because,
            approved=frozenset(record.approvals),
        )
        bench = self._bench
        anew = decide(
            inputs,
            agents=bench.agents,
            guard=bench.guard,
            settings=bench.settings,
            ledger=self._ledger,
        )
        self.cycles += 1
        if anew == recorded:
            self.identical += 1
        elif not self.difference:
            place = first_difference(recorded, anew)
            self.difference = f"Cycle {recorded.cycle}, decision {recorded.id}: {place}"
        self._ledger.charge(recorded, frame.snapshot)


def replay(
    path: Path,
    *,
    agents: Sequence[Registration] | None = None,
    progress: Callable[[int], None] = lambda cycle: None,
) -> ReplayReport:
    """Decide every cycle of a journal again."""
    walk = Replay(agents)
    for entry, frame in JournalReader(path).story():
        walk.step(entry.record, frame)
        if isinstance(entry.record, Cycle):
            progress(entry.cycle)
    return ReplayReport(cycles=walk.cycles, identical=walk.identical, difference=walk.difference)


def first_difference(recorded: Any, anew: Any, path: str = "decision") -> str:
    """Where two values first differ, with both sides."""
    for name, one, other in _parts(recorded, anew):
        if one != other:
            return first_difference(one, other, path + name)
    return f"{path} was {recorded!r}, now {anew!r}"


def _parts(recorded: Any, anew: Any) -> Iterator[tuple[str, Any, Any]]:
    """The corresponding parts of two values of one shape; nothing where the shapes differ."""
    if type(recorded) is not type(anew):
        return
    if isinstance(recorded, tuple) and len(recorded) == len(anew):
        for index, (one, other) in enumerate(zip(recorded, anew, strict=True)):
            yield f"[{index}]", one, other
    elif is_dataclass(recorded):
        for each in fields(recorded):
            yield f".{each.name}", getattr(recorded, each.name), getattr(anew, each.name)
