# SPDX-License-Identifier: Apache-2.0
"""Tune what is really used: the trees of a forecaster, or the thresholds the agents act on.

A study lives in one SQLite file and is taken up again where it stopped; optuna-dashboard can open
it. A trial is judged in stages (folds of jobs, horizons, simulator seeds) and its score is their
mean; one that is below the median of earlier trials after a stage is pruned. Each objective is a
plain function of parameters and seed, so a trial gives the same score wherever it runs. Agents are
tuned on some simulator seeds and reported on others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from pilothouse.errors import UnknownName
from pilothouse.home import folder
from pilothouse.learn import artifacts
from pilothouse.learn.train.boosting import Boost, fit
from pilothouse.settings import Settings

Parameters = dict[str, float]
Objective = Callable[[Parameters], Iterator[float]]  # a figure per stage; the score is their mean
TUNING_SEEDS, REPORT_SEEDS = (300, 301, 302), (400, 401, 402)
CYCLES = 160
FOLDS = ((0, 1, 2), (3, 4, 5), (6, 7))  # of ten turns of jobs; the last two are never looked at
FORECASTER = Settings().forecast.forecaster  # agents are tuned under it unless another is named
PATIENT_TRIALS = 4  # before anything is pruned


def boost_space(trial: optuna.Trial) -> Parameters:
    return {
        "depth": trial.suggest_int("depth", 2, 6),
        "trees": trial.suggest_int("trees", 30, 150, step=30),
        "rate": trial.suggest_float("rate", 0.03, 0.3, log=True),
        "least_weight": trial.suggest_float("least_weight", 1, 50, log=True),
    }


def agent_space(trial: optuna.Trial) -> Parameters:
    """Thresholds and budgets that change what the loop does; no weight of a scoreboard."""
    return {
        "safety.migrate_risk": trial.suggest_float("safety.migrate_risk", 0.1, 0.9),
        "safety.replicate_risk": trial.suggest_float("safety.replicate_risk", 0.1, 0.95),
        "safety.throttle_risk": trial.suggest_float("safety.throttle_risk", 0.05, 0.8),
        "efficiency.sleep_demand": trial.suggest_float("efficiency.sleep_demand", 0.02, 0.3),
        "guard.per_agent": trial.suggest_int("guard.per_agent", 6, 18),
    }


def boosted(parameters: Parameters) -> Boost:
    return Boost(
        depth=int(parameters["depth"]),
        trees=int(parameters["trees"]),
        rate=parameters["rate"],
        least_weight=parameters["least_weight"],
    )


def risk_objective(dataset: str) -> Objective:
    """Average precision on jobs set aside for tuning; the test is never looked at."""
    from pilothouse.features.core import CORE
    from pilothouse.learn.evaluate import metrics
    from pilothouse.learn.evaluate.cellrisk import Case

    case = Case.of(artifacts.find(dataset, "processed"), 3600)
    x = case.columns(CORE)
    _, member = np.unique(case.job, return_inverse=True)
    turn = np.random.default_rng(7).integers(0, 10, member.max() + 1)[member]

    def objective(parameters: Parameters) -> Iterator[float]:
        for fold in FOLDS:
            inside = np.isin(turn, fold)
            train, held = np.flatnonzero(~inside & (turn < 8)), np.flatnonzero(inside)
            weight = case.job_weight(train)
            made = fit(x[train], case.outcome[train], boosted(parameters), weight=weight)
            value = metrics.average_precision(case.outcome[held], made.margin(x[held]))
            yield 0.0 if np.isnan(value) else value  # no failure in this fold: nothing to rank

    return objective


def demand_objective(dataset: str) -> Objective:
    """Negative pinball loss of p95 on the stopping part, a horizon after the other."""
    from pilothouse.learn.evaluate import demand, metrics

    series = demand.Series.of(artifacts.find(dataset, "processed"))
    machines, slots = series.mean.shape
    every = np.arange(machines)
    gap = max(demand.HORIZON_STEPS)
    half, later = int(slots * 0.5), int(slots * 0.6)
    known = demand.Points.grid(every, demand.HISTORY_STEPS, half - gap, 12)
    held_out = demand.Points.grid(every, half, later - gap, 12)

    def objective(parameters: Parameters) -> Iterator[float]:
        for steps in demand.HORIZON_STEPS:
            train = demand._rows(series, known, steps)
            held = demand._rows(series, held_out, steps)
            target = np.asarray(train[2] / train[1] - train[0][:, 0], np.float32)
            made = fit(train[0], target, boosted(parameters), quantile=0.95)
            forecast = demand._forecast(made, held[0], held[1], 0.0)
            yield -metrics.pinball(held[2], forecast, 0.95)

    return objective


def agents_objective(
    scenario: str, forecaster: str, seeds: tuple[int, ...] = TUNING_SEEDS
) -> Objective:
    """Minus what the cluster suffered: failed pods count most, then objectives, then energy."""

    def objective(parameters: Parameters) -> Iterator[float]:
        for seed in seeds:
            yield -cost(parameters, scenario, forecaster, seed)

    return objective


def cost(
    parameters: Parameters, scenario: str, forecaster: str, seed: int, cycles: int = CYCLES
) -> float:
    """One run under these thresholds, in failed-pod seconds and what is worth as much.

    Thresholds belong to a forecaster's scale, so they are tuned under the one they will be used
    with.
    """
    from pilothouse.learn.evaluate.inloop import run_arm
    from pilothouse.settings.file import with_overrides

    settings = with_overrides(Settings(), {"forecast.forecaster": forecaster, **dict(parameters)})
    arm = run_arm(settings, scenario, seed, cycles, held_out=False)
    return arm.failed_pod_seconds + 0.5 * arm.violation_seconds + 2.0 * arm.actions


def tune(
    what: str,
    *,
    trials: int,
    dataset: str | None = None,
    scenario: str = "node-degradation",
    forecaster: str = FORECASTER,
    seed: int = 0,
    sampler: str = "tpe",
    ray: str | None = None,
    storage: Path | None = None,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Run trials until the study has so many; the best parameters and what they are worth."""
    space, objective, key = _problem(what, dataset, scenario, forecaster)
    path = storage or folder("models") / f"tune-{key}.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    samplers: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed),
        "random": lambda: optuna.samplers.RandomSampler(seed=seed),
    }
    if sampler not in samplers:
        raise UnknownName.among("sampler", sampler, list(samplers))
    study = optuna.create_study(
        study_name=key,
        storage=f"sqlite:///{path}",
        direction="maximize",
        sampler=samplers[sampler](),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=PATIENT_TRIALS),
        load_if_exists=True,
    )
    done = _finished(study)
    score = _here(objective) if ray is None else _on_ray(objective, ray)
    batch = 4 if ray else 1
    while done < trials:
        asked = [study.ask() for _ in range(min(batch, trials - done))]
        chosen = [space(trial) for trial in asked]
        for trial, value in zip(asked, score(asked, chosen), strict=True):
            pruned = optuna.trial.TrialState.PRUNED if value is None else None
            study.tell(trial, value, state=pruned)
            progress()
        done += len(asked)
    best = study.best_trial
    out: dict[str, Any] = {
        "what": what,
        "study": str(path),
        "trials": done,
        "pruned": len([t for t in study.trials if t.state == optuna.trial.TrialState.PRUNED]),
        "best_score": best.value,
        "best": dict(best.params),
        "scores": [t.value for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE],
    }
    if what == "agents":
        out["other_seeds"] = _report_agents(dict(best.params), scenario, forecaster)
    return out


def _problem(
    what: str, dataset: str | None, scenario: str, forecaster: str
) -> tuple[Callable[[optuna.Trial], Parameters], Objective, str]:
    if what == "agents":
        key = f"agents-{Path(scenario).stem}"
        if forecaster != FORECASTER:
            key += f"-{Path(forecaster).stem}"
        return agent_space, agents_objective(scenario, forecaster), key
    if dataset is None:
        raise UnknownName(f"Tuning {what} needs a dataset. Give one with --dataset NAME.")
    if what == "risk":
        return boost_space, risk_objective(dataset), f"risk-{dataset}"
    if what == "demand":
        return boost_space, demand_objective(dataset), f"demand-{dataset}"
    raise UnknownName.among("subject to tune", what, ("risk", "demand", "agents"))


def _finished(study: optuna.Study) -> int:
    """Trials with a verdict; one that was killed on the way is simply not counted."""
    over = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    return len([t for t in study.trials if t.state in over])


Score = Callable[[Sequence[optuna.Trial], Sequence[Parameters]], list[float | None]]


def _here(objective: Objective) -> Score:
    """One after the other; None for a trial that was pruned."""

    def one(trial: optuna.Trial, parameters: Parameters) -> float | None:
        values: list[float] = []
        for value in objective(parameters):
            values.append(value)
            trial.report(float(np.mean(values)), len(values))
            if trial.should_prune():
                return None
        return float(np.mean(values))

    return lambda trials, chosen: [one(t, p) for t, p in zip(trials, chosen, strict=True)]


def _on_ray(objective: Objective, address: str) -> Score:
    """Side by side on a Ray cluster; nothing is pruned there and the scores are the same."""
    from pilothouse.learn.extras import need

    need("ray")
    cluster = importlib.import_module("ray")
    cluster.init(address=address, ignore_reinit_error=True, log_to_driver=False)
    remote = cluster.remote(lambda parameters: float(np.mean(list(objective(parameters)))))
    return lambda trials, chosen: list(cluster.get([remote.remote(p) for p in chosen]))


def _report_agents(best: Parameters, scenario: str, forecaster: str) -> dict[str, float]:
    default = _defaults(best)
    tuned = float(np.mean([cost(best, scenario, forecaster, s) for s in REPORT_SEEDS]))
    usual = float(np.mean([cost(default, scenario, forecaster, s) for s in REPORT_SEEDS]))
    return {"tuned_cost": tuned, "default_cost": usual, "lower_by": 1 - tuned / max(usual, 1e-9)}


def _defaults(names: Parameters) -> Parameters:
    settings = Settings()
    out = {}
    for name in names:
        section, key = name.split(".")
        out[name] = getattr(getattr(settings, section), key)
    return out
