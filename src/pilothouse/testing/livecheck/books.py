# SPDX-License-Identifier: Apache-2.0
"""What the journals say: intents, receipts, who was allowed what, and the guard's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pilothouse.domain import Action, Status
from pilothouse.errors import PilothouseError
from pilothouse.journal import Cycle, JournalReader, Receipts, Resumed, SettingsChange
from pilothouse.journal.verify import verify
from pilothouse.replay import replay

STEWARD = "steward"


@dataclass(slots=True)
class Books:
    """Everything the rules ask about, from all journals."""

    cycles: int = 0
    intents: dict[str, float] = field(default_factory=dict)  # to the wall time of their record
    actions: dict[str, Action] = field(default_factory=dict)
    receipts: dict[str, list[str]] = field(default_factory=dict)
    carried: set[str] = field(default_factory=set)  # actions that carry an earlier one on
    unlet: dict[str, str] = field(default_factory=dict)  # action: why nobody allowed it
    unsettled: list[str] = field(default_factory=list)  # intents a restart left open
    settings: dict[str, Any] = field(default_factory=dict)
    nodes: int = 0  # the most that were seen
    broken: list[str] = field(default_factory=list)  # chains that do not hold
    other: list[str] = field(default_factory=list)  # decisions that come out differently now

    @property
    def guard(self) -> Mapping[str, Any]:
        guard: Mapping[str, Any] = self.settings.get("guard", {})
        return guard

    @property
    def looked_for(self) -> int:
        """Intents without a receipt of their own process that never happened."""
        settled = [status for statuses in self.receipts.values() for status in statuses]
        return sum(status == str(Status.SKIPPED) for status in settled)


def read_books(journals: Sequence[Path], *, again: bool = True) -> Books:
    """Read every journal; ``again``: decide its cycles once more, which takes its time."""
    books = Books()
    for path in journals:
        report = verify(path)
        if not report.ok:
            books.broken.append(f"{path.name}: {report.sentence}")
            continue
        _read(path, books)
        if again:
            books.other += _decided_otherwise(path)
    return books


def _read(path: Path, books: Books) -> None:
    for entry, frame in JournalReader(path).story():
        match entry.record:
            case SettingsChange() as change:
                books.settings = change.settings
            case Cycle() as cycle:
                books.cycles += 1
                _take_in(cycle, entry.wall, books)
                if frame is not None:
                    books.nodes = max(books.nodes, len(frame.snapshot.nodes))
            case Receipts() as answers:
                for one in answers.receipts:
                    books.receipts.setdefault(one.intent, []).append(str(one.status))
            case Resumed():
                books.unsettled += [i for i in books.intents if i not in books.receipts]


def _take_in(cycle: Cycle, wall: float, books: Books) -> None:
    decision = cycle.decision
    for action in decision.actions:
        books.actions[action.id] = action
        proposal = decision.proposals[action.proposal]
        if proposal.agent == STEWARD:
            books.carried.add(action.id)
        if not action.restores:
            approved = proposal.approval_id in cycle.approvals
            why = "decided while halted" if decision.halted else ""
            why = why or _why_not(action, cycle.modes, books.settings, approved=approved)
            if why:
                books.unlet[action.id] = why
        for write in action.writes:
            books.intents[write.intent] = wall


def _why_not(
    action: Action, said: Mapping[str, str], settings: Mapping[str, Any], *, approved: bool
) -> str:
    """The mode that forbade it; empty when every namespace concerned was in enforce."""
    modes = settings.get("modes", {})
    for key in _keys(action):
        names = (key, action.agent)
        found = [said.get(n) or modes.get("agents", {}).get(n) for n in names]
        mode = next((m for m in found if m), modes.get("default", "shadow"))
        if mode != "enforce" and not (mode == "advise" and approved):
            return f"{key} was in {mode}"
    return ""


def _keys(action: Action) -> Iterator[str]:
    for write in action.writes:
        target = write.target
        space = target.name if target.kind == "namespace" else target.namespace
        yield f"{action.agent}/{space}" if space else action.agent


def _decided_otherwise(path: Path) -> list[str]:
    try:
        report = replay(path, as_heard=True)
    except PilothouseError as error:
        return [f"{path.name}: {error}"]
    if report.ok:
        return []
    other = report.cycles - report.identical
    return [f"{path.name}: {other} of {report.cycles} decisions differ, first {report.difference}"]
