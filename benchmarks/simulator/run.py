# SPDX-License-Identifier: Apache-2.0
"""Speed of the simulator: against a plain Python peer, and alone on a large cluster.

Run from the repository root: ``python -m benchmarks.simulator.run``. Both sides run in one
process, in turns; times are CPU seconds of this process, so that other work on the machine
disturbs less. Equality with the peer is asserted tick by tick before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

from benchmarks.peers.python_simulator import PythonSimulator
from benchmarks.simulator import equality
from benchmarks.simulator.agreement import first_difference, without_autoscaling
from pilothouse.scenarios import Scenario, load
from pilothouse.sim.observation import Observer
from pilothouse.sim.simulation import Simulation

BATCH, NODES = 256, 32
DENSE, SPARSE = 640, 200  # pods: twenty a node is usual, six a node is little


def scenario_of(pods: int) -> Scenario:
    """The default scenario at the compared size; both sides step exactly this."""
    return without_autoscaling(load("harbor").sized(NODES, pods, churn=False))


def check_equal(seeds: int, ticks: int) -> None:
    """Stop with the first difference between the two."""
    scenario = scenario_of(SPARSE)
    simulation = Simulation.of(scenario, range(seeds))
    peers = [PythonSimulator(scenario, seed) for seed in range(seeds)]
    for _ in range(ticks):
        simulation.step()
        for cluster, peer in enumerate(peers):
            peer.step()
            difference = first_difference(simulation, cluster, peer)
            if difference:
                raise SystemExit(f"The peer and the simulator differ: {difference}.")


def check_batch(ticks: int) -> None:
    """Stop where a cluster of the batch differs from the same cluster alone."""
    scenario = load("harbor").sized(NODES, SPARSE)
    batch = Simulation.of(scenario, range(BATCH))
    for _ in range(ticks):
        batch.step()
    for seed in range(BATCH):
        alone = Simulation.of(scenario, [seed])
        for _ in range(ticks):
            alone.step()
        difference = equality.first_difference(
            equality.cluster_columns(batch, seed), equality.cluster_columns(alone, 0)
        )
        if difference:
            raise SystemExit(f"Cluster {seed} differs from its single run: {difference}.")


def compare(pods: int, repeats: int, ticks: int) -> dict[str, object]:
    """Cluster-ticks per CPU second of both, in turns, each with its observation."""
    scenario = scenario_of(pods)
    simulation = Simulation.of(scenario, range(BATCH))
    observer = Observer(simulation.state)
    peers = [PythonSimulator(scenario, seed) for seed in range(4)]
    ours, theirs = [], []
    for _ in range(repeats):
        began = time.process_time()
        for _ in range(ticks):
            simulation.step()
            observer.observe(simulation.state)
        ours.append(BATCH * ticks / (time.process_time() - began))
        began = time.process_time()
        for peer in peers:
            for _ in range(ticks):
                peer.step()
        theirs.append(len(peers) * ticks / (time.process_time() - began))
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return {
        "simulator_ticks_per_second": round(statistics.median(ours)),
        "peer_ticks_per_second": round(statistics.median(theirs)),
        "ratio": round(statistics.median(ratios), 1),
        "ratios": [round(r, 1) for r in ratios],
    }


def large(ticks: int) -> dict[str, object]:
    """One cluster of 5,000 nodes and 50,000 pods, one percent of them coming or going each tick."""
    simulation = Simulation.of(load("harbor").sized(5_000, 50_000), [0])
    s = simulation.state
    for _ in range(40):
        simulation.step()
    times, moved = [], []
    for _ in range(ticks):
        made, here = int(s.c_next_uid[0]), int(s.c_pods[0])
        began = time.process_time()
        simulation.step()
        times.append(1000 * (time.process_time() - began))
        fresh = int(s.c_next_uid[0]) - made
        moved.append((fresh + fresh - (int(s.c_pods[0]) - here)) / here)
    return {
        "pods": int(s.c_pods[0]),
        "step_ms_median": round(statistics.median(times), 1),
        "step_ms_max": round(max(times), 1),
        "coming_or_going_percent": round(100 * statistics.mean(moved), 2),
    }


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ticks", type=int, default=50)
    arguments = parser.parse_args()
    check_equal(seeds=3, ticks=300)
    check_batch(arguments.ticks)
    result = {
        "batch": f"{BATCH} x {NODES} nodes",
        "equal": "to the peer: 3 seeds, 300 ticks, every pod; batch to single runs: 256 seeds",
        f"{DENSE}_pods": compare(DENSE, arguments.repeats, arguments.ticks),
        f"{SPARSE}_pods": compare(SPARSE, arguments.repeats, arguments.ticks),
        "large": large(20),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
