# SPDX-License-Identifier: Apache-2.0
"""The benefit benchmark in short: fewer seeds, the same arms, claims and statistics.

The seeds and ranges are the tuning ones; the held-out ones are kept for the full benchmark.
"""

from __future__ import annotations

import multiprocessing
from dataclasses import replace

import pytest

from benchmarks.benefit.arm import ARMS, ArmName, Job, Run, run
from benchmarks.benefit.claims import claims
from benchmarks.benefit.comparison import compare
from pilothouse.domain import Toll

pytestmark = pytest.mark.slow

# One scenario per way of helping: move, replicate, calm, hold, save.
SCENARIOS = ("node-degradation", "cpu-saturation", "noisy-neighbor", "queue-surge", "idle")
SEEDS = range(1_000, 1_003)
CYCLES = 120


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    jobs = [
        Job(scenario=scenario, seed=seed, arm=arm, ranges="tuning", cycles=CYCLES)
        for scenario in SCENARIOS
        for seed in SEEDS
        for arm in ARMS
    ]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return pool.map(run, jobs, chunksize=3)


def played_as(runs: list[Run], arm: ArmName, tolls_of: ArmName) -> list[Run]:
    """The runs as if ``arm`` had done what ``tolls_of`` did."""
    by_key = {(r.job.scenario, r.job.seed, r.job.arm): r for r in runs}
    return [
        replace(r, toll=by_key[r.job.scenario, r.job.seed, tolls_of].toll)
        if r.job.arm == arm
        else r
        for r in runs
    ]


def test_acting_beats_doing_nothing_and_beats_chance(runs):
    held = claims(compare(runs, "pilothouse"), compare(runs, "pilothouse", "random"))
    assert not [claim.sentence for claim in held if not claim.holds]


def test_claims_fail_when_actions_are_disabled(runs):
    disabled = played_as(runs, "pilothouse", "nothing")
    held = claims(compare(disabled, "pilothouse"), compare(disabled, "pilothouse", "random"))
    failing = {claim.name for claim in held if not claim.holds}
    assert "failed pod seconds: less than with nothing" in failing
    assert "violation seconds: less than with nothing" in failing
    assert "idle: less modelled energy at no SLA cost" in failing


def test_claims_fail_when_chance_decides(runs):
    chance = played_as(runs, "pilothouse", "random")
    held = claims(compare(chance, "pilothouse"), compare(chance, "pilothouse", "random"))
    failing = {claim.name for claim in held if not claim.holds}
    assert "violation seconds: less than with nothing" in failing
    assert "violation seconds: less than with random" in failing


def test_chance_acts_at_least_as_often_as_we_do(runs):
    counts = {arm: sum(sum(r.actions.values()) for r in runs if r.job.arm == arm) for arm in ARMS}
    assert counts["nothing"] == 0
    assert counts["random"] >= counts["pilothouse"] > 0


def test_scenario_that_got_worse_is_named():
    def a_run(arm: ArmName, seed: int, broken: float) -> Run:
        job = Job(scenario="idle", seed=seed, arm=arm, ranges="tuning", cycles=1)
        toll = Toll(
            failed_pod_seconds=0.0,
            violation_seconds=broken,
            waiting_pod_seconds=0.0,
            energy_joules=100.0,
            energy_cost_micros=0.0,
            carbon_grams=0.0,
        )
        return Run(job=job, toll=toll, actions={})

    pairs = [a_run("nothing", seed, 10.0 + seed) for seed in range(5)]
    pairs += [a_run("pilothouse", seed, 13.0 + 2 * seed) for seed in range(5)]
    comparison = compare(pairs, "pilothouse")
    assert comparison.worse() == [("idle", "violation_seconds")]
    assert comparison.pooled["violation_seconds"].mean == pytest.approx(5.0)


def test_arm_played_twice_costs_the_same():
    job = Job(scenario="harbor", seed=1_000, arm="pilothouse", ranges="tuning", cycles=40)
    assert run(job) == run(job)
