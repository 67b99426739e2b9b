# SPDX-License-Identifier: Apache-2.0
"""Equality and speed of the simulator: ``python -m benchmarks.simulator.run [--json]``.

Exits with 1 where a line does not hold, and stops at the first difference where sides that should
agree do not.
"""

from __future__ import annotations

import argparse
import json
import sys

from benchmarks.simulator.speed import (
    BATCH,
    NODES,
    Comparison,
    Large,
    check_batch,
    check_peers,
    compare,
    large,
)
from pilothouse.sim.kernels import CompiledTick

PODS = (200, 320, 640)  # six, ten and twenty a node; the line is asked of each
LEAST_RATIO = 50.0
LONGEST_STEP_MS = 200.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ticks", type=int, default=50)
    arguments = parser.parse_args()
    for pods in PODS:
        check_peers(pods, seeds=3, ticks=300)
    check_batch(PODS[0], ticks=arguments.ticks)
    comparisons = [compare(pods, repeats=arguments.repeats, ticks=arguments.ticks) for pods in PODS]
    big = large(5_000, 50_000, ticks=20)  # on arrays, as the loop steps it
    compiled = large(5_000, 50_000, ticks=20, tick=CompiledTick())
    if arguments.json:
        sizes = [comparison.to_dict() for comparison in comparisons]
        both = {"large": big.to_dict(), "large_compiled": compiled.to_dict()}
        print(json.dumps({"batch": BATCH, "nodes": NODES, "sizes": sizes} | both))
    else:
        print(f"equal: both peers at {PODS} pods, and {BATCH} clusters to their single runs")
        for comparison in comparisons:
            show(comparison)
        show_large(big, "on arrays")
        show_large(compiled, "compiled")
    return 0 if holds(comparisons, big) else 1


def holds(comparisons: list[Comparison], big: Large) -> bool:
    fast = all(c.ratio >= LEAST_RATIO for c in comparisons)
    return fast and max(big.step_ms) <= LONGEST_STEP_MS


def show(c: Comparison) -> None:
    print(f"{BATCH} x {NODES} nodes, {c.pods} pods, cluster-ticks per CPU second:")
    print(f"  simulator   {spread(c.simulator)}")
    print(f"  peer        {spread(c.peer)}, ratio {spread(c.ratios)}, wanted {LEAST_RATIO:.0f}")
    print(f"  tuned peer  {spread(c.tuned_peer)}, ratio {spread(c.tuned_ratios)}")


def show_large(big: Large, how: str) -> None:
    print(
        f"1 x {big.nodes:,} nodes, {big.pods:,} pods, {big.moved_percent:.1f} % coming or going, "
        f"{how}: {spread(big.step_ms)} ms a step, at most {LONGEST_STEP_MS:.0f}"
    )


def spread(values: list[float]) -> str:
    """Median, least and most."""
    ordered = sorted(values)
    middle = ordered[len(ordered) // 2]
    return f"{middle:,.1f} ({ordered[0]:,.1f} to {ordered[-1]:,.1f})"


if __name__ == "__main__":
    sys.exit(main())
