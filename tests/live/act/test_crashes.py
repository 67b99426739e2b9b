# SPDX-License-Identifier: Apache-2.0
"""A loop that is killed in the middle of acting, again and again, and what the server's log says.

The short form kills a few times; ``PILOTHOUSE_KILLS=50`` is the whole campaign.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import sleep, time
from typing import Any

import pytest

from pilothouse.journal.resume import read_resume
from pilothouse.lab import Lab
from pilothouse.testing.livecheck.books import read_books
from tests.live.act.loops import LoopProcess, give_up_lease, residue, run_checker
from tests.testing.forgery import damaged, forged, names, plants, scenery

KILLS = int(os.environ.get("PILOTHOUSE_KILLS", "4"))
PLACES = ("durable", "ticket", "write", "")  # the last: wherever it is a moment after deciding


def kill_in_the_middle(loop: LoopProcess, place: str) -> None:
    """End it between an intent and its receipt, at this place or at no matter which."""
    try:
        loop.wait_for(lambda line: ("stopped" if place else "durable") in line, seconds=120)
        if not place:
            sleep(random.uniform(0, 0.05))
    finally:
        loop.signal(signal.SIGKILL)
        loop.end()


@pytest.mark.timeout(300 + 60 * KILLS)
def test_killed_loop_keeps_every_promise(
    installed: Lab,
    harbor: Callable[..., Any],
    actuator_kubeconfig: Path,
    janitor: subprocess.Popen[bytes],
    tmp_path: Path,
    eventually: Callable[..., Any],
    measured: Callable[..., None],
) -> None:
    harbor("crew", replicas=3, limits={"cpu": "200m", "memory": "64Mi"})
    since, journal, between = time(), tmp_path / "crash.db", 0

    def standby(number: int) -> LoopProcess:
        """The next one waits for the lease while the one before it still runs."""
        if number == KILLS:
            return LoopProcess(actuator_kubeconfig, journal, "watch")
        place = PLACES[number % len(PLACES)]
        stop = f"{place}:{1 + number % 3}" if place else ""  # some act before they die
        return LoopProcess(actuator_kubeconfig, journal, "busy", "crew", stop=stop)

    loops = [standby(0)]
    try:
        for number in range(KILLS):
            loops[number].wait_for(lambda line: "leads" in line, seconds=120)
            loops.append(standby(number + 1))
            kill_in_the_middle(loops[number], PLACES[number % len(PLACES)])
            between += bool(read_resume(journal).open_intents)
            give_up_lease(installed)
        loops[-1].wait_for(lambda line: "turn" in line, seconds=120)
    finally:
        for loop in loops:
            loop.end()
        give_up_lease(installed)
    eventually(lambda: not residue(installed), seconds=120)
    checked = run_checker(installed, [journal], tmp_path, since)
    measured(kills=KILLS, between_intent_and_receipt=between, checker=checked.stderr.strip())
    assert checked.returncode == 0, checked.stdout
    assert between >= 0.6 * KILLS, "too few kills hit the window"
    assert "(0 done)" not in checked.stderr


def test_checker_finds_what_is_planted(helm_journal: Path, installed: Lab, tmp_path: Path) -> None:
    """Without this the campaign could pass because nobody looks."""
    now = 4_070_908_800.0  # only what is planted is that late
    books = read_books([helm_journal], again=False)
    intent = next(a.writes[0].intent for a in books.actions.values() if not a.restores)
    clean = run_checker(installed, [helm_journal], tmp_path, min(books.intents.values()))
    assert clean.returncode == 0, clean.stdout
    assert "(0 done)" not in clean.stderr
    table = plants(intent, now)
    log, tickets = tmp_path / "planted.log", tmp_path / "planted.json"
    log.write_text("\n".join([*scenery(now), *(line for p in table for line in p.lines), ""]))
    tickets.write_text(json.dumps({"items": [t for p in table for t in p.tickets]}))
    options = ["--audit", str(log), "--tickets", str(tickets), "--now", str(now + 60)]
    journals = {
        plant.words: forged(helm_journal, tmp_path / f"forged-{number}.db", plant.change)
        for number, plant in enumerate(table)
        if plant.change is not None
    }
    journals["I3"] = damaged(helm_journal, tmp_path / "damaged.db")
    alone = [journals.pop("I2")]  # the receipts it lacks are in the others
    found: set[str] = set()
    for together in (alone, list(journals.values())):
        checked = run_checker(installed, together, tmp_path, now - 2_000, *options)
        assert checked.returncode == 1
        found |= names(checked.stdout.splitlines())
    assert found == {plant.invariant for plant in table} | {"I3"}
