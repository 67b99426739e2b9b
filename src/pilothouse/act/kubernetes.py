# SPDX-License-Identifier: Apache-2.0
"""The actuator of a real cluster: a ticket first, then one API write per intent.

Every write carries its intent as the audit id and as part of the field manager, so that the API
server's own log and the object itself both say which intent it was. After a crash ``find`` looks at
the ticket and the object; it never sends anything again, and it says *never arrived* only once
nothing that was on its way can still arrive.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from pilothouse.act.fields import Json, Mark, cpu_limit, field_of, memory_request, saved_resources
from pilothouse.act.hand import (
    RESOURCES,
    TAINTS,
    Answer,
    Hand,
    Signature,
    last_author,
    set_by,
)
from pilothouse.act.ownership import JANITORS, OURS, is_tracked, sign
from pilothouse.act.power import HookError, NoHook, PowerHook
from pilothouse.act.tickets import Charge, Step, Ticket, TicketBox
from pilothouse.clients.keys import GATES, SYSTEM, account_path
from pilothouse.clients.protection import MANAGED, is_system, why_kept
from pilothouse.clients.requests import DEADLINE_SECONDS, Refusal, Requests
from pilothouse.clients.resources import Meta, Pod
from pilothouse.clients.store import Store
from pilothouse.domain import Action, Receipt, Snapshot, Status, Verb, Write
from pilothouse.errors import BackendError

SCALABLE = {
    "deployments": "Deployment",
    "statefulsets": "StatefulSet",
    "replicasets": "ReplicaSet",
}
TOTALS = {Verb.CPU_LIMIT: cpu_limit, Verb.MEMORY_REQUEST: memory_request}


class Standing(Protocol):
    """Whether this process may write now, and as whom."""

    @property
    def holder(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    def objection(self, *, restoring: bool) -> str:
        """Why not now, or nothing. Taking back needs no janitor, only the helm."""
        ...


class Fit(Protocol):
    """Whether a pod that is moved will find another place."""

    def objection(self, pod: Json) -> str: ...


@dataclass(slots=True, kw_only=True)
class Ground:
    """The cluster as the observer knows it; the actuator reads everything it writes afresh."""

    store: Store
    uid_of: Callable[[Meta], int]
    clock: Callable[[], int]
    snapshot: Callable[[], Snapshot | None]


@dataclass(slots=True, kw_only=True)
class Limits:
    """What the actuator needs to know of the guard's settings."""

    protected_priority: int
    keep_seconds: int  # how long a ticket is remembered: the guard's longest window


class ClusterActuator:
    """Writes to a real cluster on behalf of the loop."""

    def __init__(
        self,
        requests: Requests,
        ground: Ground,
        standing: Standing,
        limits: Limits,
        *,
        fit: Fit,
        hook: PowerHook | None = None,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._requests = requests
        self._ground, self._standing, self._limits = ground, standing, limits
        self._fit, self._hook = fit, hook or NoHook()
        self._wall, self._sleep = wall, sleep
        self._hand = Hand(requests, sleep=sleep)
        self._box = TicketBox(requests)
        self._tickets: dict[str, Ticket] = {}  # of this process, by action
        self._originals: dict[tuple[str, Verb, int], Json] = {}
        self._fenced_at = time.monotonic() + DEADLINE_SECONDS + 1

    # The loop's side.

    def begin(self, action: Action) -> str:
        """Write the ticket; no ticket, no action."""
        why = self._standing.objection(restoring=bool(action.restores))
        if why:
            return why
        try:
            ticket = self._ticket(action)
            self._box.add(ticket, author=self._author(f"{action.id}.ticket"))
        except Refusal as refusal:
            if not refusal.is_conflict:
                return f"its ticket was refused ({refusal.code}): {refusal}"
            known = self._box.get(action.id)
            if known is None or known.action != action:
                return "another action has its ticket"
            ticket = known
        except BackendError as error:
            return f"its ticket could not be written: {error}"
        self._tickets[action.id] = ticket
        return ""

    def execute(self, write: Write, agent: str) -> Receipt:
        action_id = write.intent.rpartition(".")[0]
        ticket = self._tickets.get(action_id)
        restoring = ticket is not None and bool(ticket.action.restores)
        why = self._standing.objection(restoring=restoring)
        if why:
            return self._receipt(write.intent, Answer(status=Status.SKIPPED, detail=why))
        step = ticket.step(write.intent) if ticket else None
        if ticket is None or step is None:
            gone = f"{write.target.short} is not there any more"
            if write.verb is Verb.SCALE:
                gone = f"{gone}, or is of a kind without a replica count"
            return self._receipt(write.intent, Answer(status=Status.FAILED, detail=gone))
        answer = self._carry_out(ticket, step)
        if answer.status is Status.REFUSED and ticket.action.restores:
            answer = replace(answer, detail=answer.detail + self._janitors_word(ticket))
        return self._receipt(write.intent, answer)

    def find(self, intent: str) -> Receipt | None:
        """By the marks an intent leaves; waits where a request might still be on its way."""
        answer = self._look(intent)
        if answer is None:
            self._sleep(max(self._fenced_at - time.monotonic(), 0.0))
            answer = self._look(intent)
        return None if answer is None else self._receipt(intent, answer)

    def close(self) -> None:
        self._requests.close()

    def objection(self) -> str:
        """Why even taking back would be refused now, or nothing."""
        return self._standing.objection(restoring=True)

    def tickets(self) -> list[Ticket]:
        return self._box.every()[0]

    # Writing.

    def _carry_out(self, ticket: Ticket, step: Step) -> Answer:
        restores = bool(ticket.action.restores)
        wakes = step.verb is Verb.POWER and step.value == 1
        word = ""
        try:
            if wakes:  # first the machine, then the word that it is up
                word = self._switch(step)
            answer = self._hand.carry_out(
                step,
                Signature(
                    author=self._author(step.intent),
                    audit_id=step.intent,
                    mark=_mark(ticket),
                ),
                may_touch=(lambda _thing: "") if restores else self._may_touch(step),
                is_ours=_is_ours,
            )
            if step.verb is Verb.POWER and not wakes and answer.status is Status.DONE:
                word = self._switch(step)
        except HookError as error:
            return Answer(status=Status.FAILED, detail=str(error))
        return replace(answer, detail=f"{answer.detail}; {word}") if word else answer

    def _switch(self, step: Step) -> str:
        return self._hook.switch(step.name, awake=step.value == 1, intent=step.intent)

    def _may_touch(self, step: Step) -> Callable[[Json], str]:
        """The guard's protections once more, on the object as it is now."""

        def objection(thing: Json) -> str:
            if step.kind in ("Node", "ServiceAccount"):
                return ""
            why = self._why_closed(step.namespace)
            if why or step.kind != "Pod":
                return why
            pod = msgspec.convert(thing, Pod)
            if pod.spec.priority >= self._limits.protected_priority:
                return f"{step.short} has priority {pod.spec.priority}"
            why = why_kept(pod)
            if why:
                return f"{step.short} is left alone: {why}"
            return self._fit.objection(thing) if step.verb is Verb.EVICT else ""

        return objection

    def _why_closed(self, namespace: str) -> str:
        if is_system(namespace):
            return f"namespace {namespace} is never touched"
        for space in self._ground.store.namespaces():
            if space.metadata.name == namespace:
                if space.metadata.labels.get(MANAGED) == "true":
                    return ""
                return f"namespace {namespace} did not opt in"
        return f"there is no namespace {namespace}"

    def _author(self, intent: str) -> str:
        return sign(self._standing.epoch, self._standing.holder, intent)

    def _janitors_word(self, ticket: Ticket) -> str:
        known = self._box.get(ticket.action.restores)
        if known is None or known.is_open or known.ended_unix is None:
            return ""
        when = time.strftime("%H:%M:%S", time.gmtime(known.ended_unix))
        return f"; the janitor closed its ticket at {when} UTC: {known.note}"

    # Tickets.

    def _ticket(self, action: Action) -> Ticket:
        now, clock = self._wall(), self._ground.clock()
        expires = None
        if action.expires_seconds is not None:
            expires = now + max(action.expires_seconds - clock, 0)
        steps = [s for w in action.writes if (s := self._step(w)) is not None]
        undo = [s for w in action.inverse if (s := self._step(w, undo=True)) is not None]
        return Ticket(
            action=action,
            made_seconds=clock,
            made_unix=now,
            expires_unix=expires,
            keep_unix=max(expires or now, now) + self._limits.keep_seconds,
            holder=self._standing.holder,
            epoch=self._standing.epoch,
            charge=self._charge(action),
            steps=tuple(steps),
            undo=tuple(undo),
        )

    def _charge(self, action: Action) -> Charge:
        snapshot = self._ground.snapshot()
        if snapshot is None or action.restores:
            return Charge()
        nodes: dict[str, None] = {}
        workloads: dict[str, None] = {}
        spaces: dict[str, None] = {}
        disturbs = 0
        for write in action.writes:
            target = write.target
            if target.kind == "node":
                nodes[str(target)] = None
                continue
            spaces[target.namespace or target.name] = None
            row = snapshot.find(target)
            if target.kind == "workload":
                workloads[str(target)] = None
            elif target.kind == "pod" and row is not None:
                owner = snapshot.workload_ref(int(snapshot.pods.workload[row]))
                workloads[str(owner)] = None
                disturbs += write.verb is Verb.EVICT
        return Charge(
            nodes=tuple(nodes),
            workloads=tuple(workloads),
            namespaces=tuple(spaces),
            disturbs=disturbs,
        )

    def _step(self, write: Write, *, undo: bool = False) -> Step | None:
        """The Kubernetes object behind a write; None where it is gone or was replaced."""
        step = self._place(write)
        if step is None or write.verb not in RESOURCES:
            return step
        return replace(step, saved=self._saved(step) if undo or step.expect is not None else {})

    def _place(self, write: Write) -> Step | None:
        target = write.target
        if target.kind == "node":
            metas = [n.metadata for n in self._ground.store.nodes()]
            return self._named(write, "Node", metas)
        if target.kind == "pod":
            metas = [
                p.metadata
                for p in self._ground.store.pods()
                if p.metadata.namespace == target.namespace
            ]
            return self._named(write, "Pod", metas)
        if target.kind == "namespace":
            return self._gate_step(write)
        return self._workload_step(write)

    def _named(self, write: Write, kind: str, metas: list[Meta]) -> Step | None:
        for meta in metas:
            if meta.name == write.target.name and self._ground.uid_of(meta) == write.uid:
                return _step_of(write, kind, meta)
        return None

    def _workload_step(self, write: Write) -> Step | None:
        for name, kind in SCALABLE.items():
            metas = [
                w.metadata
                for w in self._ground.store.workloads(name)
                if w.metadata.namespace == write.target.namespace
            ]
            step = self._named(write, kind, metas)
            if step is not None:
                return self._autoscaled(write, step) or step
        return None

    def _autoscaled(self, write: Write, step: Step) -> Step | None:
        """An autoscaler owns the replica count of its target: only its minimum is raised."""
        for scaler in self._ground.store.autoscalers():
            target = scaler.spec.scale_target_ref
            meta = scaler.metadata
            if (meta.namespace, target.kind, target.name) == (step.namespace, step.kind, step.name):
                return _step_of(write, "HorizontalPodAutoscaler", meta)
        return None

    def _gate_step(self, write: Write) -> Step | None:
        metas = [n.metadata for n in self._ground.store.namespaces()]
        if self._named(write, "Namespace", metas) is None:
            return None
        meta = self._requests.get(account_path(GATES))["metadata"]
        found = Meta(name=GATES, namespace=SYSTEM, uid=meta["uid"])
        return replace(_step_of(write, "ServiceAccount", found), key=write.target.name)

    def _saved(self, step: Step) -> Json:
        """What the owner gave each container, where the pod still has it or a ticket kept it."""
        key = (step.uid, step.verb, step.value)
        if key not in self._originals:
            pod = self._requests.get(step.path)
            total = TOTALS[step.verb](pod)
            self._originals[step.uid, step.verb, total] = saved_resources(pod)
        return self._originals.get(key, {})

    # Looking.

    def _look(self, intent: str) -> Answer | None:
        ticket = self._box.get(intent.rpartition(".")[0])
        if ticket is None:
            return None  # the ticket comes first, so nothing came after it
        step = ticket.step(intent)
        if step is None:
            return Answer(status=Status.FAILED, detail="its object was gone before it was sent")
        try:
            thing = self._requests.get(step.path)
        except Refusal as refusal:
            if not refusal.is_missing:
                raise
            thing = {}
        same = bool(thing) and thing["metadata"]["uid"] == step.uid
        if step.verb is Verb.EVICT:
            leaving = same and thing["metadata"].get("deletionTimestamp")
            if same and not leaving:
                return None
            return Answer(status=Status.DONE, detail="the pod was gone when we looked")
        if not same:
            return Answer(status=Status.FAILED, detail=f"{step.short} is gone")
        return _seen(ticket, step, thing)

    def _receipt(self, intent: str, answer: Answer) -> Receipt:
        return Receipt(
            intent=intent,
            status=answer.status,
            detail=answer.detail,
            at_seconds=self._ground.clock(),
        )


def _seen(ticket: Ticket, step: Step, thing: Json) -> Answer | None:
    """What an object says about an intent; None: it says nothing of it."""
    now = field_of(step.verb, step.kind).read(thing, step.key)
    if (step.verb in TAINTS and step.value == 0) or not is_tracked(thing):
        ours = now == step.value
    elif step.verb in TAINTS:
        ours = set_by(thing, step) == ticket.action.id
    else:
        author = last_author(thing, step)
        ours = author.startswith(OURS) and author.endswith(f":{step.intent}")
        # Removing an annotation leaves nobody who owns it.
        ours = ours or (now == step.value != step.original and not author.startswith(OURS))
    if ours:
        return Answer(status=Status.DONE, detail=f"found done: {step.verb.value} {now}")
    if not ticket.is_open:
        return Answer(status=Status.DONE, detail=f"done, and closed by the janitor: {ticket.note}")
    untouched = step.expect if step.expect is not None else step.original
    if now == untouched or step.kind == "HorizontalPodAutoscaler":
        return None
    return Answer(
        status=Status.FAILED,
        detail=f"not known: {step.short} has {now} by now, set by {last_author(thing, step)}",
    )


def _is_ours(thing: Json, step: Step) -> str:
    """The loop's own inverses: any mark of ours will do, the ledger knows which action it was."""
    if step.verb in TAINTS or step.verb in (Verb.DRAIN, Verb.POWER, Verb.FREQUENCY, Verb.GATE):
        return ""  # names of our own, which nobody else writes
    author = last_author(thing, step)
    if author.startswith((OURS, JANITORS)) or not is_tracked(thing):
        return ""  # where no owners are kept, the value alone must do
    return f"{step.short} was set by {author} since"


def _mark(ticket: Ticket) -> Mark:
    expires = None if ticket.expires_unix is None else int(ticket.expires_unix)
    return Mark(action=ticket.action.id, expires_unix=expires)


def _step_of(write: Write, kind: str, meta: Meta) -> Step:
    return Step(
        verb=write.verb,
        kind=kind,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        value=write.value,
        original=write.original,
        expect=write.expect,
        intent=write.intent,
    )
