# SPDX-License-Identifier: Apache-2.0
"""The thesis's second test on three real workers: ``python -m benchmarks.thesis.run``.

Brings up a lab with our scheduler, plays every arm by its own scheduler on the same pods and
latencies, then once more with a node that is lost and a better one that joins. Prints the tables,
writes ``results.json`` and, into ``--out``, the plots. Needs root on Linux, as the lab does. Exits
non-zero when a placement failed, or EL-RL broke more limits than the default scheduler.
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
from pilothouse.learn.placement import comparing
from pilothouse.learn.placement.comparing import Comparison
from pilothouse.learn.placement.thesis_tests import Trial

HERE = Path(__file__).parent
ARMS = ("default", "most-allocated", "heuristic", "hybrid", "ee", "lb", "el-rl")


def play(lab: Lab, trial: Trial, arms: tuple[str, ...], seeds: int) -> Comparison:
    place = place_of(lab.layout.kubeconfig, NAMESPACE, "", PROBE_PORT)
    comparison = compare_live(trial, arms, place, seeds=seeds, quiet=False)
    print_table(comparing.table(comparison))
    for arm, words in comparison.profiles.items():
        print(f"{arm}: {words}.")
    for note in comparison.notes:
        print(note)
    return comparison


def kept(comparison: Comparison) -> bool:
    """No placement failed, and EL-RL breaks no more limits than the default."""
    rows = {(row.arm, row.figure): row.mean for row in comparison.rows}
    failed = [arm for arm in comparison.played if rows[arm, "pods that fitted nowhere, %"] > 0]
    figure = "hard violations, %"
    worse = "default" in comparison.played and rows["el-rl", figure] > rows["default", figure]
    return not failed and not worse


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pods", type=int, default=6)
    parser.add_argument("--replacements", type=int, default=12)
    parser.add_argument("--latency-factor", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None, help="plots and a page")
    given = parser.parse_args()
    trial = Trial(
        test=2,
        pods=given.pods,
        replacements=given.replacements,
        latency_factor=given.latency_factor,
    )
    moving = replace(trial, nodes_move=True)
    lab = Lab(home() / "lab")
    wish = Wish(workers=3, scheduler="pilothouse", policy="el-rl")
    lab.up(wish, say=lambda text: print(f"lab: {text}"))
    try:
        tables = [
            play(lab, trial, ARMS, given.seeds),
            play(lab, moving, ("el-rl",), given.seeds),
        ]
    finally:
        lab.down()
    results: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "load": [round(one, 1) for one in os.getloadavg()],
        "comparisons": [comparing.to_json(table) for table in tables],
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if given.out is not None:
        for plot in comparing.plots_of(tables[0]):
            comparing.write_plot(plot, given.out)
        comparing.write_steps(tables[0], given.out)
        comparing.write_page(given.out, "Test 2 on real workers", tables, "On a real cluster.")
    return 0 if all(map(kept, tables)) else 1


if __name__ == "__main__":
    sys.exit(main())
