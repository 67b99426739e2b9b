# SPDX-License-Identifier: Apache-2.0
"""What an agent wants, with the very numbers it used."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pilothouse.domain.reference import Ref


class ActionKind(StrEnum):
    """Every kind of action a proposal may ask for."""

    NOOP = "noop"
    REPLICATE = "replicate"
    MIGRATE = "migrate"
    THROTTLE = "throttle"
    POWER_STATE = "power_state"
    DVFS = "dvfs"
    MEMORY_BALLOON = "memory_balloon"
    ADMISSION = "admission"
    RESOURCE_CAP = "resource_cap"
    RESTORE = "restore"


SAFETY_KINDS = frozenset({ActionKind.REPLICATE, ActionKind.MIGRATE, ActionKind.THROTTLE})
EFFICIENCY_KINDS = frozenset({ActionKind.POWER_STATE, ActionKind.DVFS, ActionKind.MEMORY_BALLOON})
ADMISSION_KINDS = frozenset({ActionKind.ADMISSION, ActionKind.RESOURCE_CAP})

Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number behind a proposal, and the threshold it was held against."""

    name: str  # "risk 15 min"
    value: float
    unit: str = ""
    needs: float | None = None  # the threshold, where there is one

    @property
    def sentence(self) -> str:
        text = f"{self.name} {self.value:g}{' ' + self.unit if self.unit else ''}"
        return text if self.needs is None else f"{text} (needs {self.needs:g})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A wish, never a deed. A no-op is a proposal too: it shows the best candidate and its score.

    ``agent`` is a claim until the registry confirms it: rank belongs to the registered agent.
    """

    agent: str  # registered name: "safety"
    label: str  # "AgentA:replicate"
    kind: ActionKind
    target: Ref
    payload: dict[str, Scalar]
    score: float  # 0..1
    priority: int  # the agent's own ordering of its wishes, lower first
    evidence: tuple[Evidence, ...]
    reason: str  # one sentence that quotes the deciding numbers
    expires_seconds: int  # cluster clock
    otherwise: str = ""  # the margin: what the choice would have been, and below which number

    @property
    def is_noop(self) -> bool:
        """Asks for nothing: a no-op, or an admission that simply admits with no gate to open."""
        return self.kind is ActionKind.NOOP

    @property
    def approval_id(self) -> str:
        """What a person approves: the agent, the kind and the object, not one moment's numbers."""
        return f"{self.agent}:{self.kind.value}:{self.target}"
