# SPDX-License-Identifier: Apache-2.0
"""Starts a simulator that lives and loops that die, and keeps count.

One ``pilothouse sim serve`` outlives every loop; each loop takes up the same journal. What a death
hit is read from the journal afterwards: intents that this very process announced and did not live
to see answered. How the kill was aimed plays no part in it.
"""

from __future__ import annotations

import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pilothouse.errors import InternalError
from pilothouse.journal import JournalReader
from pilothouse.journal.resume import read_resume
from pilothouse.journal.rows import stored_rows

PATIENCE_SECONDS = 120.0  # wall clock; only a hang takes longer
CRASHING = ("-m", "pilothouse.testing.crashing")
REAL = ("-m", "pilothouse.cli", "up", "--no-serve", "--interval", "0", "--json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where the files of one run lie, and the seed its parts share."""

    folder: Path
    seed: int = 3
    config: Path | None = None

    @property
    def journal(self) -> Path:
        return self.folder / "run.db"

    @property
    def log(self) -> Path:
        return self.folder / "commands.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What it took from a process's start to its first durable cycle."""

    seconds: float  # wall clock; for the real command until its line is printed, a bit later
    cpu_seconds: float | None  # the real command does not tell


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """How one loop ended, as the journal shows it."""

    how: str  # the failpoint, "early", "random" or "plain"
    recovery: Recovery | None  # None: it never got that far
    cycle: int  # last durable one
    opened: tuple[str, ...]  # intents it announced and did not see answered

    @property
    def in_window(self) -> bool:
        """Killed between an intent and its receipt."""
        return bool(self.opened)


class Process:
    """A child whose lines are read as they come, with the time they came at."""

    def __init__(self, arguments: Sequence[str], errors: Path) -> None:
        self._errors = errors
        self.started = time.monotonic()
        with errors.open("ab") as stderr:
            self._child = subprocess.Popen(
                [sys.executable, "-u", *arguments], stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        self._lines: queue.Queue[tuple[float, str]] = queue.Queue()
        assert self._child.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._child.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stdout: IO[str]) -> None:
        for line in stdout:
            self._lines.put((time.monotonic(), line))
        self._lines.put((time.monotonic(), ""))

    def wait_for(self, *marks: str) -> tuple[float, str]:
        """The first line with one of these marks and when it came; "" where the child ended."""
        while True:
            at, line = self._lines.get(timeout=PATIENCE_SECONDS)
            if not line or any(mark in line for mark in marks):
                return at, line

    def kill(self) -> None:
        self._child.send_signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> None:
        self._child.terminate()  # and not an interrupt: a job in the background may ignore that
        self.wait()

    def wait(self) -> int:
        code = self._child.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        if self._child.stdout is not None:
            self._child.stdout.close()
        return code

    def ended_alone(self) -> InternalError:
        last = self._errors.read_text(encoding="utf-8").strip().splitlines()[-1:] or ["no word"]
        return InternalError(f"A loop ended by itself with status {self.wait()}: {last[0]}")


class Supervisor:
    """Sends loops to their death, one after the other, against one cluster."""

    def __init__(self, site: Site, url: str, command: Sequence[str] = CRASHING) -> None:
        self.site = site
        self._url = url
        self._command = command

    def die_at(self, failpoint: str, *extra: str) -> Death:
        """One loop that ends at a failpoint."""
        before = _open(self.site.journal)
        loop = self._start(self._command, "--failpoint", failpoint, *extra)
        recovery = _recovery(loop)
        if loop.wait() != -signal.SIGKILL:
            raise loop.ended_alone()
        return self._death(failpoint, recovery, before)

    def die_early(self, delay_seconds: float) -> Death:
        """One loop killed so long after its start, ready or not."""
        before = _open(self.site.journal)
        loop = self._start(self._command)
        time.sleep(delay_seconds)
        loop.kill()
        return self._death("early", None, before)

    def die_later(self, delay_seconds: float, *, pause_seconds: float = 0.0) -> Death:
        """One loop killed so long after its first durable cycle; without a pause the real one."""
        before = _open(self.site.journal)
        if pause_seconds:
            loop = self._start(self._command, "--pause", str(pause_seconds))
        else:
            loop = self._start(REAL)
        recovery = _recovery(loop)
        if recovery is None:
            raise loop.ended_alone()
        time.sleep(delay_seconds)
        loop.kill()
        return self._death("random" if pause_seconds else "plain", recovery, before)

    def live(self, cycles: int) -> Recovery:
        """One loop that ends in peace."""
        loop = self._start(self._command, "--cycles", str(cycles))
        recovery = _recovery(loop)
        if loop.wait() or recovery is None:
            raise loop.ended_alone()
        return recovery

    def _start(self, command: Sequence[str], *extra: str) -> Process:
        site = self.site
        config = ("--config", str(site.config)) if site.config else ()
        place = ("--sim", self._url, "--journal", str(site.journal), "--seed", str(site.seed))
        return Process((*command, *place, *config, *extra), site.folder / "errors.txt")

    def _death(self, how: str, recovery: Recovery | None, before: frozenset[str]) -> Death:
        after = _open(self.site.journal)
        return Death(
            how=how,
            recovery=recovery,
            cycle=_last_cycle(self.site.journal),
            opened=tuple(sorted(after - before)),
        )


@contextmanager
def a_cluster(site: Site) -> Iterator[str]:
    """``pilothouse sim serve`` as a process of its own; gives its address."""
    arguments = ("--port", "0", "--seed", str(site.seed), "--log", str(site.log))
    cluster = Process(
        ("-m", "pilothouse.cli", "sim", "serve", *arguments), site.folder / "sim-errors.txt"
    )
    try:
        _, line = cluster.wait_for("http://")
        yield line.split()[-1]
    finally:
        cluster.stop()


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """How random kills are spread."""

    seed: int
    spread_seconds: float = 0.9  # after the first durable cycle
    pause_seconds: float = 0.12  # on each side of a write
    early_every: int = 10  # so often one is killed around the time it should be ready
    plain_every: int = 5  # so often the real command is killed, without pauses


def kill_at_random(supervisor: Supervisor, count: int, aim: Aim) -> Iterator[Death]:
    """So many deaths, at moments drawn from a seed."""
    drawn, ready = random.Random(aim.seed), 1.0
    for number in range(1, count + 1):
        part = drawn.random()
        if number % aim.early_every == 0:
            # Not sooner: a third of the way it still imports, and there is nothing to hit.
            death = supervisor.die_early((0.3 + 0.7 * part) * ready)
        elif number % aim.plain_every == 1:
            death = supervisor.die_later(part * aim.spread_seconds)
        else:
            death = supervisor.die_later(part * aim.spread_seconds, pause_seconds=aim.pause_seconds)
        ready = death.recovery.seconds if death.recovery else ready
        yield death


def _recovery(loop: Process) -> Recovery | None:
    at, line = loop.wait_for("durable ", '"cycle": ')
    if not line:
        return None
    cpu = float(line.split()[2]) if line.startswith("durable") else None
    return Recovery(seconds=at - loop.started, cpu_seconds=cpu)


def _open(journal: Path) -> frozenset[str]:
    if not _exists(journal):
        return frozenset()
    return frozenset(write.intent for write in read_resume(journal).open_intents)


def _last_cycle(journal: Path) -> int:
    newest = JournalReader(journal).last_cycle() if _exists(journal) else None
    return newest.cycle if newest else 0


def _exists(journal: Path) -> bool:
    """Anything recorded? A loop may die before its journal has a first record, or between files."""
    return next(stored_rows(journal), None) is not None
