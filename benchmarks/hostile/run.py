# SPDX-License-Identifier: Apache-2.0
"""Hostile proposers among the honest ones, 10,000 decisions, judged by an independent witness.

    python benchmarks/hostile/run.py [--decisions N] [--jobs N] [--write]

Exits non-zero when a rule was broken, when fewer than 90 % of the honest actions survive, or when
the witness finds nothing without the guard. ``--write`` renews ``figures.json``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from pilothouse.guard import Guard
from pilothouse.propose.registry import Registration
from pilothouse.scenarios import FOR_FORECASTS
from pilothouse.scenarios import names as scenario_names
from pilothouse.testing.campaign import VARIANTS, Campaign, OpenGuard, Tale
from pilothouse.testing.hostile import band
from pilothouse.testing.strategies import book

CYCLES = 250  # more than an hour of cluster time, so that every window and quarantine ends once
STRANGERS = 4
RECIPES = 300  # for each campaign, others each time
CONTROL_CYCLES = 60
SEED = 2_000  # not a seed the tests use
NEEDED = 0.9


@dataclass(frozen=True, slots=True)
class Job:
    """One campaign, small enough to hand to another process."""

    number: int
    scenario: str
    variant: str
    cycles: int
    kind: str  # "siege", "alone" (nobody hostile) or "open" (no guard)


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of it."""

    job: Job
    tale: Tale
    names: tuple[str, ...]


def play(job: Job) -> Answer:
    """One campaign. Every tenth has all strangers at once, the others a few of them."""
    settings = VARIANTS[job.variant]
    strangers = [] if job.kind == "alone" else company(job)
    campaign = Campaign(
        scenario=job.scenario,
        seed=SEED + job.number,
        settings=settings,
        strangers=strangers,
        guard=OpenGuard if job.kind == "open" else Guard,
    )
    tale = campaign.run(job.cycles)
    return Answer(job, tale, tuple(s.name for s in strangers))


def company(job: Job) -> list[Registration]:
    everybody = band(VARIANTS[job.variant], book(job.number, RECIPES), job.number)
    dice = random.Random(f"company/{job.number}")
    return everybody if job.number % 10 == 0 else dice.sample(everybody, STRANGERS)


def jobs(decisions: int) -> list[Job]:
    """Every scenario and every variant comes up, in changing company."""
    scenarios = tuple(name for name in scenario_names() if name not in FOR_FORECASTS)
    variants = tuple(VARIANTS)
    sieges = [
        Job(n, scenarios[n % len(scenarios)], variants[n % len(variants)], CYCLES, "siege")
        for n in range(-(-decisions // CYCLES))
    ]
    alone = [Job(j.number, j.scenario, j.variant, CYCLES, "alone") for j in sieges]
    control = [
        Job(n, scenarios[n], variants[n], CONTROL_CYCLES, "open") for n in range(len(variants))
    ]
    return sieges + control + alone


def main() -> int:
    options = arguments()
    began = time.perf_counter()
    tales: dict[str, Tale] = {"siege": Tale(), "alone": Tale(), "open": Tale()}
    with ProcessPoolExecutor(options.jobs) as pool:
        for answer in pool.map(play, jobs(options.decisions)):
            tales[answer.job.kind].add(answer.tale)
            print(line(answer), flush=True)
    figures = summary(tales, time.perf_counter() - began)
    print(json.dumps(figures, indent=2))
    if options.write:
        path = Path(__file__).with_name("figures.json")
        path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0 if figures["passed"] else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Hostile proposers, judged by a witness.")
    parser.add_argument("--decisions", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="renew figures.json")
    return parser.parse_args()


def line(answer: Answer) -> str:
    job, tale = answer.job, answer.tale
    broken = dict(Counter(v.rule for v in tale.violations))
    return (
        f"{job.kind:5} {job.number:3} {job.scenario:22} {job.variant:9} "
        f"honest {tale.kept}/{tale.wanted} strange {tale.strange:4} broken {broken or 0} "
        f"{' '.join(answer.names)}"
    )


def summary(tales: dict[str, Tale], seconds: float) -> dict[str, Any]:
    siege, alone, control = tales["siege"], tales["alone"], tales["open"]
    found = Counter(v.rule for v in control.violations)
    passed = (
        not siege.violations
        and not alone.violations
        and not siege.misread
        and siege.kept_share >= NEEDED
        and len(found) >= 5
    )
    return {
        "date": date.today().isoformat(),
        "passed": passed,
        "decisions": siege.decisions,
        "hostile proposals on record": siege.proposals,
        "hostile actions carried out": siege.strange,
        "writes executed": siege.writes,
        "violations": len(siege.violations),
        "violations by rule": dict(Counter(v.rule for v in siege.violations)),
        "first violations": [v.sentence for v in siege.violations[:5]],
        "honest actions chosen alone, from the same snapshot and ledger": siege.wanted,
        "of those still chosen beside the hostile": siege.kept,
        "share": round(siege.kept_share, 4),
        "honest actions in whole runs with the hostile": siege.honest,
        "honest actions in whole runs without": alone.honest,
        "violations in whole runs without": len(alone.violations),
        "refusals by rule": dict(siege.refusals.most_common()),
        "without the guard": {
            "decisions": control.decisions,
            "violations": sum(found.values()),
            "by rule": dict(found.most_common()),
        },
        "wall seconds": round(seconds),
    }


if __name__ == "__main__":
    sys.exit(main())
