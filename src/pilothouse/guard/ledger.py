# SPDX-License-Identifier: Apache-2.0
"""What was done, as far as it still matters: budgets, rest times, and what must be taken back.

The ledger is a function of the recorded decisions, their snapshots and their receipts, in order;
a restart or a replay that shows them to an empty ledger gets the same one. It knows cluster time
only. Every window slides: a charge counts until it is a window old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from pilothouse.domain import (
    Action,
    ActionKind,
    Decision,
    Gate,
    Phase,
    Receipt,
    Ref,
    Snapshot,
    Status,
    Verb,
    Write,
)
from pilothouse.settings import GuardSettings

STEWARD = "steward"  # carries on what another agent began: evictions of a drain, then the sleep
RETRY_SECONDS = 60  # an inverse the backend could not run is tried again after this long
# Several verbs write one field: a taint, a drain and a sleep all take a node out of service.
FIELDS = {
    Verb.SCALE: "replicas",
    Verb.TAINT: "serving",
    Verb.DRAIN: "serving",
    Verb.POWER: "serving",
    Verb.AVOID: "avoid",
    Verb.EVICT: "placement",
    Verb.FREQUENCY: "frequency",
    Verb.CPU_LIMIT: "cpu",
    Verb.MEMORY_REQUEST: "memory",
    Verb.GATE: "gate",
}
OUT_OF_SERVICE = frozenset({Verb.TAINT, Verb.AVOID, Verb.DRAIN, Verb.POWER})


def field_of(write: Write) -> str:
    """The object and field a write changes, as the ledger's key."""
    return f"{write.target}#{FIELDS[write.verb]}"


def direction_of(write: Write) -> int:
    """-1 takes away from what runs, +1 gives (back), 0 changes nothing."""
    if write.verb in (Verb.TAINT, Verb.AVOID, Verb.DRAIN):
        return -1 if write.value else 1
    if write.verb is Verb.POWER:
        return 1 if write.value else -1
    if write.verb is Verb.GATE:
        return 1 if write.value == Gate.OPEN else -1
    if write.verb is Verb.EVICT:
        return -1
    return (write.value > write.original) - (write.value < write.original)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What one action used up."""

    action: str
    agent: str
    at: int
    nodes: tuple[str, ...]
    workloads: tuple[str, ...]
    namespaces: tuple[str, ...]
    disturbs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The last change of one field, and when its direction was turned."""

    at: int
    direction: int  # 0 after a restore: going on from there is no reversal
    value: int
    reversals: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """An action that is in force and will be taken back."""

    action: str
    agent: str
    kind: ActionKind
    target: Ref
    writes: tuple[Write, ...]
    inverse: tuple[Write, ...]
    expires: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoring:
    """An inverse write on its way; the receipt says whether it must be tried again."""

    source: Active
    write: Write


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """A write on its way, and what the book said before it: it holds again if it never happens."""

    write: Write
    before: Rest | None
    displaced: tuple[Active, ...]  # older actions, with the inverses that this write took over


@dataclass(slots=True, kw_only=True)
class Book:
    """Everything the ledger remembers, JSON-able."""

    charges: list[Charge] = field(default_factory=list)
    rests: dict[str, Rest] = field(default_factory=dict)
    active: dict[str, Active] = field(default_factory=dict)
    restoring: dict[str, Restoring] = field(default_factory=dict)
    sending: dict[str, Sending] = field(default_factory=dict)


class Ledger:
    """Charged by decisions, corrected by receipts, forgotten by time."""

    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self._book = Book()

    # Writing.

    def charge(self, decision: Decision, snapshot: Snapshot) -> None:
        """Take in what a decision set out to do to the snapshot it was made from.

        What is refused later stays charged: budgets bound what is tried, so that whoever is refused
        tries less often, and a book that forgot a write which did arrive would allow too much.
        """
        for action in decision.actions:
            carried = any(p.agent == STEWARD for p in decision.proposals[action.proposal :][:1])
            self._charge(action, decision.made_seconds, snapshot, counts=not carried)
        self._drop_vanished(decision)
        self.prune(decision.made_seconds)

    def _charge(self, action: Action, now: int, snapshot: Snapshot, *, counts: bool) -> None:
        restored = self._book.active.pop(action.restores, None) if action.restores else None
        if restored is not None:
            for write in action.writes:
                self._book.restoring[write.intent] = Restoring(source=restored, write=write)
        elif counts:  # what carries on an action was counted with it
            self._book.charges.append(_charge_of(action, now, snapshot))
        for write in action.writes:
            before = self._book.rests.get(field_of(write))
            # First, because whether somebody undid us is seen from the inverse that is taken over.
            self._remember(write, now, restoring=bool(action.restores))
            if restored is None:
                self._book.sending[write.intent] = Sending(
                    write=write, before=before, displaced=self._supersede(write)
                )
        if action.inverse and action.expires_seconds is not None:
            self._book.active[action.id] = Active(
                action=action.id,
                agent=action.agent,
                kind=action.kind,
                target=action.target,
                writes=action.writes,
                inverse=action.inverse,
                expires=action.expires_seconds,
            )

    def _remember(self, write: Write, now: int, *, restoring: bool) -> None:
        key, direction = field_of(write), 0 if restoring else direction_of(write)
        before = self._book.rests.get(key)
        turned = () if before is None else before.reversals
        if not restoring and before is not None and self._turns(before, write, now):
            turned = (*turned, now)
        self._book.rests[key] = Rest(
            at=now, direction=direction, value=write.value, reversals=turned
        )

    def _turns(self, before: Rest, write: Write, now: int) -> bool:
        """Turns the field round, or does again what somebody undid; both are a fight."""
        if before.at == now:  # two verbs of one action on one field
            return False
        opposite = before.direction * direction_of(write) < 0
        undone = before.direction == direction_of(write) != 0 and self._was_undone(before, write)
        return opposite or undone

    def _was_undone(self, before: Rest, write: Write) -> bool:
        inverses = [w for a in self._book.active.values() for w in a.inverse]
        ours = [
            w
            for w in inverses
            if (w.target, w.verb, w.uid) == (write.target, write.verb, write.uid)
        ]
        return any(w.expect is not None and w.expect != write.original for w in ours)

    def is_reversal(self, write: Write, now: int) -> bool:
        """Whether this write would turn its field round, or repeat what somebody undid."""
        before = self._book.rests.get(field_of(write))
        return before is not None and self._turns(before, write, now)

    def _supersede(self, write: Write) -> tuple[Active, ...]:
        """A newer write of a field takes over its inverse, so the older one has nothing to undo."""
        displaced = []
        for key, held in list(self._book.active.items()):
            kept = tuple(w for w in held.inverse if _undo_key(w) != _undo_key(write))
            if kept == held.inverse:
                continue
            taken = tuple(w for w in held.inverse if _undo_key(w) == _undo_key(write))
            displaced.append(replace(held, inverse=taken))
            if kept:
                self._book.active[key] = replace(held, inverse=kept)
            else:
                del self._book.active[key]
        return tuple(displaced)

    def _drop_vanished(self, decision: Decision) -> None:
        """An expired action whose objects are all gone has nothing left to take back."""
        pairs = zip(decision.proposals, decision.verdicts, strict=True)
        for proposal, verdict in pairs:
            if proposal.kind is ActionKind.RESTORE and verdict.rule == "impossible":
                self._book.active.pop(str(proposal.payload.get("restores", "")), None)

    def settle(self, receipts: Iterable[Receipt]) -> None:
        """Correct the book by what the backend answered."""
        answers = list(receipts)
        for receipt in answers:
            restoring = self._book.restoring.pop(receipt.intent, None)
            if restoring is not None:
                self._settle_restore(restoring, receipt)
            elif receipt.status is not Status.DONE:
                self._forget_write(receipt.intent)
        for receipt in reversed(answers):  # the last write of a field saw the one before it
            sending = self._book.sending.pop(receipt.intent, None)
            if sending is not None and receipt.status is not Status.DONE:
                self._take_back(sending, tried=receipt.status is not Status.SKIPPED)

    def _take_back(self, sending: Sending, *, tried: bool) -> None:
        """A write that never happened turned nothing round and took nothing over."""
        key, before, book = field_of(sending.write), sending.before, self._book
        if tried:  # somebody who was refused waits before asking again
            nothing = Rest(at=0, direction=0, value=sending.write.original)
            book.rests[key] = replace(before or nothing, at=book.rests[key].at)
        elif before is not None:
            book.rests[key] = before
        else:
            book.rests.pop(key, None)
        for held in sending.displaced:
            now = book.active.get(held.action)
            inverse = (*(now.inverse if now else ()), *held.inverse)
            book.active[held.action] = replace(held, inverse=inverse)

    def _settle_restore(self, restoring: Restoring, receipt: Receipt) -> None:
        # Refused means the value is not ours any more; broken or unsent means try again.
        if receipt.status in (Status.DONE, Status.REFUSED):
            return
        source = restoring.source
        held = self._book.active.get(source.action)
        inverse = (*(held.inverse if held else ()), restoring.write)
        self._book.active[source.action] = replace(
            source, inverse=inverse, expires=receipt.at_seconds + RETRY_SECONDS
        )

    def _forget_write(self, intent: str) -> None:
        """What was never done needs no inverse."""
        action = intent.rpartition(".")[0]
        held = self._book.active.get(action)
        if held is None:
            return
        failed = next((write for write in held.writes if write.intent == intent), None)
        if failed is None:
            return
        kept = tuple(w for w in held.inverse if not _undoes(w, failed))
        if kept:
            self._book.active[action] = replace(held, inverse=kept)
        else:
            del self._book.active[action]

    def prune(self, now: int) -> None:
        """Forget what no rule can ask about any more."""
        s, book = self._settings, self._book
        book.charges = [c for c in book.charges if c.at > now - s.window_seconds]
        # A quarantine can begin with turns that were a window old by then.
        horizon = now - max(s.window_seconds + s.quarantine_seconds, s.dwell_seconds)
        book.rests = {
            key: replace(rest, reversals=tuple(t for t in rest.reversals if t > horizon))
            for key, rest in book.rests.items()
            if rest.at > horizon
        }

    def adopt(self, action: Action, charge: Charge, *, in_force: bool, now: int) -> bool:
        """Take over what another leader did, as far as it matters still; False where it does not,
        or where this ledger knows of it already. What expired is left to the janitor: the loop
        that did it may have taken it back, and forgotten it, long ago."""
        known = {c.action for c in self._book.charges} | set(self._book.active)
        lasts = in_force and action.expires_seconds is not None and action.expires_seconds > now
        counts = charge.at > now - self._settings.window_seconds
        if action.id in known or action.restores or not (lasts or counts):
            return False
        if counts:
            self._book.charges.append(charge)
        for write in action.writes:
            rest = self._book.rests.get(field_of(write))
            if rest is None or rest.at <= charge.at:  # what came later is the field's last change
                self._remember(write, charge.at, restoring=False)
        if lasts and action.inverse and action.expires_seconds is not None:
            self._book.active[action.id] = Active(
                action=action.id,
                agent=action.agent,
                kind=action.kind,
                target=action.target,
                writes=action.writes,
                inverse=action.inverse,
                expires=action.expires_seconds,
            )
        return True

    # Reading.

    def due(self, now: int, *, halted: bool) -> list[Active]:
        """What must be taken back now: the expired, or everything once halted."""
        return [held for held in self.active if halted or held.expires <= now]

    def under_way(self, now: int) -> list[tuple[Active, Ref, bool]]:
        """Drains in force: the action, its node, and whether a sleep follows."""
        return [
            (held, write.target, write.expect == 2)
            for held in self.active
            if held.expires > now
            for write in held.inverse
            if write.verb is Verb.DRAIN
        ]

    @property
    def active(self) -> tuple[Active, ...]:
        """In an order of their own: a stored book comes back with its keys sorted."""
        return tuple(sorted(self._book.active.values(), key=lambda a: (a.expires, a.action)))

    @property
    def charges(self) -> tuple[Charge, ...]:
        return tuple(self._book.charges)

    def rest(self, key: str) -> Rest | None:
        return self._book.rests.get(key)

    def resting(self, now: int, dwell: int) -> frozenset[str]:
        """Fields that changed less than ``dwell`` seconds ago."""
        return frozenset(key for key, rest in self._book.rests.items() if now - rest.at < dwell)

    def owners_value(self, write: Write) -> int:
        """What the field was before any action of ours that is still in force."""
        for held in self.active:
            for inverse in held.inverse:
                if (inverse.target, inverse.uid, inverse.verb) == (
                    write.target,
                    write.uid,
                    write.verb,
                ):
                    return inverse.value
        return write.original

    def inverse_for(self, inverse: Write) -> Write:
        """An inverse that goes back to the owner's value, past earlier steps of ours."""
        forward = replace(inverse, value=inverse.original, original=inverse.value)
        return replace(inverse, value=self.owners_value(forward))

    def ending(self, until: int) -> Iterator[Write]:
        """Inverses of what expires by then, or has expired and waits to be taken back."""
        return (write for held in self.active if held.expires <= until for write in held.inverse)

    def nodes_out(self) -> dict[Ref, str]:
        """Nodes that we hold out of service, and the agent that did it."""
        return {
            write.target: held.agent
            for held in self.active
            for write in held.inverse
            if write.verb in OUT_OF_SERVICE
        }

    # Carrying over.

    def to_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = msgspec.to_builtins(self._book)
        return state

    @classmethod
    def from_dict(cls, state: dict[str, Any], settings: GuardSettings) -> Ledger:
        ledger = cls(settings)
        ledger._book = msgspec.convert(state, Book)
        return ledger


def _undo_key(write: Write) -> str:
    """What a write takes over from an older one. A drain of a node that carries our taint already
    writes no taint, so it cannot answer for removing it."""
    return f"{write.target}#taint" if write.verb is Verb.TAINT else field_of(write)


def _undoes(inverse: Write, write: Write) -> bool:
    same = inverse.verb is write.verb
    wakes = inverse.verb is Verb.POWER and write.verb is Verb.DRAIN
    return inverse.target == write.target and (same or wakes)


def _charge_of(action: Action, now: int, snapshot: Snapshot) -> Charge:
    nodes, workloads, namespaces = touched_by(action.writes, snapshot)
    return Charge(
        action=action.id,
        agent=action.agent,
        at=now,
        nodes=nodes,
        workloads=workloads,
        namespaces=namespaces,
        disturbs=disturbed_by(action.writes, snapshot),
    )


def touched_by(
    writes: Iterable[Write], snapshot: Snapshot
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Nodes, workloads and namespaces that are written to, each once, in order.

    What a rail grants and what the ledger charges are both counted here, so they cannot differ.
    """
    nodes: dict[str, None] = {}
    workloads: dict[str, None] = {}
    namespaces: dict[str, None] = {}
    for write in writes:
        target = write.target
        if target.kind == "node":
            nodes[str(target)] = None
        elif target.kind == "namespace":
            namespaces[target.name] = None
        else:
            namespaces[target.namespace] = None
            owner = owner_of(target, snapshot)
            if owner is not None:
                workloads[str(owner)] = None
    return tuple(nodes), tuple(workloads), tuple(namespaces)


def owner_of(target: Ref, snapshot: Snapshot) -> Ref | None:
    """The workload a write touches: itself, or the owner of the pod."""
    if target.kind == "workload":
        return target
    row = snapshot.find(target) if target.kind == "pod" else None
    return None if row is None else snapshot.workload_ref(int(snapshot.pods.workload[row]))


def _runs(target: Ref, snapshot: Snapshot) -> bool:
    """Replacing a pod that is lost already disturbs nobody."""
    row = snapshot.find(target)
    return row is not None and bool(snapshot.pods.phase[row] != Phase.FAILED)


def disturbed_by(writes: Iterable[Write], snapshot: Snapshot) -> int:
    """Pods that will be moved: evicted one by one, or all a drain can evict."""
    count = 0
    for write in writes:
        if write.verb is Verb.EVICT:
            count += _runs(write.target, snapshot)
        elif write.verb is Verb.DRAIN and write.value:
            row = snapshot.find(write.target)
            on_node = snapshot.pods.node == (-1 if row is None else row)
            count += int((on_node & (snapshot.pods.evictable == 1)).sum()) if row is not None else 0
    return count


def taken_by(writes: Iterable[Write], snapshot: Snapshot) -> Counter[int]:
    """Running pods that go, by their workload's row: evicted, drained or scaled down."""
    pods, taken = snapshot.pods, Counter[int]()
    for write in writes:
        row = snapshot.find(write.target)
        if row is None:
            continue
        if write.verb is Verb.SCALE:
            taken[row] += max(write.original - write.value, 0)
        elif write.verb is Verb.EVICT and pods.phase[row] == Phase.RUNNING:
            taken[int(pods.workload[row])] += 1
        elif write.verb is Verb.DRAIN and write.value:
            moved = (pods.node == row) & (pods.evictable == 1) & (pods.phase == Phase.RUNNING)
            taken.update(pods.workload[moved].tolist())
    return +taken
