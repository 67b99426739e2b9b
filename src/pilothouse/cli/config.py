# SPDX-License-Identifier: Apache-2.0
"""``pilothouse config``: write, check and show the settings file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pilothouse.cli.output import AsJson, print_json

app = typer.Typer(
    help="Write, check and show the settings file.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="Where to write; - prints it.")] = Path(
        "pilothouse.yaml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a commented settings file with every default."""
    from pilothouse.errors import UserError
    from pilothouse.settings.file import example

    if str(path) == "-":
        typer.echo(example(), nl=False)
        return
    try:
        _write(path, example(), force=force)
    except FileExistsError:
        raise UserError(
            f"{path} already exists. Name another file, or overwrite it with --force."
        ) from None
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}. Free or unlock the place, or name "
            "another file; - prints it."
        ) from None
    typer.echo(f"Wrote {path}. Use it with: pilothouse up --config {path}")


def _write(path: Path, text: str, *, force: bool) -> None:
    """All of it or nothing: a full disk leaves an earlier file as it was, and no part of a new."""
    part = path.with_name(f".{path.name}.part") if force and path.is_file() else path
    with part.open("x" if part == path else "w", encoding="utf-8") as file:
        try:
            file.write(text)
            file.flush()
        except OSError:
            part.unlink()
            raise
    if part != path:
        part.replace(path.resolve())


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="The settings file.")],
    as_json: AsJson = False,
) -> None:
    """Name every problem of a settings file, one line each."""
    from pilothouse.errors import InvalidSetting
    from pilothouse.settings.file import check as problems_of

    problems = problems_of(path)
    if as_json:
        print_json({"file": str(path), "ok": not problems, "problems": problems})
    elif problems:
        for problem in problems:
            typer.echo(f"pilothouse: {problem}", err=True)
    else:
        typer.echo(f"{path} is fine.")
    if problems:
        raise typer.Exit(InvalidSetting.exit_code)


@app.command()
def show(
    path: Annotated[
        Path | None, typer.Argument(help="The settings file; defaults alone if none.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the settings in force: those of the file over the defaults."""
    from pilothouse.settings import Settings
    from pilothouse.settings.file import load, to_tree, to_yaml

    settings = load(path) if path else Settings()
    if as_json:
        print_json(to_tree(settings))
    else:
        typer.echo(to_yaml(settings), nl=False)
