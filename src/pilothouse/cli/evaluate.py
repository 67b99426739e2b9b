# SPDX-License-Identifier: Apache-2.0
"""``pilothouse evaluate``: honest figures, with their baselines, as JSON and a page."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pilothouse.cli.output import AsJson, print_json, print_table, progress

app = typer.Typer(
    help="Judge forecasters and placement policies.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _group() -> None:
    pass


@app.command()
def risk(
    dataset: Annotated[str, typer.Option(help="A features artefact, or imported job events.")],
    horizon: Annotated[int, typer.Option(min=1, help="Minutes ahead.")] = 60,
    leak_check: Annotated[
        bool, typer.Option("--leak-check", help="Also look for features that know the future.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Failure risk: one cell left out, or jobs at submission split by time."""
    from pilothouse.learn.extras import need

    need("polars", "xgboost")
    from pilothouse.learn.evaluate import evaluating

    with progress("Evaluating", quiet=as_json) as advance:
        figures, path = evaluating.risk(
            dataset, horizon_seconds=60 * horizon, leak_check=leak_check, progress=advance
        )
    _answer(figures, str(path), as_json)
    if leak_check and not figures["leak_check"]["ok"]:
        raise typer.Exit(1)


@app.command()
def nodes(
    dataset: Annotated[str, typer.Option(help="An imported trace with machine events.")],
    as_json: AsJson = False,
) -> None:
    """Node risk on its own: machines removed within the hour, split by time."""
    from pilothouse.learn.extras import need

    need("polars", "xgboost")
    from pilothouse.learn.evaluate import evaluating

    with progress("Evaluating", quiet=as_json) as advance:
        figures, path = evaluating.nodes(dataset, progress=advance)
    _answer(figures, str(path), as_json)


@app.command()
def demand(
    dataset: Annotated[str, typer.Option(help="An imported machine-usage dataset.")],
    what: Annotated[str, typer.Option(help="cpu or memory.")] = "cpu",
    as_json: AsJson = False,
) -> None:
    """Demand quantiles on unseen machines, later in time, against simple rivals."""
    from pilothouse.errors import UnknownName
    from pilothouse.learn.extras import need

    need("polars", "xgboost")
    from pilothouse.learn.evaluate import evaluating

    if what not in ("cpu", "memory"):
        raise UnknownName.among("resource", what, ("cpu", "memory"))
    with progress("Evaluating", quiet=as_json) as advance:
        figures, path = evaluating.demand(dataset, what=what, progress=advance)
    _answer(figures, str(path), as_json)


@app.command()
def loop(
    forecaster: Annotated[str, typer.Option(help="learned, or one you trained.")] = "learned",
    seeds: Annotated[int, typer.Option(min=1)] = 20,
    cycles: Annotated[int, typer.Option(min=10)] = 280,
    scenario: Annotated[
        list[str] | None, typer.Option(help="Repeatable; held-out ranges are drawn.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """A forecaster in the loop, paired with the transparent one on the same days."""
    from pilothouse.learn.evaluate import inloop

    total = 2 * seeds * len(scenario or inloop.NEW_FAMILIES)
    with progress("Running", quiet=as_json, total=total) as advance:
        figures = inloop.compare(
            ("ewma-trend", forecaster),
            scenarios=tuple(scenario or inloop.NEW_FAMILIES),
            seeds=tuple(range(seeds)),
            cycles=cycles,
            progress=advance,
        )
    _answer(figures, "", as_json)


def _answer(figures: dict[str, Any], path: str, as_json: bool) -> None:
    if as_json:
        print_json(figures)
        return
    for key, value in figures.items():
        if isinstance(value, float):
            typer.echo(f"{key:<34} {value:.4f}")
        elif isinstance(value, (int, str)):
            typer.echo(f"{key:<34} {value}")
        elif isinstance(value, dict) and all(isinstance(v, (int, float)) for v in value.values()):
            typer.echo(key)
            for name, number in value.items():
                typer.echo(f"  {name:<32} {number:.4f}")
    if "leak_check" in figures:
        typer.echo(f"Leak check  {figures['leak_check']['sentence']}")
    if path:
        typer.echo(f"Report  {path}")


@app.command()
def placement(
    policy: Annotated[str, typer.Option(help="A shipped policy's name, or a file of one.")],
    episodes: Annotated[int, typer.Option(min=2, help="Held-out courses.")] = 48,
    nodes: Annotated[tuple[int, int], typer.Option(help="Fewest and most nodes.")] = (6, 32),
    epsilon: Annotated[float, typer.Option(min=0.0, max=1.0, help="Random choices.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the courses.")] = 500_000,
    kind: Annotated[
        str | None, typer.Option(help="Judge as ee, lb or el-rl; its own kind if none.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """A placement policy against its promises and the online heuristics, simulated."""
    from pilothouse.errors import InvalidSetting, UnknownName
    from pilothouse.learn.placement import judging, reporting

    if nodes[0] < 1 or nodes[1] < nodes[0]:
        raise InvalidSetting(f"--nodes needs the fewest and the most, but got {nodes}.")
    found = reporting.find_policy(policy)
    what = kind or found.card.policy
    if what not in judging.KINDS:
        raise UnknownName.among("kind of policy", what, judging.KINDS)
    with progress("Playing", quiet=as_json) as advance:
        report = reporting.evaluate(
            found, what, nodes=nodes, episodes=episodes, epsilon=epsilon, seed=seed, told=advance
        )
    if as_json:
        print_json(report)
        return
    for line in report["lines"]:
        mark = "holds" if line["holds"] else "FAILS"
        sign = ">=" if line["at_least"] else "<="
        typer.echo(f"{mark}  {line['what']}: {line['value']:.4f} ({sign} {line['bound']})")
    print_table([tuple(row) for row in report["table"]])
    typer.echo("All figures are simulated.")
