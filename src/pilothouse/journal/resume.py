# SPDX-License-Identifier: Apache-2.0
"""What a new process needs from an old one's journal, read from the newest checkpoint on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilothouse.domain import Write
from pilothouse.errors import JournalCorrupt
from pilothouse.journal.reader import Entry, JournalReader
from pilothouse.journal.records import (
    Checkpoint,
    Cycle,
    Receipts,
    Rotated,
    Run,
    SettingsChange,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Where the journal stands. ``since`` is all that was recorded after the checkpoint."""

    run: Run  # as recorded: ids of this journal derive from it
    settings: SettingsChange | None
    cycle: int | None  # the last recorded cycle; None: none yet
    last: Cycle | None
    checkpoint_cycle: int | None  # None: there is no checkpoint, begin from the start
    state: dict[str, Any]  # the checkpoint's
    simulator: bytes  # the checkpoint's
    since: tuple[Entry, ...]
    open_intents: tuple[Write, ...]  # written down, never answered: look, do not fire again


def read_resume(path: Path) -> Resume:
    """Read it; cheap as long as checkpoints are frequent."""
    reader = JournalReader(path)
    anchor = reader.newest("checkpoint", "rotated")
    since = tuple(reader.entries(after=anchor.seq if anchor else 0))
    base = anchor.record if anchor else None
    restart = base if isinstance(base, Checkpoint | Rotated) else None
    newest = reader.last_cycle()
    last = newest.record if newest and isinstance(newest.record, Cycle) else None
    return Resume(
        run=_run_of(reader),
        settings=_settings_of(reader),
        cycle=newest.cycle if newest else None,
        last=last,
        checkpoint_cycle=anchor.cycle if anchor else None,
        state=restart.state if restart else {},
        simulator=restart.simulator if restart else b"",
        since=since,
        open_intents=open_intents(since),
    )


def open_intents(entries: tuple[Entry, ...]) -> tuple[Write, ...]:
    """Writes whose decision is recorded and whose receipt is not, in order."""
    waiting: dict[str, Write] = {}
    for entry in entries:
        match entry.record:
            case Cycle():
                actions = entry.record.decision.actions
                waiting.update((w.intent, w) for action in actions for w in action.writes)
            case Receipts():
                for receipt in entry.record.receipts:
                    waiting.pop(receipt.intent, None)
    return tuple(waiting.values())


def _run_of(reader: JournalReader) -> Run:
    run = reader.run()
    if run is None:
        raise JournalCorrupt(f"{reader.path} does not begin with a run. Restore it from a copy.")
    return run


def _settings_of(reader: JournalReader) -> SettingsChange | None:
    newest = reader.newest("settings", "rotated")
    match newest.record if newest else None:
        case SettingsChange() as change:
            return change
        case Rotated() as rotated:
            return rotated.settings
    return None
