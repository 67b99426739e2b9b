# SPDX-License-Identifier: Apache-2.0
"""Places at which a run can be made to die, as wrappers around its journal and its cluster.

The loop itself knows nothing of them: a journal and a cluster that call ``reach`` before and after
the real thing are handed to an ordinary run. Dying means SIGKILL, so no handler, ``finally`` or
flush of ours gets a chance.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pilothouse.domain import Forecast, Receipt, Snapshot, Write
from pilothouse.errors import UnknownName
from pilothouse.journal import (
    Checkpoint,
    Cycle,
    Journal,
    Outcome,
    Receipts,
    Record,
    Resumed,
    rotation,
)
from pilothouse.journal.files import segment_path
from pilothouse.sim.remote import RemoteCluster

FAILPOINTS = {
    "after_run": "the journal names its run and holds nothing else",
    "before_intent": "decided, nothing durable",
    "after_intent": "the intent is durable, nothing was sent",
    "before_write": "about to send a write",
    "mid_write": "the request has left, its answer was not read",
    "after_write": "the cluster has answered, nobody has written it down",
    "between_writes": "one write of a decision is done, the next was not sent",
    "before_receipt": "every write is answered, the receipts are not durable",
    "after_receipt": "the receipts are durable, the ledger was not told",
    "mid_results": "results were taken from the scorer and are not durable",
    "before_checkpoint": "a checkpoint is due and not written",
    "after_checkpoint": "a checkpoint is durable",
    "before_rotation": "a rotation is due and not begun",
    "prepared_rotation": "the next file is complete beside the current one",
    "mid_rotation": "the closed file is put aside, the next has not its name yet",
    "after_rotation": "the rotation is complete",
    "mid_resolve": "restarted: some open intents were looked for, none is settled",
    "before_settled": "restarted: every open intent was looked for, nothing is durable",
    "after_settled": "restarted: open intents are settled, no cycle was made yet",
}
AT_RESTART = ("mid_resolve", "before_settled", "after_settled")  # need intents left open before


def die() -> None:
    """The end, at once."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(slots=True, kw_only=True)
class Failpoints:
    """Dies when the named place is reached for the n-th time; without a name never."""

    name: str = ""
    nth: int = 1
    at_end: Callable[[], None] = die
    reached: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name and self.name not in FAILPOINTS:
            known = ", ".join(FAILPOINTS)
            raise UnknownName(f'Unknown failpoint "{self.name}". Available: {known}.')

    def reach(self, name: str) -> None:
        self.reached[name] = self.reached.get(name, 0) + 1
        if name == self.name and self.reached[name] == self.nth:
            self.at_end()

    def wants(self, *names: str) -> bool:
        return self.name in names


class CrashingJournal(Journal):
    """The journal, with a failpoint on both sides of each kind of record."""

    points = Failpoints()
    rotates_often = False  # a real file is rotated far too seldom for a test

    def append(self, *items: Record, cycle: int | None = None) -> int:
        around = _around(items)
        if around:
            self.points.reach(f"before_{around}")
        seq = super().append(*items, cycle=cycle)
        if around:
            self.points.reach(f"after_{around}")
        return seq

    def append_cycle(
        self, record: Cycle, snapshot: Snapshot, forecast: Forecast, *others: Record
    ) -> None:
        if any(isinstance(other, Outcome) for other in others):
            self.points.reach("mid_results")
        if record.decision.actions:
            self.points.reach("before_intent")
        super().append_cycle(record, snapshot, forecast, *others)
        print(f"durable {record.decision.cycle} {time.process_time():.3f}", flush=True)
        if record.decision.actions:
            self.points.reach("after_intent")

    @property
    def rotation_due(self) -> bool:
        often = self.rotates_often and self.cycle % 5 == 0 and self._before is not None
        return often or super().rotation_due

    def rotate(self, *, state: dict[str, Any] | None = None, simulator: bytes = b"") -> bool:
        self.points.reach("before_rotation")
        done = super().rotate(state=state, simulator=simulator)
        if done:
            self.points.reach("after_rotation")
        return done


def _around(items: Sequence[Record]) -> str:
    """Which failpoint an append belongs to; a restart's own receipts come with its note."""
    kinds = {type(item) for item in items}
    if Resumed in kinds:
        return "settled" if Receipts in kinds else ""
    if Receipts in kinds:
        return "receipt"
    if Checkpoint in kinds:
        return "checkpoint"
    return "run" if "run" in {item.KIND for item in items} else ""


def cut_rotation(points: Failpoints) -> None:
    """Put failpoints inside a rotation, which is made of files and not of calls to a journal."""
    swap = rotation.swap

    def cut(path: Path, segment: int) -> Any:
        points.reach("prepared_rotation")
        if points.wants("mid_rotation"):
            os.rename(path, segment_path(path, segment))
            points.reach("mid_rotation")
        return swap(path, segment)

    rotation.swap = cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Wall seconds to wait on each side of a write, so that a random kill can find it."""

    before: float = 0.0
    after: float = 0.0


class CrashingCluster(RemoteCluster):
    """A remote cluster with failpoints and pauses around each write and each look."""

    def __init__(self, url: str, points: Failpoints, pause: Pause) -> None:
        super().__init__(url)
        self._points = points
        self._pause = pause
        self._sent_of = ""  # the decision the last write belonged to

    def execute(self, write: Write, agent: str) -> Receipt:
        self._points.reach("before_write")
        if write.intent.partition(".")[0] == self._sent_of:
            self._points.reach("between_writes")
        time.sleep(self._pause.before)
        receipt = super().execute(write, agent)
        self._points.reach("after_write")
        time.sleep(self._pause.after)
        self._sent_of = write.intent.partition(".")[0]
        return receipt

    def find(self, intent: str) -> Receipt | None:
        found = super().find(intent)
        self._points.reach("mid_resolve")
        return found

    def _call(self, method: str, argument: Any = None) -> Any:
        if method == "execute" and self._points.wants("mid_write"):
            answer = self._connection.getresponse

            def unread() -> Any:
                self._points.reach("mid_write")
                return answer()

            self._connection.getresponse = unread  # type: ignore[method-assign]
        return super()._call(method, argument)
