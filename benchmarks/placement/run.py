# SPDX-License-Identifier: Apache-2.0
"""Placement's promises in full: ``python -m benchmarks.placement.run``.

Judges policies on held-out courses at four sizes, compares 500 and 5,000 nodes with the sizes they
were trained on, puts the same lines to 200 random networks and to two trained on shuffled rewards,
and measures the gap to the exact optimum and the gain on the pods of a real cluster. Judged are the
shipped policies, five freshly trained seeds each (``--train``), or the seeds of earlier trainings
(``--seeds-from``). What was judged replaces the same part of results.json, with its own date: the
shipped policies never replace five seeds. Prints the tables and ends with 1 when a line fails. All
of it is simulated.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pilothouse import policy as policies
from pilothouse.cli.output import progress
from pilothouse.learn.placement import judging, references
from pilothouse.learn.placement.chooser import HEURISTICS, Learned
from pilothouse.learn.placement.course import Family, PodSizes, draw
from pilothouse.learn.placement.playing import play
from pilothouse.learn.placement.presets import FAST
from pilothouse.policy import shipped

RESULTS = Path(__file__).with_name("results.json")
HELD_OUT = 500_000
# label: nodes, courses, pods
SIZES = {
    "3": ((3, 3), 48, 30),
    "6-32": ((6, 32), 64, 128),
    "500": ((500, 500), 8, 1_500),
    "5000": ((5_000, 5_000), 2, 15_000),
}
TRAINED_ON, BEYOND = ("3", "6-32"), ("500", "5000")
GENERALIZES = 0.05
RANDOM, MOST_RANDOM = 200, 0.02
PARTS = ("lines", "controls", "gap", "openb")
FULL_FORM = ("--parts lines,controls,gap", "--train --parts lines", "--parts openb")


# ---- the lines ----


def judged(task: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Every line of one network (a shipped name or a file) at one size."""
    kind, where, size = task
    given = shipped(kind) if where == kind else policies.read(Path(where))
    nodes, count, steps = SIZES[size]
    exam = judging.exam(nodes, seed=HELD_OUT, count=count, steps=steps)
    lines = judging.judge(kind, Learned(kind, given.network), exam)
    own = {"nodes": size, "seed": given.card.seed, "weights": given.card.weights_sha256[:12]}
    return [own | line.to_json() for line in lines]


def generalized(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How much worse each ratio is beyond 32 nodes than on the sizes trained on, by seed.

    Paired bounds are left out: they have their own bar, and how far a rule can be beaten at all
    depends on the size.
    """
    found = []
    values = {(r["what"], r["seed"], r["nodes"]): r for r in rows if "paired" not in r["what"]}
    for what, seed in sorted({(what, seed) for what, seed, _ in values}):
        small = [values[what, seed, n] for n in TRAINED_ON if (what, seed, n) in values]
        for size in BEYOND:
            if (what, seed, size) not in values or not small:
                continue
            sign = -1 if small[0]["at_least"] else 1
            base = max(sign * row["value"] for row in small)
            worse = (sign * values[what, seed, size]["value"] - base) / abs(base)
            found.append({"what": what, "seed": seed, "nodes": size, "worse": round(worse, 4)})
    return found


def set_of(kind: str, rows: list[dict[str, Any]]) -> str:
    """Under which name lines are kept: one network says less than five seeds."""
    weights = {row["weights"] for row in rows}
    if weights == {own_weights(kind)}:
        return "shipped"
    return f"{len(weights)} seeds" if len(weights) > 1 else "one seed"


def own_weights(kind: str) -> str:
    return shipped(kind).card.weights_sha256[:12]


def lines_part(kind: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The lines of one policy as they are kept."""
    found = _dated({"lines": rows, "beyond": generalized(rows)})
    return {"policies": {kind: {set_of(kind, rows): found}}}


def _dated(found: dict[str, Any]) -> dict[str, Any]:
    return {"date": str(date.today())} | found


def trained(kind: str, folder: Path) -> None:
    """Five seeds by the command's own defaults."""
    from pilothouse.learn.placement import rewards, training

    reward = rewards.named(rewards.OF_POLICY[kind])
    training.train(kind, training.sized(kind, FAST), reward, seeds=range(1, 6), out=folder / kind)


def networks(kind: str, folder: Path | None) -> list[str]:
    """What to judge, by name or file."""
    if folder is None:
        return [kind]
    return sorted(str(path) for path in (folder / kind).glob(f"{kind}-seed*.json"))


# ---- the controls ----


def controls(kind: str) -> dict[str, Any]:
    """How many of 200 random networks pass, and whether two trained on shuffled rewards do."""
    from pilothouse.learn.placement import rewards, training
    from pilothouse.learn.placement.rewards.shuffled import Shuffled
    from pilothouse.learn.placement.trainer import Trainer

    reward = rewards.named(rewards.OF_POLICY[kind])
    settings = training.sized(kind, FAST)
    exam = judging.exam((3, 8), seed=700_000, count=16, steps=32)

    def passes(trainer: Trainer, index: int) -> bool:
        lines = judging.judge(kind, Learned("control", trainer.network(index)), exam)
        return all(line.holds for line in lines)

    fresh = Trainer(settings, reward, range(1_000, 1_000 + RANDOM))
    shuffled = Trainer(settings, Shuffled(reward), (1, 2))
    for _ in shuffled.run():
        pass
    return {
        "random networks that pass": sum(passes(fresh, k) for k in range(RANDOM)),
        "random networks": RANDOM,
        "trained on shuffled rewards and pass": sum(passes(shuffled, k) for k in (0, 1)),
    }


# ---- references ----


def gap_to_the_optimum() -> dict[str, Any]:
    """EE and its rules over the clairvoyant fewest: HiGHS up to 8 nodes, the volume bound above."""
    courses = draw(Family(nodes=(4, 8), steps=36, churn=0.0), seed=HELD_OUT, count=24)
    fewest = [references.fewest_mixed(courses, row) for row in range(courses.count)]
    solved = np.array([row for row, answer in enumerate(fewest) if answer is not None])
    best = np.array([fewest[row] for row in solved.tolist()], np.float64)
    nodes, count, steps = SIZES["6-32"]
    exam = judging.exam(nodes, seed=HELD_OUT, count=count, steps=steps)
    arms: dict[str, Any] = {name: HEURISTICS[name] for name in ("best-fit", "used-first")}
    arms["ee"] = Learned("ee", shipped("ee").network)
    return {
        "courses solved exactly": len(solved),
        "used nodes at the end over the fewest, 4-8 nodes": {
            name: float(play(courses, arm).active[-1, solved].sum() / best.sum())
            for name, arm in arms.items()
        },
        "used nodes over the volume bound, 6-32 nodes": {
            name: float(play(exam.mixed, arm).mean_active().sum() / exam.bound.sum())
            for name, arm in arms.items()
        },
    }


def openb_pods(folder: Path) -> PodSizes:
    """Sizes and lifetimes of the pods of openb, in order of arrival."""
    import polars as pl

    pods = pl.read_csv(folder / "openb" / "openb_pod_list_default.csv.gz").sort("creation_time")
    life = (pods["deletion_time"] - pods["creation_time"]).fill_null(0).to_numpy()
    keep = life > 0
    return PodSizes(
        cpu=pods["cpu_milli"].to_numpy()[keep].astype(np.float64),
        memory=pods["memory_mib"].to_numpy()[keep].astype(np.float64),
        lifetime=life[keep].astype(np.float64),
        name="openb",
    )


def looking_ahead(folder: Path) -> dict[str, Any]:
    """EE and EL-RL against their rules on openb's pods: where the learned one is ahead."""
    family = Family(nodes=(16, 32), steps=256, churn=1.0, cores=(32, 64, 96))
    courses = draw(family, seed=HELD_OUT, count=48, real=openb_pods(folder))
    rules = {
        "ee": ("best-fit", "most-allocated", "used-first"),
        "el-rl": ("heuristic", "near-used-first"),
    }
    found: dict[str, Any] = {}
    for kind, names in rules.items():
        own = play(courses, Learned(kind, shipped(kind).network))
        for name in names:
            other = play(courses, HEURISTICS[name])
            found[f"{kind} over {name}"] = {
                "used nodes": float(own.mean_active().sum() / other.mean_active().sum()),
                "paired 95 % bound": judging.paired_bound(own.mean_active(), other.mean_active()),
                "modelled watts": float(own.watts.mean() / other.watts.mean()),
            }
    return found


# ---- together ----


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=judging.KINDS, help="one policy")
    parser.add_argument("--train", action="store_true", help="train five seeds each first")
    parser.add_argument("--seeds-from", type=Path, help="folder of trainings: DIR/ee, DIR/lb, ...")
    parser.add_argument("--small", action="store_true", help="3 to 32 nodes; writes nothing")
    parser.add_argument("--parts", help="some of " + ", ".join(PARTS) + "; all that can be if none")
    parser.add_argument("--data", type=Path, default=os.environ.get("PILOTHOUSE_DATA"))
    parser.add_argument("--jobs", type=int, default=1, help="networks judged side by side")
    parser.add_argument("--show", action="store_true", help="only print results.json")
    arguments = parser.parse_args()
    arguments.parts = asked(arguments, parser)
    results: dict[str, Any] = {"simulated": True, "policies": {}}
    if RESULTS.exists():
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
    if not arguments.show:
        with TemporaryDirectory() as folder:
            for part in measured(arguments, Path(folder)):
                _merge(results, part)
        if not arguments.small:
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return show(results)


def asked(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> tuple[str, ...]:
    """The parts to judge; openb's pods are left out without their data, unless asked for."""
    if arguments.parts is None:
        return tuple(part for part in PARTS if part != "openb" or arguments.data)
    parts = tuple(arguments.parts.split(","))
    if unknown := sorted(set(parts) - set(PARTS)):
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if "openb" in parts and arguments.data is None:
        parser.error("openb's pods are not here: set PILOTHOUSE_DATA or give --data FOLDER")
    return parts


def measured(arguments: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Each part of the results as it is done."""
    kinds = (arguments.only,) if arguments.only else judging.KINDS
    parts = arguments.parts
    sizes = [size for size in SIZES if not (arguments.small and size in BEYOND)]
    source = folder if arguments.train else arguments.seeds_from
    context = get_context("spawn")
    with progress("Placement", total=None) as advance:
        if arguments.train:
            for kind in kinds:
                trained(kind, folder)
                advance()
        with ProcessPoolExecutor(arguments.jobs, mp_context=context) as pool:
            if "lines" in parts:
                tasks = [
                    (kind, where, size)
                    for size, kind in product(reversed(sizes), kinds)  # the longest first
                    for where in networks(kind, source)
                ]
                lines: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
                for (kind, _, _), rows in zip(tasks, pool.map(judged, tasks), strict=True):
                    lines[kind] += rows
                    advance()
                for kind, rows in lines.items():
                    yield lines_part(kind, rows)
            if "controls" in parts:
                for kind, found in zip(kinds, pool.map(controls, kinds), strict=True):
                    yield {"policies": {kind: {"controls": _dated(found)}}}
                    advance()
        if "gap" in parts and "ee" in kinds:
            yield {"gap to the optimum": _dated(gap_to_the_optimum())}
        if "openb" in parts:
            yield {"openb": _dated(looking_ahead(arguments.data))}


def _merge(into: dict[str, Any], part: dict[str, Any]) -> None:
    for key, value in part.items():
        if key in ("policies", *judging.KINDS):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def show(results: dict[str, Any]) -> int:
    """Print the tables; 1 when a median, a shipped policy's line or a control fails."""
    found = results["policies"]
    failed = 0
    for name in sorted({key for kept in found.values() for key in kept} - {"controls"}):
        own = {kind: kept[name] for kind, kept in found.items() if name in kept}
        failed += _show_set(name, own)
    failed += sum(_show_controls(kind, found[kind].get("controls")) for kind in found)
    for part in ("gap to the optimum", "openb"):
        if part in results:
            print(f"{part}: {json.dumps(results[part], indent=1)}")
    print(f"{failed} lines fail")
    return 1 if failed else 0


def _show_set(name: str, judged: dict[str, dict[str, Any]]) -> int:
    """The lines of the shipped policies, or of some seeds of each."""
    print(name + ": " + ", ".join(f"{kind} judged {own['date']}" for kind, own in judged.items()))
    print("| line | bound | " + " | ".join(f"{size} nodes" for size in SIZES) + " |")
    print("|---|--:|" + "--:|" * len(SIZES))
    failed = sum(_show_lines(kind, own["lines"]) for kind, own in judged.items())
    return failed + sum(_show_beyond(kind, own["beyond"]) for kind, own in judged.items())


def _show_beyond(kind: str, rows: list[dict[str, Any]]) -> int:
    """The ratio that suffers most of each seed, at each size beyond those trained on."""
    failed = 0
    for size in dict.fromkeys(row["nodes"] for row in rows):
        at = [row for row in rows if row["nodes"] == size]
        seeds = sorted({row["seed"] for row in at})
        worst = [max(row["worse"] for row in at if row["seed"] == seed) for seed in seeds]
        failed += median(worst) > GENERALIZES
        print(
            f"{kind}: at {size} nodes {100 * median(worst):.1f} % worse than on the sizes trained "
            f"on (median of {len(seeds)} seeds; worst {100 * max(worst):.1f} %)"
        )
    return failed


def _show_controls(kind: str, told: dict[str, Any] | None) -> int:
    if told is None:
        return 0
    print(f"{kind}: controls {json.dumps(told)}")
    many = told["random networks that pass"] > MOST_RANDOM * told["random networks"]
    return int(many) + int(told["trained on shuffled rewards and pass"] > 0)


def _show_lines(kind: str, rows: list[dict[str, Any]]) -> int:
    """One row of the table per line: median (worst) of the seeds, and the shipped one's."""
    failed, own = 0, own_weights(kind)
    for what in dict.fromkeys(row["what"] for row in rows):
        cells = []
        for size in SIZES:
            at = [row for row in rows if row["what"] == what and row["nodes"] == size]
            if not at:
                cells.append("")
                continue
            line = at[0]
            values = sorted((row["value"] for row in at), reverse=line["at_least"])
            middle, worst = median(values), values[-1]
            bad = middle < line["bound"] if line["at_least"] else middle > line["bound"]
            mine = [row for row in at if row["weights"] == own]
            bad = bad or any(not row["holds"] for row in mine)
            failed += bad
            told = f", shipped {mine[0]['value']:.3f}" if mine and len(at) > 1 else ""
            told += "; no bound" if "no bound" in line else ""
            cells.append(f"{middle:.3f} ({worst:.3f}{told}){' FAILS' if bad else ''}")
        bound = next(row["bound"] for row in rows if row["what"] == what)
        print(f"| {kind}: {what} | {bound} | " + " | ".join(cells) + " |")
    return failed


if __name__ == "__main__":
    sys.exit(main())
