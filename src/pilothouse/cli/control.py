# SPDX-License-Identifier: Apache-2.0
"""``pilothouse halt|resume|mode|approve``: the operator's hand on a running loop."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pilothouse.guard.switch import CommandName

JournalOption = Annotated[
    Path | None, typer.Option("--journal", help="Of the loop; the one that runs if none.")
]


ClusterOption = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help="Flip the switch in this cluster, with your own rights."),
]


def halt(
    reason: Annotated[str, typer.Option(help="Why, for the record.")] = "",
    journal: JournalOption = None,
    kubeconfig: ClusterOption = None,
) -> None:
    """Stop acting at once; what is active is taken back. The loop goes on watching."""
    if kubeconfig is not None:
        _switch(kubeconfig, acting=False, reason=reason)
        return
    _send("halt", {"reason": reason} if reason else {}, journal)


def resume(journal: JournalOption = None, kubeconfig: ClusterOption = None) -> None:
    """Let a halted loop act again."""
    if kubeconfig is not None:
        _switch(kubeconfig, acting=True, reason="")
        return
    _send("resume", {}, journal)


def _switch(kubeconfig: Path, *, acting: bool, reason: str) -> None:
    """The cluster's own kill switch: the API server obeys it, even when no loop listens."""
    import getpass

    from pilothouse.clients import from_kubeconfig
    from pilothouse.clients.keys import ACTING_KEY, REASON_KEY, SWITCH, account_path
    from pilothouse.clients.requests import Requests

    requests = Requests(from_kubeconfig(kubeconfig))
    notes = {ACTING_KEY: "enabled" if acting else "disabled", REASON_KEY: reason or None}
    try:
        requests.patch(
            account_path(SWITCH),
            {"metadata": {"annotations": notes}},
            author="kubectl-pilothouse",
            audit_id=f"switch.{getpass.getuser()}.{os.urandom(4).hex()}",
        )
    finally:
        requests.close()
    typer.echo(
        "The actuator may write again."
        if acting
        else "The API server refuses every write of the actuator from now on; the janitor takes "
        "back what is in force."
    )


def mode(
    agent: Annotated[str, typer.Argument(help="safety, efficiency or admission.")],
    mode: Annotated[str, typer.Argument(help="off, shadow, advise or enforce.")],
    namespace: Annotated[str, typer.Option(help="Only in this namespace.")] = "",
    journal: JournalOption = None,
) -> None:
    """Say how far an agent may go."""
    from pilothouse.domain import Mode
    from pilothouse.errors import UnknownName
    from pilothouse.propose.registry import default_agents
    from pilothouse.settings import Settings

    known = [r.name for r in default_agents(Settings()) if r.name != "janitor"]
    if agent not in known:
        raise UnknownName.among("agent", agent, known)
    if mode not in tuple(Mode):
        raise UnknownName.among("mode", mode, [str(m) for m in Mode])
    arguments = {"agent": agent, "mode": mode} | ({"namespace": namespace} if namespace else {})
    _send("mode", arguments, journal)


def approve(
    id: Annotated[str, typer.Argument(help="As explain shows it beside an advised action.")],
    journal: JournalOption = None,
) -> None:
    """Allow one advised action."""
    _send("approve", {"id": id}, journal)


def _send(command: CommandName, arguments: Mapping[str, str], journal: Path | None) -> None:
    from pilothouse.errors import UserError
    from pilothouse.guard.switch import ControlFile, controls_path
    from pilothouse.journal.files import is_locked

    path = journal or _running()
    controls = controls_path(path)
    try:
        _refuse_missing(path)
        is_running = is_locked(path)
        ControlFile(controls).append(command, arguments)
    except OSError as error:
        raise UserError(
            f"{controls} cannot be written: {error.strerror or error}. It must be a file that you "
            "may write; until then stop the loop itself to stop it from acting."
        ) from None
    said = " ".join([command, *arguments.values()])
    if is_running:
        typer.echo(f"{said}: handed to the loop of {path}; it obeys before its next write.")
    else:
        typer.echo(
            f"{said}: written for {path}, but no loop is running on it; it will be obeyed when one "
            "starts."
        )


def _refuse_missing(path: Path) -> None:
    from pilothouse.errors import MissingFile

    if not path.exists():
        raise MissingFile(f"There is no journal {path}. Name the journal of the running loop.")


def _running() -> Path:
    """The journal of the one loop that runs; a guess could stop the wrong one."""
    from pilothouse.errors import UserError
    from pilothouse.home import home, journals
    from pilothouse.journal.files import is_locked

    found = [path for path in journals() if is_locked(path)]
    if not found:
        raise UserError(
            f"No loop is running with a journal in {home() / 'runtime'}. Name the journal with "
            "--journal FILE."
        )
    if len(found) > 1:
        listed = ", ".join(map(str, found))
        raise UserError(f"{len(found)} loops are running. Choose one with --journal: {listed}.")
    return found[0]
