# SPDX-License-Identifier: Apache-2.0
"""``pilothouse train``: forecasters from traces, journals or the simulator; placement policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pilothouse.cli import placement_live
from pilothouse.cli.given import is_given, refuse_unread
from pilothouse.cli.output import AsJson, RayOption, print_json, progress
from pilothouse.cli.placement_live import (
    NAMESPACE,
    ONLY_LIVE,
    PROBE_PORT,
    ImageOption,
    NamespaceOption,
    ProbePortOption,
)

app = typer.Typer(
    help="Train forecasters and placement policies.", no_args_is_help=True, rich_markup_mode=None
)


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
    ray: RayOption = None,
    as_json: AsJson = False,
) -> None:
    """Train failure risk: on the simulator, on your journals, or on a trace."""
    from pilothouse.learn.extras import need

    need("polars", "xgboost")
    from pilothouse.learn.crew import crew_at
    from pilothouse.learn.train import forecaster

    with crew_at(ray) as crew, progress("Training", quiet=as_json) as advance:
        path, card = forecaster.train_risk(
            name,
            dataset=dataset,
            journals=tuple(journal or ()),
            seeds=seeds,
            cycles=cycles,
            crew=crew,
            progress=advance,
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
    dataset: Annotated[
        str | None, typer.Option(help="An imported trace with use of machines.")
    ] = None,
    journal: Annotated[
        list[Path] | None, typer.Option(help="Journals of your own runs; repeatable.")
    ] = None,
    name: Annotated[str, typer.Option(help="Of the forecaster.")] = "demand",
    seeds: Annotated[int, typer.Option(min=2, help="Simulated runs per scenario.")] = 3,
    cycles: Annotated[int, typer.Option(min=300, help="Length of a simulated run.")] = 480,
    ray: RayOption = None,
    as_json: AsJson = False,
) -> None:
    """Train demand quantiles (p50, p95): on the simulator, on your journals, or on a trace."""
    from pilothouse.learn.extras import need

    need("polars", "xgboost")
    from pilothouse.learn.crew import crew_at
    from pilothouse.learn.train import forecaster

    with crew_at(ray) as crew, progress("Training", quiet=as_json) as advance:
        path, card = forecaster.train_demand(
            name,
            dataset=dataset,
            journals=tuple(journal or ()),
            seeds=seeds,
            cycles=cycles,
            crew=crew,
            progress=advance,
        )
    if as_json:
        print_json({"name": name, "path": str(path), "card": card})
        return
    typer.echo(f"Forecaster  {path}")
    for part, figures in card.items():
        if isinstance(figures, dict) and part != "trained_on":
            for key, value in figures.items():
                typer.echo(f"  {part:<10} {key:<26} {value}")
        else:
            typer.echo(f"  {part:<10} {figures}")
    typer.echo(f"Use it with: pilothouse up --demand {name}")


@app.command()
def placement(
    ctx: typer.Context,
    policy: Annotated[str, typer.Option(help="ee, lb, el-rl, or a name with --reward.")],
    preset: Annotated[str, typer.Option(help="thesis or fast.")] = "fast",
    resource: Annotated[
        str,
        typer.Option(help="What load means: requests (CPU and memory), pods, cpu, memory, disk."),
    ] = "requests",
    reward: Annotated[
        str | None, typer.Option(help="A reward's name, or a file of components and weights.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 1,
    seeds: Annotated[int, typer.Option(min=1, help="Networks to train, side by side.")] = 1,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of training; the preset's if none.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from its checkpoint.")] = False,
    start: Annotated[
        str | None, typer.Option(help="With --live or --from-journal: begin with this policy.")
    ] = None,
    from_journal: Annotated[
        Path | None,
        typer.Option(help="Fine-tune on the placements of a scorer's journal, or a frozen set."),
    ] = None,
    live: Annotated[
        Path | None, typer.Option(help="Train by placing real pods in this kubeconfig's cluster.")
    ] = None,
    namespace: NamespaceOption = NAMESPACE,
    image: ImageOption = "",
    probe_port: ProbePortOption = PROBE_PORT,
    as_json: AsJson = False,
) -> None:
    """Train a placement policy: on simulated clusters, on a record, or by placing real pods."""
    from dataclasses import replace

    from pilothouse.errors import InvalidSetting, UnknownName
    from pilothouse.home import folder
    from pilothouse.learn.extras import need

    need("jax", "optax")
    from pilothouse.learn.placement import rewards, training
    from pilothouse.learn.placement.trainer import PRESETS

    if preset not in PRESETS:
        raise UnknownName.among("preset", preset, tuple(PRESETS))
    if reward is None and policy not in rewards.OF_POLICY:
        raise UnknownName.among("policy", policy, tuple(rewards.OF_POLICY))
    if live is not None and from_journal is not None:
        raise InvalidSetting("Both --live and --from-journal are given. Keep one.")
    if live is not None:
        refuse_unread(ctx, "with --live", "resume", "seeds")
    else:
        refuse_unread(ctx, "without --live", *ONLY_LIVE)
    if from_journal is not None:
        refuse_unread(ctx, "with --from-journal", "resume", "seeds", "steps")
    elif live is None:
        refuse_unread(ctx, "without --live or --from-journal", "start")
    chosen = rewards.find(reward or rewards.OF_POLICY[policy], resource)
    if chosen.resource != resource and is_given(ctx, "resource"):
        raise InvalidSetting(
            f"{reward} has the resource {chosen.resource}, but --resource is {resource}. Keep one."
        )
    if from_journal is not None and chosen.resource == "disk":
        raise InvalidSetting("A recorded placement has no disk. Give a reward on another resource.")
    where = out or folder("models") / f"placement-{policy}"
    sized = training.sized(policy, PRESETS[preset])
    if live is not None:
        place = placement_live.place_of(live, namespace, image, probe_port)
        wish = placement_live.Wish(policy=policy, start=start, seed=seed, out=where)
        placement_live.practice(wish, sized, chosen, place, steps=steps, as_json=as_json)
        return
    if from_journal is not None:
        wish = placement_live.Wish(policy=policy, start=start, seed=seed, out=where)
        placement_live.fine_tune(wish, sized, chosen, from_journal, as_json=as_json)
        return
    settings = sized if steps is None else replace(sized, steps=steps)
    chunks = 8 * len(settings.stages)
    with progress("Training", quiet=as_json, total=chunks) as advance:
        trained = training.train(
            policy,
            settings,
            chosen,
            seeds=range(seed, seed + seeds),
            out=where,
            resume=resume,
            told=lambda told, total: advance(),
            command=_repeated(
                {"policy": policy, "seeds": seeds},
                {
                    "preset": (preset, "fast"),
                    "resource": (resource, "requests"),
                    "reward": (reward, None),
                    "seed": (seed, 1),
                    "steps": (steps, None),
                },
            ),
        )
    if as_json:
        lines = {str(k): [x.to_json() for x in v] for k, v in trained.lines.items()}
        seconds = {"seconds": trained.seconds, "compile_seconds": trained.compile_seconds}
        made = {"policy": policy, "path": str(trained.best), **seconds, "lines": lines}
        print_json(made | {"returns": {str(k): v for k, v in trained.returns.items()}})
        return
    for number, lines_of in trained.lines.items():
        for line in lines_of:
            mark = "holds" if line.holds else "FAILS"
            sign = ">=" if line.at_least else "<="
            typer.echo(
                f"seed {number}  {mark}  {line.what}: {line.value:.4f} ({sign} {line.bound})"
            )
    for number, value in trained.returns.items():
        typer.echo(f"seed {number}  mean return {value:.4f} of {chosen.name}; the highest is kept")
    typer.echo(f"Policy  {trained.best}.json  ({trained.seconds:.0f} s, validation, simulated)")


def _repeated(always: dict[str, object], unless: dict[str, tuple[object, object]]) -> str:
    """The command that trains the same again; options at their defaults are left out."""
    given = always | {name: value for name, (value, usual) in unless.items() if value != usual}
    options = " ".join(f"--{name} {value}" for name, value in given.items())
    return f"pilothouse train placement {options}"
