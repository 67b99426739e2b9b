# SPDX-License-Identifier: Apache-2.0
"""Carrying out one step: read the object afresh, see that it is the right one, write one field.

Whoever writes, loop or janitor, writes through here, so both keep the same promises: never a
namesake, never a value that changed meanwhile, never a field that a controller owns, and an inverse
only while the value is still the one we set.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pilothouse.act.fields import (
    Field,
    Json,
    Mark,
    UnfitError,
    field_of,
    our_taint,
    preconditions,
    with_saved,
)
from pilothouse.act.ownership import foreign_owner, managers, our_intent
from pilothouse.act.tickets import Step
from pilothouse.clients.keys import AVOID_KEY, TAINT_KEY
from pilothouse.clients.requests import DEADLINE_SECONDS, MERGE, STRATEGIC, Refusal, Requests
from pilothouse.domain import NOT_IN_FORCE, Status, Verb
from pilothouse.errors import ClusterUnreachable

ATTEMPTS = 5  # against somebody who keeps changing the same object
RESIZE_SECONDS = 3.0  # how long a receipt waits for the kubelet's word about a resize
LOOK_SECONDS = 0.25
TAKEN, UNDER_WAY = "done by the kubelet", "in progress"  # what a resize may come to, beside reasons
TAINTS = {Verb.TAINT: TAINT_KEY, Verb.AVOID: AVOID_KEY}
RESOURCES = {Verb.CPU_LIMIT: "cpu", Verb.MEMORY_REQUEST: "memory"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a step ended."""

    status: Status
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Who writes: the field manager, the audit id, and the mark that taints carry."""

    author: str
    audit_id: str
    mark: Mark


def refused(why: str) -> Answer:
    return Answer(status=Status.REFUSED, detail=why)


def failed(why: str) -> Answer:
    return Answer(status=Status.FAILED, detail=why)


def done(what: str) -> Answer:
    return Answer(status=Status.DONE, detail=what)


class Hand:
    """Writes to one cluster."""

    def __init__(self, requests: Requests, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._requests = requests
        self._sleep = sleep

    def carry_out(
        self,
        step: Step,
        signature: Signature,
        *,
        may_touch: Callable[[Json], str],
        is_ours: Callable[[Json, Step], str],
    ) -> Answer:
        """Write once. ``may_touch`` objects to a change, ``is_ours`` to an inverse."""
        for _ in range(ATTEMPTS):
            thing = self._read(step)
            if isinstance(thing, Answer):
                return thing
            why = may_touch(thing)
            if why:
                return refused(why)
            try:
                if step.verb is Verb.EVICT:
                    return self._evict(step, thing, signature)
                answer = self._change(step, thing, signature, is_ours)
            except ClusterUnreachable as error:
                return self._look_again(step, signature, str(error))
            except Refusal as refusal:
                if refusal.is_conflict:
                    continue  # somebody was quicker: read again and judge again
                return failed(f"{refusal.code}: {refusal}")
            return answer
        return refused(f"{step.short} changed {ATTEMPTS} times while we tried; left alone")

    def _read(self, step: Step) -> Json | Answer:
        try:
            thing = self._requests.get(step.path)
        except Refusal as refusal:
            if refusal.is_missing:
                return failed(f"{step.short} is gone")
            return failed(f"{refusal.code}: {refusal}")
        except ClusterUnreachable as error:
            return failed(str(error))
        if thing["metadata"]["uid"] != step.uid:
            return failed(f"{step.short} was replaced by another of the same name")
        if thing["metadata"].get("deletionTimestamp"):
            return failed(f"{step.short} is on its way out")
        return thing

    def _change(
        self,
        step: Step,
        thing: Json,
        signature: Signature,
        is_ours: Callable[[Json, Step], str],
    ) -> Answer:
        field = field_of(step.verb, step.kind)
        now = field.read(thing, step.key)
        why = self._why_not(step, thing, field, now, is_ours)
        if why:
            return refused(why)
        try:
            body = _body(step, thing, field, signature.mark)
        except UnfitError as misfit:
            return refused(f"{step.short}: {misfit}")
        self._requests.patch(
            step.path + field.subresource,
            body,
            author=signature.author,
            audit_id=signature.audit_id,
            kind=STRATEGIC if field.is_strategic else MERGE,
        )
        said = f"{step.verb.value} {now} to {step.value}"
        if step.verb in RESOURCES:
            said = f"{said}{self._kubelets_word(step)}"
        return done(said)

    def _why_not(
        self,
        step: Step,
        thing: Json,
        field: Field,
        now: int,
        is_ours: Callable[[Json, Step], str],
    ) -> str:
        if step.expect is not None:
            if now != step.expect:
                return f"{step.short} has {now} now, not the {step.expect} we set"
            return is_ours(thing, step)
        if step.kind == "HorizontalPodAutoscaler":
            if now >= step.value:
                return f"{step.short} keeps at least {now} replicas already"
        elif now != step.original:
            return f"{step.short} changed from {step.original} to {now} since the decision"
        owner = foreign_owner(thing, field.owned(thing, step.key), step.verb)
        return f"{step.verb.value} of {step.short} belongs to {owner}" if owner else ""

    def _kubelets_word(self, step: Step) -> str:
        """Whether the kubelet took a resize: deferred and infeasible are outcomes, too."""
        deadline = time.monotonic() + RESIZE_SECONDS
        while True:
            try:
                word = resize_state(self._requests.get(step.path))
            except (Refusal, ClusterUnreachable):
                return ", accepted by the API server"
            if word == TAKEN:
                return f", {word}"
            if word != UNDER_WAY or time.monotonic() > deadline:
                return f"{NOT_IN_FORCE}{word}"
            self._sleep(LOOK_SECONDS)

    def _evict(self, step: Step, thing: Json, signature: Signature) -> Answer:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": step.name, "namespace": step.namespace},
            "deleteOptions": {"preconditions": {"uid": step.uid}},
        }
        try:
            self._requests.create(
                f"{step.path}/eviction",
                body,
                author=signature.author,
                audit_id=signature.audit_id,
            )
        except Refusal as refusal:
            if refusal.code == 429:
                return refused(f"disruption budget: {refusal}")
            if refusal.is_missing or refusal.is_conflict:
                return failed(f"{step.short} is gone")
            raise
        return done(f"evicted from {thing['spec'].get('nodeName', 'nowhere')}")

    def _look_again(self, step: Step, signature: Signature, problem: str) -> Answer:
        """No answer to a write: after the server's own deadline what is there is what happened."""
        self._sleep(DEADLINE_SECONDS + 1)
        thing = self._read(step)
        if isinstance(thing, Answer):
            gone = step.verb is Verb.EVICT and "gone" in thing.detail
            return done("evicted, seen when we looked again") if gone else thing
        field = field_of(step.verb, step.kind) if step.verb is not Verb.EVICT else None
        if field is not None and field.read(thing, step.key) == step.value:
            return done(f"{step.verb.value} {step.value}, seen when we looked again")
        return failed(f"not done: {problem}")


def _body(step: Step, thing: Json, field: Field, mark: Mark) -> Json:
    if step.saved and step.verb in RESOURCES:
        body = with_saved(thing, step.saved, RESOURCES[step.verb])
    else:
        body = field.change(thing, step.key, step.value, mark)
    meta: dict[str, Any] = {**preconditions(thing), **body.get("metadata", {})}
    return {**body, "metadata": meta}


def resize_state(pod: Json) -> str:
    """What became of a resize: done, in progress, deferred or infeasible, with the reason."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodResizePending" and condition.get("status") == "True":
            reason = str(condition.get("reason", "Deferred")).lower()
            return f"{reason}: {condition.get('message', '')}".rstrip(": ")
        if condition.get("type") == "PodResizeInProgress" and condition.get("status") == "True":
            return UNDER_WAY
    wanted = {c["name"]: c.get("resources") or {} for c in pod["spec"].get("containers") or []}
    for one in status.get("containerStatuses") or []:
        if (one.get("resources") or {}) != wanted.get(one["name"], {}):
            return UNDER_WAY
    return TAKEN


def set_by(thing: Json, step: Step) -> str:
    """The action whose mark is on the value of a step; empty: nobody of ours."""
    if step.verb in TAINTS:
        taint = our_taint(thing, TAINTS[step.verb])
        return str(taint.get("value", "")) if taint else ""
    field = field_of(step.verb, step.kind)
    return our_intent(thing, field.owned(thing, step.key)).rpartition(".")[0]


def last_author(thing: Json, step: Step) -> str:
    """Who set it last, by name."""
    field = field_of(step.verb, step.kind)
    for path in field.owned(thing, step.key):
        for manager in managers(thing, path):
            return manager
    return "somebody"
