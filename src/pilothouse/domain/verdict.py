# SPDX-License-Identifier: Apache-2.0
"""What became of each proposal, in numbers a reader can redo by hand."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Ruling(StrEnum):
    """Exactly one per proposal."""

    CHOSEN = "chosen"
    OVERRIDDEN = "overridden"
    REFUSED = "refused"
    EXPIRED = "expired"


class Mode(StrEnum):
    """How far an agent may go in a namespace."""

    OFF = "off"
    SHADOW = "shadow"
    ADVISE = "advise"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Chosen, overridden (by whom, which rule), refused (which guard-rail) or expired."""

    ruling: Ruling
    rule: str  # "safety-preempts", "replicas-per-workload", "highest-score"
    sentence: str  # the rule with its numbers, as a person reads it
    mode: Mode = Mode.ENFORCE
    by: int | None = None  # index of the proposal that won over this one
    used: float | None = None
    allowed: float | None = None
    free_at_seconds: int | None = None  # cluster clock

    @property
    def acts(self) -> bool:
        return self.ruling is Ruling.CHOSEN and self.mode is Mode.ENFORCE
