# SPDX-License-Identifier: Apache-2.0
"""Placement's promises in full: ``python -m benchmarks.placement.run``.

Judges policies on held-out courses at four sizes, with the three-line heuristic and the best rule
beside them, compares 500 and 5,000 nodes with the sizes they were trained on, puts the same lines
to 200 random networks, to rules that look at a single feature and to two networks trained on
shuffled rewards, and measures the gap to the exact optimum, the distance to each rule, and the same
on the pods of a real cluster. Judged are the shipped policies, five freshly trained seeds each
(``--train``), or the seeds of earlier trainings (``--seeds-from``). What was judged replaces the
same figures of results.json, each with its own date: the shipped policies never replace five seeds.
Prints the tables and ends with 1 when a line fails. All of it is simulated.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.placement import tables
from benchmarks.placement.plays import (
    BEYOND,
    COMPARED,
    HELD_OUT,
    SIZES,
    TRAINED_ON,
    Arm,
    Task,
    beside,
    clusters_of,
    exam_of,
    played,
    tasks_of,
)
from pilothouse.cli.output import progress
from pilothouse.learn.placement import judging, references
from pilothouse.learn.placement.chooser import HEURISTICS, SINGLE_FEATURES, Learned
from pilothouse.learn.placement.course import Courses, Family, PodSizes, draw
from pilothouse.learn.placement.judging import Marks
from pilothouse.learn.placement.playing import play
from pilothouse.learn.placement.presets import FAST
from pilothouse.policy import shipped
from pilothouse.policy.network import Network

RESULTS = Path(__file__).with_name("results.json")
RANDOM = 200
PARTS = ("lines", "controls", "shuffled", "gap", "rules", "openb")
FULL_FORM = (
    "--train --parts lines,controls,shuffled",
    "--parts lines,gap,rules",
    "--parts openb",
)
CONTROLS_ON = "6-32"  # the very exam that the policies pass
Rows = list[dict[str, Any]]


# ---- the lines ----


def judged(kind: str, arm: Arm, size: str, known: dict[Task, Marks]) -> Rows:
    """Every line of one arm at one size, from the marks; none where a play is missing."""
    clusters = clusters_of(kind, size)
    exam = exam_of(size, clusters)
    exam.known = {
        (t.part, t.arm.name): marks
        for t, marks in known.items()
        if (t.size, t.clusters) == (size, clusters)
    }
    needed = [(part, arm.name) for part in judging.PARTS_OF[kind]]
    needed += [("mixed", rule) for rule in COMPARED[kind]]
    if any(one not in exam.known for one in needed):
        return []
    own: dict[str, Any] = {"nodes": size, "clusters": clusters, "date": str(date.today())}
    if arm.is_rule:
        own["rule"] = arm.name
    else:
        own |= {"seed": arm.policy().card.seed, "weights": arm.name}
    return [own | line.to_json() for line in judging.judge(kind, arm.chooser(), exam)]


def generalized(rows: Rows) -> Rows:
    """How each line changes beyond 32 nodes, by seed, and whether it holds what is asked there.

    No figure may be 5 % worse than at the worst of the sizes trained on; of a paired line that is
    its plain ratio. What is "no worse" than a rule has to be that at every size as well, and pods
    have to find their node.
    """
    found = []
    values = {(r["what"], r["seed"], r["nodes"]): r for r in rows}
    for what, seed in dict.fromkeys((r["what"], r["seed"]) for r in rows):
        small = [values[what, seed, n] for n in TRAINED_ON if (what, seed, n) in values]
        for size in BEYOND:
            row = values.get((what, seed, size))
            if row is None or not small:
                continue
            change: dict[str, Any] = {"what": what, "seed": seed, "nodes": size}
            held = row["holds"] or not ("paired" in what or row.get("guard"))
            if not row.get("guard"):
                change["worse"] = round(_worse(row, small), 4)
                held = held and change["worse"] <= tables.GENERALIZES
            found.append(change | {"holds": held})
    return found


def _worse(row: dict[str, Any], small: Rows) -> float:
    def figure(of: dict[str, Any]) -> float:
        value: float = of["ratio"][0] if "ratio" in of else of["value"]
        return -value if of["at_least"] else value

    base = max(map(figure, small))
    return (figure(row) - base) / abs(base)


def set_of(kind: str, weights: set[str]) -> str:
    """Under which name lines are kept: one network says less than five seeds."""
    if weights == {tables.own_weights(kind)}:
        return "shipped"
    return f"{len(weights)} seeds" if len(weights) > 1 else "one seed"


def lines_part(kind: str, rows: Rows, kept: dict[str, Any], weights: set[str]) -> dict[str, Any]:
    """The lines of one policy as they are kept: new rows, and those of other sizes."""
    name = set_of(kind, weights)
    before = kept.get("policies", {}).get(kind, {}).get(name, {}).get("lines", [])
    new = {(row["nodes"], row["weights"]) for row in rows}
    rest = [r for r in _still_said(kind, before) if r["weights"] in weights]
    rest = [r for r in rest if (r["nodes"], r["weights"]) not in new]
    both = sorted(rest + rows, key=lambda row: (list(SIZES).index(row["nodes"]), row["seed"]))
    return {"policies": {kind: {name: _dated({"lines": both, "beyond": generalized(both)})}}}


def rules_part(kind: str, rows: Rows, kept: dict[str, Any]) -> dict[str, Any]:
    """The same figures of rules."""
    before = kept.get("policies", {}).get(kind, {}).get("rules", {}).get("lines", [])
    new = {row["nodes"] for row in rows}
    both = [row for row in _still_said(kind, before) if row["nodes"] not in new] + rows
    both.sort(key=lambda row: list(SIZES).index(row["nodes"]))
    return {"policies": {kind: {"rules": _dated({"lines": both})}}}


def _still_said(kind: str, rows: Rows) -> Rows:
    """Rows of as many clusters as are played now."""
    return [row for row in rows if row.get("clusters") == clusters_of(kind, row["nodes"])]


def _dated(found: dict[str, Any]) -> dict[str, Any]:
    return {"date": str(date.today())} | found


def trained(kind: str, folder: Path) -> None:
    """Five seeds by the command's own defaults."""
    from pilothouse.learn.placement import rewards, training

    reward = rewards.named(rewards.OF_POLICY[kind])
    training.train(kind, training.sized(kind, FAST), reward, seeds=range(1, 6), out=folder / kind)


def networks(kind: str, folder: Path | None) -> list[Arm]:
    """What to judge, the shipped one first."""
    if folder is None:
        return [Arm(kind)]
    found = [Arm(str(path)) for path in sorted((folder / kind).glob(f"{kind}-seed*.json"))]
    own = tables.own_weights(kind)
    return sorted(found, key=lambda arm: arm.name != own)


# ---- the controls ----


def passes(kind: str, network: Network) -> bool:
    chooser = Learned("control", network)
    return all(line.holds for line in judging.judge(kind, chooser, exam_of(CONTROLS_ON)))


def controls(task: tuple[str, list[Arm]]) -> dict[str, Any]:
    """Who passes one exam: the policies, random networks, rules that look at one feature."""
    from pilothouse.learn.placement import rewards, training
    from pilothouse.learn.placement.trainer import Trainer

    kind, arms = task
    reward = rewards.named(rewards.OF_POLICY[kind])
    fresh = Trainer(training.sized(kind, FAST), reward, range(1_000, 1_000 + RANDOM))
    exam = exam_of(CONTROLS_ON)
    single = {
        name: [line for line in judging.judge(kind, rule, exam) if not line.holds]
        for name, rule in SINGLE_FEATURES.items()
    }
    return {
        "nodes": CONTROLS_ON,
        "clusters": exam.mixed.count,
        "policies": len(arms),
        "policies that pass": sum(passes(kind, arm.policy().network) for arm in arms),
        "random networks": RANDOM,
        "random networks that pass": sum(passes(kind, fresh.network(k)) for k in range(RANDOM)),
        "rules of one feature": len(single),
        "rules of one feature that pass": [name for name, broken in single.items() if not broken],
    }


def shuffled(kind: str) -> dict[str, Any]:
    """Two networks trained as the shipped ones are, on rewards that mean nothing."""
    from pilothouse.learn.placement import rewards, training
    from pilothouse.learn.placement.rewards.shuffled import Shuffled
    from pilothouse.learn.placement.trainer import Trainer

    reward = Shuffled(rewards.named(rewards.OF_POLICY[kind]))
    trainer = Trainer(training.sized(kind, FAST), reward, (1, 2))
    for _ in trainer.run():
        pass
    return {
        "nodes": CONTROLS_ON,
        "clusters": SIZES[CONTROLS_ON][1],
        "trained on shuffled rewards": 2,
        "trained on shuffled rewards and pass": sum(
            passes(kind, trainer.network(k)) for k in (0, 1)
        ),
    }


# ---- references ----


def gap_to_the_optimum() -> dict[str, Any]:
    """EE and its rules over the clairvoyant fewest: HiGHS up to 8 nodes, the volume bound above."""
    courses = draw(Family(nodes=(4, 8), steps=36, churn=0.0), seed=HELD_OUT, count=24)
    fewest = [references.fewest_mixed(courses, row) for row in range(courses.count)]
    solved = np.array([row for row, answer in enumerate(fewest) if answer is not None])
    best = np.array([fewest[row] for row in solved.tolist()], np.float64)
    exam = exam_of("6-32")
    arms: dict[str, Any] = {name: HEURISTICS[name] for name in judging.PACKERS}
    arms["ee"] = Learned("ee", shipped("ee").network)
    return {
        "courses solved exactly": len(solved),
        "used nodes at the end over the fewest, 4-8 nodes": {
            name: float(play(courses, arm).active[-1, solved].sum() / best.sum())
            for name, arm in arms.items()
        },
        "used nodes over the volume bound, 6-32 nodes": {
            name: float(exam.marks("mixed", arm).active.sum() / exam.bound.sum())
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


def openb_courses(folder: Path) -> Courses:
    """Where looking ahead could pay: sizes and lifetimes that nobody drew."""
    family = Family(nodes=(16, 32), steps=256, churn=1.0, cores=(32, 64, 96))
    return draw(family, seed=HELD_OUT, count=48, real=openb_pods(folder))


def against_rules(courses: Courses) -> dict[str, Any]:
    """The shipped policies against the rules one by one: where the learned one is ahead."""
    rules = {
        "ee": ("best-fit", "most-allocated", "used-first"),
        "lb": ("least-allocated", "evenest"),
        "el-rl": ("heuristic", "near-used-first"),
    }
    found: dict[str, Any] = {}
    for kind, names in rules.items():
        own = play(courses, Learned(kind, shipped(kind).network))
        for name in names:
            other = play(courses, HEURISTICS[name])
            used = judging.compared(own.mean_active(), other.mean_active())
            spread = judging.compared(own.mean_spread(), other.mean_spread())
            found[f"{kind} over {name}"] = {
                "used nodes, with 95 % interval": [round(x, 4) for x in used],
                "max-min load share, with 95 % interval": [round(x, 4) for x in spread],
                "pods that fitted nowhere, own and the rule's share": [
                    round(float(np.nanmean(arm.hopeless)), 4) for arm in (own, other)
                ],
                "modelled watts": round(float(np.nanmean(own.watts) / np.nanmean(other.watts)), 4),
            }
    return found


# ---- together ----


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=judging.KINDS, help="one policy")
    parser.add_argument("--train", action="store_true", help="train five seeds each first")
    parser.add_argument("--seeds-from", type=Path, help="folder of trainings: DIR/ee, DIR/lb, ...")
    parser.add_argument("--sizes", default=",".join(SIZES), help="some of " + ", ".join(SIZES))
    parser.add_argument("--small", action="store_true", help="3 to 32 nodes; writes nothing")
    parser.add_argument("--parts", help="some of " + ", ".join(PARTS) + "; all that can be if none")
    parser.add_argument("--data", type=Path, default=os.environ.get("PILOTHOUSE_DATA"))
    parser.add_argument("--jobs", type=int, default=1, help="plays side by side")
    parser.add_argument("--keep", type=Path, help="folder of plays: one that was stopped goes on")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no play after so long")
    parser.add_argument("--show", action="store_true", help="only print results.json")
    arguments = parser.parse_args()
    arguments.parts = asked(arguments, parser)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of the plays; more only get in the way
    results: dict[str, Any] = {"simulated": True, "policies": {}}
    if RESULTS.exists():
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
    if not arguments.show:
        with TemporaryDirectory() as folder:
            for part in measured(arguments, Path(folder), results):
                _merge(results, part)
                if not arguments.small:
                    RESULTS.write_text(tables.text_of(results) + "\n", encoding="utf-8")
    failed = tables.show(results)
    for what in () if arguments.small else tables.missing(results):
        print(f"not measured: {what}")
        failed = 1
    return failed


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


def measured(
    arguments: argparse.Namespace, folder: Path, kept: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Each part of the results as it is done."""
    kinds = (arguments.only,) if arguments.only else judging.KINDS
    parts = arguments.parts
    source = folder if arguments.train else arguments.seeds_from
    with (
        progress("Placement", total=None) as advance,
        ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool,
    ):
        if arguments.train:
            for kind in kinds:
                trained(kind, folder)
                advance()
        arms = {kind: networks(kind, source) for kind in kinds}
        if "lines" in parts:
            sizes = [
                s for s in arguments.sizes.split(",") if s in TRAINED_ON or not arguments.small
            ]
            keep: Path = arguments.keep or folder
            keep.mkdir(parents=True, exist_ok=True)
            until = time.time() + 60 * arguments.minutes
            tasks = tasks_of(sizes, arms, keep=keep, until=until)
            known = {}
            for task, marks in zip(tasks, pool.map(played, tasks), strict=True):
                known |= {task: marks} if marks else {}
                advance()
            yield from _lines_parts(arms, sizes, known, kept)
        if "controls" in parts:
            for kind, found in zip(kinds, pool.map(controls, arms.items()), strict=True):
                yield {"policies": {kind: {"controls": _dated(found)}}}
                advance()
        if "shuffled" in parts:
            for kind, found in zip(kinds, pool.map(shuffled, kinds), strict=True):
                yield {"policies": {kind: {"shuffled": _dated(found)}}}
                advance()
        if "gap" in parts and "ee" in kinds:
            yield {"gap to the optimum": _dated(gap_to_the_optimum())}
        if "rules" in parts:
            yield {"against rules, 6-32 nodes": _dated(against_rules(exam_of("6-32").mixed))}
        if "openb" in parts:
            yield {"openb": _dated(against_rules(openb_courses(arguments.data)))}


def _lines_parts(
    arms: dict[str, list[Arm]], sizes: list[str], known: dict[Task, Marks], kept: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Judge all that was played."""
    lines: dict[str, Rows] = {kind: [] for kind in arms}
    rules: dict[str, Rows] = {kind: [] for kind in arms}
    for size in sizes:
        for kind, own in arms.items():
            for arm in own:
                lines[kind] += judged(kind, arm, size, known)
            for name in beside(kind):
                rules[kind] += judged(kind, Arm(name), size, known)
    for kind, own in arms.items():
        yield lines_part(kind, lines[kind], kept, {arm.name for arm in own})
        yield rules_part(kind, rules[kind], kept)


def _merge(into: dict[str, Any], part: dict[str, Any]) -> None:
    for key, value in part.items():
        if key in ("policies", *judging.KINDS):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


if __name__ == "__main__":
    sys.exit(main())
