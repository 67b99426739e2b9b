# SPDX-License-Identifier: Apache-2.0
"""Agent C: the queue stays healthy.

Holding new batch work is right while nodes are overloaded or services are outside their objective;
a queue alone is better served by releasing batch work last. Pods that wait for what no queue gives
(a selector nobody matches, an image, somebody's gate) do not count. A gate is opened again as soon
as it is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pilothouse.domain import (
    ActionKind,
    Evidence,
    Forecast,
    Gate,
    PendingCause,
    Phase,
    Proposal,
    Snapshot,
    WorkloadKind,
)
from pilothouse.domain.snapshot import HELPLESS
from pilothouse.features.population import Population
from pilothouse.propose.voice import Voice
from pilothouse.settings import Settings

BURST_SECONDS = 60  # batch pods younger than this are arriving, not running


class Admission:
    """Cap, deprioritize, queue, reject where allowed, and admit again."""

    name = "admission"
    title = "AgentC"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> Sequence[Proposal]:
        voice = Voice(self.name, self.title, forecast.made_seconds)
        case = _Case(self._settings, snapshot, voice)
        wishes = [*case.hold(), *case.cap(), *case.admit()]
        wishes.sort(key=lambda wish: (wish.priority, -wish.score, str(wish.target)))
        return wishes or [case.nothing()]


class _Case:
    def __init__(self, settings: Settings, snapshot: Snapshot, voice: Voice) -> None:
        self.settings, self.snapshot, self.voice = settings.admission, snapshot, voice
        self.population = Population(snapshot, settings.guard.protected_priority)
        self.seen = snapshot.interpreted
        self.queue = self.seen.queue_length
        pods = snapshot.pods
        pending = pods.phase == Phase.PENDING
        gated = pods.pending_cause == PendingCause.GATED
        stuck = np.isin(pods.pending_cause, HELPLESS)
        self.waiting_batch = pending & ~stuck & self.population.batch
        self.short = int((pending & ~gated & ~stuck).sum())  # waits for room, not for us
        self.gated = int((pending & gated).sum())
        awake = max(int(self.seen.awake.sum()), 1)
        self.overloaded = int(self.seen.overloaded.sum()) / awake
        self.crowded = self._crowded_services()
        young = snapshot.taken_seconds - pods.created_seconds <= BURST_SECONDS
        self.new_batch = self.population.batch & young & ~stuck
        self.burst = int(self.new_batch.sum())
        self.fullness = max(self.seen.used_permille, self.seen.requested_permille) / 1000

    def _crowded_services(self) -> int:
        """Services outside their objective with a pod on an overloaded node."""
        pods, workloads = self.snapshot.pods, self.snapshot.workloads
        resident = self.population.resident
        there = pods.workload[resident][self.seen.overloaded[pods.node[resident]] == 1]
        broken = (workloads.in_violation == 1) & (workloads.kind == WorkloadKind.SERVICE)
        return int(broken[np.unique(there)].sum())

    @property
    def strained(self) -> bool:
        """More batch work now would hurt somebody."""
        full = self.filling and self.fullness >= self.settings.hold_share
        return full or self.crowded > 0 or self.overloaded >= self.settings.overloaded_share

    @property
    def filling(self) -> bool:
        """Batch pods come in a burst; the last ones to come are not in the usage yet."""
        return self.burst >= self.settings.queue_queue

    def hold(self) -> Iterator[Proposal]:
        s = self.settings
        early = self.filling and self.fullness >= s.hold_share
        if self.short < s.queue_queue and not early:
            return
        row = self._busiest_namespace()
        if row is None:
            return
        gate, needs = self._gate()
        if self.snapshot.namespaces.gate[row] in (gate, Gate.QUEUE, Gate.REJECT):
            return
        yield self._gate_wish(row, gate, needs)

    def _gate(self) -> tuple[Gate, int]:
        s = self.settings
        if self.crowded > 0 and s.allow_reject:
            return Gate.REJECT, s.queue_queue
        if self.strained:
            return Gate.QUEUE, s.queue_queue
        return Gate.DEPRIORITIZE, (
            s.deprioritize_queue if self.short >= s.deprioritize_queue else s.queue_queue
        )

    def _busiest_namespace(self) -> int | None:
        """The open namespace with most waiting or new batch pods; the first by uid among equals."""
        spaces = self.snapshot.namespaces
        owner = self.snapshot.workloads.namespace[self.snapshot.pods.workload]
        coming = self.waiting_batch | self.new_batch
        waiting = np.bincount(owner[coming], minlength=len(spaces))
        waiting = np.where((spaces.managed == 1) & (spaces.protected == 0), waiting, 0)
        if not len(waiting) or waiting.max() == 0:
            return None
        return int(np.argmax(waiting))

    def _gate_wish(self, row: int, gate: Gate, needs: int) -> Proposal:
        target, decision = self.snapshot.namespace_ref(row), gate.name.lower()
        why = (
            f"{self.crowded} services suffer on overloaded nodes, share {self.overloaded:.2f}"
            if self.strained
            else "nobody is hurt yet, so its batch work only goes last"
        )
        return self.voice.wants(
            ActionKind.ADMISSION,
            target,
            score=min(0.5 + self.short / 240, 1.0),
            priority=0 if self.strained else 1,
            reason=f"queue {self.short} (needs {needs}), oldest "
            f"{self.seen.queue_oldest_seconds} s; {decision} new batch pods of "
            f"{target.short}: {why}",
            evidence=self._evidence(needs),
            payload={"decision": decision},
            otherwise=f"below {needs} the choice would have been: admit",
        )

    def cap(self) -> Iterator[Proposal]:
        s = self.settings
        crowded = self.short >= s.cap_queue
        hot = self.overloaded >= s.overloaded_share and self.seen.awake.sum() > 0
        if not (crowded or hot):
            return
        row = self._hottest_node()
        if row is None:
            return
        target = self.snapshot.node_ref(row)
        why = (
            f"queue {self.short} (needs {s.cap_queue})"
            if crowded
            else f"{self.overloaded:.2f} of nodes above 0.85 (needs {s.overloaded_share:.2f})"
        )
        yield self.voice.wants(
            ActionKind.RESOURCE_CAP,
            target,
            score=min(max(self.overloaded, self.short / 240), 1.0),
            priority=2,
            reason=f"{why}: cap batch pods of {target.short} at {s.cap_factor:.2f} of their limit",
            evidence=self._evidence(s.cap_queue),
            payload={"factor": s.cap_factor},
            otherwise=f"below {s.overloaded_share:.2f} the choice would have been: admit",
        )

    def _hottest_node(self) -> int | None:
        """The most pressed node that hosts batch pods with a limit."""
        pods, p = self.snapshot.pods, self.population
        soft = p.batch & p.movable & (pods.cpu_limit_millicores > 0)
        soft &= pods.phase == Phase.RUNNING
        hosts = (p.count_by_node(soft) > 0) & (self.seen.awake == 1)
        pressure = np.where(hosts, self.seen.pressure_permille, -1)
        return int(np.argmax(pressure)) if hosts.any() else None

    def admit(self) -> Iterator[Proposal]:
        """Open what is shut: a gate that helps nobody any more."""
        s, spaces = self.settings, self.snapshot.namespaces
        if self.short >= s.queue_queue or self.strained:
            return
        for row in np.flatnonzero((spaces.gate != Gate.OPEN) & (spaces.managed == 1)).tolist():
            target = self.snapshot.namespace_ref(row)
            yield self.voice.wants(
                ActionKind.ADMISSION,
                target,
                score=1.0 - self.short / max(s.queue_queue, 1),
                priority=3,
                reason=f"queue {self.short} (needs {s.queue_queue}) and nobody is hurt: "
                f"admit {target.short} again, {self.gated} pods are held",
                evidence=self._evidence(s.queue_queue),
                payload={"decision": "admit"},
                otherwise=f"from {s.queue_queue} on the gate would have stayed",
            )

    def _evidence(self, needs: int) -> tuple[Evidence, ...]:
        return (
            Evidence("queue", float(self.short), "pods", float(needs)),
            Evidence("held by us", float(self.gated), "pods"),
            Evidence("oldest", float(self.seen.queue_oldest_seconds), "s"),
            Evidence("unschedulable", float(self.seen.unschedulable), "pods"),
            Evidence("objectives broken", float(self.seen.violations)),
            Evidence("overloaded nodes", round(self.overloaded, 3), "share"),
        )

    def nothing(self) -> Proposal:
        needs = self.settings.queue_queue
        shut = int((self.snapshot.namespaces.gate != Gate.OPEN).sum())
        held = f", {shut} gates shut" if shut else ""
        return self.voice.wants_nothing(
            self.snapshot.cluster_ref,
            score=min(self.queue / max(needs, 1), 1.0),
            reason=f"queue {self.short} (needs {needs}){held}",
            evidence=self._evidence(needs),
        )
