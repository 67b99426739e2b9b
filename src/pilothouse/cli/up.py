# SPDX-License-Identifier: Apache-2.0
"""``pilothouse up``: run the loop, one line per cycle, with the page beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pilothouse.cli.output import AsJson, plain
from pilothouse.cli.stopping import check, stoppable
from pilothouse.errors import UserError

if TYPE_CHECKING:
    from pilothouse.cli.enforce import Acting
    from pilothouse.cli.page import Page
    from pilothouse.domain import Snapshot
    from pilothouse.journal import Stage
    from pilothouse.run import Backend, Report, Runner
    from pilothouse.settings import Settings

    Watcher = Callable[[Report], None]  # told of every cycle after it is recorded


@stoppable()
def up(
    config: Annotated[Path | None, typer.Option(help="Settings file.")] = None,
    scenario: Annotated[str | None, typer.Option(help="See: pilothouse scenarios.")] = None,
    cycles: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    interval: Annotated[
        float | None, typer.Option(help="Wall seconds between cycles; 0: as fast as it can.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same run.")] = None,
    journal: Annotated[
        Path | None, typer.Option(help="File to record in; an existing one is taken up again.")
    ] = None,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="No page, no API.")] = False,
    port: Annotated[int | None, typer.Option(help="Of the page; 0 picks a free one.")] = None,
    forecaster: Annotated[
        str | None, typer.Option(help="ewma-trend, learned, or one you trained.")
    ] = None,
    demand: Annotated[
        str | None, typer.Option(help="Who forecasts demand: ewma-trend, or one you trained.")
    ] = None,
    train: Annotated[
        bool, typer.Option("--train", help="Train a forecaster first, and use it.")
    ] = False,
    tune: Annotated[
        bool, typer.Option("--tune", help="Tune the agents' thresholds first, and use them.")
    ] = False,
    trials: Annotated[int, typer.Option(min=1, help="Of --tune.")] = 10,
    trace: Annotated[
        str | None, typer.Option(help="Replay an imported dataset on the simulator.")
    ] = None,
    speed: Annotated[
        float, typer.Option(min=0.001, help="Trace seconds per cluster second, with --trace.")
    ] = 1.0,
    sim: Annotated[
        str | None, typer.Option(help="URL of a simulated cluster: pilothouse sim serve.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Look at this live cluster, in shadow.")
    ] = None,
    namespaces: Annotated[
        str, typer.Option(help="Of the live cluster, comma-separated; prefix* is allowed.")
    ] = "*",
    prometheus: Annotated[
        str | None, typer.Option(help="URL to take usage from; metrics.k8s.io if none.")
    ] = None,
    enforce: Annotated[
        str | None,
        typer.Option(help="Agents that may act on the live cluster: safety,admission."),
    ] = None,
    exercise: Annotated[
        str | None, typer.Option(help="Put the lab under this scenario's stimuli meanwhile.")
    ] = None,
    pace: Annotated[
        float, typer.Option(min=0.1, max=100, help="Of --exercise; 10: ten times as fast.")
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Run the loop on a simulated or a live cluster and serve its page."""
    from pilothouse.home import created, default_journal
    from pilothouse.settings import Settings
    from pilothouse.settings.file import load, with_overrides

    given = {
        "run.scenario": scenario,
        "run.seed": seed,
        "run.interval_wall_seconds": interval,
        "serve.port": port,
        "forecast.forecaster": forecaster,
        "forecast.demand": demand,
    }
    settings = with_overrides(
        load(config) if config else Settings(),
        {key: value for key, value in given.items() if value is not None},
    )
    prepared: tuple[Stage, ...] = ()
    if train or tune:
        from pilothouse.cli.stages import prepare

        settings, prepared = prepare(settings, train=train, tune=tune, trials=trials)
    if trace is not None:
        from pilothouse.cli.stages import from_trace

        settings = from_trace(settings, trace, speed)
    cluster: Backend | None = None
    if sim is not None:
        cluster, settings = _remote(sim, settings, {"config": config, **given})
    live = Live()
    if kubeconfig is not None:
        _refuse_both(scenario, sim)
        live = _look_at(
            kubeconfig, namespaces, prometheus, settings, exercise, pace, enforce, as_json
        )
        settings, cluster = live.settings or settings, live.cluster
    elif enforce is not None:
        raise UserError("--enforce is for a live cluster. Name it: --kubeconfig FILE.")
    elif exercise is not None:
        raise UserError("--exercise needs a live lab to exercise. Give --kubeconfig FILE.")
    known = settings.run.scenario if kubeconfig is None else f"live-{settings.run.cluster}"
    path = journal or default_journal(known, settings.run.seed)
    if journal is None:
        created(path.parent)
    _run(
        settings,
        path,
        cycles=cycles,
        serve=not no_serve,
        cluster=cluster,
        live=live,
        as_json=as_json,
        prepared=prepared,
    )


def _acting(settings: Settings) -> Acting:
    from pilothouse.cli.enforce import Acting

    return Acting(settings)


def _take_the_helm(acting: Acting, settings: Settings, names: str) -> Settings:
    """Lead, and be looked after; without either nothing is enforced."""
    from pilothouse.cli.enforce import enforcing

    settings = enforcing(settings, names)
    acting.wait_to_lead(partial(typer.echo, err=True))
    acting.require_janitor()
    return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What a live cluster adds to a run; a simulated one adds nothing."""

    settings: Settings | None = None
    cluster: Backend | None = None
    watchers: tuple[Watcher, ...] = ()
    before_each: Callable[[], None] = lambda: None  # may wait: somebody else has the lease
    stands_by: Callable[[], bool] = lambda: False  # it waits so now
    history: Sequence[Snapshot] = ()
    around: Callable[[], AbstractContextManager[object]] = nullcontext  # the exerciser


def _look_at(
    kubeconfig: Path,
    namespaces: str,
    prometheus: str | None,
    settings: Settings,
    exercise: str | None,
    pace: float,
    enforce: str | None,
    as_json: bool,
) -> Live:
    from pilothouse.cli.live import history, live_settings, open_cluster, stand_by

    tell = partial(typer.echo, err=True)
    if exercise is not None:  # what cannot work is said before anything is connected
        from pilothouse.cli.exerciser import lab_behind
        from pilothouse.scenarios import load

        load(exercise)
        lab_behind(kubeconfig)
    acting = _acting(settings) if enforce is not None else None
    name, cluster = open_cluster(
        kubeconfig,
        namespaces=namespaces,
        prometheus=prometheus,
        observe=settings.observe,
        acting=acting,
    )
    chosen = live_settings(settings, name)
    try:
        past, words = history(cluster, settings.observe, prometheus)
        typer.echo(f"History  {words}", err=as_json)
        typer.echo(f"Lease    {cluster.leadership.sentence}", err=as_json)
        if acting is not None and enforce is not None:
            chosen = _take_the_helm(acting, chosen, enforce)
    except BaseException:
        cluster.close()
        raise

    @contextmanager
    def around() -> Iterator[None]:
        from pilothouse.cli.exerciser import exercised

        with exercised(
            exercise or "",
            seed=settings.run.seed,
            pace=pace,
            kubeconfig=kubeconfig,
            clock=lambda: cluster.clock_seconds,
            say=tell,
        ) as exerciser:
            cluster.exerciser = exerciser.stimuli
            yield

    return Live(
        settings=chosen,
        cluster=cluster,
        watchers=(lambda report: cluster.comment(report.turn.decision),),
        before_each=partial(stand_by, cluster.leadership, tell),
        stands_by=lambda: bool(cluster.leadership.rival),
        history=past,
        around=around if exercise else nullcontext,
    )


def _refuse_both(scenario: str | None, sim: str | None) -> None:
    for option, value in (("--scenario", scenario), ("--sim", sim)):
        if value is not None:
            raise UserError(f"Both --kubeconfig and {option} are given. Keep one.")


def _run(
    settings: Settings,
    path: Path,
    *,
    cycles: int | None,
    serve: bool,
    cluster: Backend | None,
    live: Live,
    as_json: bool,
    prepared: tuple[Stage, ...] = (),
) -> None:
    from contextlib import ExitStack

    from pilothouse.journal import Journal
    from pilothouse.run import Runner
    from pilothouse.scenarios import load as load_scenario

    if live.cluster is None:
        load_scenario(settings.run.scenario)  # a bad name is told before anything is created
    with ExitStack() as stack:
        if cluster is not None:
            stack.callback(cluster.close)
        page = stack.enter_context(_page(settings, live.stands_by)) if serve else None
        journal = stack.enter_context(Journal.open(path, settings=settings.journal))
        live.before_each()
        runner = Runner(
            settings=settings,
            journal=journal,
            cluster=cluster,
            prepared=prepared,
            history=live.history,
        )
        watchers = list(live.watchers)
        if page is not None:
            typer.echo(f"Page     {page.open(runner)}")
            watchers = [page.show, *watchers]
        typer.echo(f"Journal  {path}")
        if runner.lines_left_alone:
            lines = f"{runner.lines_left_alone} lines of an older run are left alone"
            typer.echo(f"Controls {lines}", err=True)
        pace = _pace(settings.run.interval_wall_seconds, live.before_each)
        try:
            stack.enter_context(live.around())
            _walk(runner, watchers, cycles, pace, as_json)
        except KeyboardInterrupt:
            typer.echo("Stopped; the same command goes on from here.", err=True)
        finally:
            journal.close()  # first, so that nobody adds to what the farewell names
            _farewell(runner, as_json)


def _remote(url: str, settings: Settings, given: Mapping[str, object]) -> tuple[Backend, Settings]:
    """The cluster behind a URL; what nobody gave about the run, the simulator knows."""
    from pilothouse.settings.file import with_overrides
    from pilothouse.sim.remote import RemoteCluster

    cluster = RemoteCluster(url)
    known = {
        "run.cluster": cluster.name,
        "run.scenario": cluster.scenario_name,
        "run.seed": cluster.seed,
    }
    if given["config"] is not None:  # a file gives them all; a difference is told later
        return cluster, settings
    return cluster, with_overrides(
        settings, {key: value for key, value in known.items() if given.get(key) is None}
    )


def _page(settings: Settings, stands_by: Callable[[], bool]) -> Page:
    from pilothouse.cli.page import Page

    return Page(settings, stands_by)


def _walk(
    runner: Runner, watchers: list[Watcher], cycles: int | None, pace: Iterator[None], as_json: bool
) -> None:
    began = time.monotonic()
    for report in runner.cycles(cycles):
        for watch in watchers:
            watch(report)
        wall_ms = 1000 * (time.monotonic() - began)
        typer.echo(_json_line(report, wall_ms) if as_json else plain(_line(report)))
        check()
        next(pace)
        began = time.monotonic()


def _pace(interval: float, before_each: Callable[[], None]) -> Iterator[None]:
    """Wait for the next cycle's time, and for our turn."""
    due = time.monotonic()
    while True:
        due = max(due + interval, time.monotonic() - interval)
        time.sleep(max(0.0, due - time.monotonic()))
        before_each()
        yield


def _line(report: Report) -> str:
    """One cycle on one line: when, what, why, and how the cluster is."""
    from pilothouse.explain import clock, headline

    decision, view = report.turn.decision, report.turn.snapshot.interpreted
    lost = sum(v.ruling == "overridden" for v in decision.verdicts)
    refused = sum(v.ruling == "refused" for v in decision.verdicts)
    what = headline(decision)
    if decision.headline is not None and not decision.actions:
        what += " [not executed]"
    more = f" +{len(decision.actions) - 1}" if len(decision.actions) > 1 else ""
    return (
        f"{decision.cycle:>5} {clock(decision.made_seconds)} {decision.id} "
        f"queue {view.queue_length:>3} violations {view.violations:>2} "
        f"failed {view.failed_pods:>3} {view.power_watts:>6} W* "
        f"lost {lost} refused {refused}  {what}{more}"
    )


def _json_line(report: Report, wall_ms: float) -> str:
    import json

    decision, view = report.turn.decision, report.turn.snapshot.interpreted
    return json.dumps(
        {
            "cycle": decision.cycle,
            "at_seconds": decision.made_seconds,
            "decision": decision.id,
            "kind": decision.kind,
            "rationale": decision.rationale,
            "actions": [
                {"agent": a.agent, "kind": str(a.kind), "target": str(a.target)}
                for a in decision.actions
            ],
            "rulings": [str(v.ruling) for v in decision.verdicts],
            "queue": view.queue_length,
            "violations": view.violations,
            "failed_pods": view.failed_pods,
            "power_watts_modelled": view.power_watts,
            "wall_ms": round(wall_ms, 3),
            "steps_ms": {step: round(spent, 3) for step, spent in report.turn.timings.items()},
        }
    )


def _farewell(runner: Runner, as_json: bool) -> None:
    import json

    journal = runner.journal
    if as_json:
        typer.echo(
            json.dumps({"cycles": journal.cycle, "head": journal.head, "digest": journal.digest})
        )
        return
    for finding in runner.findings_at_end:
        if not finding.ok:
            typer.echo(f"Warning  {finding.name}: {finding.sentence}")
    typer.echo(f"Cycles   {journal.cycle} (* power is modelled)")
    typer.echo(f"Head     {journal.head}")
    typer.echo(f"Digest   {journal.digest}")
