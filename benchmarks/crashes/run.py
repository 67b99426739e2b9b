# SPDX-License-Identifier: Apache-2.0
"""Kill the loop 200 times and at every failpoint; let the cluster's command log be the witness.

Writes ``figures.json`` beside this file. Exit status 1: something was lost, done twice or done
without an intent, or a recovery took too long. 2: void, too few kills hit the window that matters.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pilothouse.replay import replay
from pilothouse.testing.failpoints import AT_RESTART, FAILPOINTS
from pilothouse.testing.supervisor import Aim, Death, Site, Supervisor, a_cluster, kill_at_random
from pilothouse.testing.witness import judge

HERE = Path(__file__).parent
NAIVE = HERE.parents[1] / "tests" / "crash" / "naive.py"
IN_WINDOW_AT_LEAST = 0.3  # of the kills: 60 of 200
RECOVERY_SECONDS = 3.0
SOON = "apiVersion: pilothouse.dev/v1alpha1\nkind: Configuration\njournal: {keyframe_cycles: 10}\n"


def random_kills(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """One cluster, one journal, so many loops killed at random moments."""
    site = Site(folder=folder)
    with a_cluster(site) as url:
        supervisor = Supervisor(site, url)
        deaths = []
        for death in kill_at_random(supervisor, count, Aim(seed=seed)):
            deaths.append(death)
            say(f"{len(deaths):>4} {line(death)}")
        supervisor.live(cycles=20)
    return {
        "kills": len(deaths),
        "kills by aim": dict(sorted(Counter(d.how for d in deaths).items())),
        "kills between intent and receipt": sum(d.in_window for d in deaths),
        **recovery(deaths),
        **verdict(site),
    }


def every_failpoint(folder: Path, rounds: int) -> dict[str, Any]:
    """Each failpoint so often, one after the other, on one journal."""
    config = folder / "config.yaml"
    config.write_text(SOON)
    site = Site(folder=folder, config=config)
    deaths = []
    with a_cluster(site) as url:
        supervisor = Supervisor(site, url)
        for turn in range(rounds):
            for name in FAILPOINTS:
                if name == "after_run" and turn:
                    continue  # a journal begins once
                if name in AT_RESTART:
                    deaths.append(supervisor.die_at("between_writes"))
                deaths.append(supervisor.die_at(name))
                say(f"{turn + 1}/{rounds} {line(deaths[-1])}")
        supervisor.live(cycles=20)
    return {
        "failpoints": len(FAILPOINTS),
        "deaths": len(deaths),
        "deaths between intent and receipt": sum(d.in_window for d in deaths),
        **recovery(deaths),
        **verdict(site),
    }


def mistake(folder: Path, name: str, count: int, seed: int) -> dict[str, Any]:
    """A loop that is wrong on purpose under the same kills: the witness has to see it."""
    site = Site(folder=folder)
    aim = Aim(seed=seed, early_every=count + 1, plain_every=count + 2)
    with a_cluster(site) as url:
        supervisor = Supervisor(site, url, command=(str(NAIVE), name))
        kills = len(list(kill_at_random(supervisor, count, aim)))
        supervisor.live(cycles=20)
    return {"kills": kills, "violations": verdict(site)["violations"]}


def recovery(deaths: list[Death]) -> dict[str, Any]:
    """From a process's start to its first durable cycle, restarts only."""
    known = [d.recovery for d in deaths[1:] if d.recovery]
    times = sorted(r.seconds for r in known)
    spent = sorted(r.cpu_seconds for r in known if r.cpu_seconds is not None)
    return {
        "recoveries": len(times),
        "recovery p50 s": round(quantile(times, 0.50), 2),
        "recovery p99 s": round(quantile(times, 0.99), 2),
        "recovery max s": round(times[-1], 2),
        "recovery p50 CPU s": round(quantile(spent, 0.50), 2),
        "recovery max CPU s": round(spent[-1], 2),
    }


def quantile(times: list[float], share: float) -> float:
    return times[min(len(times) - 1, int(share * len(times)))]


def verdict(site: Site) -> dict[str, Any]:
    judgment = judge(site.journal, site.log)
    for finding in judgment.findings[:5]:
        say(f"  {finding.rule} {finding.subject}: {finding.sentence}")
    replayed = replay(site.journal)
    return {
        "seen": judgment.numbers,
        "violations": dict(Counter(f.rule for f in judgment.findings)),
        "replay identical": f"{replayed.identical} of {replayed.cycles}",
        "replay ok": replayed.ok,
    }


def line(death: Death) -> str:
    took = f"{death.recovery.seconds:.2f} s" if death.recovery else "never"
    return f"{death.how:<17} ready {took}, died in cycle {death.cycle}, {len(death.opened)} open"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def failures(figures: dict[str, Any]) -> list[str]:
    """What does not hold, in words."""
    found = []
    for part in ("random kills", "failpoints"):
        figure = figures[part]
        if figure["violations"]:
            found.append(f"{part}: {figure['violations']}")
        if not figure["replay ok"]:
            found.append(f"{part}: replay differs")
        if figure["recovery max s"] > RECOVERY_SECONDS:
            found.append(f"{part}: a recovery took {figure['recovery max s']} s")
    for name, figure in figures["wrong on purpose"].items():
        if not figure["violations"]:
            found.append(f"the witness did not notice {name}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3, help="Deaths at each failpoint.")
    parser.add_argument("--control-kills", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1, help="Of the moments of the kills.")
    given = parser.parse_args()
    began = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="pilothouse-crashes-"))
    say(f"Journals and command logs are in {place}")
    folders = [place / part for part in ("random", "failpoints", "resends", "acts_first")]
    for folder in folders:
        folder.mkdir()
    figures: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "load at the start": round(os.getloadavg()[0], 1),
        "random kills": random_kills(folders[0], given.kills, given.seed),
        "failpoints": every_failpoint(folders[1], given.rounds),
        "wrong on purpose": {
            f.name: mistake(f, f.name, given.control_kills, given.seed) for f in folders[2:]
        },
    }
    figures["load at the end"] = round(os.getloadavg()[0], 1)
    figures["took s"] = round(time.monotonic() - began)
    (HERE / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    if (
        figures["random kills"]["kills between intent and receipt"]
        < IN_WINDOW_AT_LEAST * given.kills
    ):
        say("Void: too few kills between intent and receipt.")
        return 2
    for failure in failures(figures):
        say(f"Fails: {failure}")
    if failures(figures):
        return 1
    shutil.rmtree(place)
    return 0


if __name__ == "__main__":
    sys.exit(main())
