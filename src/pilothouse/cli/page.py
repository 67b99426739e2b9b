# SPDX-License-Identifier: Apache-2.0
"""The page beside a run: the port is taken before anything starts, views follow each cycle."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from pilothouse import __version__
from pilothouse.errors import UserError
from pilothouse.journal import Ingested
from pilothouse.run import Report, Runner
from pilothouse.server.app import create_app
from pilothouse.server.feed import Feed
from pilothouse.server.outside import create_outside_app, reserve_outside
from pilothouse.server.run import Running, reserve, serve
from pilothouse.server.views import Control, RunFacts, Stimulus, Turn, cycle_view
from pilothouse.settings import Settings

STUCK_SECONDS = 120.0  # a loop that has not turned for so long does not come back by itself


class Page:
    """Serves a run while it lives; a context, so that the ports are given back."""

    def __init__(self, settings: Settings, stands_by: Callable[[], bool] = lambda: False) -> None:
        self._settings = settings
        self._stands_by = stands_by
        self._listener = reserve(settings.serve.host, settings.serve.port)
        outside = settings.serve.metrics_port
        self._outside = reserve_outside(outside) if outside else None
        self._feed = Feed()
        self._turned = time.monotonic()
        self._running: list[Running] = []
        self._runner: Runner | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._running:
            running.stop()
        for listener in (self._listener, self._outside):
            if listener is not None:
                listener.close()

    def open(self, runner: Runner) -> str:
        """Start to serve; the address is the answer."""
        self._runner = runner
        self._feed.announce(runner.stages)
        app = create_app(
            self._feed,
            token=_token(runner.journal.path),
            ingest=self._ingest,
            ready=self._ready,
            version=__version__,
        )
        self._running.append(serve(app, self._listener))
        if self._outside is not None:
            door = create_outside_app(self._feed, alive=self._alive, ready=self._ready)
            self._running.append(serve(door, self._outside))
        return self._running[0].url

    def show(self, report: Report) -> None:
        """Publish one cycle."""
        self._turned = time.monotonic()
        self._feed.publish(cycle_view(self._turn(report), self._feed.latest))

    def _turn(self, report: Report) -> Turn:
        turn, run = report.turn, self._settings.run
        assert self._runner is not None
        return Turn(
            run=RunFacts(
                id=self._runner.run_id,
                cluster=run.cluster,
                scenario=run.scenario,
                seed=run.seed,
                cycle_seconds=run.cycle_seconds,
            ),
            decision=turn.decision,
            snapshot=turn.snapshot,
            forecast=turn.forecast,
            receipts=turn.receipts,
            results=turn.results,
            timings=turn.timings,
            wall_ms=int(time.time() * 1000),
            modes={key: str(mode) for key, mode in report.modes.items()},
            stages=report.stages,
            checks=report.findings,
            stimuli=[
                Stimulus(
                    name=str(s.kind),
                    target=s.target.short,
                    since_seconds=s.since_seconds,
                    until_seconds=s.until_seconds,
                    expects=s.pressure,
                )
                for s in report.stresses
            ],
            controls=[
                Control(text=" ".join([c.command, *c.arguments.values()])) for c in report.commands
            ],
            journal_bytes=self._runner.journal.size,
        )

    def _ingest(self, source: str, content: dict[str, Any]) -> int:
        assert self._runner is not None
        return self._runner.journal.append(Ingested(source=source, content=content))

    def _alive(self) -> tuple[bool, str]:
        if self._stands_by():
            return True, "standing by"
        quiet = time.monotonic() - self._turned
        longest = max(STUCK_SECONDS, 4 * self._settings.run.interval_wall_seconds)
        if quiet > longest:
            return False, f"no cycle for {quiet:.0f} s; the limit is {longest:.0f} s"
        return True, "alive"

    def _ready(self) -> tuple[bool, str]:
        latest = self._feed.latest
        if latest is None:
            return False, "the first cycle is not over yet"
        if self._stands_by():
            return False, "standing by: another one holds the lease"
        alive, detail = self._alive()
        return alive, f"cycle {latest.cycle} is done" if alive else detail


def _token(journal: Path) -> str:
    """The secret of the ingest endpoint, in a file that only its owner can read."""
    path = journal.with_name(journal.name + ".token")
    token = secrets.token_urlsafe(32)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token + "\n")
    except OSError as error:
        raise UserError(
            f"The token file {path} cannot be written: {error.strerror or error}. Make it "
            "writable or remove it, or run with --no-serve."
        ) from None
    return token
