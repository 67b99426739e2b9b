# SPDX-License-Identifier: Apache-2.0
"""``pilothouse artifacts``: what was made, from what, under which settings."""

from __future__ import annotations

from typing import Annotated

import typer

from pilothouse.cli.output import AsJson, print_json, print_table

app = typer.Typer(
    help="Datasets, forecasters and reports in the home.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Every complete artefact."""
    from pilothouse.learn.artifacts import every

    found = every()
    if as_json:
        print_json(
            [
                {"folder": path.parent.name, "name": path.name, "kind": m.kind, "track": m.track}
                for path, m in found
            ]
        )
        return
    if not found:
        typer.echo("There are no artefacts yet. Start with: pilothouse traces import")
        return
    rows: list[tuple[str, ...]] = [("folder", "name", "kind", "track", "files", "MiB")]
    for path, m in found:
        size = f"{sum(part.bytes for part in m.files) / 2**20:.1f}"
        rows.append((path.parent.name, path.name, m.kind, m.track, str(len(m.files)), size))
    print_table(rows)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A name from: pilothouse artifacts list.")],
    check: Annotated[bool, typer.Option("--check", help="Hash every file again.")] = False,
    as_json: AsJson = False,
) -> None:
    """The manifest of one artefact."""
    import msgspec

    from pilothouse.learn.artifacts import find, load

    path = find(name)
    manifest = load(path, check=check)
    if as_json:
        print_json(msgspec.to_builtins(manifest))
        return
    typer.echo(f"Artefact  {path}")
    typer.echo(f"Kind      {manifest.kind}, made by {manifest.track}, version {manifest.revision}")
    for part in manifest.inputs:
        typer.echo(f"Input     {part.path}  {part.sha256[:12]}")
    for key, value in manifest.settings.items():
        typer.echo(f"Setting   {key}: {value}")
    for key, value in manifest.facts.items():
        typer.echo(f"Fact      {key}: {value}")
