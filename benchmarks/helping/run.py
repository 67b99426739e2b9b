# SPDX-License-Identifier: Apache-2.0
"""Pairs of services on the real lab, agents on and off: lost requests, and how early we act.

The live tests run one pair of each stimulus with short windows; this sets five, with the settings
that are shipped, keeps what each pair measured and writes ``results.json`` and the table in the
README. Exit status 1: some pair did not hold.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TESTS = {
    "memory-growth": "test_leaking_service_loses_fewer_requests_where_agents_act",
    "node-degradation": "test_service_on_a_degrading_node_loses_fewer_requests_where_agents_act",
    "surge": "test_ramping_surge_raises_the_minimum_before_the_autoscaler_reacts",
}
FIRST, LAST = "<!-- figures: written by run.py -->\n", "<!-- end of figures -->"
Figure = dict[str, Any]


def play(stimulus: str, pairs: int, figures: Path) -> bool:
    """Run the pairs of one stimulus; each adds its line to the file.

    Each on a lab of its own: budgets are counted on the cluster and outlast a loop, so that pairs
    that follow each other on one cluster would share what is meant for ten minutes.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "live", "-p", "no:cacheprovider"]
    environment = {"PILOTHOUSE_PAIRS": str(pairs), "PILOTHOUSE_FIGURES": str(figures)}
    held = True
    for number in range(1, pairs + 1):
        test = f"tests/live/act/test_helps.py::{TESTS[stimulus]}[{number}]"
        done = subprocess.run([*command, test], cwd=ROOT, env=os.environ | environment)
        held &= done.returncode == 0
    return held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stimulus", nargs="*", help=f"of: {', '.join(TESTS)}; all if none")
    parser.add_argument("--pairs", type=int, default=5, help="of each; at least 2")
    given = parser.parse_args()
    wanted = given.stimulus or list(TESTS)
    unknown = sorted(set(wanted) - set(TESTS))
    if unknown:
        parser.error(f"unknown stimulus {unknown[0]}; known: {', '.join(TESTS)}")
    results = HERE / "results.json"
    known: dict[str, list[Figure]] = json.loads(results.read_text()) if results.exists() else {}
    held = True
    for stimulus in wanted:
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder) / "figures"
            figures.touch()
            held &= play(stimulus, max(given.pairs, 2), figures)
            known[stimulus] = [json.loads(line) for line in figures.read_text().splitlines()]
        results.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        write_table(known)
    return 0 if held else 1


def write_table(known: dict[str, list[Figure]]) -> None:
    readme = HERE / "README.md"
    text = readme.read_text()
    head, _, rest = text.partition(FIRST)
    _, _, tail = rest.partition(LAST)
    table = "\n".join(lines(known))
    readme.write_text(f"{head}{FIRST}\n{table}\n\n{LAST}{tail}")
    print(table)


def lines(known: dict[str, list[Figure]]) -> Iterator[str]:
    pairs = [f for name in ("memory-growth", "node-degradation") for f in known.get(name, [])]
    yield "Measured; lost is everything due that got no success."
    yield ""
    yield "| stimulus | pair | lost, agents off | lost, agents on | acted after | first loss without us | ahead by | pod started anew after | load |"  # noqa: E501
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for f in pairs:
        on, off, acted = f["on"], f["off"], f["acted_seconds"]
        ahead = off["first_lost_seconds"] - acted
        anew = ", ".join(f"{seconds:.0f} s" for seconds in f.get("started_anew_seconds", ()))
        yield (
            f"| {f['stimulus']} | {f['pair']} | {off['lost']} of {off['due']} | {on['lost']} of "
            f"{on['due']} | {acted:.1f} s | {off['first_lost_seconds']:.1f} s | {ahead:.1f} s | "
            f"{anew} | {f['load_average']:.1f} |"
        )
    yield ""
    yield "| surge | `minReplicas` raised | the autoscaler alone reacts | ahead by | load |"
    yield "|--:|--:|--:|--:|--:|"
    for f in known.get("surge", []):
        acted, alone = f["acted_seconds"], f["autoscaler_seconds"]
        yield (
            f"| {f['pair']} | {acted:.1f} s | {alone:.1f} s | {alone - acted:.1f} s | "
            f"{f['load_average']:.1f} |"
        )
    yield ""
    yield f"{days(f for group in known.values() for f in group)}."


def days(figures: Iterable[Figure]) -> str:
    found = {datetime.datetime.fromtimestamp(f["at"], datetime.UTC).date() for f in figures}
    return f"`python benchmarks/helping/run.py`, {', '.join(map(str, sorted(found)))}"


if __name__ == "__main__":
    sys.exit(main())
