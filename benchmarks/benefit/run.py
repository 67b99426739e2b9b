# SPDX-License-Identifier: Apache-2.0
"""Does doing something beat doing nothing? And is it more than luck?

Run from the repository root: ``python -m benchmarks.benefit.run``. Three arms (nothing, pilothouse,
random) play every scenario under the same seeds, with stimuli drawn from the held-out ranges.
Writes ``results.json``, ``benefit.png`` and the table in ``README.md`` beside this file, and exits
non-zero when a claim does not hold. Tuning is done with ``--ranges tuning --first-seed 1000``,
which prints and writes nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from benchmarks.benefit.arm import ARMS, Job, Run, run
from benchmarks.benefit.claims import Claim, claims
from benchmarks.benefit.comparison import Comparison, compare
from benchmarks.benefit.report import table, write_table
from pilothouse.scenarios import FOR_FORECASTS, names

HERE = Path(__file__).parent


def main() -> None:
    """Run, compare, write."""
    arguments = _arguments()
    jobs = [
        Job(scenario=s, seed=seed, arm=arm, ranges=arguments.ranges, cycles=arguments.cycles)
        for s in arguments.scenarios
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds)
        for arm in ARMS
    ]
    runs = play(jobs, processes=arguments.processes)
    comparisons = {
        "pilothouse": compare(runs, "pilothouse"),
        "random": compare(runs, "random"),
        "pilothouse against random": compare(runs, "pilothouse", "random"),
    }
    held = claims(comparisons["pilothouse"], comparisons["pilothouse against random"])
    text = table(comparisons["pilothouse"], comparisons["random"], held)
    print(text)
    if arguments.ranges == "held-out" and not arguments.print_only:
        _write(arguments, runs, comparisons, held, text)
    sys.exit(0 if all(claim.holds for claim in held) else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--cycles", type=int, default=160)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--ranges", choices=("held-out", "tuning"), default="held-out")
    parser.add_argument("--print-only", action="store_true", help="leave the files alone")
    ordinary = [name for name in names() if name not in FOR_FORECASTS]
    parser.add_argument("--scenarios", nargs="+", default=ordinary, choices=names())
    return parser.parse_args()


def play(jobs: Sequence[Job], *, processes: int) -> list[Run]:
    """Run every job, in no particular order; the result is in the order of the jobs."""
    bar = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    context = multiprocessing.get_context("spawn")
    with (
        Progress("arms", *bar, console=Console(stderr=True)) as progress,
        context.Pool(processes) as pool,
    ):
        return list(progress.track(pool.imap(run, jobs), total=len(jobs)))


def _write(
    arguments: argparse.Namespace,
    runs: Sequence[Run],
    comparisons: dict[str, Comparison],
    held: Sequence[Claim],
    text: str,
) -> None:
    from benchmarks.benefit.plot import draw  # matplotlib is slow to load and only needed here

    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    actions: dict[str, Counter[str]] = {}
    for each in runs:
        actions.setdefault(each.job.arm, Counter()).update(each.actions)
    result = {
        "date": today,
        "command": "python -m benchmarks.benefit.run",
        "ranges": arguments.ranges,
        "seeds": [arguments.first_seed, arguments.first_seed + arguments.seeds - 1],
        "cycles": arguments.cycles,
        "claims": [asdict(claim) for claim in held],
        "comparisons": {name: asdict(c) for name, c in comparisons.items()},
        "actions_per_run": {
            arm: {
                kind: round(count / (arguments.seeds * len(arguments.scenarios)), 2)
                for kind, count in sorted(counter.items())
            }
            for arm, counter in actions.items()
        },
        "runs": [each.to_dict() for each in runs],
    }
    (HERE / "results.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    draw(comparisons, HERE / "benefit.png")
    write_table(HERE / "README.md", today, text)


if __name__ == "__main__":
    main()
