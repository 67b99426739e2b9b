# SPDX-License-Identifier: Apache-2.0
"""Paired differences between two arms, with intervals.

A pair is one scenario under one seed: both arms saw the same arrivals and the same faults. The
interval is a percentile bootstrap over seeds; pooled over scenarios it is stratified, so that every
resample has every scenario as often as the data has. Negative differences are savings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.benefit.arm import ArmName, Run

RESAMPLES = 10_000
MEASURES = ("failed_pod_seconds", "violation_seconds", "energy_joules")
WORSE_MEASURES = ("failed_pod_seconds", "violation_seconds")  # energy is what we pay with

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Mean difference per run, one arm minus the other, with its 95 % interval."""

    measure: str
    base: float  # mean of the arm compared with
    mean: float
    low: float
    high: float
    pairs: int

    @property
    def is_better(self) -> bool:
        return self.high < 0

    @property
    def is_worse(self) -> bool:
        return self.low > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One arm against another, by scenario and over all of them."""

    arm: ArmName
    against: ArmName
    by_scenario: Mapping[str, Mapping[str, Difference]]  # scenario, then measure
    pooled: Mapping[str, Difference]  # by measure

    def worse(self) -> list[tuple[str, str]]:
        """Scenarios and measures that are significantly worse; each test is at 95 %, uncorrected:
        with a score of scenarios a correction would only make it easier to pass."""
        return [
            (scenario, measure)
            for scenario, table in self.by_scenario.items()
            for measure in WORSE_MEASURES
            if table[measure].is_worse
        ]


def compare(runs: Iterable[Run], arm: ArmName, against: ArmName = "nothing") -> Comparison:
    """Pair the runs of two arms and take their differences."""
    tolls = {(r.job.scenario, r.job.seed, r.job.arm): r.toll for r in runs}
    scenarios = sorted({scenario for scenario, _, _ in tolls})
    by_scenario: dict[str, dict[str, Difference]] = {}
    pooled: dict[str, Difference] = {}
    for measure in MEASURES:
        samples, bases = [], []
        for scenario in scenarios:
            seeds = sorted(s for name, s, a in tolls if (name, a) == (scenario, arm))
            one = np.array([getattr(tolls[scenario, s, arm], measure) for s in seeds])
            two = np.array([getattr(tolls[scenario, s, against], measure) for s in seeds])
            samples.append(one - two)
            bases.append(two)
            by_scenario.setdefault(scenario, {})[measure] = _difference(measure, [one - two], [two])
        pooled[measure] = _difference(measure, samples, bases)
    return Comparison(arm=arm, against=against, by_scenario=by_scenario, pooled=pooled)


def _difference(measure: str, strata: Sequence[Floats], bases: Sequence[Floats]) -> Difference:
    means = np.mean([_resampled(differences) for differences in strata], axis=0)
    low, high = np.quantile(means, (0.025, 0.975))
    return Difference(
        measure=measure,
        base=round(float(np.mean([b.mean() for b in bases])), 3),
        mean=round(float(np.mean([d.mean() for d in strata])), 3),
        low=round(float(low), 3),
        high=round(float(high), 3),
        pairs=sum(len(d) for d in strata),
    )


def _resampled(differences: Floats) -> Floats:
    """Means of resamples. The generator starts anew each time, so a result can be redone alone,
    but differs by stratum through the data only; strata are independent because their data is."""
    dice = np.random.default_rng([len(differences), *np.abs(differences).astype(np.int64)])
    picks = dice.integers(0, len(differences), size=(RESAMPLES, len(differences)))
    means: Floats = differences[picks].mean(axis=1)
    return means
