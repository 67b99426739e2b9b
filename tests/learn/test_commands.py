# SPDX-License-Identifier: Apache-2.0
"""The whole path by its commands, on a made-up trace: import, features, train, tune, run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pilothouse.cli import main
from pilothouse.journal import JournalReader

pytest.importorskip("xgboost")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, synthetic: Path) -> Path:
    """A home with an imported trace and its features, made by the commands."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PILOTHOUSE_HOME", str(home))
        assert main(["traces", "import", "google-2019", str(synthetic)]) == 0
        assert main(["traces", "features", "google-2019"]) == 0
    return home


@pytest.fixture(autouse=True)
def at_home(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PILOTHOUSE_HOME", str(made))


def out_of(capsys: pytest.CaptureFixture[str], *command: str):
    capsys.readouterr()
    code = main([*command, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_artefacts_are_listed_and_shown(capsys) -> None:
    _, listed = out_of(capsys, "artifacts", "list")
    _, shown = out_of(capsys, "artifacts", "show", "google-2019-features")

    assert {a["name"] for a in listed} >= {"google-2019", "google-2019-features"}
    assert shown["facts"]["rows"] > 100
    assert all(len(part["sha256"]) == 64 for part in shown["inputs"])


def test_description_tells_base_rates(capsys) -> None:
    _, facts = out_of(capsys, "traces", "describe", "google-2019-features")

    assert "failure within 60 min" in facts


def test_forecaster_trained_on_a_trace_runs_the_loop(capsys, made: Path, tmp_path: Path) -> None:
    code, trained = out_of(
        capsys, "train", "risk", "--dataset", "google-2019-features", "--name", "mine"
    )
    assert code == 0
    assert Path(trained["path"]).is_file()
    run = ["up", "--forecaster", "mine", "--cycles", "8", "--interval", "0", "--no-serve"]
    assert main([*run, "--journal", str(tmp_path / "run.db")]) == 0
    assert main(["replay", str(tmp_path / "run.db")]) == 0


def test_trace_is_replayed_on_the_simulator(capsys, tmp_path: Path) -> None:
    run = ["up", "--trace", "google-2019", "--speed", "8", "--cycles", "12", "--interval", "0"]
    journal = str(tmp_path / "run.db")
    assert main([*run, "--no-serve", "--journal", journal]) == 0
    assert main(["verify", journal]) == 0


def test_own_journal_teaches_a_forecaster_and_a_short_one_says_what_it_lacks(
    capsys, tmp_path: Path
) -> None:
    journal, short = str(tmp_path / "long.db"), str(tmp_path / "short.db")
    run = ["up", "--scenario", "memory-growth", "--interval", "0", "--no-serve"]
    assert main([*run, "--cycles", "170", "--journal", journal]) == 0
    assert main([*run, "--cycles", "10", "--journal", short]) == 0
    code, trained = out_of(capsys, "train", "risk", "--journal", journal, "--name", "own")

    assert code == 0
    assert trained["card"]["pods"]["test_rows"] > 0
    assert "hardly a node failed" in trained["card"]["nodes"]["left_to"]
    again = ["up", "--forecaster", "own", "--cycles", "3", "--interval", "0", "--no-serve"]
    assert main([*again, "--journal", str(tmp_path / "again.db")]) == 0
    assert main(["train", "risk", "--journal", short]) == 2
    assert "needs 40 min" in capsys.readouterr().err


def test_up_trains_and_tunes_before_the_loop_and_uses_what_it_made(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from functools import partial

    from pilothouse.cli import stages
    from pilothouse.learn.train import objectives, simulated

    few = ("harbor", "memory-growth", "node-degradation")
    monkeypatch.setattr(simulated, "Recipe", partial(simulated.Recipe, scenarios=few))
    monkeypatch.setattr(stages, "CYCLES", 100)
    monkeypatch.setattr(objectives, "cost", partial(objectives.cost, cycles=8))
    journal = tmp_path / "run.db"
    run = ["up", "--train", "--tune", "--trials", "1", "--cycles", "2", "--interval", "0"]
    assert main([*run, "--no-serve", "--journal", str(journal)]) == 0
    first = next(iter(JournalReader(journal).cycles()))
    study = made / "models" / "tune-agents-harbor-up-harbor.db"

    # Trained on this little it may still hand the cycle down, and then says for whom.
    assert first.forecast.forecaster.endswith("up-harbor/1")
    assert study.is_file()


def test_same_trials_give_the_same_scores(capsys, tmp_path: Path) -> None:
    from pilothouse.learn.train.tuning import tune

    first, second = (
        tune(
            "risk",
            trials=3,
            dataset="google-2019-features",
            sampler="random",
            storage=tmp_path / f"{n}.db",
        )
        for n in range(2)
    )

    assert first["scores"] == second["scores"]
    assert first["best"] == second["best"]


def drawn_in(storage: Path) -> list[dict[str, Any]]:
    """The parameters of every trial of the one study in a file."""
    import optuna

    return [
        t.params for t in optuna.load_study(study_name=None, storage=f"sqlite:///{storage}").trials
    ]


def test_study_is_taken_up_where_it_stopped_and_draws_what_it_would_have_drawn(
    tmp_path: Path,
) -> None:
    from pilothouse.learn.train.tuning import tune

    options = {"dataset": "google-2019-features", "sampler": "random"}
    first = tune("risk", trials=2, storage=tmp_path / "study.db", **options)
    again = tune("risk", trials=4, storage=tmp_path / "study.db", **options)
    at_once = tune("risk", trials=4, storage=tmp_path / "other.db", **options)

    assert again["scores"][:2] == first["scores"]
    assert again["scores"] == at_once["scores"]
    assert len(set(map(str, drawn_in(tmp_path / "study.db")))) == 4
    assert drawn_in(tmp_path / "study.db") == drawn_in(tmp_path / "other.db")


class MadeUp:
    """Seven good trials, a bad one, and a kill in the middle of the third."""

    stages = 3

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, asked: tuple[dict[str, float], int]) -> float:
        _, stage = asked
        trial = self.asked.count(0)
        self.asked.append(stage)
        if trial == 2 and stage == 0:
            raise KeyboardInterrupt  # as a kill would: the trial has no verdict
        return 0.0 if self.asked.count(0) == 7 else 1.0


def test_trial_that_falls_behind_is_pruned_and_one_killed_on_the_way_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pilothouse.learn.train import tuning

    objective = MadeUp()
    problem = (tuning.boost_space, objective, "made-up")
    monkeypatch.setattr(tuning, "_problem", lambda *given: problem)
    with pytest.raises(KeyboardInterrupt):
        tuning.tune("risk", trials=8, storage=tmp_path / "study.db")
    result = tuning.tune("risk", trials=8, storage=tmp_path / "study.db")

    assert result["trials"] == 8
    assert result["pruned"] == 1
    assert result["scores"] == [1.0] * 7
    assert len(objective.asked) == 7 * 3 + 1 + 1


def test_one_cell_cannot_be_left_out_and_the_message_says_so(capsys) -> None:
    assert main(["evaluate", "risk", "--dataset", "google-2019-features"]) == 2
    assert "leaving one out needs two" in capsys.readouterr().err


def test_missing_extra_is_one_line(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    from pilothouse.learn import extras

    monkeypatch.setattr(extras.importlib.util, "find_spec", lambda name: None)
    assert main(["train", "risk"]) == 2
    assert 'pip install "pilothouse[learn]"' in capsys.readouterr().err
