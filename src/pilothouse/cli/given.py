# SPDX-License-Identifier: Apache-2.0
"""Options that were written out: what a mode has no use for is refused, never ignored."""

from __future__ import annotations

import typer


def refuse_unread(ctx: typer.Context, mode: str, *names: str) -> None:
    """Refuse options that were given although this mode has no use for them."""
    from pilothouse.errors import InvalidSetting

    given = [f"--{name.replace('_', '-')}" for name in names if is_given(ctx, name)]
    if given:
        verb, them = ("is", "it") if len(given) == 1 else ("are", "them")
        raise InvalidSetting(f"{' and '.join(given)} {verb} not read {mode}. Leave {them} out.")


def is_given(ctx: typer.Context, name: str) -> bool:
    """Whether an option was written out, be it with its default."""
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
