# SPDX-License-Identifier: Apache-2.0
"""Takes back what the loop did: when it expired, when the loop is dead, when somebody said stop.

The janitor knows nothing of forecasts, agents or journals. It reads tickets, and for each that is
due it runs the inverses that the ticket lists, each only while the value is still the one that very
action set. What it did is written on the ticket, where the loop finds it when it returns.

It also opens scheduling gates of ours: a pod is held only as long as its namespace's line among
the gates says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pilothouse.act.fields import Json, Mark
from pilothouse.act.hand import TAINTS, Answer, Hand, Signature, set_by
from pilothouse.act.ownership import JANITORS, is_tracked
from pilothouse.act.power import HookError, NoHook, PowerHook
from pilothouse.act.tickets import Step, Ticket, TicketBox
from pilothouse.clients.keys import (
    ACTING_KEY,
    GATE_NAME,
    GATES,
    LAST_LABEL,
    SWITCH,
    SYSTEM,
    account_path,
    gates_in,
)
from pilothouse.clients.requests import Refusal, Requests
from pilothouse.domain import Status, Verb
from pilothouse.errors import BackendError

GRACE_SECONDS = 10.0  # a loop that is alive takes its own actions back first
DEAD_SECONDS = 30.0  # a loop that was silent for longer is dead
RELEASES_PER_SWEEP = 50
LAST_PER_SWEEP = 5
LOOP_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/pilothouse"


class Cause(StrEnum):
    """Why a ticket is due."""

    EXPIRED = "it expired"
    DEAD = "the loop is dead"
    SWITCHED_OFF = "the kill switch is on"
    ASKED = "a person asked for it"


@dataclass(slots=True)
class Sweep:
    """What one round did."""

    open: int = 0  # tickets in force at its end
    ended: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    held: int = 0  # pods that wait at our gate still, though it is open
    forgotten: int = 0
    problems: list[str] = field(default_factory=list)


class Janitor:
    """One cluster's; ``sweep`` is one round."""

    def __init__(
        self,
        requests: Requests,
        *,
        hook: PowerHook | None = None,
        dead_seconds: float = DEAD_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests = requests
        self._box = TicketBox(requests)
        self._hand = Hand(requests)
        self._hook = hook or NoHook()
        self._dead_seconds, self._grace_seconds = dead_seconds, grace_seconds
        self._wall, self._clock = wall, clock
        self._beat = ""
        self._beat_at = clock()

    def sweep(self, *, everything: bool = False) -> Sweep:
        """Take back what is due; ``everything``: all that is in force, at once."""
        report = Sweep()
        cause = Cause.ASKED if everything else self._why_all()
        tickets, report.problems = self._box.every()
        for ticket in sorted(tickets, key=lambda t: t.made_unix, reverse=True):
            if not ticket.is_open:
                self._forget(ticket, report)
                continue
            why = cause or self._why_due(ticket)
            if why is None:
                report.open += bool(ticket.undo)
                self._forget(ticket, report)
            else:
                self._take_back(ticket, why, report)
        self._open_gates(report)
        return report

    # What is due.

    def _why_all(self) -> Cause | None:
        if self._notes(SWITCH).get(ACTING_KEY) != "enabled":
            return Cause.SWITCHED_OFF
        return Cause.DEAD if self._loop_is_dead() else None

    def _loop_is_dead(self) -> bool:
        """By our own clock: when we last saw its lease change."""
        now = self._clock()
        try:
            spec = self._requests.get(LOOP_LEASE).get("spec") or {}
        except Refusal as refusal:
            if not refusal.is_missing:
                raise
            spec = {}
        beat = f"{spec.get('holderIdentity', '')} {spec.get('renewTime', '')}"
        if beat != self._beat and spec.get("holderIdentity"):
            self._beat, self._beat_at = beat, now
        return now - self._beat_at > self._dead_seconds

    def _why_due(self, ticket: Ticket) -> Cause | None:
        if not ticket.undo or ticket.expires_unix is None:
            return None
        late = self._wall() - ticket.expires_unix
        return Cause.EXPIRED if late > self._grace_seconds else None

    def _notes(self, name: str) -> dict[str, str]:
        """The annotations of one of our own accounts; a missing one says nothing."""
        try:
            meta = self._requests.get(account_path(name))["metadata"]
            return dict(meta.get("annotations") or {})
        except Refusal as refusal:
            if refusal.is_missing:
                return {}
            raise

    # Taking back.

    def _take_back(self, ticket: Ticket, cause: Cause, report: Sweep) -> None:
        answers = [self._undo(ticket, n, step) for n, step in enumerate(ticket.undo)]
        open_still = [a for a in answers if a.status is Status.FAILED and not _is_gone(a)]
        if open_still:
            report.open += 1
            report.problems.append(f"{ticket.name}: {open_still[0].detail}")
            return
        done = [a for a in answers if a.status is Status.DONE]
        phase = "Restored" if done else "Released"
        said = "; ".join(a.detail for a in answers) or "nothing to take back"
        note = f"{cause.value}: {said}"
        try:
            self._box.end(
                ticket, phase=phase, note=note, now=self._wall(), author=self._author(ticket)
            )
        except BackendError as error:
            report.problems.append(f"{ticket.name}: {error}")
            return
        report.ended.append(f"{ticket.name} {phase}: {note}")

    def _undo(self, ticket: Ticket, number: int, step: Step) -> Answer:
        wakes = step.verb is Verb.POWER and step.value == 1
        answer = self._hand.carry_out(
            step,
            Signature(
                author=self._author(ticket),
                audit_id=f"janitor.{ticket.action.id}.{number}",
                mark=Mark(action=ticket.action.id),
            ),
            may_touch=lambda _thing: "",
            is_ours=lambda thing, one: _is_of(ticket, thing, one),
        )
        if wakes and answer.status is Status.DONE:
            try:
                word = self._hook.switch(step.name, awake=True, intent=ticket.action.id)
            except HookError as error:
                return replace(answer, detail=f"{answer.detail}, but {error}")
            return replace(answer, detail=f"{answer.detail}; {word}")
        return answer

    def _author(self, ticket: Ticket) -> str:
        return f"{JANITORS}{ticket.action.id}"

    def _forget(self, ticket: Ticket, report: Sweep) -> None:
        over = not ticket.is_open or not ticket.undo
        if over and self._wall() > ticket.keep_unix:
            self._box.forget(ticket)
            report.forgotten += 1

    # Gates.

    def _open_gates(self, report: Sweep) -> None:
        gates = gates_in(self._notes(GATES))
        waiting = self._requests.every("/api/v1/pods", {"fieldSelector": "spec.nodeName="})
        held = [p for p in waiting if _is_held(p)]
        free = [p for p in held if gates.get(p["metadata"]["namespace"]) != "queue"]
        first = [p for p in free if not _is_last(p)]
        last = [p for p in free if _is_last(p)]
        others = [p for p in waiting if not _is_held(p) and not p["spec"].get("schedulingGates")]
        chosen = first[:RELEASES_PER_SWEEP]
        if not chosen:  # whoever comes last waits until nobody else does, or the gate is open
            chosen = [p for p in last if not others or not gates.get(p["metadata"]["namespace"])]
            chosen = chosen[:LAST_PER_SWEEP]
        for pod in chosen:
            self._release(pod, report)
        report.held = sum(not gates.get(p["metadata"]["namespace"]) for p in free)
        report.held -= sum(not gates.get(name.partition("/")[0]) for name in report.released)

    def _release(self, pod: Json, report: Sweep) -> None:
        meta = pod["metadata"]
        gates = [g for g in pod["spec"]["schedulingGates"] if g.get("name") != GATE_NAME]
        body: dict[str, Any] = {
            "metadata": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]},
            "spec": {"schedulingGates": gates},
        }
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        try:
            self._requests.patch(
                path,
                body,
                author=f"{JANITORS}release",
                audit_id=f"janitor.release.{meta['uid'][:36]}",
            )
        except Refusal as refusal:
            if not (refusal.is_conflict or refusal.is_missing):
                report.problems.append(f"{meta['namespace']}/{meta['name']}: {refusal}")
            return
        report.released.append(f"{meta['namespace']}/{meta['name']}")


def _is_held(pod: Json) -> bool:
    gates: Sequence[Json] = pod["spec"].get("schedulingGates") or []
    return any(g.get("name") == GATE_NAME for g in gates)


def _is_last(pod: Json) -> bool:
    return bool((pod["metadata"].get("labels") or {}).get(LAST_LABEL) == "last")


def _is_gone(answer: Answer) -> bool:
    return any(word in answer.detail for word in ("is gone", "was replaced", "on its way out"))


def _is_of(ticket: Ticket, thing: Json, step: Step) -> str:
    """Only what this very action set: a newer action of ours has its own ticket."""
    setter = set_by(thing, step)
    if setter == ticket.action.id:
        return ""
    if step.verb not in TAINTS and not is_tracked(thing):
        return ""  # where no owners are kept, the value alone must do
    if step.verb in TAINTS and not setter:
        return f"{step.short} does not carry our taint any more"
    return f"{step.short} was set by {setter or 'somebody else'} since"
