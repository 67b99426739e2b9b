# SPDX-License-Identifier: Apache-2.0
"""What agents are tuned by, and that only what it can see is tuned."""

from __future__ import annotations

import pytest

pytest.importorskip("polars")
pytest.importorskip("xgboost")

import optuna

from pilothouse.learn.evaluate.inloop import Arm
from pilothouse.learn.train import objectives, tuning

DAY = {
    "failed_pod_seconds": 100.0,
    "violation_seconds": 100.0,
    "energy_joules": 3.0e6,
    "actions": 20,
}


@pytest.fixture
def cost_of(monkeypatch: pytest.MonkeyPatch):
    """The cost of a day that went otherwise than usual."""

    def cost(**otherwise: float) -> float:
        def arm(*given: object, **more: object) -> Arm:
            return Arm(
                forecaster="made up",
                scenario="made up",
                seed=0,
                abstained=0.0,
                deaths=0,
                crossed={},
                lead_seconds=(),
                **{**DAY, **otherwise},
            )

        monkeypatch.setattr(objectives, "run_arm", arm)
        return objectives.cost({}, "made up", "ewma-trend", 0)

    return cost


def test_a_failed_second_weighs_more_than_a_broken_objective(cost_of) -> None:
    failed = cost_of(failed_pod_seconds=110.0) - cost_of()
    broken = cost_of(violation_seconds=110.0) - cost_of()

    assert failed > broken > 0


def test_of_two_days_alike_the_one_with_fewer_actions_is_better(cost_of) -> None:
    assert cost_of(actions=21) > cost_of()
    assert cost_of(actions=21) < cost_of(failed_pod_seconds=110.0)


def test_energy_does_not_count_and_nothing_that_is_only_about_energy_is_tuned(cost_of) -> None:
    trial = optuna.create_study().ask()

    assert cost_of(energy_joules=9.0e6) == cost_of()
    assert {name.split(".")[0] for name in tuning.agent_space(trial)} == {"safety", "guard"}
