# SPDX-License-Identifier: Apache-2.0
"""One cell left out: what may be chosen, who decides, and what is told beside the figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

pytest.importorskip("polars")
pytest.importorskip("xgboost")

from pilothouse.features.core import CORE
from pilothouse.learn import artifacts
from pilothouse.learn.evaluate import cellrisk, metrics
from pilothouse.learn.evaluate.choosing import Choice, Fold, choose, rank

CELLS, JOBS, ROWS = 3, 60, 12  # cells, jobs per cell, rows per job


def made_up_cells(folder: Path) -> Path:
    """Three cells whose failures follow memory, and a job's own luck besides."""
    dice = np.random.default_rng(2)
    number = CELLS * JOBS * ROWS
    job = np.repeat(np.arange(CELLS * JOBS), ROWS)
    values = {name: dice.random(number).astype(np.float32) for name in CORE}
    luck = dice.normal(0, 1.0, CELLS * JOBS)[job]
    odds = 6 * values["memory_over_limit"] - 5 + luck
    fails = dice.random(number) < 1 / (1 + np.exp(-odds))
    hours = dice.choice(4, number)
    labels = {
        f"label_{seconds}": (fails & (hours <= column)).astype(np.int8)
        for column, seconds in enumerate((300, 900, 1800, 3600))
    }
    frame = pl.DataFrame(
        {
            "cell": (job // JOBS).astype(str),
            "job": job,
            "instance": np.tile(np.arange(ROWS), CELLS * JOBS),
            "end_us": np.arange(number),
            "name": [f"n{j % 7}" for j in job.tolist()],
            "user": [f"u{j % 5}" for j in job.tolist()],
            **values,
            **labels,
        }
    )
    folder.mkdir()
    frame.write_parquet(folder / "rows-00000.parquet")
    artifacts.seal(folder, kind="features", track="test", inputs=(), settings={}, facts={})
    return folder


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up_cells(tmp_path_factory.mktemp("cells") / "made-up-features")


@pytest.fixture(scope="module")
def case(features: Path) -> cellrisk.Case:
    return cellrisk.Case.of(features, 3600)


@pytest.fixture(scope="module")
def figures(features: Path):
    return cellrisk.evaluate(features)


def test_every_baseline_may_be_chosen() -> None:
    assert {k.name for k in cellrisk.baselines()} <= {k.name for k in cellrisk.candidates()}


def test_chosen_forecaster_keeps_up_with_the_best_baseline(figures) -> None:
    assert figures["scored_cells"] == ["0", "1", "2"]
    assert figures["over_best_baseline"] >= 0.95
    assert figures["times_base_rate"] >= 2


def test_inner_scores_gap_and_random_split_are_told(figures) -> None:
    cell = figures["cells"][0]
    assert set(cell["inside"]) == {k.name for k in cellrisk.candidates()}
    assert cell["chosen_inside"] >= max(cell["inside"].values()) - 1e-9
    assert figures["gap_interval"][0] <= figures["gap_interval"][1]
    assert figures["random_split_average_precision"] > 0


def test_lead_time_and_drift_are_told(figures) -> None:
    minutes, share = figures["curves"]["lead_time"]
    assert minutes == [0, 5, 15, 30]
    assert share == sorted(share, reverse=True)
    assert 0 < share[0] <= 1
    assert max(figures["curves"]["drift"].values()) < 0.25  # all cells are drawn alike


def test_left_out_cell_decides_nothing(case: cellrisk.Case) -> None:
    """Its outcomes are turned around; what is chosen for it stays, what is chosen elsewhere may
    not."""
    cells = case.scored_cells()
    here = case.cell == "1"
    turned = replace(case, outcome=np.where(here, 1 - case.outcome, case.outcome))
    kinds = cellrisk.baselines()[:2] + cellrisk.baselines()[-2:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cellrisk, "candidates", lambda: kinds)
        chosen, afterwards = (
            {
                cell: choose(cellrisk._inside(c, cells, cell, cellrisk._scores(c, cells, quiet)))
                for cell in cells
            }
            for c in (case, turned)
        )

    assert chosen["1"] == afterwards["1"]
    assert chosen["0"] != afterwards["0"]


def quiet(what: str) -> None:
    pass


def fold(**scores: list[float]) -> Fold:
    return Fold(
        outcome=np.array([0, 0, 1, 1, 0, 1]),
        scores={name: np.array(values, float) for name, values in scores.items()},
    )


def test_a_static_rule_is_chosen_when_it_ranks_best() -> None:
    chosen = choose([fold(trees=[1, 2, 1, 2, 3, 1], rule=[0, 0, 1, 1, 0, 1])])

    assert chosen.parts == (("rule", 1),)
    assert chosen.inside == 1.0


def test_a_mixture_is_chosen_when_it_ranks_better_than_each_part() -> None:
    parts = {"left": [0, 2, 3, 1, 0, 3], "right": [2, 0, 1, 3, 0, 3]}
    chosen = choose([fold(**parts)])
    alone = [metrics.average_precision(fold(**parts).outcome, np.array(v)) for v in parts.values()]

    assert {name for name, _ in chosen.parts} == {"left", "right"}
    assert chosen.inside > max(alone)


def test_equal_scores_keep_equal_ranks() -> None:
    """Ranks that follow the order of rows would leak it: rows of one job lie together."""
    assert rank(np.array([3.0, 1.0, 3.0, 1.0])).tolist() == [2.5 / 3, 0.5 / 3, 2.5 / 3, 0.5 / 3]


def test_mixture_weighs_parts_by_how_often_they_were_added() -> None:
    choice = Choice(parts=(("a", 3), ("b", 1)), inside=0.5)
    blended = choice.blend({"a": np.array([0.0, 1.0]), "b": np.array([1.0, 0.0])})

    assert blended.tolist() == [0.25, 0.75]
    assert choice.sentence == "3 × a + 1 × b"
