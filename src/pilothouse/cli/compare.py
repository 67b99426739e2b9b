# SPDX-License-Identifier: Apache-2.0
"""``pilothouse compare``: arms side by side on the same pods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pilothouse.cli.output import AsJson, print_json, print_table, progress

app = typer.Typer(help="Compare policies.", no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _group() -> None:
    pass


@app.command()
def placement(
    test: Annotated[int, typer.Option(min=1, max=2, help="1: all come, all go. 2: rolling.")] = 1,
    arms: Annotated[str, typer.Option(help="Comma-separated.")] = (
        "default,most-allocated,best-fit,random,heuristic,hybrid,ee,lb,el-rl"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Courses; intervals are over them.")] = 10,
    phase: Annotated[str, typer.Option(help="testing, or training: policies as they learn.")] = (
        "testing"
    ),
    pods: Annotated[int, typer.Option(min=1, help="Pods at once.")] = 30,
    nodes_move: Annotated[
        bool, typer.Option("--nodes-move", help="Test 2: a node is lost and a better one joins.")
    ] = False,
    policies: Annotated[
        Path | None, typer.Option(help="A folder of policies instead of the shipped ones.")
    ] = None,
    reproduce: Annotated[
        str | None, typer.Option(help="thesis: figures 5.1 to 5.12 as CSV and PNG.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write CSV, plots and a page here.")] = None,
    as_json: AsJson = False,
) -> None:
    """The thesis's tests, simulated: used nodes, latency, violations, modelled power."""
    from pilothouse.errors import UnknownName
    from pilothouse.home import folder
    from pilothouse.learn.extras import need
    from pilothouse.learn.placement import comparing
    from pilothouse.learn.placement.thesis_tests import Trial
    from pilothouse.policy import read, shipped

    if phase not in ("testing", "training"):
        raise UnknownName.among("phase", phase, ("testing", "training"))
    if reproduce not in (None, "thesis"):
        raise UnknownName.among("figures", str(reproduce), ("thesis",))
    find = shipped if policies is None else lambda name: read(policies / name)
    where = out or folder("reports") / "placement"
    if reproduce or phase == "training":
        need("jax", "optax", "matplotlib")
        from pilothouse.learn.placement import reproducing

        with progress("Drawing", quiet=as_json, total=12) as advance:
            if reproduce:
                written = reproducing.reproduce(where, seeds=seeds, find=find, told=advance)
            else:
                plots = reproducing.training_plots(seeds)
                written = [path for plot in plots for path in comparing.write_plot(plot, where)]
        if as_json:
            print_json({"simulated": True, "written": [str(path) for path in written]})
            return
        typer.echo(f"Wrote {len(written)} files to {where} (simulated).")
        return
    trial = Trial(test=test, pods=pods, nodes_move=nodes_move)
    names = tuple(name.strip() for name in arms.split(",") if name.strip())
    with progress("Playing", quiet=as_json, total=len(names)) as advance:
        comparison = comparing.compare(trial, names, seeds=seeds, find=find, told=advance)
    if out is not None:
        for plot in comparing.plots_of(comparison):
            comparing.write_plot(plot, out)
        comparing.write_page(out, f"Placement, test {test}", [comparison], "Simulated.")
    if as_json:
        print_json(comparing.to_json(comparison))
        return
    print_table(comparing.table(comparison))
    typer.echo(f"Simulated; means over {seeds} seeds with 95 % intervals; power is modelled.")
