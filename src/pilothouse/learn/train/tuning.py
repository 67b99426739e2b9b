# SPDX-License-Identifier: Apache-2.0
"""Tune what is really used: the trees of a forecaster, or the thresholds the agents act on.

A study lives in one SQLite file and is taken up again where it stopped; optuna-dashboard can open
it. As many trials are asked for at a time as the crew can do side by side. They are judged in
stages (folds of jobs, horizons, simulator seeds), and one that is below the median of earlier
trials after a stage is pruned. What a trial draws depends on the seed and its place in the study
alone, so a study that was stopped, or spread, has the trials it would have had. Agents are tuned
on some simulator seeds and reported on others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from pilothouse.errors import UnknownName
from pilothouse.home import folder
from pilothouse.learn.crew import HERE, Crew
from pilothouse.learn.train.objectives import (
    REPORT_SEEDS,
    AgentsObjective,
    DemandObjective,
    Objective,
    Parameters,
    RiskObjective,
)
from pilothouse.settings import Settings

FORECASTER = Settings().forecast.forecaster  # agents are tuned under it unless another is named
PATIENT_TRIALS = 4  # before anything is pruned
Space = Callable[[optuna.Trial], Parameters]
SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}


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
        "guard.per_agent": trial.suggest_int("guard.per_agent", 6, 18),
    }


def tune(
    what: str,
    *,
    trials: int,
    dataset: str | None = None,
    scenario: str = "node-degradation",
    forecaster: str = FORECASTER,
    seed: int = 0,
    sampler: str = "tpe",
    storage: Path | None = None,
    crew: Crew = HERE,
    progress: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Run trials until the study has so many; the best parameters and what they are worth."""
    if sampler not in SAMPLERS:
        raise UnknownName.among("sampler", sampler, list(SAMPLERS))
    space, objective, key = _problem(what, dataset, scenario, forecaster)
    path = storage or folder("models") / f"tune-{key}.db"
    study = _study(path, key)
    done = _finished(study)
    while done < trials:
        places = range(done, min(done + crew.size, trials))
        asked, chosen = [], []
        for place in places:  # drawn at once: the next trial has a sampler of its own
            asked.append(_ask(study, sampler, seed, place))
            chosen.append(space(asked[-1]))
        for trial, value in zip(asked, _judge(crew, objective, asked, chosen), strict=True):
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
    if isinstance(objective, AgentsObjective):
        out["other_seeds"] = _report_agents(crew, dict(best.params), scenario, forecaster)
    return out


def _study(path: Path, key: str) -> optuna.Study:
    path.parent.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        study_name=key,
        storage=f"sqlite:///{path}",
        direction="maximize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=PATIENT_TRIALS),
        load_if_exists=True,
    )


def _ask(study: optuna.Study, sampler: str, seed: int, place: int) -> optuna.Trial:
    """The next trial; a sampler of its own, or a study taken up again would draw the same again."""
    study.sampler = SAMPLERS[sampler](
        int(np.random.SeedSequence([seed, place]).generate_state(1)[0])
    )
    return study.ask()


def _problem(
    what: str, dataset: str | None, scenario: str, forecaster: str
) -> tuple[Space, Objective, str]:
    if what == "agents":
        key = f"agents-{Path(scenario).stem}"
        if forecaster != FORECASTER:
            key += f"-{Path(forecaster).stem}"
        return agent_space, AgentsObjective(scenario=scenario, forecaster=forecaster), key
    if dataset is None:
        raise UnknownName(f"Tuning {what} needs a dataset. Give one with --dataset NAME.")
    if what == "risk":
        return boost_space, RiskObjective.of(dataset), f"risk-{dataset}"
    if what == "demand":
        return boost_space, DemandObjective.of(dataset), f"demand-{dataset}"
    raise UnknownName.among("subject to tune", what, ("risk", "demand", "agents"))


def _finished(study: optuna.Study) -> int:
    """Trials with a verdict; one that was killed on the way is simply not counted."""
    over = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    return len([t for t in study.trials if t.state in over])


def _judge(
    crew: Crew, objective: Objective, asked: Sequence[optuna.Trial], chosen: Sequence[Parameters]
) -> list[float | None]:
    """A stage of every trial that is still in, then the next stage; None for one that is pruned."""
    figures: list[list[float]] = [[] for _ in asked]
    within = list(range(len(asked)))
    for stage in range(objective.stages):
        pieces = [(chosen[number], stage) for number in within]
        for number, figure in zip(within, crew.map(objective, pieces), strict=True):
            figures[number].append(figure)
            asked[number].report(float(np.mean(figures[number])), stage + 1)
        within = [number for number in within if not asked[number].should_prune()]
    return [float(np.mean(figures[n])) if n in within else None for n in range(len(asked))]


def _report_agents(
    crew: Crew, best: Parameters, scenario: str, forecaster: str
) -> dict[str, float]:
    judge = AgentsObjective(scenario=scenario, forecaster=forecaster, seeds=REPORT_SEEDS)
    pieces = list(product((best, _defaults(best)), range(judge.stages)))
    costs = -np.array(list(crew.map(judge, pieces))).reshape(2, judge.stages)
    tuned, usual = (float(cost) for cost in costs.mean(axis=1))
    return {"tuned_cost": tuned, "default_cost": usual, "lower_by": 1 - tuned / max(usual, 1e-9)}


def _defaults(names: Parameters) -> Parameters:
    settings = Settings()
    out = {}
    for name in names:
        section, key = name.split(".")
        out[name] = getattr(getattr(settings, section), key)
    return out
