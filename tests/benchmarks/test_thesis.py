# SPDX-License-Identifier: Apache-2.0
"""The thesis's benchmark finds a load that does not follow, and keeps what the code gives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.thesis.run import ARMS, HERE, MOVING_ARMS, SIMULATED_SEEDS, keep, missed
from pilothouse.learn.placement.comparing import Comparison, compare, followed, rows_of, to_json
from pilothouse.learn.placement.playing import Played
from pilothouse.learn.placement.thesis_tests import Trial

MOVING = Trial(test=2, nodes_move=True)


@pytest.fixture(scope="module")
def moving() -> Comparison:
    return compare(MOVING, (*MOVING_ARMS, "lb"), seeds=SIMULATED_SEEDS)


def with_own(comparison: Comparison, own: Played) -> Comparison:
    """As if EL-RL had played so."""
    played = comparison.played | {"el-rl": own}
    return replace(comparison, played=played, rows=rows_of(played, comparison.trial))


def changed(played: Played, name: str, rows: slice, value: float) -> Played:
    values = getattr(played, name).copy()
    values[rows, 0] = value  # in one seed of all
    return replace(played, **{name: values})


def test_every_arm_of_the_comparison_is_played() -> None:
    assert set(ARMS) >= {"default", "best-fit", "random", "heuristic", "hybrid", "el-rl"}
    assert len(ARMS) == 9


def test_what_holds_is_held_and_who_spreads_does_not_follow(moving: Comparison) -> None:
    assert missed(moving) == []
    assert followed(moving) == {"default": [None, None], "lb": [None, None], "el-rl": [1, 1]}

    spread = missed(with_own(moving, moving.played["lb"]))
    assert [text for text in spread if "followed a change not at all" in text] == spread[-2:]


@pytest.mark.parametrize(("late", "said"), [(2, []), (3, ["after 4 placements"])])
def test_three_placements_are_the_patience(moving: Comparison, late: int, said: list[str]) -> None:
    lost = moving.changes[-1]
    own = changed(moving.played["el-rl"], "in_soft", slice(lost, lost + late), 0.0)
    found = missed(with_own(moving, own))

    assert [any(words in text for text in found) for words in said] == [True] * len(said)
    assert len(found) == len(said)


def test_a_load_that_nobody_could_see_has_not_followed(moving: Comparison) -> None:
    own = changed(moving.played["el-rl"], "in_soft", slice(moving.changes[-1], None), np.nan)

    assert followed(with_own(moving, own))["el-rl"] == [1, None]
    assert len(missed(with_own(moving, own))) == 1


def test_one_failed_placement_and_one_broken_limit_too_many_are_told(moving: Comparison) -> None:
    failed = changed(moving.played["el-rl"], "hopeless", slice(20, 21), 1.0)
    assert ["placements failed" in text for text in missed(with_own(moving, failed))] == [True]

    own = moving.played["el-rl"]
    broken = replace(own, over_hard=np.ones_like(own.over_hard))
    assert ["hard violations" in text for text in missed(with_own(moving, broken))] == [True]


def test_the_kept_simulated_figures_are_what_the_code_gives(moving: Comparison) -> None:
    kept = json.loads((HERE / "simulated.json").read_text(encoding="utf-8"))["comparisons"]
    (own,) = [one for one in kept if one["nodes_move"]]
    now = to_json(moving)

    assert [one["test"] for one in kept] == [1, 2, 2]
    assert {row["arm"] for row in own["rows"]} == set(ARMS)
    for row in now["rows"]:
        (was,) = [
            one for one in own["rows"] if all(one[key] == row[key] for key in ("arm", "figure"))
        ]
        assert was["mean"] == pytest.approx(row["mean"], rel=1e-6)
    for arm, counts in now["placements_until_followed"].items():
        assert own["placements_until_followed"][arm] == counts


def test_what_is_played_replaces_the_same_and_nothing_else(
    moving: Comparison, tmp_path: Path
) -> None:
    path = tmp_path / "kept.json"
    first = compare(Trial(test=1), ("default", "el-rl"), seeds=1)
    keep([moving, first], path)
    before = json.loads(path.read_text())["comparisons"]
    fewer = compare(MOVING, ("el-rl",), seeds=1)
    keep([fewer], path)
    after = json.loads(path.read_text())["comparisons"]

    assert [(one["test"], one["nodes_move"]) for one in after] == [(1, False), (2, True)]
    assert after[0] == before[0]
    assert {row["arm"] for row in after[1]["rows"]} == {"el-rl"}
    assert after[1]["date"]
