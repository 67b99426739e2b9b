# SPDX-License-Identifier: Apache-2.0
"""Placement from the command line: answers for scripts, and mistakes that are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilothouse.cli import main

pytestmark = pytest.mark.timeout(600)


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_evaluate_answers_with_lines_and_every_heuristic(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [
        "evaluate",
        "placement",
        "--policy",
        "lb",
        "--nodes",
        "3",
        "4",
        "--episodes",
        "6",
        "--json",
    ]
    code, out, _ = answered(capsys, *words)
    report = json.loads(out)

    assert code == 0
    assert report["simulated"] is True
    assert {row[0] for row in report["table"]} >= {"lb", "default", "best-fit", "heuristic"}


def test_compare_writes_plots_tables_and_a_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = "compare placement --test 2 --arms default,el-rl --seeds 2 --pods 5 --json --out"
    code, out, _ = answered(capsys, *words.split(), str(tmp_path))

    assert code == 0
    assert {row["arm"] for row in json.loads(out)["rows"]} == {"default", "el-rl"}
    assert {path.name for path in tmp_path.iterdir()} == {
        "index.html",
        "test2-latency.csv",
        "test2-latency.png",
        "test2-used-nodes.csv",
        "test2-used-nodes.png",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("compare placement --arms defualt", 'Did you mean "default"'),
        ("compare placement --phase later", "Available: testing, training"),
        ("evaluate placement --policy eee", "Unknown policy"),
        ("train placement --policy ee --preset quick", "Available: fast, thesis"),
        ("train placement --policy mine", "Unknown policy"),
        ("train placement --policy ee --resource dsk", 'Did you mean "disk"'),
        ("train placement --policy ee --live k --from-journal j", "Keep one"),
        ("compare placement --live k --nodes-move --test 2", "--live plays the tests as they are"),
        ("compare placement --preset slow", "Available: short, thesis"),
    ],
)
def test_mistakes_are_named(capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    code, _, err = answered(capsys, *words.split())

    assert code == 2
    assert message in err
