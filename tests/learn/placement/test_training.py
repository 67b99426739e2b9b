# SPDX-License-Identifier: Apache-2.0
"""Which of several trained networks is kept: the promise's best, or one's own reward's best."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pilothouse.cli import main
from pilothouse.learn.placement import judging, training
from pilothouse.learn.placement.chooser import HEURISTICS, Learned
from pilothouse.learn.placement.course import Family, draw
from pilothouse.learn.placement.fleet import Fleet
from pilothouse.learn.placement.placed import Array, Placed
from pilothouse.learn.placement.playing import returns
from pilothouse.learn.placement.presets import THESIS
from pilothouse.learn.placement.rewards import (
    Mixture,
    Reward,
    from_file,
    is_registered,
    named,
    worth,
)
from pilothouse.policy import read

pytestmark = pytest.mark.timeout(600)
OWN = "name: even\nresource: cpu\ncomponents: {level: 1.0, spread: 0.5}\n"
TINY = replace(
    THESIS,
    steps=16,
    batch=16,
    train_every=1,
    updates=1,
    learning_starts=8,
    buffer=160,
    courses=16,
    encoder=(8,),
    head=(8,),
)
EVEN = Mixture(name="even", resource="requests", weights=(("level", 1.0), ("spread", 0.5)))
PACKER, LEVELER = HEURISTICS["used-first"], HEURISTICS["least-allocated"]


@pytest.fixture(scope="module")
def exam() -> judging.Exam:
    return judging.exam((3, 3), count=8, steps=12)


def test_a_return_is_the_sum_of_what_placements_were_worth() -> None:
    courses = draw(Family(nodes=(3, 3), steps=9), seed=3, count=4)
    fleet, by_hand = Fleet(courses), np.zeros(4)
    for _ in range(courses.steps):
        by_hand += worth(EVEN, fleet.place(PACKER.choose(fleet)).placed)[0]

    np.testing.assert_allclose(returns(courses, PACKER, EVEN), by_hand)
    assert (by_hand < 0).any(), "nothing was looked at"


class EndsAtOnce:
    """Every placement is worth 1 and is the last."""

    name, resource = "ends", "requests"

    def __call__(self, placed: Placed) -> tuple[Array, Array]:
        chosen = placed.chosen.any(axis=-1)
        return chosen * 1.0, chosen

    def card(self) -> dict[str, object]:
        return {"name": self.name}


def test_what_comes_after_the_end_of_an_episode_counts_nothing() -> None:
    courses = draw(Family(nodes=(3, 3), steps=9), seed=3, count=4)
    reward: Reward = EndsAtOnce()  # type: ignore[assignment]

    assert returns(courses, PACKER, reward).tolist() == [1.0] * 4


def test_a_reward_of_ones_own_is_its_own_judge(exam: judging.Exam) -> None:
    packed, leveled = (training._examine("mine", c, EVEN, exam) for c in (PACKER, LEVELER))

    assert leveled.merit > packed.merit
    assert leveled.lines == [], "it promises none of the three"
    promised = [training._examine("ee", c, named("packing"), exam) for c in (PACKER, LEVELER)]
    assert promised[0].merit > promised[1].merit, "EE's promise says the opposite"


def test_a_file_judges_under_the_name_of_a_shipped_policy_too(exam: judging.Exam) -> None:
    packed, leveled = (training._examine("ee", c, EVEN, exam) for c in (PACKER, LEVELER))

    assert leveled.merit > packed.merit
    assert [line.what for line in packed.lines], "the promise is reported all the same"


def test_a_file_that_bears_a_registered_name_is_still_ones_own() -> None:
    assert all(is_registered(named(name, "cpu")) for name in ("packing", "thesis-lb"))
    assert not is_registered(EVEN)
    assert not is_registered(replace(EVEN, name="packing"))


def test_the_seed_with_the_highest_return_is_kept(tmp_path: Path) -> None:
    (tmp_path / "even.yaml").write_text(OWN)
    reward, seeds, out = from_file(tmp_path / "even.yaml"), range(1, 7), tmp_path / "run"
    made = training.train("mine", TINY, reward, seeds=seeds, out=out)

    courses = training.validation_of(TINY, reward).mixed
    own = {s: read(out / f"mine-seed{s}") for s in seeds}
    by_hand = {s: returns(courses, Learned("x", p.network), reward).mean() for s, p in own.items()}
    best = max(by_hand, key=lambda seed: by_hand[seed])
    assert made.returns == pytest.approx(by_hand)
    assert read(out / "mine").card.seed == best
    kept = read(out / "mine").card.measured
    assert kept == {"mean return, validation, simulated": pytest.approx(by_hand[best], abs=1e-5)}
    exam = training.validation_of(TINY, reward)
    by_ee = {
        s: training._merit(judging.judge("ee", Learned("x", p.network), exam))
        for s, p in own.items()
    }
    assert best != max(by_ee, key=lambda seed: by_ee[seed]), "EE's promise would keep another"


def test_command_says_whose_return_decided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "even.yaml").write_text(OWN)
    words = ["train", "placement", "--policy", "mine", "--reward", str(tmp_path / "even.yaml")]
    words += ["--preset", "thesis", "--steps", "80", "--seeds", "2", "--out", str(tmp_path / "run")]

    assert main(words) == 0
    said = capsys.readouterr().out
    assert said.count("mean return") == 2
    assert "of even; the highest is kept" in said
    assert "used nodes" not in said

    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (set(told["returns"]), told["lines"]) == ({"1", "2"}, {"1": [], "2": []})
