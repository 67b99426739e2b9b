# SPDX-License-Identifier: Apache-2.0
"""Demand forecasters are trained on what really came, by the code that runs in the loop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("xgboost")

from pilothouse.cli import main
from pilothouse.domain import HORIZONS_SECONDS, Snapshot
from pilothouse.errors import TraceUnreadable
from pilothouse.features.demand_history import DemandHistory
from pilothouse.learn.traces.synthetic import Recipe, write
from pilothouse.learn.train import demand, simulated
from pilothouse.predict.demand import load_demand
from pilothouse.scenarios import load
from pilothouse.sim.cluster import SimCluster


@pytest.fixture(scope="module")
def course() -> list[Snapshot]:
    """Seventy minutes, looked at once a minute: a step is one sample."""
    cluster = SimCluster(load("light"), seed=9)
    seen = []
    for _ in range(70):
        cluster.advance(60)
        seen.append(cluster.observe())
    return seen


def all_train(share: float) -> int:
    return demand.TRAIN


def test_rows_are_what_the_loop_would_have_seen_and_outcomes_what_came_later(course) -> None:
    rows = demand.watch(course, all_train, every=1)["nodes"]
    history = DemandHistory(60)
    used = np.array([s.nodes.cpu_used_millicores for s in course])  # (snapshots, nodes)
    place = 0
    for number, snapshot in enumerate(course):
        history.see(snapshot)
        if not number:
            continue
        seen = history.rows("nodes")
        keep = np.flatnonzero((seen.steps >= demand.LEAST_STEPS) & (seen.level >= 1))
        np.testing.assert_array_equal(rows.x[place : place + len(keep)], seen.features[keep])
        for column, seconds in enumerate(HORIZONS_SECONDS):
            after = number + seconds // 60
            came = rows.actual[place : place + len(keep), column]
            if after < len(course):
                np.testing.assert_allclose(came, used[after, keep], rtol=1e-6)
            else:
                assert np.isnan(came).all()  # nobody knows; not zero
        place += len(keep)
    assert place == len(rows.x) > 500


def test_outcome_beyond_its_cut_is_unknown(course) -> None:
    half = demand.watch(course, lambda share: int(share > 0.5), every=1)["nodes"]
    whole = demand.watch(course, all_train, every=1)["nodes"]
    near, far = HORIZONS_SECONDS.index(300), HORIZONS_SECONDS.index(3600)

    assert np.isnan(half.actual[:, far]).all()  # an hour never fits into 35 minutes
    assert np.isfinite(whole.actual[:, far]).any()
    assert np.isfinite(half.actual[:, near]).sum() < np.isfinite(whole.actual[:, near]).sum()


def test_simulated_training_covers_what_it_claims_and_its_card_says_how_well() -> None:
    recipe = simulated.Recipe(
        scenarios=("light",), seeds=tuple(range(1000, 1005)), cycles=75, cycle_seconds=60
    )
    made = demand.on_simulator(recipe, name="small/1")

    assert set(made.parts) == {"nodes", "workloads"}
    for scope in made.parts:
        assert made.card[scope]["rows"] > demand.FEWEST_ROWS
        assert 0.7 <= made.card[scope]["p95_coverage"] <= 1.0


def test_command_trains_on_the_machines_of_a_trace_and_the_loop_takes_it(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "raw", Recipe(jobs=40, machines=8, hours=24, seed=3))
    assert main(["traces", "import", "google-2019", str(tmp_path / "raw")]) == 0
    assert main(["train", "demand", "--dataset", "google-2019", "--name", "machines"]) == 0
    made = load_demand(home / "models" / "machines" / "forecaster.json")
    assert set(made.parts) == {"nodes"}
    run = ["up", "--demand", "machines", "--cycles", "6", "--interval", "0", "--no-serve"]
    assert main([*run, "--journal", str(tmp_path / "run.db")]) == 0
    capsys.readouterr()
    assert main(["up", "--forecaster", "machines", "--cycles", "1", "--no-serve"]) == 2
    assert "--demand" in capsys.readouterr().err


def test_short_journal_and_short_trace_say_what_they_lack(
    home: Path, synthetic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = str(tmp_path / "short.db")
    run = ["up", "--scenario", "light", "--cycles", "30", "--interval", "0", "--no-serve"]
    assert main([*run, "--journal", journal]) == 0
    assert main(["train", "demand", "--journal", journal]) == 2
    assert "six hours or more" in capsys.readouterr().err
    assert main(["traces", "import", "google-2019", str(synthetic)]) == 0
    assert main(["train", "demand", "--dataset", "google-2019"]) == 2
    assert "a day or more" in capsys.readouterr().err


def test_run_of_one_cycle_is_refused() -> None:
    with pytest.raises(TraceUnreadable, match="one cycle"):
        demand.watch([], all_train)
