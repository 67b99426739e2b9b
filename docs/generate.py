# SPDX-License-Identifier: Apache-2.0
"""Write the files that are derived from code, or say which of them are out of date.

``make generate`` writes them; ``make verify`` and a test compare. Nobody edits them by hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTE = "<!-- Written by `make generate`. Change the code, not this file. -->"


def settings_reference() -> str:
    """Every setting: default, what is accepted, and why, from the dataclasses."""
    from pilothouse.settings.file import API_VERSION, KIND, sections

    lines = [
        NOTE,
        "",
        "# Settings",
        "",
        "One versioned file. `pilothouse config init` writes it with every default, `config check`",
        "names every problem in it, and `config show` prints what is in force. Every setting is",
        "optional; an unknown key is an error. Durations are seconds of the cluster's clock unless",
        "the name says wall.",
        "",
        f"    apiVersion: {API_VERSION}",
        f"    kind: {KIND}",
        "    run:",
        "      seed: 7",
    ]
    for section in sections():
        lines += ["", f"## {section.name}", "", section.doc, ""]
        lines += ["| setting | default | accepts | meaning |", "|---|---|---|---|"]
        for field in section.fields:
            key = field.path.split(".", 1)[1]
            default = json.dumps(field.default, ensure_ascii=False)
            lines.append(f"| `{key}` | `{default}` | {field.accepts} | {field.doc} |")
    return "\n".join(lines) + "\n"


def command_reference() -> str:
    """The help of every command, as the terminal shows it."""
    import typer
    from typer.main import get_command

    from pilothouse.cli import app

    def helps(command: Any, name: str, parent: typer.Context | None) -> Iterator[tuple[str, str]]:
        given = {"terminal_width": 80, **command.context_settings}
        context = typer.Context(command, info_name=name, parent=parent, **given)
        yield context.command_path, command.get_help(context)
        for child, subcommand in getattr(command, "commands", {}).items():
            yield from helps(subcommand, child, context)

    lines = [NOTE, "", "# Commands"]
    for path, text in helps(get_command(app), "pilothouse", None):
        lines += ["", f"## {path}", "", "```text", text.strip(), "```"]
    return "\n".join(lines) + "\n"


def api_document() -> str:
    """The HTTP API in OpenAPI form."""
    from pilothouse.server.openapi import render

    return render()


def scorer_document() -> str:
    """The scorer's HTTP API in OpenAPI form, as it serves it."""
    from pilothouse.scorer.app import Parts, create_app
    from pilothouse.scorer.board import Board
    from pilothouse.scorer.placements import Placements
    from pilothouse.scorer.view import NoCluster

    parts = Parts(board=Board(view=NoCluster()), placements=Placements(None, cluster=""), token="")
    document = create_app(parts).openapi()
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


DERIVED: dict[str, Callable[[], str]] = {
    "api/openapi.json": api_document,
    "api/scorer.json": scorer_document,
    "docs/settings.md": settings_reference,
    "docs/cli.md": command_reference,
}


def stale() -> list[str]:
    """The derived files that are not what the code says."""
    return [
        name
        for name, make in DERIVED.items()
        if not (ROOT / name).exists() or (ROOT / name).read_text(encoding="utf-8") != make()
    ]


def main(arguments: list[str]) -> int:
    if "--check" not in arguments:
        for name, make in DERIVED.items():
            (ROOT / name).parent.mkdir(exist_ok=True)
            (ROOT / name).write_text(make(), encoding="utf-8")
        return 0
    for name in stale():
        print(f"{name} is not what the code says. Run: make generate", file=sys.stderr)
    return 1 if stale() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
