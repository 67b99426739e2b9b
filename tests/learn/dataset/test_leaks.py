# SPDX-License-Identifier: Apache-2.0
"""Whatever happens after a window's end, its features stay what they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pilothouse.features.core import CORE
from pilothouse.features.history import AsOf
from pilothouse.learn.dataset import windows
from pilothouse.learn.traces.importing import import_trace


@pytest.fixture
def dataset(home: Path, synthetic: Path) -> Path:
    import_trace("google-2019", synthetic)
    return home / "processed" / "google-2019"


def rows_until(dataset: Path, cut: int) -> pl.DataFrame:
    windows.build(dataset)
    rows = windows.load(dataset.with_name(f"{dataset.name}-features"))
    keys = ["job", "instance", "end_us"]
    return rows.filter(pl.col("end_us") <= cut).sort(*keys).select(*keys, *CORE)


def rewrite(dataset: Path, table: str, change) -> None:
    """Replace one table of an imported dataset, seal included."""
    from pilothouse.learn import artifacts

    manifest = artifacts.load(dataset)
    files = sorted((dataset / table).glob("*.parquet"))
    frame = change(pl.read_parquet(files))
    for file in files:
        file.unlink()
    frame.write_parquet(files[0])
    artifacts.seal(
        dataset,
        kind=manifest.kind,
        track=manifest.track,
        inputs=manifest.inputs,
        settings=manifest.settings,
        facts=manifest.facts,
    )


def perturbations(cut: int):
    """Ways to change the future: delete it, shuffle it, add to it, make it all fail."""
    dice = np.random.default_rng(1)
    later = pl.col("time_us") > cut

    def delete(frame):
        # One event at the very end keeps the horizon known for the rows under test.
        return frame.filter(~later | (pl.col("time_us") == pl.col("time_us").max()))

    def fail(frame):
        failing = pl.when(later).then(pl.lit("FAIL")).otherwise(pl.col("event").cast(pl.String))
        return frame.with_columns(event=failing.cast(frame["event"].dtype))

    def add(frame):
        last = frame["time_us"].max()
        extra = frame.sample(50, seed=2).with_columns(
            time_us=pl.Series(dice.integers(cut + 1, last, 50)), user=pl.lit("somebody")
        )
        return pl.concat([frame, extra])

    def resize(frame):
        return frame.with_columns(
            cpu_request=pl.when(later).then(9.0).otherwise("cpu_request").cast(pl.Float32)
        )

    return {"deleted": delete, "all failures": fail, "more events": add, "resized": resize}


@pytest.mark.parametrize("which", ["deleted", "all failures", "more events", "resized"])
def test_features_do_not_change_when_later_events_do(dataset: Path, which: str) -> None:
    cut = 4 * 3600 * 1_000_000
    before = rows_until(dataset, cut)
    rewrite(dataset, "events", perturbations(cut)[which])
    after = rows_until(dataset, cut)
    both = before.join(after, on=["job", "instance", "end_us"], how="inner", suffix="_after")

    assert len(both) > 100
    for name in CORE:
        left, right = both[name].to_numpy(), both[f"{name}_after"].to_numpy()
        np.testing.assert_array_equal(left, right, err_msg=name)


def test_features_do_not_change_when_later_windows_do(dataset: Path) -> None:
    cut = 4 * 3600 * 1_000_000
    before = rows_until(dataset, cut)
    rewrite(
        dataset,
        "usage",
        lambda f: f.with_columns(
            memory_mean=pl.when(pl.col("end_us") > cut)
            .then(99.0)
            .otherwise("memory_mean")
            .cast(pl.Float32)
        ),
    )

    assert before.equals(rows_until(dataset, cut), null_equal=True)


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
