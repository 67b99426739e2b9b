# SPDX-License-Identifier: Apache-2.0
"""``pilothouse janitor`` and ``pilothouse restore``: taking back, without the loop."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilothouse.cli.output import AsJson
from pilothouse.cli.stopping import check, stoppable

if TYPE_CHECKING:
    from pilothouse.clients import Access
    from pilothouse.clients.lease import Leadership
    from pilothouse.janitor import Janitor, Sweep

SWEEP_SECONDS = 2.0
GIVE_UP_SECONDS = 60.0
Kubeconfig = Annotated[
    Path | None, typer.Option(help="Of the cluster; the pod's own account if none.")
]
Hook = Annotated[str, typer.Option(help="Command or address that turns machines on.")]


@stoppable()
def janitor(
    kubeconfig: Kubeconfig = None,
    power_hook: Hook = "",
    dead_after: Annotated[
        float, typer.Option(help="Seconds of silence after which the loop is taken for dead.")
    ] = 30.0,
    grace: Annotated[
        float, typer.Option(help="Seconds a living loop has to take back what expired.")
    ] = 10.0,
    sweeps: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run inverses from tickets: what expired, or everything once the loop is dead or killed."""
    from pilothouse.act.power import hook_of
    from pilothouse.clients import Store
    from pilothouse.clients.keys import JANITOR
    from pilothouse.clients.lease import Leadership
    from pilothouse.clients.requests import Requests
    from pilothouse.janitor import Janitor

    access = _access(kubeconfig)
    leadership = Leadership(name=JANITOR)
    store = Store(access, kinds=())
    store.add(leadership.run)
    requests = Requests(access)
    worker = Janitor(
        requests, hook=hook_of(power_hook), dead_seconds=dead_after, grace_seconds=grace
    )
    try:
        store.open()
        _walk(worker, leadership, sweeps, as_json)
    except KeyboardInterrupt:
        typer.echo("Stopped; without a janitor nobody may enforce.", err=True)
    finally:
        store.close()
        requests.close()


def _walk(worker: Janitor, leadership: Leadership, sweeps: int | None, as_json: bool) -> None:
    from pilothouse.errors import BackendError

    done, said = 0, ""
    while sweeps is None or done < sweeps:
        check()
        if not leadership.is_held:
            if leadership.sentence != said:
                said = leadership.sentence
                typer.echo(f"Standing by. {said}", err=True)
            time.sleep(0.2)
            continue
        try:
            _tell(worker.sweep(), as_json)
        except BackendError as error:  # the cluster's trouble is no reason to stop caring
            typer.echo(f"Sweep failed, tried again: {error}", err=True)
        done += 1
        time.sleep(SWEEP_SECONDS)


def restore(
    everything: Annotated[
        bool, typer.Option("--all", help="Every action that is in force.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    power_hook: Hook = "",
    as_json: AsJson = False,
) -> None:
    """Take back what is in force, at once; for an uninstall, or when in doubt."""
    from pilothouse.act.power import hook_of
    from pilothouse.clients.requests import Requests
    from pilothouse.errors import BackendError, UserError
    from pilothouse.janitor import Janitor

    if not everything:
        raise UserError("Say what to take back: pilothouse restore --all.")
    requests = Requests(_access(kubeconfig))
    worker = Janitor(requests, hook=hook_of(power_hook))
    deadline = time.monotonic() + GIVE_UP_SECONDS
    try:
        while True:
            sweep = worker.sweep(everything=True)
            _tell(sweep, as_json)
            if not (sweep.open or sweep.held or sweep.problems):
                typer.echo("Nothing of ours is in force.", err=as_json)
                return
            if sweep.ended or sweep.released:  # many held pods take many sweeps; that is progress
                deadline = time.monotonic() + GIVE_UP_SECONDS
                continue
            if time.monotonic() > deadline:
                raise BackendError(
                    f"{sweep.open} actions could not be taken back and {sweep.held} pods wait at "
                    f"our gate: {'; '.join(sweep.problems)}. "
                    "Try again, or see their tickets: kubectl get tickets -n pilothouse-system."
                )
            time.sleep(SWEEP_SECONDS)
    finally:
        requests.close()


def _tell(sweep: Sweep, as_json: bool) -> None:
    import json
    from dataclasses import asdict

    if as_json:
        typer.echo(json.dumps(asdict(sweep)))
        return
    for line in sweep.ended:
        typer.echo(f"Ended    {line}")
    for name in sweep.released:
        typer.echo(f"Released {name}")
    for problem in sweep.problems:
        typer.echo(f"Problem  {problem}", err=True)


def _access(kubeconfig: Path | None) -> Access:
    from pilothouse.clients import from_kubeconfig, from_pod

    return from_kubeconfig(kubeconfig) if kubeconfig else from_pod()
