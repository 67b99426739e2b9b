# SPDX-License-Identifier: Apache-2.0
"""The short form of forecasts in the loop: who trains on what, and that the judge can say no."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("xgboost")

from benchmarks.forecast_loop import run, strange
from pilothouse.learn.evaluate import inloop
from pilothouse.learn.train.simulated import TRAINING
from pilothouse.predict.learned import Learned, load_artifact
from pilothouse.scenarios import StimulusKind, load
from pilothouse.settings import Settings
from pilothouse.sim.cluster import SimCluster

FAMILY, SEEDS, CYCLES = "flaky-nodes", (0, 1), 150  # a node dies on both days


def degradation(scenario: str):
    stimuli = load(scenario).exerciser.stimuli
    return next(s for s in stimuli if s.kind is StimulusKind.NODE_DEGRADATION)


def test_nothing_that_judges_was_trained_or_tuned_on() -> None:
    assert not set(inloop.NEW_FAMILIES) & {*TRAINING, *inloop.TUNING_FAMILIES}


@pytest.mark.parametrize("family", inloop.NEW_FAMILIES)
def test_new_families_lie_inside_what_training_showed(family: str) -> None:
    shown, drawn = degradation("weary-nodes").tuning, degradation(family).held_out

    for name in ("magnitude", "duration_seconds"):
        assert shown[name].low <= drawn[name].low
        assert drawn[name].high <= shown[name].high


def test_unlike_training_is_told_within_a_minute_and_familiar_is_not_refused() -> None:
    said = strange.abstained(("harbor",), (701,), 24)

    assert said.pop("familiar") <= run.ABSTAINED_FAMILIAR
    assert all(share >= run.ABSTAINED_STRANGE for share in said.values()), said


@pytest.fixture(scope="module")
def days() -> list[inloop.Arm]:
    """Two short days of a family nobody trained on, each with the baseline and the learned one."""
    usual = Settings()
    learned = replace(usual, forecast=replace(usual.forecast, forecaster=run.LEARNED))
    return [
        inloop.run_arm(settings, FAMILY, seed, CYCLES)
        for seed in SEEDS
        for settings in (usual, learned)
    ]


def abstainer(settings: Settings, cluster: SimCluster) -> Learned:
    """The shipped forecaster, to which nothing is familiar."""
    shipped = load_artifact()
    seen = shipped.familiarity
    assert seen is not None
    nothing = replace(seen, low=seen.high, high=seen.low)
    return Learned(replace(shipped, familiarity=nothing), settings.forecast)


def test_learned_loses_fewer_failed_pod_seconds_than_the_baseline_on_the_same_short_days(
    days: list[inloop.Arm],
) -> None:
    gain = inloop.difference(days, run.BASELINE, run.LEARNED)

    assert all(day.deaths for day in days)
    assert gain["worse_on"] == 0
    assert gain["fewer_failed_pod_seconds"] >= run.FEWER
    assert gain["actions"][1] <= gain["actions"][0]


def test_forecaster_that_always_abstains_gains_nothing_and_costs_nothing(
    days: list[inloop.Arm],
) -> None:
    before = days[0]
    usual = Settings()
    # With the thresholds that ship with the forecaster; how long a move holds is no forecast.
    levels = {k: v for k, v in load_artifact().thresholds.items() if k != "hold_seconds"}
    ours = replace(usual, safety=replace(usual.safety, **levels))
    after = inloop.run_arm(ours, FAMILY, before.seed, CYCLES, seer=abstainer)

    assert after.abstained == 1.0
    for what in ("failed_pod_seconds", "violation_seconds", "energy_joules", "actions"):
        assert getattr(after, what) == getattr(before, what), what


def arm(who: str, seed: int, failed: float, actions: int = 40, abstained: float = 0.0):
    return inloop.Arm(
        forecaster=who,
        scenario="flaky-nodes",
        seed=seed,
        failed_pod_seconds=failed,
        violation_seconds=0.0,
        energy_joules=1e6,
        actions=actions,
        abstained=abstained,
        deaths=1,
        crossed={"throttle_risk": 1, "migrate_risk": 1, "replicate_risk": 0},
        lead_seconds=(120,),
    )


def verdict(learned: float, actions: int = 40, abstained: float = 0.0) -> dict[str, bool]:
    days = [
        one
        for seed in range(20)
        for one in (
            arm(run.BASELINE, seed, 1_000 + seed),
            arm(run.LEARNED, seed, learned + seed, actions, abstained),
            arm(run.ORACLE, seed, 500),
        )
    ]
    strangeness = {"load × 3": 1.0, "familiar": 0.0}
    return run.claims(run.summary(days), strangeness)


def test_judge_is_content_with_a_clear_gain() -> None:
    assert all(verdict(700).values())


@pytest.mark.parametrize(
    "bad", [{"learned": 900}, {"learned": 700, "actions": 41}, {"learned": 700, "abstained": 0.2}]
)
def test_judge_says_no(bad) -> None:
    assert not all(verdict(**bad).values())
