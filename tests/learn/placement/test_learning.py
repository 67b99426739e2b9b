# SPDX-License-Identifier: Apache-2.0
"""The training phase of a comparison: who learns does so on the test's world, the others stand."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pilothouse.cli import main
from pilothouse.learn.placement import learning, presets, thesis_tests
from pilothouse.learn.placement.chooser import HEURISTICS
from pilothouse.learn.placement.learning import Learning, TrialTrainer
from pilothouse.learn.placement.playing import joined, play
from pilothouse.learn.placement.rewards import named
from pilothouse.learn.placement.thesis_tests import Trial

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("home")]
SMALL = replace(
    presets.THESIS,
    steps=400,
    envs=4,
    batch=64,
    updates=8,
    buffer=1600,
    learning_starts=40,
    target_every=50,
    courses=32,
)
TRIAL = Trial(test=2, pods=5, replacements=25)
ARMS = ("default", "hybrid", "el-rl")


@pytest.fixture(scope="module")
def learned() -> Learning:
    return learning.learn(TRIAL, ARMS, seeds=2, settings=SMALL)


def test_who_learns_has_an_episode_per_halt_and_the_others_one(learned: Learning) -> None:
    many = learning.episodes_of(SMALL)

    assert {arm: len(own) for arm, own in learned.episodes.items()} == {
        "default": 1,
        "hybrid": many,
        "el-rl": many,
    }
    trained = [one.trained for one in learned.episodes["el-rl"]]
    assert trained == sorted(set(trained)), "each is later than the one before"
    assert trained[-1] == SMALL.steps
    epsilons = [one.epsilon for one in learned.episodes["el-rl"]]
    assert epsilons[0] > epsilons[-1] > 0, "it explores less and less"
    assert {one.epsilon for one in learned.episodes["hybrid"]} == {0.0}


def test_learning_shows(learned: Learning) -> None:
    first, *_, last = learned.episodes["el-rl"]

    assert np.nanmean(last.played.over_soft) < np.nanmean(first.played.over_soft) - 0.1
    assert np.mean(last.returns) > np.mean(first.returns)


def test_what_learns_nothing_plays_the_same_courses(learned: Learning) -> None:
    courses = [thesis_tests.courses(learned.trial, 1, first_seed=seed) for seed in (0, 1)]
    by_hand = joined([play(course, HEURISTICS["default"]) for course in courses])
    (only,) = learned.episodes["default"]

    np.testing.assert_array_equal(only.played.active, by_hand.active)
    np.testing.assert_array_equal(only.played.latency_ms, by_hand.latency_ms)
    assert only.played.active.shape[1] == 2, "a course per seed"


@pytest.mark.parametrize("test", [1, 2])
def test_the_world_that_is_trained_on_is_the_tests(test: int) -> None:
    trial = replace(TRIAL, test=test, cycles=3, cpu_millicores=333)
    trainer = TrialTrainer(SMALL, named("nearby"), (1, 2), trial)
    one, other = (trainer._drawn(0, seed) for seed in (1, 2))

    assert one.count == SMALL.courses
    assert (one.pod_cpu == 333).all(), "the test's pod"
    assert one.steps == trial.steps
    leaving = thesis_tests.courses(trial, 1).leavers[0]
    assert (one.leavers == leaving).all(), "pods come and go as in the test"
    assert (one.latency_ms != other.latency_ms).any(), "seeds differ"
    played = thesis_tests.courses(trial, 1, first_seed=0)
    assert not (one.latency_ms == played.latency_ms).all(axis=(1, 2)).any(), "held out"


def test_a_curve_of_what_learns_nothing_is_repeated_beside_the_others(learned: Learning) -> None:
    nodes, latency = learning.plots_of(learned)
    steps, many = learned.trial.steps, learning.episodes_of(SMALL)

    assert (nodes.name, latency.name) == ("test2-training-used-nodes", "test2-training-latency")
    assert {arm: len(curve) for arm, curve in nodes.curves.items()} == dict.fromkeys(
        ARMS, steps * many
    )
    again = nodes.curves["default"].reshape(many, steps)
    assert (again == again[0]).all()
    assert len(nodes.changes) == 2 * many
    assert not (nodes.curves["el-rl"].reshape(many, steps) == nodes.curves["el-rl"][:steps]).all()


def test_command_takes_the_synopsis_of_the_comparison(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(presets.PRESETS, "thesis", SMALL)
    words = f"compare placement --test 2 --arms {','.join(ARMS)} --seeds 2 --phase training"
    words += f" --pods 5 --replacements 25 --out {tmp_path}"
    assert main([*words.split(), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)

    assert (told["test"], told["phase"], told["simulated"]) == (2, "training", True)
    assert [e["arm"] for e in told["episodes"] if not e["learns"]] == ["default"]
    assert {Path(path).name for path in told["written"]} == {p.name for p in tmp_path.iterdir()}
    with (tmp_path / "test2-training-episodes.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(told["episodes"]) == 1 + 2 * learning.episodes_of(SMALL)
    assert all(row["used nodes"] for row in rows)
    assert [row["arm"] for row in rows if not row["return"]] == ["default"]

    assert main(words.split()) == 0
    said = capsys.readouterr().out
    assert "default: learning nothing, the same in every episode." in said
    assert "hybrid: the default score plugins with el-rl as it is then" in said
    assert "Trained on courses of test 2" in said
