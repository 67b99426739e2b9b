# SPDX-License-Identifier: Apache-2.0
"""The default scenario is alive under any seed; the full form is ``benchmarks/liveness``."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.benefit.arm import loop_over
from benchmarks.liveness.liveness import RAIL_RULES, Liveness
from pilothouse.guard import rails
from pilothouse.guard.switch import Controls
from pilothouse.propose.registry import default_agents
from pilothouse.scenarios import load
from pilothouse.settings import Settings
from pilothouse.sim.cluster import SimCluster

CYCLES = 300


def turns(seed: int, cycles: int = CYCLES):
    settings = Settings()
    cluster = SimCluster(load(settings.run.scenario), seed=seed)
    loop = loop_over(cluster, default_agents(settings), settings, run_id=f"default/{seed}")
    for cycle in range(1, cycles + 1):
        cluster.advance(settings.run.cycle_seconds)
        yield loop.turn(cycle, Controls(), lambda *_: "")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_agent_acts_loses_and_is_refused_in_the_default_run(seed):
    assert Liveness(seed=seed).take_in(turns(seed)).missing == []


def test_run_in_which_nobody_acts_is_not_alive():
    assert len(Liveness(seed=0).take_in([]).missing) == 6


def test_guard_without_rails_refuses_nothing_that_counts(monkeypatch):
    """The negative control: what the run counts as refused comes from the rails alone."""
    guarded = Liveness(seed=0).take_in(turns(0, 80))
    monkeypatch.setattr("pilothouse.guard.guard.RAILS", ())
    open_wide = Liveness(seed=0).take_in(turns(0, 80))
    assert guarded.refused_cycles > 0
    assert open_wide.refused_cycles == 0
    assert "a guard refusal" in open_wide.missing


def test_rules_that_count_as_refusals_are_those_of_the_rails():
    source = "".join(p.read_text("utf-8") for p in Path(rails.__file__).parent.glob("*.py"))
    budgets = {"per-node", "per-workload", "per-namespace"}  # one rule, named after its object
    assert {rule for rule in RAIL_RULES - budgets if f'"{rule}"' not in source} == set()
