# SPDX-License-Identifier: Apache-2.0
"""The default scenario is alive under any seed; the full form is ``benchmarks/liveness``."""

from __future__ import annotations

import pytest

from benchmarks.benefit.arm import loop_over
from benchmarks.liveness.liveness import Liveness
from pilothouse.guard.switch import Controls
from pilothouse.propose.registry import default_agents
from pilothouse.scenarios import load
from pilothouse.settings import Settings
from pilothouse.sim.cluster import SimCluster

CYCLES = 300


def turns(seed: int):
    settings = Settings()
    cluster = SimCluster(load(settings.run.scenario), seed=seed)
    loop = loop_over(cluster, default_agents(settings), settings, run_id=f"default/{seed}")
    for cycle in range(1, CYCLES + 1):
        cluster.advance(settings.run.cycle_seconds)
        yield loop.turn(cycle, Controls(), lambda: False)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_agent_acts_loses_and_is_refused_in_the_default_run(seed):
    assert Liveness(seed=seed).take_in(turns(seed)).missing == []


def test_run_in_which_nobody_acts_is_not_alive():
    assert len(Liveness(seed=0).take_in([]).missing) == 6
