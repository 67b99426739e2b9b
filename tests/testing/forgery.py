# SPDX-License-Identifier: Apache-2.0
"""Violations to plant: lines for an audit log, tickets, and journals that were tampered with.

Each is planted alone beside an honest record. A checker that does not find one of them proves
nothing when it finds nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pilothouse.journal import Cycle, Journal, JournalReader, Receipts, Record, SettingsChange
from pilothouse.testing.livecheck.audit import ACTUATOR, JANITOR

Json = dict[str, Any]
SPACE = "act-env"
CHANGES = "pilothouse.dev/out-of-service"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def a_line(intent: str, resource: str, name: str, at: float, **more: Any) -> str:
    """One line of an audit log: a write of the actuator's that succeeded, unless told otherwise."""
    kind, _, subresource = resource.partition("/")
    place = {"resource": kind, "subresource": subresource, "name": name}
    return json.dumps(
        {
            "stage": "ResponseComplete",
            "user": {"username": more.get("user", ACTUATOR)},
            "verb": more.get("verb", "patch"),
            "auditID": intent,
            "requestReceivedTimestamp": _moment(at),
            "stageTimestamp": _moment(at),
            "responseStatus": {"code": more.get("code", 200)},
            "requestURI": more.get("address", ""),
            "objectRef": place | {"namespace": more.get("namespace", "")},
            "requestObject": more.get("request", {}),
            "responseObject": more.get("response", {}),
        }
    )


def a_namespace(name: str, at: float, *, managed: bool) -> str:
    labels = {"pilothouse.dev/managed": "true"} if managed else {}
    thing = {"metadata": {"name": name, "labels": labels}}
    return a_line("x", "namespaces", name, at, user="admin", response=thing)


def a_pod(at: float, *, owner: str = "ReplicaSet", spec: Json | None = None, **notes: str) -> str:
    meta: Json = {
        "name": "cart-1",
        "namespace": SPACE,
        "labels": {"app": "cart", "pod-template-hash": "7"},
        "annotations": {key.replace("__", "/"): value for key, value in notes.items()},
    }
    if owner:
        meta["ownerReferences"] = [{"kind": owner, "name": "cart-7", "controller": True}]
    more = {"verb": "create", "user": "admin", "namespace": SPACE}
    return a_line("x", "pods", "", at, response={"metadata": meta, "spec": spec or {}}, **more)


def a_budget(at: float, current: int) -> str:
    thing = {
        "metadata": {"name": "cart", "namespace": SPACE},
        "spec": {"selector": {"matchLabels": {"app": "cart"}}},
        "status": {"currentHealthy": current, "desiredHealthy": 2},
    }
    more = {"verb": "update", "user": "admin", "namespace": SPACE}
    return a_line("x", "poddisruptionbudgets/status", "cart", at, response=thing, **more)


def a_flip(at: float, word: str) -> str:
    notes = {"pilothouse.dev/acting": word}
    return an_account("pilothouse-switch", at, notes, user="admin")


def a_fence(at: float, epoch: int, holder: str) -> str:
    notes = {"pilothouse.dev/epoch": str(epoch), "pilothouse.dev/holder": holder}
    return an_account("pilothouse-fence", at, notes)


def an_account(name: str, at: float, notes: Json, **more: Any) -> str:
    thing = {"metadata": {"name": name, "annotations": notes}}
    more |= {"namespace": "pilothouse-system"}
    return a_line("fence", "serviceaccounts", name, at, response=thing, **more)


def a_ticket(made: float, expires: float) -> Json:
    times = {"made": _moment(made), "expires": _moment(expires)}
    spec = {"action": "0123456789ab.7", "undo": [{"verb": "taint"}], **times}
    return {"metadata": {"name": spec["action"]}, "spec": spec}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """One violation, and the words by which it must be found."""

    words: str
    lines: tuple[str, ...] = ()
    tickets: tuple[Json, ...] = ()
    change: Callable[[Record], Record | None] | None = None  # of the journal, record by record

    @property
    def invariant(self) -> str:
        return self.words.partition(" ")[0]


def plants(intent: str, now: float) -> list[Plant]:
    """The table. ``intent`` is an honest one, of a change to a node."""
    deed = a_line(intent, "nodes", "node-0", now)

    def evicted(why: str, *, space: str = SPACE, pod: str = "") -> Plant:
        line = a_line(intent, "pods/eviction", "cart-1", now, namespace=space)
        return Plant(words=f"I9 {intent}: pods/eviction {why}", lines=(pod, line))

    def marked(number: int) -> str:
        taint = {"key": CHANGES, "effect": "NoSchedule"}
        node = {"metadata": {"name": f"n{number}"}, "spec": {"taints": [taint]}}
        return a_line(intent, "nodes", f"n{number}", now, response=node)

    notes = {"metadata": {"annotations": {"gate.pilothouse.dev/kube-system": "queue"}}}
    gate: Json = {"request": notes, "namespace": "pilothouse-system"}

    def signed(epoch: int, holder: str, more: str = "") -> str:
        address = f"/x?fieldManager=pilothouse%3A{epoch}%3A{holder}%3A{intent}{more}"
        return a_line(intent, "nodes", "node-0", now, address=address)

    fence = a_fence(now - 5, 7, "us")
    annotations = (
        ("pilothouse.dev__do-not-disrupt", "true", "its owner"),
        ("karpenter.sh__do-not-disrupt", "true", "its owner"),
        ("cluster-autoscaler.kubernetes.io__safe-to-evict", "false", "cluster-autoscaler"),
        ("descheduler.alpha.kubernetes.io__prefer-no-eviction", "", "its owner"),
    )
    local = {"volumes": [{"name": "v", "emptyDir": {}}]}
    kept = [
        (a_pod(now - 9, owner=""), "nobody"),
        (a_pod(now - 9, owner="DaemonSet"), "nobody"),
        (a_pod(now - 9, spec={"priority": 2_000_000_000}), "its priority"),
        (a_pod(now - 9, spec=local), "it has local storage"),
        *((a_pod(now - 9, **{key: value}), why) for key, value, why in annotations),
    ]
    dip = (a_pod(now - 9), a_budget(now - 3, 2), a_budget(now + 1, 1))
    eviction = a_line(intent, "pods/eviction", "cart-1", now, namespace=SPACE)
    return [
        Plant(words="I1 0123456789ab.0.0", lines=(a_line("0123456789ab.0.0", "nodes", "n", now),)),
        Plant(
            words="I1 janitor",
            lines=(a_line("janitor.0123456789ab.0.0", "nodes", "n", now, user=JANITOR),),
        ),
        Plant(words="I2", change=_without_receipts),
        Plant(words="I4 node-0: 1 actions", lines=(deed,), change=_with_guard(per_node=0)),
        Plant(words="I4 efficiency: 1 actions", lines=(deed,), change=_with_guard(per_agent=0)),
        Plant(words=f"I4 {intent}: ", lines=tuple(marked(n) for n in range(20))),
        Plant(words=f"I5 {intent}: written", lines=(a_flip(now - 5, "disabled"), deed)),
        Plant(words=f"I5 {intent}: efficiency was in", lines=(deed,), change=_in_shadow),
        Plant(words=f"I5 {intent}: signed by 6:us", lines=(fence, signed(6, "us"))),
        Plant(words=f"I5 {intent}: signed by 7:them", lines=(fence, signed(7, "them"))),
        Plant(words=f"I5 {intent}: signed by nobody", lines=(fence, deed)),
        # Words that look like options of the request, and are others' values.
        Plant(words=f"I5 {intent}: signed by 6:us", lines=(fence, signed(6, "us", "dryRun=All"))),
        Plant(
            words=f"I5 {intent}: signed by 6:us",
            lines=(fence, signed(6, "us", "&x=%26fieldManager=pilothouse:7:us:")),
        ),
        Plant(words=f"I5 {intent}: decided while", lines=(deed,), change=_halted),
        Plant(words="I6", lines=(a_line(intent, "nodes", "node-0", now, verb="delete"),)),
        Plant(words=f"I6 {intent}: {SPACE}/cart had 1 of 2", lines=(*dip, eviction)),
        Plant(words=f"I7 {intent}: 2", lines=(deed, deed)),
        Plant(words="I8", change=_with_another_reason),
        evicted("cart-1 in kube-system", space="kube-system", pod=a_pod(now - 9)),
        evicted("in closed-env, which did", space="closed-env", pod=a_pod(now - 9)),
        Plant(
            words=f"I9 {intent}: serviceaccounts in kube-system",
            lines=(a_line(intent, "serviceaccounts", "pilothouse-gates", now, **gate),),
        ),
        *(evicted(f"of cart-1, but {why}", pod=pod) for pod, why in kept),
        Plant(words="I10", tickets=(a_ticket(now - 900, now - 61),)),
        Plant(
            words="I10",
            lines=(a_flip(now - 70, "disabled"),),
            tickets=(a_ticket(now - 900, now + 900),),
        ),
    ]


def scenery(now: float) -> list[str]:
    """What honest writes are made on."""
    return [
        a_flip(now - 1_000, "enabled"),
        a_namespace(SPACE, now - 1_000, managed=True),
        a_namespace("closed-env", now - 1_000, managed=False),
    ]


# Journals that say something else.


def forged(source: Path, target: Path, change: Callable[[Record], Record | None]) -> Path:
    """The same records, each as ``change`` leaves it, under a chain that holds."""
    with Journal.open(target) as journal:
        for entry, frame in JournalReader(source).story():
            record = change(entry.record)
            if isinstance(record, Cycle) and frame is not None:
                journal.append_cycle(record, frame.snapshot, frame.forecast)
            elif record is not None:
                journal.append(record, cycle=entry.cycle)
    return target


def damaged(source: Path, target: Path) -> Path:
    """A journal in which one byte was changed on the disk."""
    run = JournalReader(source).run()
    assert run is not None
    content = source.read_bytes()
    other = run.run_id[:-1] + ("0" if run.run_id[-1] != "0" else "1")
    assert run.run_id.encode() in content
    target.write_bytes(content.replace(run.run_id.encode(), other.encode(), 1))
    return target


def _without_receipts(record: Record) -> Record | None:
    return None if isinstance(record, Receipts) else record


def _with_guard(**numbers: int) -> Callable[[Record], Record]:
    def change(record: Record) -> Record:
        if not isinstance(record, SettingsChange):
            return record
        guard = {**record.settings["guard"], **numbers}
        return replace(record, settings={**record.settings, "guard": guard})

    return change


def _in_shadow(record: Record) -> Record:
    if not isinstance(record, SettingsChange):
        return record
    modes = {"default": "shadow", "agents": {}}
    return replace(record, settings={**record.settings, "modes": modes})


def _halted(record: Record) -> Record:
    if not isinstance(record, Cycle):
        return record
    return replace(record, decision=replace(record.decision, halted=True))


def _with_another_reason(record: Record) -> Record:
    if not isinstance(record, Cycle):
        return record
    return replace(record, decision=replace(record.decision, rationale="because"))


def names(violations: Sequence[str]) -> set[str]:
    return {line.partition(" ")[0] for line in violations}
