# SPDX-License-Identifier: Apache-2.0
"""Features and risk for a large cluster inside one live cycle.

``python benchmarks/forecasts/inference.py --nodes 5000 --pods 50000``: a simulated cluster of that
size is watched for a few cycles; what is timed is the learned forecaster without its baseline, and
with it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

from pilothouse.predict.learned import Learned, load_artifact
from pilothouse.scenarios import load
from pilothouse.settings import ForecastSettings
from pilothouse.sim.cluster import SimCluster


def measure(
    nodes: int, pods: int, cycles: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Milliseconds by the clock given: the fast suite asks for CPU time, which others' load leaves
    alone."""
    cluster = SimCluster(load("harbor").sized(nodes, pods), seed=0)
    learned = Learned(load_artifact(), ForecastSettings())
    steps: dict[str, list[float]] = {"features": [], "risk": [], "whole": []}
    for _ in range(cycles):
        cluster.advance(15)
        snapshot = cluster.observe()
        began = clock()
        learned.predict(snapshot)
        whole = clock() - began
        began = clock()
        node_rows = learned._history.node_features()
        pod_rows = learned._history.pod_features()
        features = clock() - began
        began = clock()
        learned.artifact.pods.probabilities(pod_rows)
        if learned.artifact.nodes is not None:
            learned.artifact.nodes.probabilities(node_rows)
        steps["risk"].append(clock() - began)
        steps["features"].append(features)
        steps["whole"].append(whole)
    return {name: round(1000 * median(values[2:]), 1) for name, values in steps.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--cycles", type=int, default=8)
    given = parser.parse_args()
    tenth = measure(given.nodes // 10, given.pods // 10, given.cycles)
    full = measure(given.nodes, given.pods, given.cycles)
    print(json.dumps({"milliseconds": full, "a_tenth": tenth}, indent=1))


if __name__ == "__main__":
    main()
