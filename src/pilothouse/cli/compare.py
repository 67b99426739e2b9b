# SPDX-License-Identifier: Apache-2.0
"""``pilothouse compare``: arms side by side on the same pods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilothouse.cli.given import refuse_unread
from pilothouse.cli.output import AsJson, print_json, print_table, progress
from pilothouse.cli.placement_live import (
    NAMESPACE,
    ONLY_LIVE,
    PROBE_PORT,
    ImageOption,
    NamespaceOption,
    ProbePortOption,
    compare_live,
    place_of,
)

if TYPE_CHECKING:
    from pilothouse.learn.placement.thesis_tests import Trial
    from pilothouse.policy import Policy

NOT_OF_FIGURES = ("test", "arms", "nodes_move")  # the thesis says which, and its nodes stay

app = typer.Typer(help="Compare policies.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    pass


@app.command()
def placement(
    ctx: typer.Context,
    test: Annotated[int, typer.Option(min=1, max=2, help="1: all come, all go. 2: rolling.")] = 1,
    arms: Annotated[str, typer.Option(help="Comma-separated.")] = (
        "default,most-allocated,best-fit,random,heuristic,hybrid,ee,lb,el-rl"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Courses; intervals are over them.")] = 10,
    phase: Annotated[str, typer.Option(help="testing, or training: arms while policies learn.")] = (
        "testing"
    ),
    preset: Annotated[
        str, typer.Option(help="short, or thesis: its 500 cycles, and with --live its waits.")
    ] = "short",
    pods: Annotated[int, typer.Option(min=1, help="Pods at once.")] = 30,
    cpu: Annotated[int, typer.Option(min=1, help="Millicores that a pod asks for.")] = 250,
    memory: Annotated[int, typer.Option(min=1, help="MiB that a pod asks for.")] = 64,
    soft: Annotated[
        int, typer.Option(min=0, help="A pod's soft latency limit in ms; 0: none.")
    ] = 20,
    hard: Annotated[
        int, typer.Option(min=0, help="A pod's hard latency limit in ms; 0: none.")
    ] = 30,
    replacements: Annotated[
        int, typer.Option(min=1, help="Test 2: pods after the first ones.")
    ] = 120,
    nodes_move: Annotated[
        bool, typer.Option("--nodes-move", help="Test 2: a node is lost and a better one joins.")
    ] = False,
    policies: Annotated[
        Path | None, typer.Option(help="A folder of policies instead of the shipped ones.")
    ] = None,
    reproduce: Annotated[
        str | None, typer.Option(help="thesis: figures 5.1 to 5.12 as CSV and PNG.")
    ] = None,
    live: Annotated[
        Path | None, typer.Option(help="On this kubeconfig's cluster, by its real scheduler.")
    ] = None,
    latency_factor: Annotated[
        int, typer.Option(min=1, max=20, help="Latencies and limits are so many times longer.")
    ] = 1,
    namespace: NamespaceOption = NAMESPACE,
    image: ImageOption = "",
    probe_port: ProbePortOption = PROBE_PORT,
    out: Annotated[Path | None, typer.Option(help="Write CSV, plots and a page here.")] = None,
    as_json: AsJson = False,
) -> None:
    """The thesis's tests: used nodes, latency, violations, modelled energy, pending time."""
    from pilothouse.errors import InvalidSetting, UnknownName
    from pilothouse.home import folder
    from pilothouse.learn.placement import comparing
    from pilothouse.learn.placement.thesis_tests import PRESETS, Trial
    from pilothouse.policy import read, shipped

    if phase not in ("testing", "training"):
        raise UnknownName.among("phase", phase, ("testing", "training"))
    if reproduce not in (None, "thesis"):
        raise UnknownName.among("figures", str(reproduce), ("thesis",))
    if preset not in PRESETS:
        raise UnknownName.among("preset", preset, tuple(PRESETS))
    if live is not None and (reproduce or phase == "training" or policies):
        raise InvalidSetting(
            "--live plays the tests with the shipped policies: leave --reproduce, "
            "--phase training and --policies out."
        )
    if live is None:
        refuse_unread(ctx, "without --live", *ONLY_LIVE)
    if reproduce:
        refuse_unread(ctx, "with --reproduce thesis", "phase", *NOT_OF_FIGURES)
    elif phase == "training":  # policies are trained here, and their world's nodes stay
        refuse_unread(ctx, "with --phase training", "policies", "nodes_move")
    if not reproduce and test == 1:
        refuse_unread(ctx, "with --test 1", "replacements")
    find = shipped if policies is None else lambda name: read(policies / name)
    trial = Trial(
        test=test,
        pods=pods,
        replacements=replacements,
        cpu_millicores=cpu,
        memory_mib=memory,
        soft_ms=soft,
        hard_ms=hard,
        nodes_move=nodes_move,
        latency_factor=latency_factor,
        **PRESETS[preset],
    )
    where = out or folder("reports") / "placement"
    if reproduce:
        _draw(where, trial, seeds, find, as_json=as_json)
        return
    names = tuple(name.strip() for name in arms.split(",") if name.strip())
    if not names:
        raise InvalidSetting(f'--arms names no arm: "{arms}". Give one or more, comma-separated.')
    if phase == "training":
        _train(where, trial, names, seeds, as_json=as_json)
        return
    if live is not None:
        place = place_of(live, namespace, image, probe_port)
        comparison = compare_live(trial, names, place, seeds=seeds, quiet=as_json)
    else:
        with progress("Playing", quiet=as_json, total=len(names)) as advance:
            comparison = comparing.compare(trial, names, seeds=seeds, find=find, told=advance)
    if out is not None:
        for plot in comparing.plots_of(comparison):
            comparing.write_plot(plot, out)
        comparing.write_steps(comparison, out)
        title = f"Placement, test {test}"
        comparing.write_page(out, title, [comparison], f"{comparison.where.capitalize()}.")
    if as_json:
        print_json(comparing.to_json(comparison))
        return
    print_table(comparing.table(comparison))
    for arm, words in comparison.profiles.items():
        typer.echo(f"{arm}: {words}.")
    for note in (comparing.said_of_following(comparison), *comparison.notes):
        typer.echo(note)
    over = f"means over {seeds} seeds with 95 % intervals" if seeds > 1 else "one seed"
    typer.echo(
        f"{comparison.where.capitalize()}; {over}; energy is modelled, at the thesis's pace."
    )


def _train(where: Path, trial: Trial, arms: tuple[str, ...], seeds: int, *, as_json: bool) -> None:
    """Arms while the learned ones learn: a line an episode, and what the thesis drew of it."""
    from pilothouse.learn.extras import need

    need("jax", "optax", "matplotlib")
    from pilothouse.learn.placement import comparing, learning
    from pilothouse.learn.placement.presets import PRESETS

    learning.check(arms)
    settings = PRESETS["thesis"]
    trained = {learning.LEARNS_AS[arm] for arm in arms if arm in learning.LEARNS_AS}
    total = len(trained) * learning.episodes_of(settings)
    with progress("Training", quiet=as_json, total=total) as advance:
        found = learning.learn(trial, arms, seeds=seeds, settings=settings, told=advance)
    written = [path for p in learning.plots_of(found) for path in comparing.write_plot(p, where)]
    written.append(learning.write_episodes(found, where))
    if as_json:
        print_json(learning.to_json(found) | {"written": [str(path) for path in written]})
        return
    print_table(learning.table(found))
    for note in learning.notes_of(found):
        typer.echo(note)
    over = f"means over {seeds} seeds with 95 % intervals" if seeds > 1 else "one seed"
    typer.echo(f"Simulated; {over}. Wrote {len(written)} files to {where}.")


def _draw(
    where: Path, trial: Trial, seeds: int, find: Callable[[str], Policy], *, as_json: bool
) -> None:
    """The thesis's twelve figures."""
    from pilothouse.learn.extras import need

    need("jax", "optax", "matplotlib")
    from pilothouse.learn.placement import reproducing

    with progress("Drawing", quiet=as_json, total=12) as advance:
        written = reproducing.reproduce(where, trial, seeds=seeds, find=find, told=advance)
    if as_json:
        paths = [str(path) for path in written]
        print_json({"simulated": True, "notes": trial.deviations(), "written": paths})
        return
    for note in trial.deviations():
        typer.echo(note)
    typer.echo(f"Wrote {len(written)} files to {where} (simulated).")
