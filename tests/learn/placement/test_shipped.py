# SPDX-License-Identifier: Apache-2.0
"""The shipped policies hold their promises on held-out courses; networks nobody trained do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pilothouse.errors import InternalError
from pilothouse.learn.placement import judging, training
from pilothouse.learn.placement.chooser import HEURISTICS, SINGLE_FEATURES, Choice, Learned
from pilothouse.learn.placement.comparing import compare, moving_average
from pilothouse.learn.placement.course import Family, draw
from pilothouse.learn.placement.fleet import Fleet
from pilothouse.learn.placement.judging import Exam, Line, Marks
from pilothouse.learn.placement.playing import play
from pilothouse.learn.placement.presets import FAST
from pilothouse.learn.placement.rewards import OF_POLICY, named
from pilothouse.learn.placement.thesis_tests import Trial
from pilothouse.learn.placement.training import ROUNDING, WIDTHS, _merit
from pilothouse.policy import NODE_FEATURES, shipped
from pilothouse.policy.network import Layer, Network

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def exam() -> Exam:
    return judging.exam((3, 8), seed=321_000, count=24, steps=32)


@pytest.mark.parametrize("policy", judging.KINDS)
def test_shipped_policy_holds_its_promises(policy: str, exam: Exam) -> None:
    lines = judging.judge(policy, Learned(policy, shipped(policy).network), exam)

    assert broken(lines) == []


@pytest.fixture(scope="module")
def large() -> Exam:
    return judging.exam((200, 200), seed=321_000, count=16, steps=600)


@pytest.mark.parametrize(("policy", "other"), [("ee", "lb"), ("lb", "ee"), ("el-rl", "lb")])
def test_shipped_policy_holds_them_on_clusters_far_larger_than_it_was_trained_on(
    policy: str, other: str, large: Exam
) -> None:
    def judged(network: str) -> list[str]:
        return broken(judging.judge(policy, Learned(network, shipped(network).network), large))

    assert judged(policy) == []
    assert judged(other) != []


@pytest.mark.parametrize("policy", judging.KINDS)
def test_shipped_card_says_what_its_command_measures_today(policy: str) -> None:
    made = shipped(policy)
    validation = training.validation_of(FAST, named(OF_POLICY[policy]))
    now = judging.judge(policy, Learned(policy, made.network), validation)

    told = made.card.measured["validation, simulated"]
    assert [line["what"] for line in told] == [line.what for line in now]
    for before, line in zip(told, now, strict=True):
        assert before["holds"] == line.holds
        assert before["value"] == pytest.approx(line.value, rel=0.01, abs=1e-3)


def broken(lines: list[Line]) -> list[str]:
    return [line.what for line in lines if not line.holds]


@pytest.mark.parametrize("policy", judging.KINDS)
def test_no_rule_that_looks_at_one_feature_holds_a_policys_promises(
    policy: str, exam: Exam
) -> None:
    rules = SINGLE_FEATURES.values()
    passed = [rule.name for rule in rules if not broken(judging.judge(policy, rule, exam))]

    assert len(SINGLE_FEATURES) == 2 * len(NODE_FEATURES)
    assert passed == []


@pytest.mark.parametrize(("policy", "rule"), [("ee", "used-first"), ("lb", "evenest")])
def test_a_rule_that_looks_at_what_matters_holds_them(policy: str, rule: str, exam: Exam) -> None:
    assert broken(judging.judge(policy, HEURISTICS[rule], exam)) == []


def test_a_rules_marks_are_those_of_the_part_and_a_networks_are_never_anothers() -> None:
    on = judging.exam((3, 5), seed=321_000, count=3, steps=12)
    for part in ("identical", "mixed"):
        own = play(getattr(on, part), HEURISTICS["used-first"])
        for _ in range(2):  # the second is the one that was kept
            marks = on.marks(part, HEURISTICS["used-first"])
            np.testing.assert_array_equal(marks.active, own.mean_active())

    one, other = (on.marks("mixed", Learned("x", shipped(kind).network)) for kind in ("ee", "lb"))
    assert one.active.sum() < other.active.sum()


def test_the_rules_compared_with_are_the_best_online_ones(exam: Exam) -> None:
    marks = {name: exam.rival(name) for name in HEURISTICS}
    keeps = [name for name, own in marks.items() if own.in_hard >= 0.99 and own.in_soft >= 0.95]

    assert min(marks, key=lambda name: marks[name].active.sum()) in judging.PACKERS
    assert min(marks, key=lambda name: marks[name].spread.sum()) in judging.LEVELERS
    assert set(keeps) == set(judging.RULE_KEEPERS)


class Wavering:
    """Wakes a node too many, or leaves a pod pending, once in so many times."""

    def __init__(self, learned: Learned, *, wakes: int = 0, declines: int = 0) -> None:
        self.name = "wavering"
        self.learned, self.wakes, self.declines, self.turn = learned, wakes, declines, 0

    def choose(self, fleet: Fleet) -> Choice:
        self.turn += 1
        feasible = fleet.feasible()
        asleep = feasible & (fleet.counted == 0)
        choice = self.learned.choose(fleet)
        if self.wakes and self.turn % self.wakes == 0:
            choice = np.where(asleep.any(axis=1), asleep.argmax(axis=1), choice)
        if self.declines and self.turn % self.declines == 0:
            choice = np.where(feasible.all(axis=1), choice, (~feasible).argmax(axis=1))
        return choice


def test_a_policy_a_little_worse_than_the_best_rule_is_seen_though_best_fit_is_far_behind(
    exam: Exam,
) -> None:
    own = Learned("ee", shipped("ee").network)

    assert broken(judging.judge("ee", Wavering(own), exam)) == []
    assert "used nodes over the best online rule, mixed sizes" in broken(
        judging.judge("ee", Wavering(own, wakes=12), exam)
    )
    assert "used nodes against best fit, mixed sizes, paired bound" not in broken(
        judging.judge("ee", Wavering(own, wakes=12), exam)
    )


@pytest.mark.parametrize("policy", judging.KINDS)
def test_a_policy_that_leaves_pods_pending_fails(policy: str, exam: Exam) -> None:
    own = Learned(policy, shipped(policy).network)

    assert broken(judging.judge(policy, Wavering(own, declines=10), exam)) == [
        "pods left pending although a node had room"
    ]


def test_pods_that_fit_nowhere_are_counted_and_few_more_than_the_best_rules_allowed(
    exam: Exam,
) -> None:
    crowded = draw(Family(nodes=(3, 6), steps=32, load_percent=(90, 100)), seed=1, count=12)
    played = play(crowded, HEURISTICS["used-first"])
    marks = Marks.of(played, half=16)
    assert (marks.pods, marks.left) == (12 * 32, 0)
    assert marks.nowhere == np.isnan(played.node).sum() > 0

    best = HEURISTICS["used-first"]
    more = {name: replace(best, name=name) for name in ("as good", "too many")}
    for name, nowhere in (("as good", 3), ("too many", 4)):  # of 768
        for part in judging.PARTS_OF["ee"]:
            own = exam.marks(part, best)
            exam.known[part, name] = replace(own, nowhere=own.nowhere + nowhere)
    assert broken(judging.judge("ee", more["as good"], exam)) == []
    assert broken(judging.judge("ee", more["too many"], exam)) == [
        "pods that fitted nowhere, share above the best rule's"
    ]


def test_a_seed_is_not_chosen_for_room_below_a_guards_bound() -> None:
    line = Line(what="used nodes", value=1.0, bound=1.05)
    guard = Line(what="pods that fitted nowhere", value=0.004, bound=0.005, guard=True)
    roomy, broke = replace(guard, value=-0.5), replace(guard, value=0.006)

    assert _merit([line, roomy]) == _merit([line, guard]) > _merit([line, broke])
    assert _merit([replace(line, value=0.99), guard]) > _merit([line, roomy])


def test_who_never_chooses_a_node_with_room_is_told_so() -> None:
    full = draw(Family(nodes=(3, 3), steps=60, load_percent=(90, 100)), seed=1, count=4)
    stubborn = Wavering(Learned("ee", shipped("ee").network), declines=1)

    with pytest.raises(InternalError, match="wavering chose a node without room 100 times"):
        play(full, stubborn)


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

    followed = "placements until a latency change is followed"
    assert followed not in broken(lines["el-rl"])
    assert followed in broken(lines["lb"])


def test_a_latency_change_is_played_on_as_many_nodes_as_the_rest_of_the_exam() -> None:
    change = judging.exam((200, 200), seed=321_000, count=4, steps=8).change
    followed = {
        name: play(change, Learned(name, shipped(name).network)).followed_after(change.steps // 2)
        for name in ("el-rl", "lb")
    }

    assert change.exists.sum(axis=1).tolist() == [200] * 4
    drawn = judging.exam((6, 12), seed=321_000, count=24, steps=8)
    assert drawn.change.exists.sum(axis=1).min() < 12 == drawn.change.exists.sum(axis=1).max()
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
