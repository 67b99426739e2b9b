# SPDX-License-Identifier: Apache-2.0
"""How an agent of ours words a proposal: the label, the expiry and the rounding in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilothouse.domain import ActionKind, Evidence, Forecast, Proposal, Ref
from pilothouse.domain.proposal import Scalar

EXPIRY_SECONDS = 30  # two cycles: a wish that nobody granted by then was about another cluster


@dataclass(frozen=True, slots=True)
class Voice:
    """Who speaks, and when (cluster clock)."""

    name: str
    title: str
    now: int

    def wants(
        self,
        kind: ActionKind,
        target: Ref,
        *,
        score: float,
        priority: int,
        reason: str,
        evidence: Sequence[Evidence],
        payload: Mapping[str, Scalar] | None = None,
        otherwise: str = "",
    ) -> Proposal:
        return Proposal(
            agent=self.name,
            label=f"{self.title}:{kind.value}",
            kind=kind,
            target=target,
            payload=dict(payload or {}),
            score=round(min(max(score, 0.0), 1.0), 4),
            priority=priority,
            evidence=tuple(evidence),
            reason=reason,
            expires_seconds=self.now + EXPIRY_SECONDS,
            otherwise=otherwise,
        )

    def wants_nothing(
        self, target: Ref, *, score: float, reason: str, evidence: Sequence[Evidence]
    ) -> Proposal:
        return self.wants(
            ActionKind.NOOP, target, score=score, priority=0, reason=reason, evidence=evidence
        )


def share(permille: float) -> str:
    """0.78 for 780 per mille."""
    return f"{permille / 1000:.2f}"


def moved_by(forecast: Forecast, scope: str, uid: int) -> tuple[Evidence, ...]:
    """What a learned forecaster says moved this row's number; nothing of a transparent one."""
    unit = "of its level" if scope.startswith("demand") else "log-odds"
    return tuple(
        Evidence(
            f"{told.feature} {told.value_thousandths / 1000:g} adds",
            told.adds_thousandths / 1000,
            unit,
        )
        for told in forecast.attributed(scope, uid)
    )
