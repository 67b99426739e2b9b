# SPDX-License-Identifier: Apache-2.0
"""``pilothouse replay`` and ``pilothouse verify``: decide again, and trust nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pilothouse.cli.output import AsJson, print_json

JournalArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A journal.")]


def replay(path: JournalArgument, as_json: AsJson = False) -> None:
    """Decide every recorded cycle again; exits non-zero at the first difference."""
    from pilothouse.cli.output import progress
    from pilothouse.replay import replay as decide_again

    with progress("Replaying", quiet=as_json) as advance:
        report = decide_again(path, progress=lambda cycle: advance())
    if as_json:
        print_json(
            {
                "cycles": report.cycles,
                "identical": report.identical,
                "difference": report.difference or None,
            }
        )
    elif report.ok:
        typer.echo(f"{report.identical} of {report.cycles} cycles decided identically.")
    else:
        typer.echo(
            f"pilothouse: {report.identical} of {report.cycles} cycles decided identically. "
            f"First difference: {report.difference}",
            err=True,
        )
    if not report.ok:
        raise typer.Exit(1)


def verify(
    path: JournalArgument,
    head: Annotated[
        str | None, typer.Option(help="As `up` printed it: finds a cut tail or a re-linked copy.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every stored value, link and the order; exits non-zero when anything was changed."""
    from dataclasses import asdict

    from pilothouse.journal import verify as check

    if head is not None:
        head = _checked_head(head)
    report = check(path, head=head)
    if as_json:
        print_json({"ok": report.ok, **asdict(report)})
    elif report.ok:
        typer.echo(report.sentence)
    else:
        typer.echo(f"pilothouse: {report.sentence}", err=True)
    if not report.ok:
        raise typer.Exit(3)


def _checked_head(head: str) -> str:
    """A head that was mistyped is told apart from one that the journal lost."""
    import re

    from pilothouse.errors import UserError

    if not re.fullmatch(r"[0-9a-fA-F]{64}", head.strip()):
        raise UserError(
            f'--head must be 64 hex digits, as `up` printed it, but got "{head}" '
            f"({len(head.strip())} characters)."
        )
    return head.strip().lower()
