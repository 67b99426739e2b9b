# SPDX-License-Identifier: Apache-2.0
"""What must hold, each as one sentence with its numbers."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.benefit.comparison import WORSE_MEASURES, Comparison, Difference

IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One line of the verdict."""

    name: str
    holds: bool
    sentence: str


def claims(ours: Comparison, against_chance: Comparison) -> list[Claim]:
    """``ours``: pilothouse minus nothing. ``against_chance``: pilothouse minus random."""
    held = [_falls(ours.pooled[measure], "nothing") for measure in WORSE_MEASURES]
    held.append(_nowhere_worse(ours))
    if IDLE in ours.by_scenario:
        held.append(_idle(ours))
    held += [_falls(against_chance.pooled[measure], "random") for measure in WORSE_MEASURES]
    return held


def _falls(difference: Difference, against: str) -> Claim:
    measure = difference.measure.replace("_", " ")
    return Claim(
        name=f"{measure}: less than with {against}",
        holds=difference.is_better,
        sentence=f"pooled {measure} per run {difference.mean:+.0f} "
        f"[{difference.low:+.0f}, {difference.high:+.0f}] "
        f"against {against} ({difference.base:.0f})",
    )


def _nowhere_worse(ours: Comparison) -> Claim:
    worse = [f"{scenario} ({measure.replace('_', ' ')})" for scenario, measure in ours.worse()]
    return Claim(
        name="no scenario is significantly worse",
        holds=not worse,
        sentence=f"significantly worse: {', '.join(worse) or 'none'} "
        f"of {len(ours.by_scenario)} scenarios",
    )


def _idle(ours: Comparison) -> Claim:
    table = ours.by_scenario[IDLE]
    energy, lost = table["energy_joules"], table["violation_seconds"]
    return Claim(
        name="idle: less modelled energy at no SLA cost",
        holds=energy.is_better and lost.mean <= 0,
        sentence=f"idle: modelled energy {100 * energy.mean / energy.base:+.2f} % "
        f"[{100 * energy.low / energy.base:+.2f}, {100 * energy.high / energy.base:+.2f}], "
        f"violation seconds {lost.mean:+.1f}",
    )
