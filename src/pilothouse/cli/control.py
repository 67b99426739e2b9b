# SPDX-License-Identifier: Apache-2.0
"""``pilothouse halt|resume|mode|approve``: the operator's hand on a running loop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilothouse.cli.output import JournalOption

if TYPE_CHECKING:
    from pilothouse.guard.switch import CommandName


def halt(
    reason: Annotated[str, typer.Option(help="Why, for the record.")] = "",
    journal: JournalOption = None,
) -> None:
    """Stop acting at once; what is active is taken back. The loop goes on watching."""
    _send("halt", {"reason": reason} if reason else {}, journal)


def resume(journal: JournalOption = None) -> None:
    """Let a halted loop act again."""
    _send("resume", {}, journal)


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
    from pilothouse.errors import MissingFile, UserError
    from pilothouse.guard.switch import ControlFile, controls_path
    from pilothouse.home import latest_journal

    path = journal or latest_journal()
    if not path.exists():
        raise MissingFile(f"There is no journal {path}. Name the journal of the running loop.")
    try:
        ControlFile(controls_path(path)).append(command, arguments)
    except OSError as error:
        raise UserError(f"{controls_path(path)} cannot be written: {error.strerror}.") from None
    said = " ".join([command, *arguments.values()])
    typer.echo(f"{said}: handed to the loop of {path}; it obeys before its next write.")
