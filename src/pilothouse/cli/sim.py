# SPDX-License-Identifier: Apache-2.0
"""``pilothouse sim serve``: the simulated cluster as its own process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="The simulated cluster as its own process.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _group() -> None:
    pass


@app.command()
def serve(
    scenario: Annotated[str, typer.Option(help="See: pilothouse scenarios.")] = "harbor",
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same cluster.")] = 0,
    cluster: Annotated[str, typer.Option(help="Name of the cluster in object ids.")] = "sim",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = 8089,
    log: Annotated[
        Path, typer.Option(help="Every command it is given, as JSON lines, durable.")
    ] = Path("commands.jsonl"),
) -> None:
    """Serve one simulated cluster on loopback until interrupted."""
    from pilothouse.scenarios import load
    from pilothouse.sim.cluster import SimCluster
    from pilothouse.sim.serve import serve as run

    run(
        SimCluster(load(scenario), seed=seed, name=cluster),
        "127.0.0.1",
        port,
        log,
        announce=lambda url: typer.echo(f"Cluster  {url}"),
    )
