# SPDX-License-Identifier: Apache-2.0
"""A live cluster as the loop's backend, in shadow: everything is seen, nothing is changed.

All it ever writes are Events about its decisions and its own Lease.

Time is the cluster's own, so ``advance`` does nothing. What a stretch of time cost is added up from
one look to the next; a look that is late is charged for the whole gap, up to a limit, because what
happened in a longer gap nobody saw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from pilothouse.clients.events import EventWriter
from pilothouse.clients.lease import Leadership
from pilothouse.clients.store import Store
from pilothouse.domain import Action, Decision, Phase, Receipt, Snapshot, Status, Toll, Write
from pilothouse.errors import InternalError
from pilothouse.observe.kubernetes import Observer
from pilothouse.observe.pending import Wait
from pilothouse.observe.remarks import remarks

LONGEST_GAP_SECONDS = 60


class ShadowCluster:
    """Looks and remembers. ``execute`` answers that nothing was sent."""

    def __init__(
        self,
        store: Store,
        observer: Observer,
        events: EventWriter | None = None,
        leadership: Leadership | None = None,
    ) -> None:
        self.exerciser: Callable[[], Sequence[Any]] = tuple  # whoever puts stress on it now
        self.leadership = leadership or Leadership()  # one that never ran holds nothing
        self._store = store
        self._observer = observer
        self._events = events
        self._seen_seconds: int | None = None
        self._toll = np.zeros(6, dtype=np.float64)

    @property
    def name(self) -> str:
        return self._observer.cluster

    @property
    def clock_seconds(self) -> int:
        return self._observer.clock_seconds()

    @property
    def waits(self) -> list[Wait]:
        """Why objects waited, in the last snapshot; finer than its columns."""
        return self._observer.waits

    def advance(self, seconds: int) -> None:
        """The cluster moves by itself."""

    def observe(self) -> Snapshot:
        snapshot = self._observer.observe()
        self._charge(snapshot)
        return snapshot

    def _charge(self, snapshot: Snapshot) -> None:
        before, now = self._seen_seconds, snapshot.taken_seconds
        self._seen_seconds = now
        if before is None:
            return
        seconds = min(max(now - before, 0), LONGEST_GAP_SECONDS)
        view, phases = snapshot.interpreted, snapshot.pods.phase
        self._toll[:4] += seconds * np.array(
            [
                view.failed_pods,
                view.violations,
                int((phases == Phase.PENDING).sum()),
                view.power_watts,
            ],
            dtype=np.float64,
        )

    def toll(self) -> Toll:
        failed, violation, waiting, energy, cost, carbon = self._toll.tolist()
        return Toll(
            failed_pod_seconds=failed,
            violation_seconds=violation,
            waiting_pod_seconds=waiting,
            energy_joules=energy,
            energy_cost_micros=cost,
            carbon_grams=carbon,
        )

    def begin(self, action: Action) -> str:
        return ""

    def execute(self, write: Write, agent: str) -> Receipt:
        return Receipt(
            intent=write.intent,
            status=Status.SKIPPED,
            detail=f"in shadow: recorded for {agent}, not sent",
            at_seconds=self.clock_seconds,
        )

    def find(self, intent: str) -> Receipt | None:
        return None

    def comment(self, decision: Decision) -> None:
        """Say on the objects concerned what was decided; where nobody listens, nothing happens."""
        if self._events is not None:
            for remark in remarks(decision, self._store):
                self._events.say(remark)

    def stimuli(self) -> Sequence[Any]:
        return self.exerciser()

    def fork(self) -> Self:
        raise InternalError(
            "A live cluster cannot be forked; score.forks must be off for it. "
            "This is a bug in pilothouse."
        )

    def close(self) -> None:
        self._store.close()
