# SPDX-License-Identifier: Apache-2.0
"""The thesis's tests on three real workers, and simulated: ``python -m benchmarks.thesis.run``.

Brings up a lab with our scheduler, plays every arm by its own scheduler on the same pods and
latencies (test 2), then two once more with a node that is lost and a better one that joins, and
four of them test 1; ``--parts`` plays some of the three. Prints the tables, writes
``results.json``, where what is played replaces the same and nothing else, and, into ``--out``, the
plots. Needs root on Linux, as the lab does; ``--simulated`` needs no lab, plays all arms on
simulated nodes and writes ``simulated.json``. Exits non-zero when a placement failed, EL-RL broke
more limits than the default scheduler, or its load did not follow a change within three placements.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pilothouse.cli.output import print_table
from pilothouse.cli.placement_live import NAMESPACE, PROBE_PORT, compare_live, place_of
from pilothouse.home import home
from pilothouse.lab import Lab, Wish
from pilothouse.learn.placement import comparing, judging
from pilothouse.learn.placement.comparing import Comparison
from pilothouse.learn.placement.thesis_tests import Trial

HERE = Path(__file__).parent
FULL_FORM = ("", "--simulated")
ARMS = tuple(comparing.USUAL_ARMS.split(","))
MOVING_ARMS = ("default", "el-rl")  # one that follows, one that does not
FIRST_ARMS = ("default", "heuristic", "ee", "el-rl")  # of test 1, whose steps take as long
FIRST_CYCLES = 3
PARTS = ("second", "moving", "first")
SIMULATED_SEEDS = 10


def play(lab: Lab, trial: Trial, arms: tuple[str, ...], seeds: int) -> Comparison:
    place = place_of(lab.layout.kubeconfig, NAMESPACE, "", PROBE_PORT)
    comparison = compare_live(trial, arms, place, seeds=seeds, quiet=False)
    show(comparison)
    return comparison


def show(comparison: Comparison) -> None:
    print(f"\n{comparison.name.capitalize()}, {comparison.where}")
    print_table(comparing.table(comparison))
    for arm, words in comparison.profiles.items():
        print(f"{arm}: {words}.")
    for note in (comparing.said_of_following(comparison), *comparison.notes):
        print(note)


def missed(comparison: Comparison) -> list[str]:
    """What should hold and does not, each as a sentence."""
    rows = {(row.arm, row.figure): row.mean for row in comparison.rows}
    bad = []
    for arm in comparison.played:
        if (share := rows[arm, "pods that fitted nowhere, %"]) > 0:
            bad.append(f"{arm}: {share:.1f} % of the placements failed")
    own, default = (rows[arm, "hard violations, %"] for arm in ("el-rl", "default"))
    if own > default:
        bad.append(f"el-rl: {own:.1f} % hard violations, more than the default's {default:.1f} %")
    for count in comparing.followed(comparison)["el-rl"]:
        if count is None or count > judging.PATIENCE:
            told = "not at all" if count is None else f"after {count} placements"
            bad.append(f"el-rl: the load followed a change {told}, needs {judging.PATIENCE}")
    return [f"{comparison.name}: {text}" for text in bad]


def simulated() -> list[Comparison]:
    """The README's three tables; a few seconds each."""
    trials = (Trial(test=1), Trial(test=2), Trial(test=2, nodes_move=True))
    tables = [comparing.compare(trial, ARMS, seeds=SIMULATED_SEEDS) for trial in trials]
    for comparison in tables:
        show(comparison)
    return tables


def on_workers(given: argparse.Namespace) -> list[Comparison]:
    trial = Trial(
        test=2,
        pods=given.pods,
        replacements=given.replacements,
        latency_factor=given.latency_factor,
    )
    moving = replace(trial, nodes_move=True)
    first = replace(trial, test=1, cycles=FIRST_CYCLES)
    parts = {
        "second": (trial, ARMS),
        "moving": (moving, MOVING_ARMS),
        "first": (first, FIRST_ARMS),
    }
    lab = Lab(home() / "lab")
    wish = Wish(workers=3, scheduler="pilothouse", policy="el-rl")
    lab.up(wish, say=lambda text: print(f"lab: {text}"))
    try:
        return [play(lab, *parts[part], given.seeds) for part in given.parts]
    finally:
        lab.down()


def keep(tables: list[Comparison], path: Path) -> None:
    """Each with its date, in place of the same test's figures before."""
    now: dict[str, Any] = {"date": datetime.date.today().isoformat()}
    if any(table.profiles for table in tables):  # where nothing is timed the load says nothing
        now["load"] = [round(one, 1) for one in os.getloadavg()]
    found = json.loads(path.read_text(encoding="utf-8"))["comparisons"] if path.exists() else []
    kept = {(one["test"], one["nodes_move"]): one for one in found}
    kept |= {(t.trial.test, t.trial.nodes_move): now | comparing.to_json(t) for t in tables}
    results = {"comparisons": [kept[which] for which in sorted(kept)]}
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulated", action="store_true", help="no lab; writes simulated.json")
    parser.add_argument("--seeds", type=int, default=3, help="on real workers")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="on real workers")
    parser.add_argument("--pods", type=int, default=6)
    parser.add_argument("--replacements", type=int, default=12)
    parser.add_argument("--latency-factor", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None, help="plots and a page")
    given = parser.parse_args()
    tables = simulated() if given.simulated else on_workers(given)
    keep(tables, HERE / ("simulated.json" if given.simulated else "results.json"))
    if given.out is not None:
        for table in (one for one in tables if not one.trial.nodes_move):
            for plot in comparing.plots_of(table):
                comparing.write_plot(plot, given.out)
            comparing.write_steps(table, given.out)
        where = tables[0].where
        title = f"The thesis's tests {where}"
        comparing.write_page(given.out, title, tables, f"{where.capitalize()}.")
    bad = [text for table in tables for text in missed(table)]
    for text in bad:
        print(f"missed: {text}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
