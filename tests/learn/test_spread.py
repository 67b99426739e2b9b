# SPDX-License-Identifier: Apache-2.0
"""Long work spread over a Ray cluster is the work done here, bit by bit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("xgboost")

from benchmarks.tuning.run import Sizes, cluster, compare
from pilothouse.cli import main
from pilothouse.errors import TraceUnreadable
from pilothouse.learn.crew import HERE, crew_at
from pilothouse.learn.traces.synthetic import Recipe
from pilothouse.learn.train import simulated

pytestmark = pytest.mark.timeout(600)  # Ray starts slowly on a busy machine

SMALL = Sizes(
    trace=Recipe(jobs=30, machines=8, hours=24, seed=3),
    # Every fifth run judges, and a label looks a quarter of an hour ahead.
    runs=simulated.Recipe(scenarios=("memory-growth",), seeds=tuple(range(5)), cycles=260),
    bucket_rows=1_500,
    trials=3,
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A Ray head of our own on loopback, for this file."""
    with cluster() as at:
        yield at


def refuse(piece: int) -> int:
    raise TraceUnreadable(f"Row {piece} is bad.")


def where(offset: int, piece: int) -> tuple[int, int]:
    return os.getpid(), offset + piece


@pytest.mark.slow
def test_files_buckets_runs_fits_and_trials_are_the_same_here_and_there(
    address: str, home: Path, tmp_path: Path
) -> None:
    table = compare(SMALL, tmp_path, address)

    assert {what: row["same"] for what, row in table.items()} == dict.fromkeys(table, True)
    assert len(table["feature buckets"]["result"]) > 2  # several buckets, or nothing was spread


def test_pieces_are_done_elsewhere_and_come_back_in_order(address: str) -> None:
    with crew_at(address) as crew:
        done = list(crew.map(partial(where, 10), range(12)))

    assert [value for _, value in done] == list(range(10, 22))
    assert os.getpid() not in {pid for pid, _ in done}
    assert {pid for pid, _ in HERE.map(partial(where, 10), range(3))} == {os.getpid()}


def test_mistake_of_a_piece_is_told_in_its_own_words(address: str) -> None:
    with crew_at(address) as crew, pytest.raises(TraceUnreadable) as caught:
        list(crew.map(refuse, [7]))

    assert str(caught.value) == "Row 7 is bad."


def test_commands_take_the_address(
    address: str, home: Path, synthetic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["traces", "import", "google-2019", str(synthetic), "--ray", address]) == 0
    assert main(["traces", "features", "google-2019", "--ray", address]) == 0
    tune = ["tune", "risk", "--dataset", "google-2019-features", "--trials", "2"]
    assert main([*tune, "--ray", address]) == 0
    assert "2 trials" in capsys.readouterr().out


def test_address_where_nobody_answers_is_one_line(
    home: Path, synthetic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["traces", "import", "google-2019", str(synthetic), "--ray", "127.0.0.1:1"]
    assert main(command) == 4
    assert "No Ray cluster answers at 127.0.0.1:1" in capsys.readouterr().err
