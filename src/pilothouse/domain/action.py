# SPDX-License-Identifier: Apache-2.0
"""What an action is made of: single writes against a backend, each with its own intent.

A ``Plan`` is what a proposal would do to this snapshot; the guard judges plans, never wishes. An
``Action`` is a plan that was chosen: its writes carry intents, it may expire, and its inverse is
written down before the first write happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pilothouse.domain.proposal import ActionKind
from pilothouse.domain.reference import Ref


class Verb(StrEnum):
    """One write, as a backend understands it. The value's meaning is beside each verb."""

    SCALE = "scale"  # workload: replicas
    TAINT = "taint"  # node: 1 keeps new pods off, 0 takes our taint away
    AVOID = "avoid"  # node: 1 keeps a new replica off it, 0 takes that taint away
    EVICT = "evict"  # pod: 1; refused where the disruption budget would break
    DRAIN = "drain"  # node: 1 evicts, paced by disruption budgets; 2 sleeps when empty; 0 stops
    POWER = "power"  # node: 1 awake, 0 asleep; sleep is refused while pods are bound
    FREQUENCY = "frequency"  # node: per mille of the default clock
    CPU_LIMIT = "cpu_limit"  # pod: millicores
    MEMORY_REQUEST = "memory_request"  # pod: MiB; the limit follows at the same ratio
    GATE = "gate"  # namespace: a Gate value


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One change of one field of one object."""

    verb: Verb
    target: Ref
    uid: int  # the row's uid, so that a namesake is never hit
    value: int
    original: int  # the value seen when this was planned
    expect: int | None = None  # do it only while the current value is this one
    avoid: str = ""  # for SCALE: a node that the new replica is kept off
    intent: str = ""  # "<decision>.<action>.<n>", set when the plan becomes an action


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a proposal would do to this very snapshot, or why it can do nothing."""

    writes: tuple[Write, ...]
    inverse: tuple[Write, ...]  # empty where the action cannot be taken back
    touches: tuple[Ref, ...]  # every object whose fate changes: node, workloads, pods
    workloads: tuple[Ref, ...]  # whose pods are disturbed or replicated
    nodes: tuple[Ref, ...]
    disturbs: int  # pods that will be moved or restarted
    effects: tuple[tuple[str, int], ...]  # (object and field, direction -1, 0 or +1)
    impossible: str = ""  # why there is nothing to write


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """A chosen plan with intents. ``proposal`` is an index into the decision's proposals."""

    id: str  # "<decision>.<action>"
    proposal: int
    agent: str
    kind: ActionKind
    target: Ref
    writes: tuple[Write, ...]
    inverse: tuple[Write, ...]
    expires_seconds: int | None  # cluster clock; None: nothing to take back
    restores: str = ""  # id of the action this one takes back
