# SPDX-License-Identifier: Apache-2.0
"""``pilothouse tune``: search settings that are really used, resumable."""

from __future__ import annotations

from typing import Annotated

import typer

from pilothouse.cli.output import AsJson, RayOption, print_json, progress

app = typer.Typer(help="Tune forecasters and agents.", no_args_is_help=True, rich_markup_mode=None)

Trials = Annotated[int, typer.Option(min=1, help="How many the study has in the end.")]
Seed = Annotated[int, typer.Option(min=0)]
Sampler = Annotated[str, typer.Option(help="tpe or random.")]
Dataset = Annotated[str, typer.Option(help="A features artefact or machine usage.")]


@app.callback()
def _group() -> None:
    pass


@app.command()
def risk(
    dataset: Dataset,
    trials: Trials = 20,
    seed: Seed = 0,
    sampler: Sampler = "tpe",
    ray: RayOption = None,
    as_json: AsJson = False,
) -> None:
    """The trees of the risk forecaster, on jobs set aside."""
    _tune("risk", trials, seed, sampler, ray, as_json, dataset=dataset)


@app.command()
def demand(
    dataset: Dataset,
    trials: Trials = 20,
    seed: Seed = 0,
    sampler: Sampler = "tpe",
    ray: RayOption = None,
    as_json: AsJson = False,
) -> None:
    """The trees of the demand forecaster, on a later stretch of time."""
    _tune("demand", trials, seed, sampler, ray, as_json, dataset=dataset)


@app.command()
def agents(
    trials: Trials = 20,
    scenario: Annotated[str, typer.Option(help="See: pilothouse scenarios.")] = "node-degradation",
    forecaster: Annotated[
        str, typer.Option(help="The one the thresholds are for: ewma-trend, learned, or yours.")
    ] = "ewma-trend",
    seed: Seed = 0,
    sampler: Sampler = "tpe",
    ray: RayOption = None,
    as_json: AsJson = False,
) -> None:
    """Thresholds and budgets of the agents, on simulator seeds; reported on other seeds."""
    _tune("agents", trials, seed, sampler, ray, as_json, scenario=scenario, forecaster=forecaster)


def _tune(
    what: str,
    trials: int,
    seed: int,
    sampler: str,
    ray: str | None,
    as_json: bool,
    *,
    dataset: str | None = None,
    scenario: str = "node-degradation",
    forecaster: str = "ewma-trend",
) -> None:
    from pilothouse.learn.extras import need

    need("polars", "xgboost", "optuna")
    from pilothouse.learn.crew import crew_at
    from pilothouse.learn.train.tuning import tune

    with crew_at(ray) as crew, progress("Tuning", quiet=as_json, total=trials) as advance:
        result = tune(
            what,
            trials=trials,
            dataset=dataset,
            scenario=scenario,
            forecaster=forecaster,
            seed=seed,
            sampler=sampler,
            crew=crew,
            progress=advance,
        )
    if as_json:
        print_json(result)
        return
    typer.echo(f"Study   {result['study']}, {result['trials']} trials, "
               f"{result['pruned']} of them pruned")  # fmt: skip
    typer.echo(f"Best    {result['best_score']:.5g}")
    for key, value in result["best"].items():
        typer.echo(f"  {key:<26} {value:.4g}")
    for key, value in result.get("other_seeds", {}).items():
        typer.echo(f"  on other seeds: {key:<12} {value:.4g}")
