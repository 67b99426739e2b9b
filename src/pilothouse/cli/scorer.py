# SPDX-License-Identifier: Apache-2.0
"""``pilothouse scorer``: the suggestions server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pilothouse.cli.probe import PORT as PROBE_PORT

PORT = 10270


def scorer(
    policy: Annotated[
        str, typer.Option(help="A shipped policy's name, or a policy file that is watched.")
    ] = "el-rl",
    kubeconfig: Annotated[
        Path | None, typer.Option(help="The cluster to watch; none: callers bring their nodes.")
    ] = None,
    prometheus: Annotated[str, typer.Option(help="Address of Prometheus, for /v1/nodes.")] = "",
    probe_port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="With --kubeconfig: of the latency probes; 0: none."),
    ] = PROBE_PORT,
    host: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free one.")] = PORT,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token for publishing; none: nobody may.")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Keep the scheduler's records in this journal.")
    ] = None,
    enforce_hard_limit: Annotated[
        bool, typer.Option("--enforce-hard-limit", help="The extender's filter obeys hard limits.")
    ] = False,
) -> None:
    """Score nodes for pods, explain each score and feed the scheduler plugin."""
    from pilothouse.scorer.serve import Wish, serve

    serve(
        Wish(
            policy=policy,
            kubeconfig=kubeconfig,
            prometheus=prometheus,
            probe_port=probe_port,
            host=host,
            port=port,
            token_file=token_file,
            journal=journal,
            enforce_hard_limit=enforce_hard_limit,
        ),
        say=lambda text: typer.echo(text, err=True),
    )
