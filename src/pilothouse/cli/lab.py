# SPDX-License-Identifier: Apache-2.0
"""``pilothouse lab``: a real Kubernetes on this machine, up and down again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilothouse.cli.output import AsJson, print_json, print_table

if TYPE_CHECKING:
    from pilothouse.lab import Lab
    from pilothouse.lab.build import Progress

app = typer.Typer(
    help="A real Kubernetes on this machine: kubelets, containers, metrics. Needs root on Linux.",
    no_args_is_help=True,
)

BinariesOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder of release binaries to use instead of building.",
        exists=True,
        file_okay=False,
    ),
]


@app.command()
def up(
    workers: Annotated[int, typer.Option(help="Real nodes.")] = 3,
    fake_nodes: Annotated[int, typer.Option(help="Nodes that only pretend, by kwok.")] = 0,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Also run Prometheus over all of it.")
    ] = False,
    worker_cpu: Annotated[
        int | None, typer.Option(help="Millicores of each worker; an equal share if none.")
    ] = None,
    worker_memory: Annotated[
        int | None, typer.Option(help="MiB of each worker; an equal share if none.")
    ] = None,
    binaries: BinariesOption = None,
    scheduler: Annotated[
        str, typer.Option(help="stock, or pilothouse: the learned one.")
    ] = "stock",
    policy: Annotated[
        str, typer.Option(help="With the learned one: a shipped policy's name, or its file.")
    ] = "",
    profile: Annotated[
        str, typer.Option(help="Scheduler profile; the one named like the policy if none.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Bring a cluster up; the first time its parts are built, which takes minutes.

    In a lab that is up already, another policy or profile is put into force; anything else that
    differs is refused.
    """
    from pilothouse.lab import Wish

    lab = _lab()
    wish = Wish(
        workers=workers,
        fake_nodes=fake_nodes,
        prometheus=prometheus,
        worker_cpu_millicores=worker_cpu,
        worker_memory_mib=worker_memory,
        binaries=binaries,
        scheduler=scheduler,
        policy=policy,
        profile=profile,
    )
    with _building() as progress:
        lab.up(wish, say=_say, progress=progress)
    _show(lab, as_json)


@app.command()
def build(
    binaries: BinariesOption = None,
    scheduler: Annotated[
        bool, typer.Option("--scheduler", help="Also build the learned scheduler.")
    ] = False,
    helm: Annotated[
        bool, typer.Option("--helm", help="Only helm, which renders and tests our chart.")
    ] = False,
) -> None:
    """Only build the parts, or take them from a folder."""
    from pilothouse.lab.build import obtain
    from pilothouse.lab.part import HELM, PARTS, SCHEDULER

    whole = (*PARTS, SCHEDULER) if scheduler else PARTS
    cache, parts = _lab().layout.binaries, (HELM,) if helm else whole
    with _building() as progress:
        made = obtain(cache, given=binaries, progress=progress, parts=parts)
    print_table([(name, origin) for name, origin in sorted(made.origin.items())])


@app.command()
def status(as_json: AsJson = False) -> None:
    """Say what runs, which nodes are ready and where the kubeconfig is."""
    _show(_lab(), as_json)


@app.command()
def exercise(
    scenario: Annotated[str, typer.Argument(help="See: pilothouse scenarios.")],
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same deck.")] = 0,
    pace: Annotated[
        float, typer.Option(min=0.1, max=100, help="10: ten times as fast as written.")
    ] = 1.0,
) -> None:
    """Put the lab under a scenario's stimuli and latencies, one deck long; all is taken back."""
    from pilothouse.lab.exercise import Exercise, deal, latency_schedule
    from pilothouse.scenarios import load

    lab, loaded = _lab(), load(scenario)
    schedule = latency_schedule(loaded, lab.workers(), pace=pace)
    for line in Exercise(lab).run(deal(loaded, seed, pace=pace), schedule):
        typer.echo(line)


latency = typer.Typer(help="How far workers are from their user.", no_args_is_help=True)
app.add_typer(latency, name="latency")


@latency.command("set")
def set_latency(
    ways: Annotated[list[str], typer.Argument(help="NODE=MS, several at once.")],
    as_json: AsJson = False,
) -> None:
    """Put so many milliseconds between workers and their user."""
    from pilothouse.errors import InvalidSetting

    changes = {}
    for way in ways:
        node, equals, text = way.partition("=")
        try:
            changes[node] = float(text)
        except ValueError:
            equals = ""
        if not equals:
            raise InvalidSetting(f'"{way}" is not NODE=MS, such as worker-1=40.')
    found = _lab().set_latency(changes)
    if as_json:
        print_json(found)
    else:
        print_table([(name, f"{ms:g} ms") for name, ms in found.items()])


@app.command()
def down(
    keep_logs: Annotated[
        bool, typer.Option("--keep-logs", help="Keep the logs and the audit log.")
    ] = False,
) -> None:
    """Take everything away, also what a crash left behind. Built parts stay."""
    _lab().down(keep_logs=keep_logs)
    typer.echo("The lab is gone.")


def _lab() -> Lab:
    from pilothouse.home import home
    from pilothouse.lab import Lab

    return Lab(home() / "lab")


def _say(text: str) -> None:
    typer.echo(f"lab: {text}", err=True)


@contextmanager
def _building() -> Iterator[Progress]:
    """A bar where somebody watches; elsewhere a line every tenth of the way."""
    import sys

    if not sys.stderr.isatty():
        yield _lines()
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        tasks = {}

        def advance(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total or None)
            bar.update(tasks[what], completed=done, total=total or None)

        yield advance


def _lines() -> Progress:
    said: dict[str, int] = {}

    def advance(what: str, done: int, total: int) -> None:
        tenth = 10 * done // total if total else 0
        if said.get(what) != tenth:
            said[what] = tenth
            share = f" {10 * tenth} % of {total} packages" if total else ""
            typer.echo(f"lab: {what}{share}", err=True)

    return advance


def _show(lab: Lab, as_json: bool) -> None:
    found = lab.status()
    if as_json:
        print_json(found)
        return
    if found["state"] in ("down", "remains"):
        rest = f": {found['remains']}" if found["remains"] else ""
        typer.echo(f"State       {found['state']}{rest}")
        return
    rows: list[tuple[str, ...]] = [("State", found["state"]), ("Kubeconfig", found["kubeconfig"])]
    rows += [("Prometheus", found["prometheus"] or "none"), ("Logs", found["logs"])]
    if found["scorer"]:
        rows += [("Scheduler", f"profile {found['profile']}")]
        rows += [("Scorer", f"{found['scorer']}, policy {found['policy']}")]
    rows += [("Problem", found["problem"])] if found["problem"] else []
    rows += [("Came up in", f"{found['came_up_in_seconds']} s")]
    for component in found["components"]:
        rows.append((component["name"], f"{component['state']} (pid {component['pid']})"))
    real = [n for n in found["nodes"] if n["kind"] != "fake"]
    for node in real:
        ready = "ready" if node["ready"] else "not ready"
        rows.append((node["name"], f"{ready}, {node['cpu']} cpu, {node['memory']}"))
    fakes = [n for n in found["nodes"] if n["kind"] == "fake"]
    if fakes:
        rows.append(("fake nodes", f"{sum(n['ready'] for n in fakes)} of {len(fakes)} ready"))
    print_table(rows)
