# SPDX-License-Identifier: Apache-2.0
"""Placement's promises in full: ``python -m benchmarks.placement.run [--train] [--only ee]``.

Judges the shipped policies (or, with ``--train``, five freshly trained seeds each) on held-out
courses at four sizes, puts the same lines to 200 random networks and to one trained on shuffled
rewards, and measures the gap to the exact optimum. Writes results.json and prints the tables. All
of it is simulated.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from pilothouse.cli.output import progress
from pilothouse.learn.placement import judging, references, rewards, training
from pilothouse.learn.placement.chooser import HEURISTICS, Learned
from pilothouse.learn.placement.course import Family, PodSizes, draw
from pilothouse.learn.placement.playing import play
from pilothouse.learn.placement.rewards.shuffled import Shuffled
from pilothouse.learn.placement.trainer import FAST, Trainer
from pilothouse.policy import Network, shipped

HERE = Path(__file__).parent
HELD_OUT = 500_000
# nodes, courses, pods
SIZES = (((3, 3), 48, 30), ((6, 32), 64, 128), ((500, 500), 4, 1_500), ((5_000, 5_000), 2, 15_000))
RANDOM = 200


def judged(policy: str, networks: dict[int, Network], sizes: Any) -> list[dict[str, Any]]:
    """Every line of every network at every size."""
    rows = []
    for nodes, count, steps in sizes:
        exam = judging.exam(nodes, seed=HELD_OUT, count=count, steps=steps)
        for seed, network in networks.items():
            for line in judging.judge(policy, Learned(policy, network), exam):
                rows.append({"nodes": f"{nodes[0]}-{nodes[1]}", "seed": seed} | line.to_json())
    return rows


def controls(policy: str) -> dict[str, Any]:
    """How many of 200 random networks pass, and whether two trained on shuffled rewards do."""
    reward = rewards.named(rewards.OF_POLICY[policy])
    settings = training.sized(policy, FAST)
    exam = judging.exam((3, 8), seed=700_000, count=16, steps=32)

    def passes(trainer: Trainer, index: int) -> bool:
        lines = judging.judge(policy, Learned("control", trainer.network(index)), exam)
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


def gap_to_the_optimum() -> dict[str, float]:
    """Used nodes at the end over HiGHS's fewest, static mixed pods on up to 8 nodes."""
    courses = draw(Family(nodes=(4, 8), steps=36, churn=0.0), seed=HELD_OUT, count=24)
    fewest = [references.fewest_mixed(courses, row) for row in range(courses.count)]
    solved = np.array([row for row, answer in enumerate(fewest) if answer is not None])
    best = np.array([fewest[row] for row in solved.tolist()], np.float64)
    arms: dict[str, Any] = {name: HEURISTICS[name] for name in ("best-fit", "used-first")}
    arms["ee"] = Learned("ee", shipped("ee").network)
    return {
        name: float(play(courses, arm).active[-1, solved].sum() / best.sum())
        for name, arm in arms.items()
    }


def looking_ahead(folder: Path) -> dict[str, Any]:
    """EE against its heuristics on the sizes and lifetimes of openb, in order of arrival."""
    import polars as pl

    pods = pl.read_csv(folder / "openb" / "openb_pod_list_default.csv.gz").sort("creation_time")
    life = (pods["deletion_time"] - pods["creation_time"]).fill_null(0).to_numpy()
    keep = life > 0
    real = PodSizes(
        cpu=pods["cpu_milli"].to_numpy()[keep].astype(np.float64),
        memory=pods["memory_mib"].to_numpy()[keep].astype(np.float64),
        lifetime=life[keep].astype(np.float64),
        name="openb",
    )
    family = Family(nodes=(16, 32), steps=256, churn=1.0, cores=(32, 64, 96))
    courses = draw(family, seed=HELD_OUT, count=48, real=real)
    own = play(courses, Learned("ee", shipped("ee").network)).mean_active()
    return {
        name: {
            "ee over it": float(own.sum() / play(courses, rule).mean_active().sum()),
            "paired 95 % bound": judging.paired_bound(own, play(courses, rule).mean_active()),
        }
        for name, rule in HEURISTICS.items()
        if name in ("best-fit", "most-allocated", "used-first")
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=judging.KINDS, help="one policy")
    parser.add_argument("--train", action="store_true", help="train five seeds each first")
    parser.add_argument("--small", action="store_true", help="leave out 500 and 5,000 nodes")
    parser.add_argument("--data", type=Path, help="where openb is; its part is left out if none")
    arguments = parser.parse_args()
    kinds = (arguments.only,) if arguments.only else judging.KINDS
    sizes = SIZES[:2] if arguments.small else SIZES
    results: dict[str, Any] = {"date": str(date.today()), "simulated": True, "policies": {}}
    with progress("Placement", total=2 * len(kinds) + 1) as advance:
        for policy in kinds:
            networks = {shipped(policy).card.seed: shipped(policy).network}
            if arguments.train:
                trainer = Trainer(
                    training.sized(policy, FAST),
                    rewards.named(rewards.OF_POLICY[policy]),
                    range(1, 6),
                )
                for _ in trainer.run():
                    pass
                networks = {seed: trainer.network(k) for k, seed in enumerate(trainer.seeds)}
            rows = judged(policy, networks, sizes)
            advance()
            results["policies"][policy] = {"lines": rows, "controls": controls(policy)}
            advance()
        if "ee" in kinds:
            results["gap to the optimum"] = gap_to_the_optimum()
            if arguments.data:
                results["openb"] = looking_ahead(arguments.data)
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    show(results)
    failed = sum(not r["holds"] for p in results["policies"].values() for r in p["lines"])
    return 1 if failed else 0


def show(results: dict[str, Any]) -> None:
    for policy, found in results["policies"].items():
        for row in found["lines"]:
            sign = ">=" if row["at_least"] else "<="
            mark = "holds" if row["holds"] else "FAILS"
            print(
                f"{mark}  {policy:<6} seed {row['seed']}  {row['nodes']:>9} nodes  "
                f"{row['what']}: {row['value']} ({sign} {row['bound']})"
            )
        print(f"       {policy:<6} controls: {found['controls']}")
    for part in ("gap to the optimum", "openb"):
        if part in results:
            print(f"{part}: {json.dumps(results[part])}")


if __name__ == "__main__":
    sys.exit(main())
