# SPDX-License-Identifier: Apache-2.0
"""The placement benchmark keeps what it does not judge again, and tells what fails."""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.placement import run


def rows(*weights: str, value: float = 1.0) -> list[dict[str, Any]]:
    """One line of each network on a small and on a large cluster."""
    line = {"what": "used nodes", "value": value, "bound": 1.1, "at_least": False}
    line["holds"] = value <= 1.1
    return [
        line | {"nodes": size, "seed": seed, "weights": name}
        for seed, name in enumerate(weights, start=1)
        for size in ("6-32", "5000")
    ]


@pytest.fixture
def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.RESULTS.read_text(encoding="utf-8"))
    return found


def test_judging_shipped_policies_leaves_the_figures_of_five_seeds(kept: dict[str, Any]) -> None:
    kept["policies"]["ee"].pop("shipped", None)
    before = copy.deepcopy(kept)
    run._merge(kept, run.lines_part("ee", rows(run.own_weights("ee"))))

    assert kept["policies"]["ee"].pop("shipped")["lines"] == rows(run.own_weights("ee"))
    assert kept == before  # also the dates of all the rest


def test_five_seeds_replace_five_seeds_and_one_replaces_none(kept: dict[str, Any]) -> None:
    before = copy.deepcopy(kept)
    run._merge(kept, run.lines_part("lb", rows("another")))
    assert kept["policies"]["lb"].pop("one seed")
    assert kept == before

    run._merge(kept, run.lines_part("lb", rows(*"abcde")))
    assert kept["policies"]["lb"]["5 seeds"]["lines"] == rows(*"abcde")
    assert {one: kept["policies"][one] for one in ("ee", "el-rl")} == {
        one: before["policies"][one] for one in ("ee", "el-rl")
    }


def test_a_line_that_fails_is_told_in_either_set(capsys: pytest.CaptureFixture[str]) -> None:
    kept: dict[str, Any] = {"policies": {}}
    run._merge(kept, run.lines_part("ee", rows(*"abcde")))
    assert run.show(kept) == 0

    run._merge(kept, run.lines_part("ee", rows(run.own_weights("ee"), value=1.2)))
    assert run.show(kept) == 1
    assert "1.200 (1.200) FAILS" in capsys.readouterr().out


def test_what_is_kept_says_when_each_part_was_measured(kept: dict[str, Any]) -> None:
    parts = [part for policy in kept["policies"].values() for part in policy.values()]
    assert all("date" in part for part in [*parts, kept["openb"], kept["gap to the optimum"]])
    for policy in kept["policies"].values():
        assert {row["seed"] for row in policy["5 seeds"]["lines"]} == {1, 2, 3, 4, 5}


def test_openb_is_left_out_without_its_data_unless_it_was_asked_for() -> None:
    parser = argparse.ArgumentParser()

    def asked(parts: str | None, data: Path | None) -> tuple[str, ...]:
        return run.asked(argparse.Namespace(parts=parts, data=data), parser)

    assert asked(None, None) == ("lines", "controls", "gap")
    assert asked(None, Path()) == run.PARTS
    assert asked("openb", Path()) == ("openb",)
    for parts in ("openb", "lines,openb", "line"):
        with pytest.raises(SystemExit) as ended:
            asked(parts, None)
        assert ended.value.code == 2  # could not run
