# SPDX-License-Identifier: Apache-2.0
"""What ``up`` may do before the loop: train a forecaster, tune the agents, replay a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from pilothouse.cli.output import progress

if TYPE_CHECKING:
    from pilothouse.journal import Stage
    from pilothouse.settings import Settings

SEEDS, CYCLES = 2, 240  # enough to learn what this simulator does; `train risk` takes more


def prepare(
    settings: Settings, *, train: bool, tune: bool, trials: int
) -> tuple[Settings, tuple[Stage, ...]]:
    """Run the wanted stages; the settings that come back use what they made."""
    stages: list[Stage] = []
    if train:
        settings, stage = _train(settings)
        stages.append(stage)
    if tune:
        settings, stage = _tune(settings, trials)
        stages.append(stage)
    return settings, tuple(stages)


def _train(settings: Settings) -> tuple[Settings, Stage]:
    from pilothouse.journal import Stage
    from pilothouse.learn.extras import need
    from pilothouse.settings.file import with_overrides

    need("polars", "xgboost")
    from pilothouse.learn.train.forecaster import train_risk

    name = f"up-{settings.run.scenario.replace('/', '-')}"
    with progress("Training") as advance:
        path, _ = train_risk(
            name,
            dataset=None,
            journals=(),
            seeds=SEEDS,
            cycles=CYCLES,
            progress=advance,
        )
    typer.echo(f"Trained  {path}")
    stage = Stage(name="train", state="done", done=1, total=1, artifacts=(str(path),))
    return with_overrides(settings, {"forecast.forecaster": name}), stage


def _tune(settings: Settings, trials: int) -> tuple[Settings, Stage]:
    from pilothouse.journal import Stage
    from pilothouse.learn.extras import need
    from pilothouse.settings.file import with_overrides

    need("optuna")
    from pilothouse.learn.train.tuning import tune

    with progress("Tuning", total=trials) as advance:
        result = tune(
            "agents",
            trials=trials,
            scenario=settings.run.scenario,
            forecaster=settings.forecast.forecaster,
            progress=advance,
        )
    typer.echo(f"Tuned    {result['study']}, best {result['best_score']:.5g}")
    stage = Stage(
        name="tune", state="done", done=trials, total=trials, artifacts=(result["study"],)
    )
    return with_overrides(settings, dict(result["best"])), stage


def from_trace(settings: Settings, dataset: str, speed: float) -> Settings:
    """A scenario made of the trace: its arrivals, usage and failures, on the simulator."""
    from pilothouse.learn.extras import need
    from pilothouse.settings.file import with_overrides

    need("polars")
    from pilothouse.learn.traces.replaying import scenario_of

    path = scenario_of(dataset, speed=speed)
    return with_overrides(settings, {"run.scenario": str(path)})
