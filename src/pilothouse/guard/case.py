# SPDX-License-Identifier: Apache-2.0
"""What a guard-rail looks at: one proposal with its plan, against one snapshot and one ledger.

The guard reads the snapshot by itself. It shares no code with the agents or the planner, so that
the same mistake cannot be made on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import (
    Gate,
    PendingCause,
    Phase,
    Plan,
    Power,
    Proposal,
    Ref,
    Ruling,
    Snapshot,
    Verb,
    Verdict,
)
from pilothouse.guard.ledger import Ledger, direction_of
from pilothouse.guard.tally import Tally
from pilothouse.settings import Settings

THIRD_PARTY_RANK = 100
Mask = NDArray[np.bool_]


class Standing(Protocol):
    """A registered agent, as far as the guard cares."""

    @property
    def name(self) -> str: ...

    @property
    def rank(self) -> int: ...

    @property
    def title(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Sent:
    """A proposal with the agent that was really asked for it."""

    sender: Standing
    proposal: Proposal


class View:
    """The snapshot under the guard's own eyes; each answer is worked out once."""

    def __init__(self, snapshot: Snapshot, settings: Settings) -> None:
        self.snapshot, self.settings = snapshot, settings.guard

    @cached_property
    def workload_protected(self) -> Mask:
        s = self.snapshot
        closed = (s.namespaces.managed != 1) | (s.namespaces.protected != 0)
        high = s.workloads.priority >= self.settings.protected_priority
        mask: Mask = closed[s.workloads.namespace] | high
        return mask

    @cached_property
    def pod_protected(self) -> Mask:
        """(pods,) not to be touched, whoever asks."""
        return self.workload_protected[self.snapshot.pods.workload]

    def residents(self, node: int) -> NDArray[np.intp]:
        """Pods bound to a node and not on their way out."""
        return np.flatnonzero(self._bound == node)

    @cached_property
    def _bound(self) -> NDArray[np.int64]:
        pods = self.snapshot.pods
        gone = (pods.phase == Phase.TERMINATING) | (pods.phase == Phase.PENDING)
        return np.where(gone, -1, pods.node).astype(np.int64)

    @cached_property
    def open_nodes(self) -> Mask:
        """(nodes,) where new pods may go."""
        nodes = self.snapshot.nodes
        mask: Mask = (nodes.ready == 1) & (nodes.power == Power.AWAKE) & (nodes.tainted == 0)
        return mask

    @cached_property
    def free(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(nodes,) unrequested CPU and memory."""
        n = self.snapshot.nodes
        cpu = n.cpu_capacity_millicores.astype(np.int64) - n.cpu_requested_millicores
        memory = n.memory_capacity_mib.astype(np.int64) - n.memory_requested_mib
        return cpu, memory

    @cached_property
    def waiting_millicores(self) -> int:
        pods = self.snapshot.pods
        short = (pods.phase == Phase.PENDING) & (pods.pending_cause == PendingCause.RESOURCES)
        return int(pods.cpu_request_millicores[short].sum())

    @cached_property
    def unready(self) -> int:
        nodes = self.snapshot.nodes
        meant_off = (nodes.power == Power.ASLEEP) | (nodes.power == Power.BOOTING)
        return int(((nodes.ready == 0) & ~meant_off).sum())

    @cached_property
    def fresh_share(self) -> float:
        """Of the nodes that should answer, those with usage young enough to act on."""
        nodes = self.snapshot.nodes
        answer = (nodes.ready == 1) & (nodes.power != Power.ASLEEP)
        fresh = answer & (nodes.age_seconds <= self.settings.stale_seconds)
        return float(fresh.sum() / answer.sum()) if answer.any() else 0.0

    @cached_property
    def gated(self) -> int:
        return int((self.snapshot.namespaces.gate != Gate.OPEN).sum())

    def is_draining(self, node: Ref) -> bool:
        """Ours, out of service, alive, and still with pods that will move."""
        row = self.snapshot.find(node)
        if row is None:
            return False
        nodes = self.snapshot.nodes
        if nodes.power[row] in (Power.ASLEEP, Power.BOOTING, Power.DEAD) or not nodes.ready[row]:
            return False
        rows = self.residents(row)
        movable = (self.snapshot.pods.evictable[rows] == 1) & ~self.pod_protected[rows]
        return bool(movable.any())


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Everything one rail needs to say yes or no."""

    sender: Standing
    proposal: Proposal
    plan: Plan
    view: View
    ledger: Ledger
    tally: Tally
    settings: Settings
    now: int

    @property
    def third_party(self) -> bool:
        return self.sender.rank >= THIRD_PARTY_RANK

    @property
    def is_disruptive(self) -> bool:
        """Takes something away from what runs; replicas, wakes and gates do not."""
        return any(
            direction_of(write) < 0 and write.verb is not Verb.GATE for write in self.plan.writes
        )

    @property
    def moves_pods(self) -> bool:
        return any(
            write.verb is Verb.EVICT or (write.verb is Verb.DRAIN and write.value)
            for write in self.plan.writes
        )


def refuse(
    rule: str,
    sentence: str,
    *,
    used: float | None = None,
    allowed: float | None = None,
    free_at: int | None = None,
) -> Verdict:
    """A refusal in numbers; the time it ends is part of the sentence."""
    if free_at is not None:
        sentence = f"{sentence}, free at {clock(free_at)}"
    return Verdict(
        ruling=Ruling.REFUSED,
        rule=rule,
        sentence=sentence,
        used=used,
        allowed=allowed,
        free_at_seconds=free_at,
    )


def clock(seconds: int) -> str:
    """Cluster time as a person reads it."""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def shown(value: object) -> str:
    """Something a stranger made up, safe inside a sentence; only plain values are shown."""
    if type(value) is int and abs(value) > 2**53:
        return "a huge whole number"  # too long to print, perhaps too long to convert
    if value is not None and type(value) not in (str, int, float, bool):
        return f"a {type(value).__name__[:60]}"
    text = value if isinstance(value, str) else repr(value)
    return "".join(c if c.isprintable() else "?" for c in text[:60])
