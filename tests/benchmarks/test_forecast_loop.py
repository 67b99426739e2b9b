# SPDX-License-Identifier: Apache-2.0
"""The short form of forecasts in the loop: who trains on what, and that the judge can say no."""

from __future__ import annotations

import pytest

pytest.importorskip("xgboost")

from benchmarks.forecast_loop import run, strange
from pilothouse.learn.evaluate import inloop
from pilothouse.learn.train.simulated import TRAINING
from pilothouse.scenarios import StimulusKind, load


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
