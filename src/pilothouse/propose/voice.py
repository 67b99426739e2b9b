# SPDX-License-Identifier: Apache-2.0
"""How an agent of ours words a proposal: the label, the expiry and the rounding in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilothouse.domain import ActionKind, Driver, Evidence, Forecast, Proposal, Ref, RiskTable
from pilothouse.domain.proposal import Scalar

EXPIRY_SECONDS = 30  # two cycles: a wish that nobody granted by then was about another cluster

_DRIVERS = {
    Driver.NONE: "",
    Driver.ERRORS: "{} errors/min",
    Driver.HEARTBEAT: "heartbeat {:.1f} s late",
    Driver.MEMORY_GROWTH: "memory {:+} MiB/min",
    Driver.RESTARTS: "{} restarts lately",
    Driver.CPU_PRESSURE: "CPU at {} per mille",
    Driver.UNREADY: "not ready for {} s",
    Driver.LATENCY: "p95 {} ms",
}


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


def says(who: str, moved: Sequence[Evidence]) -> str:
    """Whose word it is, where a forecaster can tell what moved its number."""
    return f", says {who}" if moved else ""


def strongest(moved: Sequence[Evidence]) -> str:
    """What moved a learned risk most, in its own numbers; nothing of a transparent one."""
    return f"{moved[0].name} {moved[0].value:+g} {moved[0].unit}" if moved else ""


def driven_by(table: RiskTable, row: int, moved: Sequence[Evidence] = ()) -> str:
    """What drives a row's risk: what moved it, or else the driver in its unit."""
    driver, value = Driver(int(table.driver[row])), int(table.driver_value[row])
    shown = value / 1000 if driver is Driver.HEARTBEAT else value  # ms, told in seconds
    return strongest(moved) or _DRIVERS[driver].format(shown)
