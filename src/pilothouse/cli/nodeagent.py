# SPDX-License-Identifier: Apache-2.0
"""``pilothouse node-agent``: lower this node's clock when its annotation asks for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from pilothouse.cli.stopping import check, stoppable


@stoppable()
def node_agent(
    node: Annotated[str, typer.Option(help="Name of the node this runs on.")],
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Of the cluster; the pod's own account if none.")
    ] = None,
    sysfs: Annotated[Path, typer.Option(help="Where the kernel's /sys is mounted.")] = Path("/sys"),
    memory: Annotated[
        Path, typer.Option(help="File that keeps the clock's own value over restarts.")
    ] = Path("/run/pilothouse-clock.json"),
    interval: Annotated[float, typer.Option(help="Seconds between two looks.")] = 2.0,
    rounds: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
) -> None:
    """Follow pilothouse.dev/frequency of one node; the default comes back by itself."""
    from pilothouse.clients import from_kubeconfig, from_pod
    from pilothouse.clients.requests import Requests
    from pilothouse.nodeagent import Clock, NodeAgent

    requests = Requests(from_kubeconfig(kubeconfig) if kubeconfig else from_pod())
    agent = NodeAgent(requests, node, Clock(sysfs, memory))
    said, done = "", 0
    try:
        while rounds is None or done < rounds:
            state = agent.look()
            if state != said:
                typer.echo(f"{node}: {state}")
                said = state
            done += 1
            check()
            time.sleep(interval)
    except KeyboardInterrupt:
        typer.echo("Stopped; the clock has its default again.", err=True)
    finally:
        agent.close()
        requests.close()
