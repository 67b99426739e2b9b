# SPDX-License-Identifier: Apache-2.0
"""The operator's hand on a running loop: kill switch, modes and approvals, through one file.

Commands are appended as JSON lines to a file beside the journal, so they work without a server,
survive a crash and can be read with any pager. The loop takes each line once, in order, and
records it. A line it cannot understand halts the loop, and so does a file that cannot be read or
that lost lines: somebody may have wanted something, and doing less is the safe guess.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pilothouse.domain import Mode, Ref
from pilothouse.journal.files import sync_directory
from pilothouse.settings import ModeSettings

APPROVAL_SECONDS = 600  # what was approved and not wanted since is asked for anew
SEAL_LENGTH = 16
CommandName = Literal["halt", "resume", "mode", "approve"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One line of the file, by its number."""

    line: int  # counted from 1
    command: str
    arguments: dict[str, str]
    seal: str = ""  # names the file's content up to and with this line


@dataclass(frozen=True, slots=True, kw_only=True)
class Controls:
    """What the operator has said so far."""

    halted: bool = False
    halted_because: str = ""
    modes: Mapping[str, Mode] = field(default_factory=dict)  # "safety" or "safety/shop"
    approved: Mapping[str, int] = field(default_factory=dict)  # id to the cluster time it lapses
    line: int = 0  # last line taken
    seal: str = ""  # and what the file was up to there; empty: not known

    def after(self, command: Command, now: int) -> Controls:
        """The controls once this command is obeyed at this cluster time."""
        taken = replace(self, line=command.line, seal=command.seal)
        arguments = command.arguments
        match command.command:
            case "halt":
                because = arguments.get("reason", "") or "an operator said so"
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


def objection(
    agent: str, target: Ref, *, decided: Controls, now: Controls, settings: ModeSettings
) -> str:
    """Why a write decided under some controls may not be sent under newer ones; empty: it may."""
    if now.halted:
        return "halted before this write was sent"
    for space in _spaces(agent, target, now):
        mode = _mode(agent, space, now, settings)
        if mode is not Mode.ENFORCE and mode is not _mode(agent, space, decided, settings):
            return f"mode changed before this write was sent: {agent} is now in {mode}"
    return ""


def _spaces(agent: str, target: Ref, controls: Controls) -> Sequence[str]:
    """Namespaces a write may concern; one on a node may concern all that were spoken of."""
    if target.kind == "namespace":
        return [target.name]
    if target.namespace:
        return [target.namespace]
    keys = (key.partition("/") for key in controls.modes)
    return ["", *(space for name, _, space in keys if name == agent and space)]


def _mode(agent: str, space: str, controls: Controls, settings: ModeSettings) -> Mode:
    keys = [f"{agent}/{space}", agent] if space else [agent]
    found = (controls.modes.get(key) or settings.agents.get(key) for key in keys)
    return next((mode for mode in found if mode is not None), settings.default)


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
            is_new = file.tell() == 0
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_directory(self._path)

    def after(self, taken: Controls) -> Sequence[Command]:
        """The complete lines not taken yet; an unfinished last line waits for its end.

        A file that cannot be read, or is not the one whose lines were taken, says: halt. What such
        a file holds is not obeyed, what is appended to it later is.
        """
        try:
            lines = self._lines()
        except OSError as error:
            reason = f"the controls file cannot be read: {error.strerror or error}"
            if taken.halted and taken.halted_because == reason:
                return []  # said before
            return [_halt(taken.line, taken.seal, reason)]
        reason = _what_is_lost(lines, taken)
        if reason:
            return [_halt(len(lines), _seal(lines), reason)]
        return [
            _parse(number, raw, _seal(lines[:number]))
            for number, raw in enumerate(lines, 1)
            if number > taken.line
        ]

    def end(self) -> Controls:
        """Controls that have said nothing and have taken all that is there, for a new run."""
        try:
            lines = self._lines()
        except OSError:
            return Controls()  # the first cycle meets the same error and halts
        return Controls(line=len(lines), seal=_seal(lines))

    def _lines(self) -> Sequence[bytes]:
        try:
            return self._path.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []


def _what_is_lost(lines: Sequence[bytes], taken: Controls) -> str:
    if len(lines) < taken.line:
        are = "is" if len(lines) == 1 else "are"
        return f"the controls file lost lines: {taken.line} were taken, {len(lines)} {are} there"
    if taken.seal and _seal(lines[: taken.line]) != taken.seal:
        return f"the controls file was rewritten: its first {taken.line} lines have changed"
    return ""


def _seal(lines: Sequence[bytes]) -> str:
    if not lines:
        return ""
    return hashlib.sha256(b"".join(line + b"\n" for line in lines)).hexdigest()[:SEAL_LENGTH]


def _halt(line: int, seal: str, reason: str) -> Command:
    return Command(line=line, command="halt", arguments={"reason": reason}, seal=seal)


def _parse(number: int, raw: bytes, seal: str) -> Command:
    try:
        content = json.loads(raw)
        name = _text(content.pop("command"))
        arguments = {_text(k): _text(v) for k, v in content.items()}
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        name, arguments = "unreadable", {"text": raw[:200].decode(errors="replace")}
    return Command(line=number, command=name, arguments=arguments, seal=seal)


def _text(value: object) -> str:
    """As text that can be recorded: JSON can spell halves of characters."""
    return str(value).encode(errors="replace").decode()
