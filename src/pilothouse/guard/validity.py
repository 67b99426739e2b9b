# SPDX-License-Identifier: Apache-2.0
"""Whether a proposal is one at all: well formed, from whom it says, of a kind its sender may ask.

A proposer may be a stranger's code, so nothing about the object is taken for granted, not even
the types its annotations promise. Types must be the very ones: a subclass could bring code of its
own, and the journal has no place for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, get_args

from pilothouse.domain import (
    ADMISSION_KINDS,
    EFFICIENCY_KINDS,
    SAFETY_KINDS,
    ActionKind,
    Evidence,
    Proposal,
    Ref,
    Ruling,
    Verdict,
)
from pilothouse.domain.reference import ObjectKind
from pilothouse.guard.case import Sent, Standing, clock, refuse, shown

MOST_PAYLOAD = 16
MOST_EVIDENCE = 32
LONGEST_TEXT = 512
JANITOR = "janitor"

KINDS = {
    JANITOR: frozenset({ActionKind.RESTORE}),
    "safety": SAFETY_KINDS | {ActionKind.NOOP, ActionKind.POWER_STATE},
    "efficiency": EFFICIENCY_KINDS | {ActionKind.NOOP},
    "admission": ADMISSION_KINDS | {ActionKind.NOOP},
}
ANY_KIND = frozenset(ActionKind) - {ActionKind.RESTORE}


def validate(
    sent: Sequence[Sent], *, now: int, most: Callable[[Standing], int]
) -> list[Verdict | None]:
    """One answer per proposal; None lets it through to planning."""
    counts: dict[str, int] = {}
    seen: set[tuple[object, ...]] = set()
    verdicts: list[Verdict | None] = []
    for each in sent:
        name = each.sender.name
        counts[name] = counts.get(name, 0) + 1
        if counts[name] > most(each.sender) and name != JANITOR:
            verdicts.append(_too_many(name, counts[name], most(each.sender)))
            continue
        verdict = _judge(each, now)
        if verdict is None and _is_repeated(each, seen):
            verdict = refuse("duplicate", f"{name} asked for the same thing twice in this cycle")
        verdicts.append(verdict)
    return verdicts


def _too_many(name: str, number: int, allowed: int) -> Verdict:
    return refuse(
        "proposals-per-agent",
        f"proposal {number} of {name} in this cycle, only {allowed} are read",
        used=number,
        allowed=allowed,
    )


def _is_repeated(each: Sent, seen: set[tuple[object, ...]]) -> bool:
    p = each.proposal
    key = (each.sender.name, p.kind, p.target, tuple(sorted(map(repr, p.payload.items()))))
    if key in seen:
        return True
    seen.add(key)
    return False


def _judge(each: Sent, now: int) -> Verdict | None:
    proposal: Any = each.proposal
    if type(proposal) is not Proposal:
        return refuse("malformed", f"not a proposal but {shown(type(proposal).__name__)}")
    problem = _malformed(proposal)
    if problem:
        return refuse("malformed", problem)
    sender = each.sender
    if proposal.agent != sender.name:
        claim = shown(proposal.agent)
        return refuse("impersonation", f"{sender.name} spoke in the name of {claim}")
    if proposal.label != f"{sender.title}:{proposal.kind.value}":
        return refuse("impersonation", f"{sender.name} used the label {shown(proposal.label)}")
    if proposal.kind not in KINDS.get(sender.name, ANY_KIND):
        return refuse("kind-not-allowed", f"{sender.name} may not ask for {proposal.kind.value}")
    if proposal.expires_seconds < now:
        return Verdict(
            ruling=Ruling.EXPIRED,
            rule="expired",
            sentence=f"expired at {clock(proposal.expires_seconds)}, now {clock(now)}",
        )
    return None


def _malformed(p: Any) -> str:
    """What is wrong with the fields, or nothing."""
    if type(p.kind) is not ActionKind:
        return f"kind must be an action kind, but got {shown(p.kind)}"
    if not _is_ref(p.target):
        return f"target must be a reference, but got {shown(p.target)}"
    for name in ("agent", "label", "reason", "otherwise"):
        value = getattr(p, name)
        if not _is_text(value):
            return f"{name} must be a plain text of at most {LONGEST_TEXT} characters"
    if not _is_finite(p.score) or not 0 <= p.score <= 1:
        return f"score must be between 0 and 1, but got {shown(p.score)}"
    for name in ("priority", "expires_seconds"):
        value = getattr(p, name)
        if type(value) is not int or abs(value) > 2**53:
            return f"{name} must be a whole number, but got {shown(value)}"
    return _malformed_payload(p) or _malformed_evidence(p)


def _is_ref(target: Any) -> bool:
    if type(target) is not Ref:
        return False
    parts: tuple[Any, ...] = (target.cluster, target.kind, target.namespace, target.name)
    return all(map(_is_text, parts)) and target.kind in get_args(ObjectKind)


def _is_text(value: object) -> bool:
    """Short, and something a journal can hold: half a surrogate pair is not."""
    if type(value) is not str or len(value) > LONGEST_TEXT:
        return False
    return value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)


def _malformed_payload(p: Any) -> str:
    if type(p.payload) is not dict or len(p.payload) > MOST_PAYLOAD:
        return f"payload must have at most {MOST_PAYLOAD} entries"
    for key, value in p.payload.items():
        if not _is_text(key):
            return f"payload keys must be short texts, but got {shown(key)}"
        if type(value) is not bool and not _is_finite(value) and not _is_text(value):
            return (
                f"payload {shown(key)} must be a finite number or a short text, not {shown(value)}"
            )
    return ""


def _malformed_evidence(p: Any) -> str:
    if type(p.evidence) is not tuple or len(p.evidence) > MOST_EVIDENCE:
        return f"evidence must have at most {MOST_EVIDENCE} entries"
    for item in p.evidence:
        if not _is_evidence(item):
            return f"evidence must be named, finite numbers, but got {shown(item)}"
    return ""


def _is_evidence(item: Any) -> bool:
    if type(item) is not Evidence or not _is_finite(item.value):
        return False
    if not _is_text(item.name) or not _is_text(item.unit):
        return False
    return item.needs is None or _is_finite(item.needs)


def _is_finite(value: object) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    # Whole numbers beyond this neither survive JSON nor fit a column.
    return type(value) is int and abs(value) <= 2**53
