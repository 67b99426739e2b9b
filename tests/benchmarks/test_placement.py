# SPDX-License-Identifier: Apache-2.0
"""The placement benchmark keeps what it does not judge again, and tells what fails."""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.placement import plays, run, tables
from benchmarks.placement.plays import Arm, Task
from pilothouse.learn.placement import judging


def rows(*weights: str, value: float = 1.0, sizes: tuple[str, ...] = ("6-32", "5000")) -> run.Rows:
    """One line of each network on a small and on a large cluster."""
    line = {"what": "used nodes", "value": value, "bound": 1.1, "at_least": False}
    line["holds"] = value <= 1.1
    return [
        line | {"nodes": size, "clusters": plays.SIZES[size][1], "seed": seed, "weights": name}
        for size in sizes
        for seed, name in enumerate(weights, start=1)
    ]


def judge_again(kept: dict[str, Any], kind: str, new: run.Rows) -> None:
    run._merge(kept, run.lines_part(kind, new, kept, {row["weights"] for row in new}))


@pytest.fixture
def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.RESULTS.read_text(encoding="utf-8"))
    return found


def test_judging_shipped_policies_leaves_the_figures_of_five_seeds(kept: dict[str, Any]) -> None:
    kept["policies"]["ee"].pop("shipped", None)
    before = copy.deepcopy(kept)
    judge_again(kept, "ee", rows(tables.own_weights("ee")))

    assert kept["policies"]["ee"].pop("shipped")["lines"] == rows(tables.own_weights("ee"))
    assert kept == before  # also the dates of all the rest


def test_five_seeds_replace_five_seeds_and_one_replaces_none(kept: dict[str, Any]) -> None:
    before = copy.deepcopy(kept)
    judge_again(kept, "lb", rows("another"))
    assert kept["policies"]["lb"].pop("one seed")
    assert kept == before

    judge_again(kept, "lb", rows(*"abcde"))
    assert kept["policies"]["lb"]["5 seeds"]["lines"] == rows(*"abcde")
    assert {one: kept["policies"][one] for one in ("ee", "el-rl")} == {
        one: before["policies"][one] for one in ("ee", "el-rl")
    }


def test_one_size_judged_again_leaves_the_other_sizes_of_the_same_networks() -> None:
    kept: dict[str, Any] = {"policies": {}}
    judge_again(kept, "ee", rows(*"abcde"))
    judge_again(kept, "ee", rows(*"abcde", value=1.05, sizes=("5000",)))
    lines = kept["policies"]["ee"]["5 seeds"]["lines"]
    assert [(row["nodes"], row["value"]) for row in lines] == [("6-32", 1.0)] * 5 + [
        ("5000", 1.05)
    ] * 5

    judge_again(kept, "ee", rows(*"fghij", sizes=("5000",)))  # other networks: nothing is theirs
    assert kept["policies"]["ee"]["5 seeds"]["lines"] == rows(*"fghij", sizes=("5000",))


def test_a_line_that_fails_is_told_in_either_set(capsys: pytest.CaptureFixture[str]) -> None:
    kept: dict[str, Any] = {"policies": {}}
    judge_again(kept, "ee", rows(*"abcde"))
    assert tables.show(kept) == 0

    judge_again(kept, "ee", rows(tables.own_weights("ee"), value=1.2))
    assert tables.show(kept) == 1
    assert "1.200 (1.200) FAILS" in capsys.readouterr().out


def test_networks_that_were_not_played_at_a_size_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept: dict[str, Any] = {"policies": {}}
    judge_again(kept, "ee", rows(*"abcde", sizes=("6-32",)))
    new = rows("a", sizes=("5000",))
    run._merge(kept, run.lines_part("ee", new, kept, set("abcde")))

    assert tables.show(kept) == 0
    assert "1.000 (1.000) | 1.000 (1.000; 1 of 5) |" in capsys.readouterr().out.replace("|  |", "|")


def test_what_was_not_measured_is_told() -> None:
    whole = {
        kind: {"5 seeds": {"lines": rows(*"abcde", sizes=tuple(plays.SIZES))}}
        | {part: {"date": "2026-11-16"} for part in tables.CONTROLS}
        for kind in judging.KINDS
    }
    few = "lb: 5000 nodes were played by 0 of five seeds"  # too few clusters for this policy
    assert tables.missing({"policies": whole}) == [few]
    for row in whole["lb"]["5 seeds"]["lines"]:
        row["clusters"] = plays.clusters_of("lb", row["nodes"])
    assert tables.missing({"policies": whole}) == []

    whole["lb"]["5 seeds"]["lines"].pop()  # the last size, the last seed
    del whole["ee"]["shuffled"]
    assert tables.missing({"policies": whole}) == [
        "ee: shuffled were not measured",
        "lb: 5000 nodes were played by 4 of five seeds",
    ]
    assert len(tables.missing({"policies": {}})) == len(judging.KINDS) * (len(plays.SIZES) + 2)


def generalizing(*, what: str, small: float, large: float, **more: Any) -> dict[str, Any]:
    """How one line at 5,000 nodes is counted against 6 to 32."""
    both = rows("a")
    for row, figure in zip(both, (small, large), strict=True):
        row |= {"what": what, "value": figure, "ratio": [figure, figure, figure]} | more
    (found,) = run.generalized(both)
    return found


def test_beyond_32_nodes_a_ratio_may_be_five_percent_worse_and_no_more() -> None:
    assert generalizing(what="used nodes", small=1.0, large=1.049)["holds"]
    worse = generalizing(what="used nodes", small=1.0, large=1.06)

    assert not worse["holds"]
    assert worse["worse"] == 0.06
    assert not generalizing(what="within soft", small=1.0, large=0.9, at_least=True)["holds"]


def test_beyond_32_nodes_no_worse_than_a_rule_is_asked_again_and_its_ratio_counts_too() -> None:
    assert generalizing(what="load, paired bound", small=0.8, large=0.83, holds=True)["holds"]
    assert not generalizing(what="load, paired bound", small=0.8, large=0.83, holds=False)["holds"]
    assert not generalizing(what="load, paired bound", small=0.8, large=0.85, holds=True)["holds"]


def test_beyond_32_nodes_pods_still_have_to_find_their_node() -> None:
    assert generalizing(what="pods left", small=0, large=0, guard=True, holds=True)["holds"]
    assert not generalizing(what="pods left", small=0, large=3, guard=True, holds=False)["holds"]


@pytest.mark.parametrize(
    "found",
    [
        {"random networks": 200, "random networks that pass": 5},
        {"trained on shuffled rewards and pass": 1},
        {"rules of one feature that pass": ["least latency_ms"]},
        {"policies": 5, "policies that pass": 2},
    ],
)
def test_a_control_that_fails_is_counted(found: dict[str, Any]) -> None:
    sound = {
        "random networks": 200,
        "random networks that pass": 4,
        "trained on shuffled rewards and pass": 0,
        "rules of one feature that pass": [],
        "policies": 5,
        "policies that pass": 5,
    }
    assert tables.show({"policies": {"ee": {"controls": sound}}}) == 0
    assert tables.show({"policies": {"ee": {"controls": sound | found}}}) == 1


def test_a_play_that_was_kept_is_not_played_again_and_none_begins_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(plays.SIZES, "3", ((3, 3), 2, 6))
    monkeypatch.setattr(plays, "exam_of", plays.exam_of.__wrapped__)
    task = Task("3", 2, "mixed", Arm("used-first"), tmp_path, time.time() + 60)
    first = plays.played(task)
    monkeypatch.setattr(plays, "exam_of", lambda *given: pytest.fail("played again"))
    again = plays.played(task._replace(until=0.0))

    assert first is not None
    assert again is not None
    assert again.to_json() == first.to_json()
    assert plays.played(task._replace(arm=Arm("best-fit"), until=0.0)) is None


def test_plays_are_enough_to_judge_by_and_rules_come_first(tmp_path: Path) -> None:
    arms = {kind: [Arm(kind)] for kind in judging.KINDS}
    tasks = plays.tasks_of(["3", "500"], arms, keep=tmp_path, until=0.0)
    small = [task for task in tasks if task.size == "3"]

    assert tasks[: len(small)] == small
    assert [task.arm.is_rule for task in small] == sorted(
        (task.arm.is_rule for task in small), reverse=True
    )
    for kind in judging.KINDS:
        for arm in (Arm(kind), *map(Arm, plays.beside(kind))):
            played = {task.part for task in small if task.arm == arm}
            assert played.issuperset(judging.PARTS_OF[kind])
        assert {("mixed", rule) for rule in plays.COMPARED[kind]} <= {
            (task.part, task.arm.where) for task in small
        }


def test_a_figure_that_varies_more_is_taken_on_more_clusters_and_so_are_its_rules(
    tmp_path: Path,
) -> None:
    arms = {kind: [Arm(kind)] for kind in judging.KINDS}
    tasks = plays.tasks_of(["5000"], arms, keep=tmp_path, until=0.0)
    clusters = {task.arm.where: task.clusters for task in tasks if task.part == "mixed"}

    assert clusters["lb"] == clusters["evenest"] == plays.clusters_of("lb", "5000") == 8
    assert clusters["ee"] == clusters["used-first"] == plays.clusters_of("ee", "5000") == 4
    kept = {"policies": {"lb": {"5 seeds": {"lines": rows(*"abcde", sizes=("5000",))}}}}
    assert run.lines_part("lb", [], kept, set("abcde"))["policies"]["lb"]["5 seeds"]["lines"] == []


def test_what_is_written_can_be_read_and_has_a_row_on_a_line() -> None:
    value = {"date": "x", "lines": rows(*"ab"), "nested": {"a": [1, [2, 3]], "b": {"c": []}}}
    text = tables.text_of(value)

    assert json.loads(text) == value
    assert len(text.splitlines()) == 2 + 1 + 2 + len(rows(*"ab")) + 4


def test_what_is_kept_says_when_each_part_was_measured(kept: dict[str, Any]) -> None:
    parts = [part for policy in kept["policies"].values() for part in policy.values()]
    assert all("date" in part for part in [*parts, kept["openb"], kept["gap to the optimum"]])
    for policy in kept["policies"].values():
        assert {row["seed"] for row in policy["5 seeds"]["lines"]} == {1, 2, 3, 4, 5}


def test_openb_is_left_out_without_its_data_unless_it_was_asked_for() -> None:
    parser = argparse.ArgumentParser()

    def asked(parts: str | None, data: Path | None) -> tuple[str, ...]:
        return run.asked(argparse.Namespace(parts=parts, data=data), parser)

    assert asked(None, None) == run.PARTS[:-1]
    assert asked(None, Path()) == run.PARTS
    assert asked("openb", Path()) == ("openb",)
    for parts in ("openb", "lines,openb", "line"):
        with pytest.raises(SystemExit) as ended:
            asked(parts, None)
        assert ended.value.code == 2  # could not run
