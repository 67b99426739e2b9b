# SPDX-License-Identifier: Apache-2.0
"""``pilothouse train``: forecasters from traces, journals or the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pilothouse.cli.output import AsJson, print_json, progress

app = typer.Typer(help="Train forecasters.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    pass


@app.command()
def risk(
    dataset: Annotated[
        str | None, typer.Option(help="Features of an imported trace (core schema).")
    ] = None,
    journal: Annotated[
        list[Path] | None, typer.Option(help="Journals of your own runs; repeatable.")
    ] = None,
    name: Annotated[str, typer.Option(help="Of the forecaster.")] = "risk",
    seeds: Annotated[int, typer.Option(min=2, help="Simulated runs per scenario.")] = 3,
    cycles: Annotated[int, typer.Option(min=60, help="Length of a simulated run.")] = 300,
    as_json: AsJson = False,
) -> None:
    """Train failure risk: on the simulator, on your journals, or on a trace."""
    from pilothouse.learn.extras import need

    need("polars", "xgboost")
    from pilothouse.learn.train import forecaster

    with progress("Training", quiet=as_json) as advance:
        path, card = forecaster.train_risk(
            name,
            dataset=dataset,
            journals=tuple(journal or ()),
            seeds=seeds,
            cycles=cycles,
            progress=lambda done, total: advance(),
        )
    if as_json:
        print_json({"name": name, "path": str(path), "card": card})
        return
    typer.echo(f"Forecaster  {path}")
    for part in ("nodes", "pods"):
        for key, value in card.get(part, {}).items():
            typer.echo(f"  {part:<6} {key:<22} {value}")
    typer.echo(f"Use it with: pilothouse up --forecaster {name}")


@app.command()
def demand(
    dataset: Annotated[str, typer.Option(help="An imported machine-usage dataset.")],
    name: Annotated[str, typer.Option(help="Of the forecaster.")] = "demand",
    as_json: AsJson = False,
) -> None:
    """Train demand quantiles (p50, p95) on machine usage."""
    from pilothouse.learn.extras import need

    need("polars", "xgboost")
    from pilothouse.learn.train import forecaster

    with progress("Training", quiet=as_json) as advance:
        path, card = forecaster.train_demand(name, dataset, progress=lambda what: advance())
    if as_json:
        print_json({"name": name, "path": str(path), "card": card})
        return
    typer.echo(f"Forecaster  {path}")
    for key, value in card.items():
        typer.echo(f"  {key:<22} {value}")
