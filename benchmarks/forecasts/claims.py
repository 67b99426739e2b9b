# SPDX-License-Identifier: Apache-2.0
"""What must hold of each track, as one line with its number and its limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One line of the verdict: holds while the value lies between its limits."""

    track: str
    text: str
    value: float
    least: float = -math.inf
    most: float = math.inf

    @property
    def holds(self) -> bool:
        return self.least <= self.value <= self.most  # False for NaN, as it should be

    @property
    def sentence(self) -> str:
        limits = [f"at least {self.least:g}"] if math.isfinite(self.least) else []
        limits += [f"at most {self.most:g}"] if math.isfinite(self.most) else []
        word = "holds" if self.holds else "FAILS"
        return f"{word}  {self.track:<12} {self.text}: {self.value:.4g} ({', '.join(limits)})"


def instances(f: Figures) -> list[Claim]:
    return [
        Claim(
            track="instances",
            text="mean average precision over the best baseline's",
            value=f["over_best_baseline"],
            least=0.95,
        ),
        Claim(track="instances", text="times the base rate", value=f["times_base_rate"], least=2.0),
        Claim(
            track="instances",
            text="features moved by the future, or that know it",
            value=_leaks(f["leak_check"]),
            most=0,
        ),
    ]


def _leaks(found: Figures) -> float:
    """How many features were named; what was not looked at is no number."""
    if found["not_run"]:
        return math.nan
    named = ("moved_by_the_future", "unlike_the_dataset", "suspects")
    return sum(len(found[kind]) for kind in named)


def calibrated(track: str, f: Figures) -> list[Claim]:
    return [
        Claim(
            track=track,
            text="Brier skill, lower end of 95 %",
            value=f["brier_skill_interval"][0],
            least=1e-9,
        ),
        Claim(
            track=track, text="calibration slope", value=f["calibration_slope"], least=0.7, most=1.3
        ),
        Claim(
            track=track,
            text="observed over predicted in the top 1 %",
            value=f["top_1_percent_ratio"],
            least=0.67,
            most=1.5,
        ),
    ]


def jobs(f: Figures) -> list[Claim]:
    return [
        Claim(
            track="jobs",
            text="gain over the rate per logical name",
            value=f["gain_over_name_rate"],
            least=0.05,
        ),
        Claim(
            track="jobs",
            text="gap, lower end of 95 %",
            value=f["gain_interval"][0],
            least=1e-9,
        ),
        *calibrated("jobs", f),
    ]


def demand(f: Figures) -> list[Claim]:
    half, high = f["quantiles"]["p50"], f["quantiles"]["p95"]
    return [
        Claim(track="demand", text="p50 pinball lower by", value=half["lower_by"], least=0.05),
        Claim(track="demand", text="p95 pinball lower by", value=high["lower_by"], least=0.12),
        Claim(
            track="demand",
            text="quantiles with a horizon that is worse",
            value=2 - half["no_horizon_worse"] - high["no_horizon_worse"],
            most=0,
        ),
        Claim(
            track="demand", text="p95 coverage, pooled", value=high["coverage"], least=0.93,
            most=0.97,
        ),
    ]  # fmt: skip


def simulator(f: Figures) -> list[Claim]:
    return [
        *calibrated("sim pods", f["pods"]),
        *calibrated("sim nodes", f["nodes"]),
        Claim(
            track="sim",
            text="rows whose probability falls with the horizon",
            value=f["falling"],
            most=0,
        ),
    ]


def live(f: Figures) -> list[Claim]:
    return [
        Claim(
            track="live",
            text="ms for features and risk, 5,000 nodes and 50,000 pods",
            value=f["full"]["features"] + f["full"]["risk"],
            most=300,
        ),
        Claim(
            track="live",
            text="times the time for ten times the pods",
            value=(f["full"]["features"] + f["full"]["risk"])
            / max(f["tenth"]["features"] + f["tenth"]["risk"], 1e-9),
            most=11,
        ),
    ]


# Tracks without a line are reported only.
LINES: dict[str, Callable[[Figures], list[Claim]]] = {
    "instances": instances,
    "jobs": jobs,
    "demand": demand,
    "simulator": simulator,
    "live": live,
}
