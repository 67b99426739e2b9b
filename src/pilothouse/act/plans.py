# SPDX-License-Identifier: Apache-2.0
"""What a plan is made of: which way its writes push, how they are undone, why there is none."""

from __future__ import annotations

import math
from collections.abc import Iterable

from pilothouse.domain import Gate, Plan, Proposal, Verb, Write

# One field of an object may be written by several verbs; two of them on one object can disagree.
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


class NoPlanError(Exception):
    """Ends planning with a sentence."""


def effects_of(writes: Iterable[Write]) -> tuple[tuple[str, int], ...]:
    """(object and field, direction), one per field, in the order of the writes."""
    found: dict[str, int] = {}
    for write in writes:
        found[f"{write.target}#{FIELDS[write.verb]}"] = direction(write)
    return tuple(found.items())


def direction(write: Write) -> int:
    """+1 gives the object more to work with, -1 takes away, 0 changes nothing."""
    if write.verb in (Verb.TAINT, Verb.AVOID, Verb.DRAIN):
        return -1 if write.value else 1
    if write.verb is Verb.POWER:
        return 1 if write.value else -1
    if write.verb is Verb.GATE:
        return 1 if write.value == Gate.OPEN else -1
    if write.verb is Verb.EVICT:
        return -1
    return (write.value > write.original) - (write.value < write.original)


def impossible(reason: str) -> Plan:
    return Plan(
        writes=(),
        inverse=(),
        touches=(),
        workloads=(),
        nodes=(),
        disturbs=0,
        effects=(),
        impossible=reason,
    )


def back(write: Write) -> Write:
    return Write(
        verb=write.verb,
        target=write.target,
        uid=write.uid,
        value=write.original,
        original=write.value,
        expect=write.value,
    )


def number(proposal: Proposal, key: str, low: float, high: float) -> float:
    value = proposal.payload.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NoPlanError(f"{key} must be a number, but got {shown(value)}")
    if not (low <= value <= high) or not math.isfinite(value):
        raise NoPlanError(f"{key} must be between {low:g} and {high:g}, but got {shown(value)}")
    return float(value)


def shown(value: object) -> str:
    """A made-up value in a sentence: short, on one line, printable."""
    text = value if isinstance(value, str) else repr(value)
    text = "".join(c if c.isprintable() else "?" for c in text[:60])
    return f'"{text}"' if isinstance(value, str) else text
