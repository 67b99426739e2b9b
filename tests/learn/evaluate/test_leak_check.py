# SPDX-License-Identifier: Apache-2.0
"""The leak check that ships: honest features pass, each kind of planted leak is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

pytest.importorskip("polars")
pytest.importorskip("xgboost")

from pilothouse.cli import main
from pilothouse.features.core import CORE
from pilothouse.features.history import AsOf
from pilothouse.learn import artifacts
from pilothouse.learn.dataset import jobs as at_submission
from pilothouse.learn.dataset import windows
from pilothouse.learn.evaluate import cellrisk, leaks, metrics
from pilothouse.learn.traces.importing import import_trace, table
from pilothouse.learn.traces.schema import TABLES, TERMINAL, Event
from pilothouse.learn.traces.synthetic import Recipe, write

HORIZON = 900
HOUR_US = 3_600_000_000
INSTANCE = ["cell", "job", "instance"]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up trace, dealt out over three cells, with its features beside it."""
    made, home = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("home")
    write(made, Recipe(jobs=240, machines=16, hours=8, seed=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PILOTHOUSE_HOME", str(home))
        import_trace("google-2019", made)
    source = home / "processed" / "google-2019"
    was = artifacts.load(source)
    for file in [*source.glob("events/*"), *source.glob("usage/*"), *source.glob("jobs/*")]:
        frame = pl.read_parquet(file)
        frame.with_columns(cell=(pl.col("job") % 3).cast(pl.String)).write_parquet(file)
    artifacts.seal(
        source,
        kind=was.kind,
        track=was.track,
        inputs=was.inputs,
        settings=was.settings,
        facts=was.facts,
    )
    windows.build(source)
    return source


def planted(
    dataset: Path, folder: Path, plant: Callable[[pl.DataFrame], pl.DataFrame] = lambda rows: rows
) -> Path:
    """A copy of the dataset's features, changed, beside a copy of the dataset."""
    source, features = folder / dataset.name, folder / f"{dataset.name}-features"
    shutil.copytree(dataset, source)
    features.mkdir()
    honest = dataset.with_name(features.name)
    plant(windows.load(honest)).write_parquet(features / "rows-00000.parquet")
    was = artifacts.load(honest)
    artifacts.seal(
        features,
        kind=was.kind,
        track=was.track,
        inputs=was.inputs,
        settings=was.settings,
        facts=was.facts,
    )
    return features


def final_events(dataset: Path) -> pl.DataFrame:
    """How each instance ends, by the trace's own number of the event."""
    number = {str(event): code for code, event in enumerate(Event)}
    ends = pl.col("event").cast(pl.String)
    return (
        table(dataset, "events")
        .filter(ends.is_in([str(e) for e in TERMINAL]))
        .sort("time_us")
        .group_by(INSTANCE)
        .agg(final_event=ends.last().replace_strict(number).cast(pl.Float32))
        .collect()
    )


def test_honest_features_pass(dataset: Path) -> None:
    report = leaks.check(dataset.with_name(f"{dataset.name}-features"))

    assert report.ok
    assert report.not_run == ""
    assert report.sentence.endswith("No leak found.")


def as_it_is(event: pl.Expr) -> pl.Expr:
    return event


def as_a_flag(event: pl.Expr) -> pl.Expr:
    return (event == list(Event).index(Event.FAIL)).cast(pl.Float32)


@pytest.mark.parametrize("told", [as_it_is, as_a_flag])
def test_feature_that_holds_the_final_event_alone_is_named(
    dataset: Path, tmp_path: Path, told: Callable[[pl.Expr], pl.Expr]
) -> None:
    """The classic: the last row of an instance, joined to every earlier window of it."""

    def plant(rows: pl.DataFrame) -> pl.DataFrame:
        known = rows.join(final_events(dataset), on=INSTANCE, how="left", maintain_order="left")
        return known.with_columns(told(pl.col("final_event")))

    report = leaks.check(planted(dataset, tmp_path, plant), horizon_seconds=HORIZON)

    # Far from the end it ranks the label badly: the label alone does not give it away.
    assert report.suspects == ()
    assert [name for name, _ in report.prophets] == ["final_event"]
    assert "final_event alone tells" in report.sentence
    assert not report.ok


def test_feature_that_holds_the_label_is_named(dataset: Path, tmp_path: Path) -> None:
    label = pl.col(f"label_{HORIZON}").cast(pl.Float32)
    features = planted(dataset, tmp_path, lambda rows: rows.with_columns(soon=label))
    report = leaks.check(features, horizon_seconds=HORIZON)

    assert [name for name, _ in report.suspects] == ["soon"]
    assert "soon alone reaches" in report.sentence


def test_stored_feature_that_counts_the_future_too_is_named(dataset: Path, tmp_path: Path) -> None:
    whole = pl.col("job_failures").max().over("cell", "job")
    features = planted(dataset, tmp_path, lambda rows: rows.with_columns(job_failures=whole))
    report = leaks.check(features)

    assert report.strange == ("job_failures",)
    assert "job_failures is not what the dataset gives" in report.sentence
    assert not report.ok


def test_code_that_reads_the_future_is_named(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the future shuffle: pasts are asked an hour later than the window's end."""
    at = AsOf.at
    monkeypatch.setattr(AsOf, "at", lambda self, who, time: at(self, who, time + HOUR_US))
    report = leaks.check(dataset.with_name(f"{dataset.name}-features"))
    past = {name for name in CORE if name.startswith(("job_", "user_", "machine_"))}

    assert set(report.moved) >= past
    assert "job_failures changes when only the future does." in report.sentence
    assert not report.ok


def test_code_that_looks_at_the_next_window_is_named(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = windows._lags

    def backwards(values, numbered, keep):
        return honest(values[::-1], numbered[::-1], len(values) - 1 - keep)

    monkeypatch.setattr(windows, "_lags", backwards)
    # Other requests would move the ratios of later windows too: here usage alone has to.
    monkeypatch.setattr(leaks, "_other_events", lambda events, cut: events)
    report = leaks.check(dataset.with_name(f"{dataset.name}-features"))

    assert set(report.moved) >= {"cpu_lag_1", "memory_lag_1", "memory_slope"}


def test_check_without_the_dataset_says_what_it_did_not_look_at(
    dataset: Path, tmp_path: Path
) -> None:
    features = planted(dataset, tmp_path)
    shutil.rmtree(tmp_path / dataset.name)
    report = leaks.check(features)

    assert "not beside them" in report.not_run
    assert "No leak found" not in report.sentence
    assert "future shuffle were not looked at" in report.sentence
    assert report.to_dict()["not_run"] == report.not_run
    assert not report.ok, "what was not looked at is no pass"


def test_check_does_not_judge_by_another_dataset(dataset: Path, tmp_path: Path) -> None:
    features = planted(dataset, tmp_path)
    artifacts.seal(
        features, kind="features", track="test", inputs=(), settings={}, facts={"rows": 1}
    )

    assert "not what these features were made from" in leaks.check(features).not_run


def job_events(folder: Path) -> Path:
    """Jobs of a month; some names fail often, some seldom."""
    dice = np.random.default_rng(4)
    number = 3000
    name = dice.integers(0, 40, number)
    submitted = np.sort(dice.integers(1, 29 * 24 * HOUR_US, number))
    ended = submitted + dice.integers(1, 3 * HOUR_US, number)
    fails = dice.random(number) < np.where(name % 4 == 0, 0.5, 0.02)
    job = np.arange(number)
    frame = pl.DataFrame(
        {
            "cell": ["a"] * (2 * number),
            "job": np.tile(job, 2),
            "time_us": np.concatenate([submitted, ended]),
            "event": ["SUBMIT"] * number + np.where(fails, "FAIL", "FINISH").tolist(),
            "user": [f"u{n % 7}" for n in np.tile(name, 2)],
            "name": [f"n{n}" for n in np.tile(name, 2)],
            "tier": [0] * (2 * number),
            "scheduling_class": [0] * (2 * number),
        }
    )
    schema = TABLES["jobs"]
    (folder / "jobs").mkdir(parents=True)
    frame.select(pl.col(n).cast(k) for n, k in schema.items()).write_parquet(
        folder / "jobs" / "0.parquet"
    )
    artifacts.seal(folder, kind="dataset", track="google-2011", inputs=(), settings={}, facts={})
    return folder


def test_job_that_knows_how_it_ends_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = job_events(tmp_path / "jobs-2011")
    honest = at_submission._past_of

    def knowing(tag, group, submitted, ends):
        final = np.full(len(submitted), 6)
        final[ends.job[ends.failed]] = 5
        own = {"final_event": final} if tag == "user" else {}
        return honest(tag, group, submitted, ends) | own

    assert leaks.check_jobs(events).ok
    monkeypatch.setattr(at_submission, "_past_of", knowing)
    report = leaks.check_jobs(events)

    assert [name for name, _ in report.suspects] == ["final_event"]
    assert report.moved == ("final_event",)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few and small forecasters: the figures are not what is asked for here."""
    few = cellrisk.baselines()[:2] + cellrisk.baselines()[-2:]
    monkeypatch.setattr(cellrisk, "candidates", lambda: few)
    monkeypatch.setattr(cellrisk, "baselines", lambda: few)
    monkeypatch.setattr(metrics, "bootstrap", lambda *given, **more: (0.0, 1.0))


@pytest.mark.parametrize("kind", ["features", "job events"])
def test_command_tells_what_its_leak_check_found(
    kind: str, dataset: Path, home: Path, tmp_path: Path, quick: None, capsys
) -> None:
    made = (
        dataset.with_name(f"{dataset.name}-features")
        if kind == "features"
        else job_events(tmp_path / "jobs-2011")
    )
    capsys.readouterr()
    code = main(["evaluate", "risk", "--dataset", str(made), "--leak-check", "--json"])
    found = json.loads(capsys.readouterr().out)["leak_check"]

    assert code == 0
    assert found["ok"]
    assert found["sentence"].endswith("No leak found.")
