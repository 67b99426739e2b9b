# SPDX-License-Identifier: Apache-2.0
"""How commands print: plain text for people, one JSON document for scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

JournalOption = Annotated[
    Path | None, typer.Option("--journal", help="The journal; the latest run's if none.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def print_json(document: Any) -> None:
    """Print a document made of plain values; keys keep their order."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Print rows in columns as wide as they need to be."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())
