# SPDX-License-Identifier: Apache-2.0
"""What a trial of tuning is judged by, a stage at a time.

An objective is a plain value: its data, and a function of parameters and stage. Whoever is asked
for a figure, here or on another machine, gives the same one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pilothouse.features.core import CORE
from pilothouse.features.series import HISTORY
from pilothouse.learn import artifacts
from pilothouse.learn.evaluate import demand, metrics
from pilothouse.learn.evaluate.cellrisk import Case
from pilothouse.learn.evaluate.inloop import run_arm
from pilothouse.learn.train.boosting import Boost, fit
from pilothouse.settings import Settings
from pilothouse.settings.file import with_overrides

Parameters = dict[str, float]
FOLDS = ((0, 1, 2), (3, 4, 5), (6, 7))  # of ten turns of jobs; the last two are never looked at
TUNING_SEEDS, REPORT_SEEDS = (300, 301, 302), (400, 401, 402)
CYCLES = 160


class Objective(Protocol):
    """Judges parameters in stages; more is better, and a trial's score is the mean."""

    @property
    def stages(self) -> int: ...

    def __call__(self, asked: tuple[Parameters, int]) -> float:
        """The figure of one stage."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskObjective:
    """Average precision on jobs set aside for tuning; the test is never looked at."""

    case: Case
    rows: NDArray[np.float32]  # (rows, CORE)
    turn: NDArray[np.int64]  # (rows,) of each row's job
    stages: int = len(FOLDS)

    @classmethod
    def of(cls, dataset: str) -> RiskObjective:
        case = Case.of(artifacts.find(dataset, "processed"), 3600)
        _, member = np.unique(case.job, return_inverse=True)
        turn = np.random.default_rng(7).integers(0, 10, member.max() + 1)[member]
        return cls(case=case, rows=case.columns(CORE), turn=turn)

    def __call__(self, asked: tuple[Parameters, int]) -> float:
        parameters, stage = asked
        case, x, inside = self.case, self.rows, np.isin(self.turn, FOLDS[stage])
        train, held = np.flatnonzero(~inside & (self.turn < 8)), np.flatnonzero(inside)
        weight = case.job_weight(train)
        made = fit(x[train], case.outcome[train], boosted(parameters), weight=weight)
        value = metrics.average_precision(case.outcome[held], made.margin(x[held]))
        return 0.0 if np.isnan(value) else value  # no failure in this fold: nothing to rank


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandObjective:
    """Negative pinball loss of p95 on the stopping part, a horizon after the other."""

    series: demand.Series
    stages: int = len(demand.HORIZON_STEPS)

    @classmethod
    def of(cls, dataset: str) -> DemandObjective:
        return cls(series=demand.Series.of(artifacts.find(dataset, "processed")))

    def __call__(self, asked: tuple[Parameters, int]) -> float:
        parameters, stage = asked
        steps, gap = demand.HORIZON_STEPS[stage], max(demand.HORIZON_STEPS)
        machines, slots = self.series.mean.shape
        half, later = int(slots * 0.5), int(slots * 0.6)
        every = np.arange(machines)
        known = demand.Points.grid(every, HISTORY, half - gap, 12)
        train = demand.rows_at(self.series, known, steps)
        held = demand.rows_at(self.series, demand.Points.grid(every, half, later - gap, 12), steps)
        made = fit(train.x, train.target, boosted(parameters), quantile=0.95)
        return -metrics.pinball(held.actual, held.forecast(made, 0.0), 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsObjective:
    """Minus what the cluster suffered: failed pods count most, then objectives, then actions.

    Energy does not count, and no threshold that is only about energy is tuned.
    """

    scenario: str
    forecaster: str
    seeds: tuple[int, ...] = TUNING_SEEDS

    @property
    def stages(self) -> int:
        return len(self.seeds)

    def __call__(self, asked: tuple[Parameters, int]) -> float:
        parameters, stage = asked
        return -cost(parameters, self.scenario, self.forecaster, self.seeds[stage])


def boosted(parameters: Parameters) -> Boost:
    return Boost(
        depth=int(parameters["depth"]),
        trees=int(parameters["trees"]),
        rate=parameters["rate"],
        least_weight=parameters["least_weight"],
    )


def cost(
    parameters: Parameters, scenario: str, forecaster: str, seed: int, cycles: int = CYCLES
) -> float:
    """One run under these thresholds, in failed-pod seconds and what is worth as much.

    Thresholds belong to a forecaster's scale, so they are tuned under the one they will be used
    with.
    """
    settings = with_overrides(Settings(), {"forecast.forecaster": forecaster, **dict(parameters)})
    arm = run_arm(settings, scenario, seed, cycles, held_out=False)
    return arm.failed_pod_seconds + 0.5 * arm.violation_seconds + 2.0 * arm.actions
