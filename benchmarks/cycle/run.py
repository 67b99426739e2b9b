# SPDX-License-Identifier: Apache-2.0
"""Time and journal of a cycle at two sizes: ``python -m benchmarks.cycle.run [--json]``."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.cycle.measure import (
    LARGE,
    SMALL,
    Cost,
    Size,
    growth,
    measure,
    scoring_ms_per_action,
)
from pilothouse.cli.output import progress


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--folder", type=Path, help="where the journal goes; a disk that counts")
    arguments = parser.parse_args()
    costs: list[Cost] = []
    scoring: list[float] = []
    for size in (SMALL, LARGE):
        with (
            tempfile.TemporaryDirectory(dir=arguments.folder) as folder,
            progress(str(size), quiet=arguments.json, total=size.cycles) as advance,
        ):
            costs.append(measure(size, Path(folder) / "run.db", advance=advance))
            shorter = replace(size, cycles=size.cycles // 3)
            scoring.append(scoring_ms_per_action(shorter, Path(folder) / "scored.db"))
    ratio = growth(*costs)
    if arguments.json:
        document = {
            "sizes": [cost.to_dict() for cost in costs],
            "growth": ratio,
            "scoring_ms_per_action": scoring,
        }
        print(json.dumps(document, indent=2))
    else:
        for size, cost, scored in zip((SMALL, LARGE), costs, scoring, strict=True):
            show(size, cost, scored)
        print(f"cost per pod, large over small: {ratio:.2f} (linear is 1)")
    return 0 if all(map(holds, (SMALL, LARGE), costs)) and ratio <= 1 else 1


def show(size: Size, cost: Cost, scoring_ms: float) -> None:
    print(
        f"{size}: {cost.cycles} cycles, {cost.actions} actions, {cost.pods:,} pods at the end\n"
        f"  cycle    median {cost.median_ms:.1f} ms, p99 {cost.p99_ms:.1f} ms, "
        f"worst {cost.worst_ms:.1f} ms (p99 limit {size.limit_ms:.0f}); CPU {cost.cpu_ms:.1f} ms\n"
        f"  journal  {cost.bytes_per_cycle / 1000:.1f} kB a cycle "
        f"(limit {size.limit_bytes / 1000:.0f})\n"
        f"  scoring  {scoring_ms:.1f} ms per action, apart\n"
        f"  memory   {cost.peak_mib:.0f} MiB at most, simulator included\n"
        f"  steps    {', '.join(f'{step} {ms:.1f}' for step, ms in cost.steps_ms.items())}"
    )


def holds(size: Size, cost: Cost) -> bool:
    return cost.p99_ms <= size.limit_ms and cost.bytes_per_cycle <= size.limit_bytes


if __name__ == "__main__":
    sys.exit(main())
