# SPDX-License-Identifier: Apache-2.0
"""Compiled loops and array rules leave the same bytes behind, whatever happens to the clusters."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from pilothouse.domain import Verb
from pilothouse.scenarios import Range, load, names
from pilothouse.sim import tick
from pilothouse.sim.control import RefusedError, perform
from pilothouse.sim.kernels import CompiledTick
from pilothouse.sim.randomness import Dice
from pilothouse.sim.simulation import Simulation
from pilothouse.sim.tick import ArrayTick

# The first test on a machine waits for the compiler.
pytestmark = pytest.mark.timeout(900)

VALUES = {
    Verb.SCALE: (0, 12),
    Verb.TAINT: (0, 1),
    Verb.EVICT: (1, 1),
    Verb.DRAIN: (0, 2),
    Verb.POWER: (0, 1),
    Verb.FREQUENCY: (300, 1000),
    Verb.CPU_LIMIT: (50, 4_000),
    Verb.MEMORY_REQUEST: (1, 3_000),
    Verb.GATE: (0, 3),
}
ROWS = {
    Verb.SCALE: "w_load",
    Verb.EVICT: "uid",
    Verb.CPU_LIMIT: "uid",
    Verb.MEMORY_REQUEST: "uid",
    Verb.GATE: "s_gate",
}


def both(scenario, seeds):
    """The same clusters twice: on arrays and compiled."""
    return (
        Simulation.of(scenario, seeds, ArrayTick()),
        Simulation.of(scenario, seeds, CompiledTick()),
    )


def write(simulation: Simulation, dice: Dice) -> str:
    """One write that makes sense for its row, drawn; what an API server would have said."""
    s = simulation.state
    verb = list(VALUES)[dice.between(0, len(VALUES) - 1)]
    rows = len(getattr(s, ROWS.get(verb, "n_cpu"))) - (ROWS.get(verb) not in ("uid", "s_gate"))
    row, value = dice.between(0, rows - 1), dice.between(*VALUES[verb])
    avoid = row // s.workloads * s.nodes + dice.between(0, s.nodes - 1)
    if ROWS.get(verb) == "uid" and not s.uid[row]:
        return "nobody there"
    if verb is Verb.SCALE and (not s.w_exists[row] or s.w_kind[row]):
        return "not a service"
    if ROWS.get(verb) is None and not s.n_exists[row]:
        return "no such node"
    try:
        return perform(s, verb, row, value, avoid if verb is Verb.SCALE else -1)
    except RefusedError as error:
        return str(error)


def assert_same(one: Simulation, other: Simulation) -> None:
    assert one.state.to_bytes() == other.state.to_bytes()


@pytest.mark.parametrize("name", names())
def test_compiled_tick_leaves_the_same_bytes_in_every_scenario(name):
    arrays, loops = both(load(name), range(6))
    for count in range(240):
        arrays.step()
        loops.step()
        if count % 8 == 0:
            assert_same(arrays, loops)
    assert_same(arrays, loops)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["harbor", "queue-surge"])
def test_compiled_tick_leaves_the_same_bytes_under_random_writes(name, seed):
    """Drains, sleeps, closed gates, resized and evicted pods, and jobs that start over."""
    harbor = load(name)
    scenario = replace(harbor, world=replace(harbor.world, spare_nodes=Range(1, 3)))
    arrays, loops = both(scenario, range(10 * seed, 10 * seed + 3))
    ours, theirs = Dice(seed, 77), Dice(seed, 77)
    started_over = 0
    for _ in range(200):
        for _ in range(3):
            assert write(arrays, ours) == write(loops, theirs)
        arrays.step()
        loops.step()
        started_over += len(loops.state.reborn)
        assert_same(arrays, loops)
    assert started_over, "no job was evicted: the writes do not reach what they should"


def test_compiled_tick_leaves_the_same_bytes_where_nodes_are_sampled():
    arrays, loops = both(load("harbor").sized(180, 1_500), [3, 4])
    for _ in range(40):
        arrays.step()
        loops.step()
        assert_same(arrays, loops)


def test_compiled_tick_leaves_the_same_bytes_when_slots_are_dealt():
    arrays, loops = both(load("harbor"), range(4))
    for simulation in (arrays, loops):
        s = simulation.state
        services = (s.w_kind == 0) & (s.w_exists == 1)
        s.w_desired[services] += 60
        simulation.step()
    assert len(arrays.state.uid) > 1_500  # the pool has grown
    assert_same(arrays, loops)


def test_comparison_sees_one_write_on_one_side():
    arrays, loops = both(load("harbor"), [0])
    perform(loops.state, Verb.FREQUENCY, 2, 900)
    arrays.step()
    loops.step()
    with pytest.raises(AssertionError):
        assert_same(arrays, loops)


def test_batches_are_compiled_and_single_clusters_are_not():
    assert isinstance(tick.suited(1), ArrayTick)
    assert isinstance(tick.suited(256), CompiledTick)


def test_batches_run_on_arrays_where_the_extra_is_missing(monkeypatch):
    monkeypatch.setattr(tick, "find_spec", lambda name: None)
    assert isinstance(tick.suited(256), ArrayTick)


def test_one_cluster_does_not_load_the_compiler():
    program = (
        "import sys; from pilothouse.scenarios import load; from pilothouse.sim import SimCluster;"
        "SimCluster(load('harbor'), seed=0).advance(15); print('numba' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
