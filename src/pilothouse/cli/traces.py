# SPDX-License-Identifier: Apache-2.0
"""``pilothouse traces``: from published files to rows a forecaster can learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pilothouse.cli.output import AsJson, RayOption, print_json, print_table, progress

app = typer.Typer(
    help="Cluster traces: import, make, describe.", no_args_is_help=True, rich_markup_mode=None
)

NameOption = Annotated[str | None, typer.Option("--name", help="Of the dataset; the trace's own.")]


@app.command("import")
def import_(
    trace: Annotated[str, typer.Argument(help="google-2019, google-2019-sample, google-2011, ...")],
    source: Annotated[Path, typer.Argument(help="A file or folder of the trace.")],
    name: NameOption = None,
    bad_rows: Annotated[
        float, typer.Option(min=0, max=1, help="Share of bad rows that stops the import.")
    ] = 0.001,
    ray: RayOption = None,
    as_json: AsJson = False,
) -> None:
    """Read a trace into one schema; a second run redoes nothing."""
    from pilothouse.learn.extras import need

    need("polars")
    from pilothouse.learn.crew import crew_at
    from pilothouse.learn.traces.importing import import_trace

    with crew_at(ray) as crew, progress("Importing", quiet=as_json) as advance:
        manifest = import_trace(
            trace,
            source,
            name=name,
            bad_rows=bad_rows,
            crew=crew,
            progress=advance,
        )
    if as_json:
        print_json({"name": manifest.name, "track": manifest.track, **manifest.facts})
        return
    _print_import(manifest.name, manifest.facts)


def _print_import(name: str, facts: dict[str, Any]) -> None:
    repairs = facts["repairs"]
    typer.echo(f"Dataset  {name}")
    for table, rows in facts["rows"].items():
        typer.echo(f"  {table:<14} {rows:>12,} rows")
    typer.echo(f"Repairs  {repairs['kept']:,} of {repairs['read']:,} rows kept")
    for verb in ("dropped", "mended"):
        for reason, count in repairs[verb].items():
            typer.echo(f"  {verb:<8} {count:>9,}  {reason}")
    for example in repairs["examples"]:
        typer.echo(f"  example  {example}")


@app.command()
def synth(
    folder: Annotated[Path, typer.Argument(help="Where to write the official 2019 layout.")],
    jobs: Annotated[int, typer.Option(min=1)] = 120,
    machines: Annotated[int, typer.Option(min=1)] = 24,
    hours: Annotated[int, typer.Option(min=2)] = 24,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same files.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Make up a trace in the official 2019 layout."""
    from pilothouse.learn.extras import need

    need("polars")
    from pilothouse.learn.traces.synthetic import Recipe, write

    rows = write(folder, Recipe(jobs=jobs, machines=machines, hours=hours, seed=seed))
    if as_json:
        print_json({"folder": str(folder), "rows": rows})
        return
    for table, count in rows.items():
        typer.echo(f"{table:<20} {count:>10,} rows")
    typer.echo(f"Import it with: pilothouse traces import google-2019 {folder}")


@app.command()
def features(
    dataset: Annotated[str, typer.Argument(help="Name of an imported dataset.")],
    extras: Annotated[
        bool, typer.Option("--extras", help="Also what only a trace has (an ablation).")
    ] = False,
    kill: Annotated[str, typer.Option(help="A kill is: unknown, end or failure.")] = "unknown",
    rule: Annotated[str, typer.Option(help="Label rule: after or at-or-after.")] = "after",
    failures: Annotated[
        str, typer.Option(help="Events that count as failure, comma separated.")
    ] = "FAIL,LOST",
    ray: RayOption = None,
    as_json: AsJson = False,
) -> None:
    """Turn an imported dataset into feature rows with labels."""
    from pilothouse.learn.extras import need

    need("polars")
    from pilothouse.errors import UnknownName
    from pilothouse.learn import artifacts
    from pilothouse.learn.crew import crew_at
    from pilothouse.learn.dataset.labels import TERMINAL, LabelSettings
    from pilothouse.learn.dataset.windows import DatasetSettings, build

    for given, known, what in (
        (kill, ("unknown", "end", "failure"), "kill policy"),
        (rule, ("after", "at-or-after"), "label rule"),
        *((event, TERMINAL, "failure event") for event in failures.split(",")),
    ):
        if given not in known:
            raise UnknownName.among(what, given, known)
    labels = LabelSettings(
        kill=kill,  # type: ignore[arg-type]
        rule=rule,  # type: ignore[arg-type]
        failures=tuple(failures.split(",")),
    )
    with crew_at(ray) as crew, progress("Features", quiet=as_json) as advance:
        manifest = build(
            artifacts.find(dataset, "processed"),
            DatasetSettings(labels=labels, extras=extras),
            crew=crew,
            progress=advance,
        )
    if as_json:
        print_json({"name": manifest.name, **manifest.facts})
    else:
        rows, windows = manifest.facts["rows"], manifest.facts["windows"]
        typer.echo(f"{manifest.name}: {rows:,} rows of {windows:,} windows; the others were over "
                   "already or have an unknown future.")  # fmt: skip


@app.command()
def describe(
    dataset: Annotated[str, typer.Argument(help="Name of a dataset or of its features.")],
    as_json: AsJson = False,
) -> None:
    """What is in a dataset: rows, time, events, and base rates where there are labels."""
    from pilothouse.learn.extras import need

    need("polars")
    from pilothouse.learn import artifacts
    from pilothouse.learn.traces.describing import describe as facts_of

    facts = facts_of(artifacts.find(dataset, "processed"))
    if as_json:
        print_json(facts)
        return
    for title, table in facts.items():
        typer.echo(title)
        print_table([("", *(str(c) for c in row)) for row in table])
