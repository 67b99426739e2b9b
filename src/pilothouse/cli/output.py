# SPDX-License-Identifier: Apache-2.0
"""How commands print: plain text for people, one JSON document for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from pilothouse.cli.stopping import check

JournalOption = Annotated[
    Path | None, typer.Option("--journal", help="The journal; the latest run's if none.")
]
RayOption = Annotated[
    str | None,
    typer.Option("--ray", help="Address of a Ray cluster to spread the work over; see: ray start."),
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


class Advance(Protocol):
    """Moves a bar: by one, or to so many of a total that only the work knows."""

    def __call__(self, done: int | None = None, total: int | None = None, /) -> None: ...


@contextmanager
def progress(what: str, *, quiet: bool = False, total: int | None = None) -> Iterator[Advance]:
    """A bar on stderr for long work; silent when quiet or when nobody watches. Each step of it is a
    place to stop."""
    import sys

    if quiet or not sys.stderr.isatty():
        yield lambda done=None, total=None, /: check()
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)

        def advance(done: int | None = None, total: int | None = None, /) -> None:
            check()
            bar.update(task, advance=1 if done is None else None, completed=done, total=total)

        yield advance


def plain(text: str) -> str:
    """Text without anything a terminal would obey: words may come from anybody's annotation."""
    return "".join(c if c.isprintable() or c == "\n" else "\ufffd" for c in text)
