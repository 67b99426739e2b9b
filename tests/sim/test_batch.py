# SPDX-License-Identifier: Apache-2.0
"""A cluster's future depends on its blueprint and its writes, and on nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.peers.python_simulator import PythonSimulator
from benchmarks.simulator import agreement
from benchmarks.simulator.equality import cluster_columns, first_difference
from pilothouse.scenarios import Range, load
from pilothouse.sim.blueprint import draw
from pilothouse.sim.simulation import Simulation


def _plans(count: int):
    """Clusters of different sizes, every second with a node autoscaler."""
    harbor = load("harbor")
    spare = replace(harbor, world=replace(harbor.world, spare_nodes=Range(2, 3)))
    return [draw(spare if seed % 2 else harbor, seed) for seed in range(count)]


def test_batch_equals_single_runs_whatever_the_padding():
    plans = _plans(12)
    batch = Simulation(plans)
    singles = [Simulation([p], slots=400 + 9 * i, nodes=18 + i) for i, p in enumerate(plans[:4])]
    for _ in range(400):
        batch.step()
        for single in singles:
            single.step()
    for cluster, single in enumerate(singles):
        assert not first_difference(cluster_columns(batch, cluster), cluster_columns(single, 0))


def test_large_cluster_equals_itself_inside_a_batch():
    """Above a hundred nodes the scheduler samples; padding must not show there either."""
    scenario = load("harbor").sized(140, 700)
    plans = [draw(scenario, 1), draw(load("harbor"), 2), draw(scenario, 3)]
    batch, single = Simulation(plans), Simulation([plans[2]], nodes=170)
    for _ in range(30):
        batch.step()
        single.step()
    assert not first_difference(cluster_columns(batch, 2), cluster_columns(single, 0))


def test_same_seed_gives_the_same_run_and_another_seed_another():
    one, same, other = (Simulation.of(load("harbor"), [seed]) for seed in (5, 5, 6))
    for _ in range(200):
        for simulation in (one, same, other):
            simulation.step()
    assert not first_difference(cluster_columns(one, 0), cluster_columns(same, 0))
    assert not np.array_equal(one.state.c_energy, other.state.c_energy)


@pytest.mark.parametrize("name", ["harbor", "memory-growth", "queue-surge"])
def test_plain_python_peer_gives_the_same_numbers_tick_by_tick(name):
    scenario = agreement.without_autoscaling(load(name))
    seeds = (0, 1)
    simulation = Simulation.of(scenario, seeds)
    peers = [PythonSimulator(scenario, seed) for seed in seeds]
    for _ in range(240):
        simulation.step()
        for cluster, peer in enumerate(peers):
            peer.step()
            assert agreement.first_difference(simulation, cluster, peer) == ""


def test_copy_has_the_same_future():
    simulation = Simulation.of(load("harbor"), [1, 2])
    for _ in range(150):
        simulation.step()
    twin = simulation.copy()
    for _ in range(150):
        simulation.step()
        twin.step()
    for cluster in range(2):
        one, other = cluster_columns(simulation, cluster), cluster_columns(twin, cluster)
        assert not first_difference(one, other)


def test_copy_does_not_disturb_the_original():
    simulation = Simulation.of(load("harbor"), [4])
    twin, alone = simulation.copy(), Simulation.of(load("harbor"), [4])
    twin.state.n_taint[:] = 1
    for _ in range(100):
        twin.step()
        simulation.step()
        alone.step()
    assert not first_difference(cluster_columns(simulation, 0), cluster_columns(alone, 0))
