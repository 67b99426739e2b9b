# SPDX-License-Identifier: Apache-2.0
"""Throughput of the learned scheduler against the stock one, on a real API server with fake nodes.

Run as root from the repository root: ``python -m benchmarks.scheduling.run``. Pods are created
first and the scheduler is started after, so that only scheduling is measured. The arms alternate;
ratios are to the stock runs of the same turn. Exits non-zero when a bound is missed; beyond 1,000
nodes only a pod that failed and a panic count, and the rest is reported.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.scheduling import measure
from benchmarks.scheduling.arms import ARMS, BROKEN
from benchmarks.scheduling.summary import means, missed, summarize, table, too_wide
from pilothouse.home import home
from pilothouse.lab import Lab, Wish

HERE = Path(__file__).parent
WARM_UP_PODS = 2000
# Longer than a turn: nobody renews them. At the usual 40 seconds all nodes do so at once, every ten
# seconds, and halve what everybody else gets done for five of them.
LEASE_SECONDS = 7200
MUST_HOLD_NODES = 1000  # cost is held to its bounds up to here, and beyond reported
USUAL_ARMS = ("stock", "plugin", "ee", "lb", "hybrid", *BROKEN)  # those that the README shows
FULL_FORM = (
    "",
    "--arms stock,extender --runs 2 --pods 300 --out benchmarks/scheduling/extender.json",
    "--arms stock,plugin --nodes 5000 --runs 3 --most-runs 3 "
    "--out benchmarks/scheduling/nodes-5000.json",
)


def main() -> int:
    arguments = _arguments()
    arms = arguments.arms.split(",")
    lab = Lab(home() / "lab")
    wish = Wish(
        workers=0,
        fake_nodes=arguments.nodes,
        fake_lease_seconds=LEASE_SECONDS,
        scheduler="pilothouse",
        policy=arguments.policy,
        profile="el-rl",
    )
    if arguments.show:
        content = json.loads(arguments.out.read_text())
        arms, runs = content["arms"], content["runs"]
    else:
        runs = _alternate(lab, wish, arms, arguments)
    summary = {arm: summarize(arm, runs) for arm in arms}
    print(table(summary) + "\n\n" + means(summary))
    reported = arguments.nodes > MUST_HOLD_NODES
    failed = [text for arm in arms for text in missed(arm, summary[arm], reported=reported)]
    for text in failed:
        print(f"missed: {text}")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=8, help="of each arm, at least")
    parser.add_argument("--most-runs", type=int, default=16, help="while an interval is too wide")
    usual = ",".join(USUAL_ARMS)
    parser.add_argument("--arms", default=usual, help=f"of {', '.join(ARMS)}")
    parser.add_argument("--percentage", type=int, default=100, help="of nodes to score, all arms")
    parser.add_argument("--policy", default="el-rl", help="a policy's name or file")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    parser.add_argument("--resume", action="store_true", help="add turns to those in --out")
    parser.add_argument("--show", action="store_true", help="only what is in --out")
    return parser.parse_args()


def _alternate(
    lab: Lab, wish: Wish, arms: list[str], arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    runs = _runs_before(arguments) if arguments.resume else []
    done = 1 + max((run["turn"] for run in runs), default=-1)
    for turn in range(done, max(arguments.runs, arguments.most_runs)):
        now = arms if turn < arguments.runs else not_known(arms, runs)
        if not now:
            break
        runs += _turn(lab, wish, in_turn(now, turn), turn, arguments)
        _write(arguments, runs, {arm: summarize(arm, runs) for arm in arms})
    return runs


def _runs_before(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Those of a file that was measured in the same way."""
    content = json.loads(arguments.out.read_text())
    way = _way(arguments)
    was = {key: content.get(key) for key in way}
    if was != way:
        raise SystemExit(
            f"{arguments.out} was measured in another way: {was}, not {way}. "
            "Give the same options, or another --out without --resume."
        )
    runs: list[dict[str, Any]] = content["runs"]
    return runs


def in_turn(arms: list[str], turn: int) -> list[str]:
    """Forth and back, and the stock scheduler at both ends: whatever drifts falls on all alike."""
    others = [arm for arm in arms if arm != "stock"]
    ends = ["stock"] * ("stock" in arms)
    return [*ends, *(others if turn % 2 == 0 else others[::-1]), *ends]


def _turn(
    lab: Lab, wish: Wish, arms: list[str], turn: int, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Every arm once, on a cluster of its own for the turn."""
    runs = []
    try:
        lab.up(wish, say=lambda text: print(f"lab: {text}", file=sys.stderr))
        measure.prepare(lab)
        # Nobody's: a server that has just started answers slowly.
        same = {"turn": turn, "percentage": arguments.percentage}
        measure.run(lab, "stock", 0, pods=WARM_UP_PODS, **same)
        for number, arm in enumerate(arms, start=1):
            found = measure.run(lab, arm, number, pods=arguments.pods, **same)
            runs.append(found | {"nodes": arguments.nodes})
            print(
                f"run {turn + 1} {arm}: {found['pods_per_second']:.0f} pods/s, "
                f"{1000 * found['cpu_seconds_per_pod']:.2f} ms CPU per pod, "
                f"{found['cycle_ms']:.2f} ms per cycle, {found['paths']}",
                file=sys.stderr,
            )
    finally:
        lab.down()
    return runs


def not_known(arms: list[str], runs: list[dict[str, Any]]) -> list[str]:
    """The arms that are held to a throughput and not known well enough yet, and stock."""
    held = [arm for arm in arms if arm in ("plugin", *BROKEN)]
    wide = [arm for arm in held if too_wide(summarize(arm, runs)) is not None]
    return [*["stock"] * ("stock" in arms), *wide] if wide else []


def _write(arguments: argparse.Namespace, runs: list[Any], summary: dict[str, Any]) -> None:
    content = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
        "load_average": os.getloadavg(),
        **_way(arguments),
        "summary": summary,
        "runs": runs,
    }
    arguments.out.write_text(json.dumps(content, indent=1) + "\n")


def _way(arguments: argparse.Namespace) -> dict[str, Any]:
    """What runs must have in common to be taken together."""
    return {
        "arms": arguments.arms.split(","),
        "nodes": arguments.nodes,
        "pods": arguments.pods,
        "percentage_of_nodes_to_score": arguments.percentage,
        "policy": arguments.policy,
        "stock_runs_in_a_turn": 2,
        "warm_up_pods": WARM_UP_PODS,
        "lease_seconds": LEASE_SECONDS,
        "pods_are_started": False,
    }


if __name__ == "__main__":
    sys.exit(main())
