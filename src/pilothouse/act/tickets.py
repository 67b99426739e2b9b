# SPDX-License-Identifier: Apache-2.0
"""Tickets: what the cluster itself keeps about an action of ours, written before its first write.

A ticket says which objects, which fields, what was there, what we set, when it ends and under which
intents. From tickets alone the janitor can take everything back, and a new leader knows what was
spent and what is open. A ticket's ``spec`` never changes; its ``status`` is the janitor's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from pilothouse.act.fields import Json
from pilothouse.clients.keys import SYSTEM
from pilothouse.clients.requests import Refusal, Requests
from pilothouse.domain import Action, Verb
from pilothouse.errors import BackendError

API_VERSION = "pilothouse.dev/v1alpha1"
PATH = f"/apis/{API_VERSION}/namespaces/{SYSTEM}/tickets"
OPEN = ""  # a ticket without a phase is in force
PLACES = {
    "Node": "/api/v1/nodes/{name}",
    "Pod": "/api/v1/namespaces/{namespace}/pods/{name}",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts/{name}",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments/{name}",
    "StatefulSet": "/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}",
    "ReplicaSet": "/apis/apps/v1/namespaces/{namespace}/replicasets/{name}",
    "HorizontalPodAutoscaler": (
        "/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{name}"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One write against one Kubernetes object, as a ticket keeps it."""

    verb: Verb
    kind: str  # of the object: "Pod"
    namespace: str = ""  # empty for what has none
    name: str
    uid: str
    key: str = ""  # within the object: the namespace whose gate this is
    value: int = 0
    original: int = 0
    expect: int | None = None
    intent: str = ""
    saved: dict[str, Any] = field(default_factory=dict)  # a pod's resources, word for word

    @property
    def path(self) -> str:
        return PLACES[self.kind].format(namespace=self.namespace, name=self.name)

    @property
    def short(self) -> str:
        name = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.kind} {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What the action counts against the guard's budgets."""

    nodes: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    disturbs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One action in force, or remembered."""

    action: Action
    made_seconds: int  # cluster clock
    made_unix: float
    expires_unix: float | None  # wall clock; None: nothing to take back
    keep_unix: float  # remembered until then: the guard's longest window
    holder: str
    epoch: int
    charge: Charge = Charge()
    steps: tuple[Step, ...] = ()
    undo: tuple[Step, ...] = ()
    phase: str = OPEN
    note: str = ""  # what the janitor did
    ended_unix: float | None = None

    @property
    def name(self) -> str:
        return name_of(self.action.id)

    @property
    def is_open(self) -> bool:
        return self.phase == OPEN

    def step(self, intent: str) -> Step | None:
        return next((step for step in self.steps if step.intent == intent), None)


def name_of(action_id: str) -> str:
    """A ticket's name; ids are lower-case and dots are allowed in names."""
    return action_id


def to_document(ticket: Ticket) -> Json:
    """As the API server keeps it; the readable part first, the exact record beside it."""
    action = ticket.action
    spec: Json = {
        "action": action.id,
        "agent": action.agent,
        "kind": str(action.kind),
        "target": str(action.target),
        "made": _moment(ticket.made_unix),
        "madeSeconds": ticket.made_seconds,
        "keep": _moment(ticket.keep_unix),
        "holder": ticket.holder,
        "epoch": ticket.epoch,
        "charge": msgspec.to_builtins(ticket.charge),
        "steps": [_plain(step) for step in ticket.steps],
        "undo": [_plain(step) for step in ticket.undo],
        "record": msgspec.json.encode(action).decode(),
    }
    if ticket.expires_unix is not None:
        spec["expires"] = _moment(ticket.expires_unix)
    return {
        "apiVersion": API_VERSION,
        "kind": "Ticket",
        "metadata": {
            "name": ticket.name,
            "namespace": SYSTEM,
            "labels": {"pilothouse.dev/agent": action.agent, "pilothouse.dev/kind": action.kind},
        },
        "spec": spec,
    }


def from_document(document: Json) -> Ticket:
    """Read a ticket; one that nobody of ours wrote is the cluster's error."""
    try:
        return _ticket(document)
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        name = (document.get("metadata") or {}).get("name", "without a name")
        raise BackendError(f"The ticket {name} cannot be read: {error!r}.") from None


def _ticket(document: Json) -> Ticket:
    spec, status = document["spec"], document.get("status") or {}
    expires, ended = spec.get("expires"), status.get("ended")
    return Ticket(
        action=msgspec.json.decode(spec["record"], type=Action),
        made_seconds=int(spec["madeSeconds"]),
        made_unix=_unix(spec["made"]),
        expires_unix=_unix(expires) if expires else None,
        keep_unix=_unix(spec["keep"]),
        holder=str(spec.get("holder", "")),
        epoch=int(spec.get("epoch", 0)),
        charge=msgspec.convert(spec.get("charge") or {}, Charge),
        steps=tuple(msgspec.convert(spec.get("steps") or [], list[Step])),
        undo=tuple(msgspec.convert(spec.get("undo") or [], list[Step])),
        phase=str(status.get("phase", OPEN)),
        note=str(status.get("note", "")),
        ended_unix=_unix(ended) if ended else None,
    )


def _plain(step: Step) -> Json:
    document: Json = {k: v for k, v in msgspec.to_builtins(step).items() if v not in (None, "", {})}
    return document


def _moment(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def _unix(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class TicketBox:
    """The tickets of one cluster."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def add(self, ticket: Ticket, *, author: str) -> None:
        self._requests.create(
            PATH, to_document(ticket), author=author, audit_id=f"{ticket.name}.ticket"
        )

    def get(self, action_id: str) -> Ticket | None:
        try:
            return from_document(self._requests.get(f"{PATH}/{name_of(action_id)}"))
        except Refusal as refusal:
            if refusal.is_missing:
                return None
            raise

    def every(self) -> tuple[list[Ticket], list[str]]:
        """All that can be read, and what is wrong with the others."""
        tickets, problems = [], []
        for document in self._requests.every(PATH):
            try:
                tickets.append(from_document(document))
            except BackendError as error:
                problems.append(str(error))
        return tickets, problems

    def end(self, ticket: Ticket, *, phase: str, note: str, now: float, author: str) -> None:
        """Close a ticket; its status says what became of the action."""
        body = {"status": {"phase": phase, "note": note[:1000], "ended": _moment(now)}}
        self._requests.patch(
            f"{PATH}/{ticket.name}/status",
            body,
            author=author,
            audit_id=f"janitor.{ticket.name}.status",
        )

    def forget(self, ticket: Ticket) -> None:
        """Remove a closed ticket that no budget needs any more."""
        self._requests.delete(f"{PATH}/{ticket.name}", {}, audit_id=f"janitor.{ticket.name}.forget")
