# SPDX-License-Identifier: Apache-2.0
"""``pilothouse explain``: one decision, from the record."""

from __future__ import annotations

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

    from pilothouse.explain import text
    from pilothouse.explain.lookup import account_of
    from pilothouse.home import latest_journal
    from pilothouse.journal import JournalReader

    account = account_of(JournalReader(journal or latest_journal()), which)
    if as_json:
        print_json(msgspec.to_builtins(account))
    else:
        typer.echo(plain(text(account)))
