# SPDX-License-Identifier: Apache-2.0
"""How small a network keeps a policy's lines, and do the thesis's rewards keep them?

``python -m benchmarks.placement.widths`` trains three seeds of every policy at widths up to the
shipped one, with the settings of ``pilothouse train placement``, and puts the policy's lines to
them on the held-out courses of ``run``, up to 500 nodes. ``--rewards`` trains the shipped widths on
the thesis's rewards instead. A width or reward *keeps* the lines when the median of its seeds holds
each of them at every size. What is done replaces its own part of widths.json at once and says when;
``--folder`` keeps the trainings, and those found there are not trained again. Everything is
simulated.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import date
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.placement.run import HELD_OUT, SIZES
from pilothouse import policy as policies
from pilothouse.cli.output import progress
from pilothouse.learn.placement import judging
from pilothouse.learn.placement.chooser import Learned
from pilothouse.learn.placement.judging import Exam
from pilothouse.learn.placement.presets import FAST

RESULTS = Path(__file__).with_name("widths.json")
TRIED = (4, 8, 16)
SHIPPED = {kind: policies.shipped(kind).card.network.encoder[-1] for kind in judging.KINDS}
SEEDS = (1, 2, 3)
JUDGED_ON = ("3", "6-32", "500")


def widths_of(kind: str) -> list[int]:
    """The shipped width and smaller ones."""
    return [width for width in TRIED if width < SHIPPED[kind]] + [SHIPPED[kind]]


def arms(kind: str, rewards: bool) -> list[str]:
    """What is compared: widths by number, or rewards by name."""
    return [f"thesis-{kind}"] if rewards else [str(width) for width in widths_of(kind)]


def trained(kind: str, arm: str, folder: Path) -> list[Path]:
    """The cards of three seeds of an arm, trained unless they are there."""
    out = folder / f"{kind}-{arm}"
    cards = [out / f"{kind}-seed{seed}.json" for seed in SEEDS]
    if not all(card.exists() for card in cards):
        from pilothouse.learn.placement import rewards, training

        width = int(arm) if arm.isdecimal() else SHIPPED[kind]
        reward = rewards.named(rewards.OF_POLICY[kind] if arm.isdecimal() else arm)
        settings = replace(FAST, encoder=(width, width), head=(width,))
        training.train(kind, settings, reward, seeds=SEEDS, out=out)
    return cards


def judged(kind: str, card: Path, size: str, exam: Exam) -> list[dict[str, Any]]:
    """Every line of one network at one size."""
    given = policies.read(card)
    own = {"nodes": size, "seed": given.card.seed}
    lines = judging.judge(kind, Learned(kind, given.network), exam)
    return [own | line.to_json() for line in lines]


def measured(kind: str, arm: str, folder: Path, exams: dict[str, Exam]) -> dict[str, Any]:
    cards = trained(kind, arm, folder)
    rows = []
    for size, exam in exams.items():
        for card in cards:
            rows += judged(kind, card, size, exam)
    told = policies.read(cards[0]).card
    return {
        "date": str(date.today()),
        "width": told.network.encoder[-1],
        "reward": told.reward["name"],
        "clusters": {size: SIZES[size][1] for size in exams},
        "lines": rows,
    }


def by_line(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Rows of all seeds by line and size."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["what"], row["nodes"]), []).append(row)
    return found


def middle_holds(rows: list[dict[str, Any]]) -> bool:
    """Whether the median of the seeds holds this line."""
    middle, bound = median(row["value"] for row in rows), rows[0]["bound"]
    return bool(middle >= bound if rows[0]["at_least"] else middle <= bound)


def keeps(rows: Iterable[dict[str, Any]]) -> bool:
    """Whether every line holds at every size."""
    return all(middle_holds(of_seeds) for of_seeds in by_line(rows).values())


def table(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """A row per line and arm: median (worst) of the seeds; what fails is marked."""
    sizes = " | ".join(f"{size} nodes" for size in JUDGED_ON)
    rows = [f"| line | bound | width, reward | {sizes} |"]
    rows.append("|---|--:|---|" + "--:|" * len(JUDGED_ON))
    for kind, of_arms in found.items():
        for what in dict.fromkeys(row["what"] for own in of_arms.values() for row in own["lines"]):
            for own in of_arms.values():
                rows.append(_row(kind, what, own))
    for kind, of_arms in found.items():
        for own in of_arms.values():
            verb = "keeps" if keeps(own["lines"]) else "does not keep"
            told = f"{kind}, {own['width']} wide on {own['reward']} ({own['date']})"
            rows.append(f"{told}: {verb} its lines")
    return "\n".join(rows)


def _row(kind: str, what: str, own: dict[str, Any]) -> str:
    lines, cells, bound = by_line(own["lines"]), [], 0.0
    for size in JUDGED_ON:
        if (what, size) not in lines:
            cells.append("")
            continue
        rows = lines[what, size]
        bound = rows[0]["bound"]
        values = sorted((row["value"] for row in rows), reverse=rows[0]["at_least"])
        mark = "" if middle_holds(rows) else " FAILS"
        cells.append(f"{median(values):.3f} ({values[-1]:.3f}){mark}")
    told = f"{own['width']}, {own['reward']}"
    return f"| {kind}: {what} | {bound} | {told} | " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=judging.KINDS, help="one policy")
    parser.add_argument("--rewards", action="store_true", help="the thesis's rewards, not widths")
    parser.add_argument("--arm", help="one width or reward; all if none")
    parser.add_argument("--folder", type=Path, help="where trainings are kept and found")
    parser.add_argument("--show", action="store_true", help="only print widths.json")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"simulated": True, "policies": {}}
    if RESULTS.exists():
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
    found = results["policies"]
    if not arguments.show:
        with TemporaryDirectory() as spare, progress("Widths", total=None) as advance:
            for kind in (arguments.only,) if arguments.only else judging.KINDS:
                exams = {
                    size: judging.exam(SIZES[size][0], seed=HELD_OUT, count=count, steps=steps)
                    for size, (_, count, steps) in SIZES.items()
                    if size in JUDGED_ON
                }
                for arm in [arguments.arm] if arguments.arm else arms(kind, arguments.rewards):
                    own = measured(kind, arm, arguments.folder or Path(spare), exams)
                    found.setdefault(kind, {})[arm] = own
                    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
                    advance()
    print(table(found))
    shipped = [own.get(str(SHIPPED[kind])) for kind, own in found.items()]
    return 0 if all(keeps(own["lines"]) for own in shipped if own) else 1


if __name__ == "__main__":
    sys.exit(main())
