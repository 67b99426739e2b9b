# SPDX-License-Identifier: Apache-2.0
"""Whatever happens after a window's end, its features stay what they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pilothouse.features.core import CORE
from pilothouse.features.history import AsOf
from pilothouse.learn import artifacts
from pilothouse.learn.dataset import windows
from pilothouse.learn.dataset.jobs import rows_of
from pilothouse.learn.evaluate.noderisk import machine_rows
from pilothouse.learn.traces.importing import import_trace
from pilothouse.learn.traces.schema import TABLES

HOUR_US = 3_600_000_000
TIME = {"events": "time_us", "usage": "end_us", "jobs": "time_us", "machines": "time_us"}
WHO = ("cell", "job", "instance")  # of another instance it would be a row deleted and one added
SEEDS = range(12)


@pytest.fixture
def dataset(home: Path, synthetic: Path) -> Path:
    import_trace("google-2019", synthetic)
    return home / "processed" / "google-2019"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, synthetic: Path) -> Path:
    """The made-up trace with its features, which every change is compared with."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PILOTHOUSE_HOME", str(home))
        import_trace("google-2019", synthetic)
    windows.build(home / "processed" / "google-2019")
    return home / "processed" / "google-2019"


def other_future(frame: pl.DataFrame, time: str, cut: int, dice: np.random.Generator):
    """The same table up to the cut; after it rows are gone, changed, moved and added."""
    later = frame.filter(pl.col(time) > cut)
    kept = later.filter(pl.Series(dice.random(len(later)) < dice.random()))
    more = frame[dice.integers(0, len(frame), 1 + len(frame) // 10)]
    changed = [changed_rows(part, frame, time, cut, dice) for part in (kept, more)]
    return pl.concat([frame.filter(pl.col(time) <= cut), *changed]).sort(time, maintain_order=True)


def changed_rows(
    rows: pl.DataFrame, frame: pl.DataFrame, time: str, cut: int, dice: np.random.Generator
) -> pl.DataFrame:
    """Every column drawn anew, numbers on another scale, at some time after the cut."""
    columns = {}
    for name, kind in frame.schema.items():
        drawn = frame[name][dice.integers(0, len(frame), len(rows))]
        if kind == pl.Enum:  # also what happens nowhere in this table
            drawn = pl.Series(dice.choice(kind.categories.to_list(), len(rows)), dtype=kind)
        elif kind == pl.String:
            drawn = pl.Series(dice.choice(["somebody", "else"], len(rows)), dtype=kind)
        elif kind.is_float():
            drawn = (drawn.fill_null(0.5) * float(dice.lognormal(0, 2))).cast(kind)
        if name not in WHO:
            columns[name] = drawn
    end = dice.integers(cut + 1, max(int(frame[time].max()), cut + 1) + HOUR_US, len(rows))
    columns[time] = pl.Series(end, dtype=pl.Int64)
    if "start_us" in columns:
        columns["start_us"] = pl.Series(end - 300_000_000, dtype=pl.Int64)
    return rows.with_columns(**columns)


def with_another_future(original: Path, folder: Path, tables: tuple[str, ...], cut: int, seed: int):
    """A copy of the trace whose tables differ after the cut, and its features."""
    dice = np.random.default_rng(seed)
    was, target = artifacts.load(original), folder / original.name
    for name, time in TIME.items():
        frame = pl.read_parquet(sorted((original / name).glob("*.parquet")))
        (target / name).mkdir(parents=True)
        if name in tables:
            frame = other_future(frame, time, cut, dice)
        frame.write_parquet(target / name / "0.parquet")
    artifacts.seal(target, kind=was.kind, track=was.track, inputs=(), settings={}, facts=was.facts)
    windows.build(target)
    return target


def features_until(dataset: Path, cut: int) -> pl.DataFrame:
    rows = windows.load(dataset.with_name(f"{dataset.name}-features"))
    return rows.filter(pl.col("end_us") <= cut)


def some_cut(original: Path, seed: int) -> int:
    """The end of some window, so that there is also one exactly at the cut."""
    ends = np.sort(pl.read_parquet(sorted((original / "usage").glob("*")))["end_us"].to_numpy())
    return int(ends[int(np.random.default_rng(seed).uniform(0.3, 0.95) * len(ends))])


def assert_same(before: pl.DataFrame, after: pl.DataFrame) -> None:
    both = before.join(after, on=[*WHO, "end_us"], how="inner", suffix="_after")
    # Only labels need the future: a row goes when nobody can tell any more what became of it.
    assert len(both) > 0.8 * len(before) > 80
    for name in CORE:
        left, right = both[name].to_numpy(), both[f"{name}_after"].to_numpy()
        np.testing.assert_array_equal(left, right, err_msg=name)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tables", [("events",), ("usage",), tuple(TIME)], ids="+".join)
def test_features_do_not_change_when_the_future_does(
    original: Path, tmp_path: Path, tables: tuple[str, ...], seed: int
) -> None:
    """Tables are in order of time, as traces are published; rows after the cut are any."""
    cut = some_cut(original, seed)
    after = with_another_future(original, tmp_path, tables, cut, seed)

    assert_same(features_until(original, cut), features_until(after, cut))


@pytest.mark.parametrize("table", ["events", "usage"])
def test_features_that_see_an_hour_ahead_do_change(
    original: Path, tmp_path: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the same comparison, with code that reads the future."""
    if table == "events":
        at = AsOf.at
        monkeypatch.setattr(AsOf, "at", lambda self, who, time: at(self, who, time + HOUR_US))
    else:
        lags = windows._lags
        monkeypatch.setattr(
            windows, "_lags", lambda v, n, k: lags(v[::-1], n[::-1], len(v) - 1 - k)
        )
    cut = some_cut(original, 0)
    same = with_another_future(original, tmp_path / "same", (), cut, 0)
    after = with_another_future(original, tmp_path / "other", (table,), cut, 0)
    with pytest.raises(AssertionError, match="Arrays are not equal"):
        assert_same(features_until(same, cut), features_until(after, cut))


def months_of_jobs(dice: np.random.Generator) -> pl.DataFrame:
    number = 400
    submitted = dice.integers(1, 29 * 24 * HOUR_US, number)
    ended = submitted + dice.integers(1, 30 * HOUR_US, number)
    user = np.tile(dice.integers(0, 9, number), 2)
    ends = dice.choice(["FAIL", "FINISH", "KILL", "EVICT"], number).tolist()
    frame = pl.DataFrame(
        {
            "cell": ["a"] * (2 * number),
            "job": np.tile(np.arange(number), 2),
            "time_us": np.concatenate([submitted, ended]),
            "event": ["SUBMIT"] * number + ends,
            "user": [f"u{u}" for u in user],
            "name": [f"n{u % 4}" for u in user],
            "tier": [0] * (2 * number),
            "scheduling_class": dice.integers(0, 4, 2 * number),
        }
    )
    return frame.select(pl.col(n).cast(k) for n, k in TABLES["jobs"].items()).sort("time_us")


@pytest.mark.parametrize("seed", SEEDS)
def test_jobs_at_submission_do_not_change_when_later_jobs_do(seed: int) -> None:
    dice = np.random.default_rng(seed)
    events = months_of_jobs(dice)
    cut = int(dice.uniform(5, 25) * 24 * HOUR_US)
    before = rows_of(events.lazy())
    after = rows_of(other_future(events, "time_us", cut, dice).lazy())
    early, later = before.submitted_us <= cut, after.submitted_us <= cut

    assert early.sum() == later.sum() > 40
    np.testing.assert_array_equal(before.features[early], after.features[later])


def months_of_machines(dice: np.random.Generator) -> pl.DataFrame:
    rows: list[dict[str, object]] = []
    for machine in range(1, 31):
        at = 0
        while at < 20 * 24 * HOUR_US:
            rows += [{"machine": machine, "time_us": at, "event": "ADD"}]
            at += int(dice.exponential(60) * HOUR_US) + 1
            rows += [{"machine": machine, "time_us": at, "event": "REMOVE"}]
            at += HOUR_US // 10
    frame = pl.DataFrame(rows).with_columns(cell=pl.lit("a"), cpu_capacity=1.0, memory_capacity=0.5)
    return frame.select(pl.col(n).cast(k) for n, k in TABLES["machines"].items()).sort("time_us")


@pytest.mark.parametrize("seed", SEEDS)
def test_machines_do_not_change_when_their_later_events_do(tmp_path: Path, seed: int) -> None:
    dice = np.random.default_rng(seed)
    events = months_of_machines(dice)
    cut = int(dice.uniform(5, 15) * 24 * HOUR_US)
    rows = []
    for name, frame in (("is", events), ("other", other_future(events, "time_us", cut, dice))):
        (tmp_path / name / "machines").mkdir(parents=True)
        frame.write_parquet(tmp_path / name / "machines" / "0.parquet")
        rows.append(machine_rows(tmp_path / name))
    before, after = rows
    early, later = before.time_us <= cut, after.time_us <= cut

    assert early.sum() > 100
    np.testing.assert_array_equal(before.machine[early], after.machine[later])
    np.testing.assert_array_equal(before.features[early], after.features[later])


def test_a_moment_sees_only_its_past() -> None:
    dice = np.random.default_rng(5)
    for _ in range(50):
        number = int(dice.integers(1, 40))
        group, time = dice.integers(0, 4, number), dice.integers(0, 30, number)
        value = dice.integers(0, 5, number)
        asked, at = dice.integers(0, 5, 20), dice.integers(-2, 35, 20)
        moment = AsOf(group, time, value=value).at(asked, at)
        for row in range(20):
            known = (group == asked[row]) & (time <= at[row])
            assert moment.count[row] == known.sum()
            assert moment.sum("value")[row] == value[known].sum()
            recent = known & (time > at[row] - 7)
            assert moment.since(7).count[row] == recent.sum()


def test_rows_are_the_same_however_many_buckets_are_used(dataset: Path) -> None:
    features = dataset.with_name(f"{dataset.name}-features")
    keys = ["job", "instance", "end_us"]
    windows.build(dataset)
    one = windows.load(features).sort(keys)
    windows.build(dataset, windows.DatasetSettings(bucket_rows=200))
    many = windows.load(features).sort(keys)

    assert len(list(features.glob("rows-*"))) > 1
    assert one.shape == many.shape
    for name in CORE:
        np.testing.assert_allclose(one[name].to_numpy(), many[name].to_numpy(), err_msg=name)
