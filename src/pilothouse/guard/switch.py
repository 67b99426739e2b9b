# SPDX-License-Identifier: Apache-2.0
"""The operator's hand on a running loop: kill switch, modes and approvals, through one file.

Commands are appended as JSON lines to a file beside the journal, so they work without a server,
survive a crash and can be read with any pager. The loop takes each line once, in order, and
records it. A line it cannot understand halts the loop: somebody wanted something, and doing less
is the safe guess.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pilothouse.domain import Mode

APPROVAL_SECONDS = 600  # what was approved and not wanted since is asked for anew
CommandName = Literal["halt", "resume", "mode", "approve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One line of the file, by its number."""

    line: int  # counted from 1
    command: str
    arguments: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What the operator has said so far."""

    halted: bool = False
    halted_because: str = ""
    modes: Mapping[str, Mode] = field(default_factory=dict)  # "safety" or "safety/shop"
    approved: Mapping[str, int] = field(default_factory=dict)  # id to the cluster time it lapses
    line: int = 0  # last line taken

    def after(self, command: Command, now: int) -> Controls:
        """The controls once this command is obeyed at this cluster time."""
        taken = replace(self, line=command.line)
        arguments = command.arguments
        match command.command:
            case "halt":
                because = arguments.get("reason", "") or "halted by an operator"
                return replace(taken, halted=True, halted_because=because)
            case "resume":
                return replace(taken, halted=False, halted_because="")
            case "mode" if arguments.get("mode") in tuple(Mode) and arguments.get("agent"):
                key = "/".join(
                    part for part in (arguments["agent"], arguments.get("namespace", "")) if part
                )
                return replace(taken, modes={**self.modes, key: Mode(arguments["mode"])})
            case "approve" if arguments.get("id"):
                lapses = now + APPROVAL_SECONDS
                return replace(taken, approved={**self.approved, arguments["id"]: lapses})
            case _:
                because = f"line {command.line} of the controls file is not understood"
                return replace(taken, halted=True, halted_because=because)

    def without(self, used: frozenset[str], now: int) -> Controls:
        """The controls once these approvals are used up and older ones have lapsed."""
        kept = {k: v for k, v in self.approved.items() if k not in used and v > now}
        return replace(self, approved=kept)


def controls_path(journal: Path) -> Path:
    """The controls file of a journal."""
    return journal.with_name(journal.name + ".controls")


class ControlFile:
    """Reads new commands; appends them for the command line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, command: CommandName, arguments: Mapping[str, str]) -> None:
        """Hand a command to the loop; durable when this returns."""
        line = json.dumps({"command": command, **arguments}, sort_keys=True) + "\n"
        with open(self._path, "ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def after(self, line: int) -> Sequence[Command]:
        """The complete lines after this one; an unfinished last line waits for its end."""
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return []
        complete = text.split(b"\n")[:-1]
        return [_parse(number, raw) for number, raw in enumerate(complete, 1) if number > line]


def _parse(number: int, raw: bytes) -> Command:
    try:
        content = json.loads(raw)
        name = str(content.pop("command"))
        return Command(
            line=number, command=name, arguments={str(k): str(v) for k, v in content.items()}
        )
    except (ValueError, KeyError, AttributeError, TypeError):
        text = raw[:200].decode(errors="replace")
        return Command(line=number, command="unreadable", arguments={"text": text})
