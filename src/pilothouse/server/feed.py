# SPDX-License-Identifier: Apache-2.0
"""Where the loop leaves its views and readers find them.

The loop thread publishes; server threads read. A reader is a cursor, not a queue: it is woken and
then looks for what is newer than the last thing it sent, so a slow reader skips cycles and can
neither block the loop nor grow memory. Views are kept encoded, which spares the garbage collector
the hundred thousand objects that six hundred decoded views would be.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from pilothouse.errors import UserError
from pilothouse.server.metrics import Metrics
from pilothouse.server.shapes import (
    CheckView,
    CyclesPage,
    CycleView,
    EventView,
    HistoryView,
    ResultView,
    StagesView,
    StageView,
    TimelineEntry,
)
from pilothouse.server.views import Stage, stage_view

CYCLES_KEPT = 600
EVENTS_KEPT = 300
READERS_ALLOWED = 64

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(CycleView)


class TooManyReaders(UserError):
    """More pages are open than one loop should serve."""


@dataclass(slots=True)
class Entry:
    """One remembered cycle."""

    seq: int
    mark: TimelineEntry
    body: bytes  # the CycleView as JSON; replaced when a result comes in


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of the stream."""

    id: str
    body: bytes


@dataclass(slots=True)
class Series:
    """The numbers drawn over time, one row per remembered cycle."""

    rows: deque[tuple[int, int, float, float, float, int, int, int, int, int | None]]

    def add(self, view: CycleView) -> None:
        total, seen = view.rewards.total, view.cluster.interpreted
        self.rows.append(
            (
                view.cycle,
                view.at_seconds,
                total.safety,
                total.efficiency,
                total.admission,
                seen.queue_length,
                seen.violations,
                seen.failed_pods,
                seen.power_watts,
                view.forecast.risk_permille,
            )
        )

    def view(self) -> HistoryView:
        rows = list(self.rows)
        return HistoryView(
            cycle=[r[0] for r in rows],
            at_seconds=[r[1] for r in rows],
            safety=[r[2] for r in rows],
            efficiency=[r[3] for r in rows],
            admission=[r[4] for r in rows],
            queue=[r[5] for r in rows],
            violations=[r[6] for r in rows],
            failed_pods=[r[7] for r in rows],
            power_watts=[r[8] for r in rows],
            risk_permille=[r[9] for r in rows],
        )


@dataclass(eq=False, slots=True)
class Reader:
    """One open stream. ``wake`` is set from the loop thread, at most once per look."""

    cursor: int
    event_loop: asyncio.AbstractEventLoop
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    waking: bool = False  # guarded by the feed's lock


class Feed:
    """The latest views, their history, and whoever watches. Every method may be called anywhere."""

    def __init__(self, *, keep: int = CYCLES_KEPT, metrics: Metrics | None = None) -> None:
        self.metrics = metrics or Metrics()
        self._lock = threading.Lock()
        self._epoch = secrets.token_hex(4)  # tells a resumed reader that this is another process
        self._seq = 0
        self._entries: deque[Entry] = deque(maxlen=keep)
        self._series = Series(deque(maxlen=keep))
        self._events: deque[EventView] = deque(maxlen=EVENTS_KEPT)  # oldest first
        self._stages: list[StageView] = []
        self._checks: list[CheckView] = []
        self._latest: CycleView | None = None
        self._readers: set[Reader] = set()
        self._closed = False

    @property
    def latest(self) -> CycleView | None:
        """The view published last."""
        return self._latest

    @property
    def closed(self) -> bool:
        return self._closed

    def publish(self, view: CycleView) -> None:
        """Take one cycle in and wake the readers; never waits for any of them."""
        body = _encoder.encode(view)
        with self._lock:
            self._seq += 1
            self._latest = view
            self._entries.append(Entry(self._seq, _mark(view), body))
            self._series.add(view)
            self._events.extend(reversed(view.events))
            self._stages, self._checks = view.stages, view.checks
            for result in view.settled:
                self._add_result(result)
            self._wake_all()
        self.metrics.record(view)

    def announce(self, stages: Sequence[Stage]) -> None:
        """Show stages before there is a first cycle."""
        with self._lock:
            self._stages = [stage_view(stage) for stage in stages]

    def close(self) -> None:
        """End every stream; the feed can still be read."""
        with self._lock:
            self._closed = True
            self._wake_all()

    def state_parts(
        self,
    ) -> tuple[bytes | None, list[TimelineEntry], HistoryView, list[EventView], StagesView]:
        """One consistent look at everything; the current view is already encoded."""
        with self._lock:
            current = self._entries[-1].body if self._entries else None
            marks = [entry.mark for entry in self._entries]
            events = list(reversed(self._events))
            stages = StagesView(stages=self._stages, checks=self._checks)
            return current, marks, self._series.view(), events, stages

    def stages(self) -> StagesView:
        with self._lock:
            return StagesView(stages=self._stages, checks=self._checks)

    def history(self) -> HistoryView:
        with self._lock:
            return self._series.view()

    def cycles(self, *, limit: int, before: int | None) -> CyclesPage:
        """Remembered cycles, newest first."""
        with self._lock:
            marks = [e.mark for e in self._entries if before is None or e.mark.cycle < before]
        page = marks[::-1][:limit]
        more = len(marks) > len(page)
        return CyclesPage(cycles=page, before=page[-1].cycle if more and page else None)

    def decision(self, id_or_prefix: str) -> bytes | None:
        """The encoded cycle of a decision, by its id or an unambiguous beginning of it."""
        with self._lock:
            found = [e for e in self._entries if e.mark.decision.startswith(id_or_prefix)]
            exact = [e for e in found if e.mark.decision == id_or_prefix]
        hits = exact or found
        return hits[-1].body if len({e.mark.decision for e in hits}) == 1 else None

    def subscribe(self, last_id: str | None) -> Reader:
        """A reader that starts after ``last_id``, or with the latest view; needs an event loop."""
        with self._lock:
            if len(self._readers) >= READERS_ALLOWED:
                raise TooManyReaders(
                    f"{len(self._readers)} streams are open; the limit is {READERS_ALLOWED}. "
                    "Close a page."
                )
            reader = Reader(self._cursor_after(last_id), asyncio.get_running_loop())
            self._readers.add(reader)
            return reader

    def unsubscribe(self, reader: Reader) -> None:
        with self._lock:
            self._readers.discard(reader)

    def take(self, reader: Reader, *, burst: int) -> list[Frame]:
        """What the reader has not seen; only the latest when more than ``burst`` cycles behind."""
        with self._lock:
            reader.wake.clear()
            reader.waking = False
            new = [entry for entry in self._entries if entry.seq > reader.cursor]
            if len(new) > burst:
                new = new[-1:]
            reader.cursor = self._seq
            return [Frame(f"{self._epoch}.{entry.seq}", entry.body) for entry in new]

    def _cursor_after(self, last_id: str | None) -> int:
        epoch, _, seq = (last_id or "").partition(".")
        if epoch == self._epoch and seq.isdigit() and int(seq) <= self._seq:
            return int(seq)
        return self._seq - 1

    def _wake_all(self) -> None:
        for reader in list(self._readers):
            if reader.waking:
                continue
            if reader.event_loop.is_closed():
                self._readers.discard(reader)
                continue
            reader.waking = True
            reader.event_loop.call_soon_threadsafe(reader.wake.set)

    def _add_result(self, result: ResultView) -> None:
        """Complete the remembered decision that the result belongs to."""
        wanted = result.action.partition(".")[0]
        for entry in self._entries:
            if entry.mark.decision == wanted:
                entry.body = _encoder.encode(_with_result(_decoder.decode(entry.body), result))
                return


def _with_result(view: CycleView, result: ResultView) -> CycleView:
    actions = [
        msgspec.structs.replace(action, result=result) if action.id == result.action else action
        for action in view.decision.actions
    ]
    decision = msgspec.structs.replace(view.decision, actions=actions)
    return msgspec.structs.replace(view, decision=decision)


def _mark(view: CycleView) -> TimelineEntry:
    decision = view.decision
    head = next((p for p in decision.proposals if p.index == decision.headline), None)
    return TimelineEntry(
        cycle=view.cycle,
        at_seconds=view.at_seconds,
        decision=decision.id,
        kind=decision.kind,
        agent="" if head is None else head.agent,
        title=decision.title,
        overridden=decision.rulings.overridden,
        refused=decision.rulings.refused,
    )
