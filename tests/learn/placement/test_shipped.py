# SPDX-License-Identifier: Apache-2.0
"""The shipped policies hold their promises on held-out courses; networks nobody trained do not."""

from __future__ import annotations

import numpy as np
import pytest

from pilothouse.learn.placement import judging
from pilothouse.learn.placement.chooser import Learned
from pilothouse.learn.placement.comparing import compare, moving_average
from pilothouse.learn.placement.judging import Exam
from pilothouse.learn.placement.playing import play
from pilothouse.learn.placement.presets import FAST
from pilothouse.learn.placement.rewards import OF_POLICY, named
from pilothouse.learn.placement.thesis_tests import Trial
from pilothouse.learn.placement.training import ROUNDING, WIDTHS
from pilothouse.policy import shipped
from pilothouse.policy.network import Layer, Network

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def exam() -> Exam:
    return judging.exam((3, 8), seed=321_000, count=24, steps=32)


@pytest.mark.parametrize("policy", judging.KINDS)
def test_shipped_policy_holds_its_promises(policy: str, exam: Exam) -> None:
    lines = judging.judge(policy, Learned(policy, shipped(policy).network), exam)

    assert [line for line in lines if not line.holds] == []


@pytest.mark.parametrize("policy", judging.KINDS)
def test_shipped_card_names_the_command_and_versions_that_make_it_again(policy: str) -> None:
    card = shipped(policy).card

    assert card.command == f"pilothouse train placement --policy {policy} --seeds 5"
    assert set(card.made_with) == set(ROUNDING)
    assert card.network.encoder[1] == WIDTHS[policy]
    assert card.reward == named(OF_POLICY[policy]).card() | {"gamma": FAST.gamma}


@pytest.mark.parametrize("policy", judging.KINDS)
def test_networks_nobody_trained_fail_the_promises(policy: str, exam: Exam) -> None:
    model = shipped(policy).network
    dice = np.random.default_rng(5)

    def fresh(layer: Layer) -> Layer:
        spread = np.sqrt(2 / len(layer.weight))
        weight = dice.normal(0, spread, layer.weight.shape).astype(np.float32)
        return Layer(weight, np.zeros_like(layer.bias))

    passed = 0
    for _ in range(20):
        network = Network(
            encoder=tuple(map(fresh, model.encoder)),
            head=tuple(map(fresh, model.head)),
            scale=model.scale,
        )
        lines = judging.judge(policy, Learned("random", network), exam)
        passed += all(line.holds for line in lines)
    assert passed == 0


def test_latency_change_is_followed_and_the_judge_sees_who_does_not(exam: Exam) -> None:
    lines = {
        name: judging.judge("el-rl", Learned(name, shipped(name).network), exam)
        for name in ("el-rl", "lb")
    }

    assert lines["el-rl"][-1].holds
    assert not lines["lb"][-1].holds


def test_a_latency_change_is_played_on_as_many_nodes_as_the_rest_of_the_exam() -> None:
    change = judging.exam((200, 200), seed=321_000, count=4, steps=8).change
    followed = {
        name: play(change, Learned(name, shipped(name).network)).followed_after(change.steps // 2)
        for name in ("el-rl", "lb")
    }

    assert change.exists.sum(axis=1).tolist() == [200] * 4
    assert (change.pod_cpu.max(axis=1) < change.cpu.min(axis=1)).all()  # or nothing could follow
    assert followed["el-rl"] <= judging.PATIENCE < followed["lb"]


@pytest.mark.parametrize("test", [1, 2])
def test_el_rl_uses_fewer_nodes_than_the_default_scheduler_and_keeps_the_limits(test: int) -> None:
    trial = Trial(test=test, cycles=3, pods=15, replacements=30)
    rows = {
        (row.arm, row.figure): row.mean
        for row in compare(trial, ("default", "heuristic", "el-rl"), seeds=4).rows
    }

    assert rows["el-rl", "hard violations, %"] == 0
    assert rows["el-rl", "used nodes"] < rows["default", "used nodes"]
    assert rows["default", "hard violations, %"] > 10


def test_load_follows_when_a_node_is_lost_and_a_better_one_joins() -> None:
    trial = Trial(test=2, pods=12, replacements=36, nodes_move=True)
    played = compare(trial, ("el-rl",), seeds=6).played["el-rl"]

    assert played.hopeless.sum() == 0
    after = trial.lost_at + judging.PATIENCE
    assert np.nanmax(played.latency_ms[after:]) <= 16  # the joiner has 3 ms, the nearest 6 to 16


def test_moving_average_leaves_out_what_is_unknown() -> None:
    values = np.array([1.0, np.nan, 3.0, 5.0])

    np.testing.assert_allclose(moving_average(values, 2), [1.0, 1.0, 3.0, 4.0])
