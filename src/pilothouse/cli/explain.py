# SPDX-License-Identifier: Apache-2.0
"""``pilothouse explain``: one decision, from the record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pilothouse.cli.output import AsJson, JournalOption, plain, print_json


def explain(
    which: Annotated[
        str,
        typer.Argument(help="A decision id or its beginning, 'last', or pod/NAMESPACE/NAME."),
    ] = "last",
    journal: JournalOption = None,
    as_json: AsJson = False,
) -> None:
    """Say what was decided, why, who lost, what was done and whether it helped."""
    import msgspec

    from pilothouse.explain import placements, text
    from pilothouse.explain.lookup import account_of
    from pilothouse.home import latest_journal
    from pilothouse.journal import JournalReader

    if placements.is_about_a_pod(which):
        found = placements.find([journal] if journal else _journals(), which)
        if found is not None:
            print_json(found) if as_json else typer.echo(plain(placements.text(found)))
            return
    account = account_of(JournalReader(journal or latest_journal()), which)
    if as_json:
        print_json(msgspec.to_builtins(account))
    else:
        typer.echo(plain(text(account)))


def _journals() -> list[Path]:
    """Where placements may be: the newest journal first, and the lab's own."""
    from pilothouse.home import home, journals

    found = [*journals(), *(home() / "lab").glob("run/scheduler/placements.db")]
    return sorted(found, key=lambda path: -path.stat().st_mtime)
