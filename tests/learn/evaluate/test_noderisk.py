# SPDX-License-Identifier: Apache-2.0
"""Node risk on its own: machines of a made-up fleet, and the simulator's nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

pytest.importorskip("polars")
pytest.importorskip("xgboost")

from pilothouse.errors import TraceUnreadable
from pilothouse.learn.evaluate import noderisk
from pilothouse.learn.traces.schema import TABLES

DAYS, HOUR_US = 20, 3_600_000_000


def fleet(folder: Path, *, flaky: bool) -> Path:
    """80 machines; a tenth of them goes away every few hours, or all alike and seldom."""
    dice = np.random.default_rng(5)
    rows: list[dict[str, object]] = []
    for machine in range(1, 81):
        at = 0
        often = 5 if machine % 10 == 0 else 200
        while at < DAYS * 24 * HOUR_US:
            rows.append({"machine": machine, "time_us": at, "event": "ADD"})
            at += int(dice.exponential(often if flaky else 60) * HOUR_US) + 1
            rows.append({"machine": machine, "time_us": at, "event": "REMOVE"})
            at += HOUR_US // 10
    frame = pl.DataFrame(rows).with_columns(cell=pl.lit("a"), cpu_capacity=1.0, memory_capacity=1.0)
    schema = TABLES["machines"]
    (folder / "machines").mkdir(parents=True)
    frame.select(pl.col(n).cast(k) for n, k in schema.items()).write_parquet(
        folder / "machines" / "0.parquet"
    )
    return folder


def test_flaky_machines_are_ranked_far_above_the_base_rate(tmp_path: Path) -> None:
    figures = noderisk.removals(fleet(tmp_path / "fleet", flaky=True))

    assert figures["average_precision"]["forecaster"] >= 3 * figures["base_rate"]["test"]
    assert figures["never_falls_with_the_horizon"]
    assert figures["brier_skill"] > 0
    assert set(figures["at_budgets"]) == {"0.1 %", "1 %", "5 %"}


def test_machines_that_are_all_alike_cannot_be_ranked(tmp_path: Path) -> None:
    figures = noderisk.removals(fleet(tmp_path / "fleet", flaky=False))

    assert figures["average_precision"]["forecaster"] <= 2 * figures["base_rate"]["test"]


def test_a_machine_row_knows_nothing_of_later_events(tmp_path: Path) -> None:
    folder = fleet(tmp_path / "fleet", flaky=True)
    before = noderisk.machine_rows(folder)
    cut = 10 * 24 * HOUR_US
    path = folder / "machines" / "0.parquet"
    events = pl.read_parquet(path)
    # The last event stays, so that the same moments are looked at.
    keep = (pl.col("time_us") <= cut) | (pl.col("time_us") == pl.col("time_us").max())
    events.filter(keep).write_parquet(path)
    after = noderisk.machine_rows(folder)
    early, later = before.time_us <= cut, after.time_us <= cut

    assert early.sum() > 1000
    np.testing.assert_array_equal(before.features[early], after.features[later])


def test_fleet_without_removals_is_told(tmp_path: Path) -> None:
    folder = fleet(tmp_path / "fleet", flaky=True)
    path = folder / "machines" / "0.parquet"
    pl.read_parquet(path).filter(pl.col("event") == "ADD").write_parquet(path)
    with pytest.raises(TraceUnreadable, match="no machine removals"):
        noderisk.machine_rows(folder)


def test_two_ways_to_a_node_risk_are_compared_on_the_same_rows() -> None:
    from pilothouse.predict.learned import load_artifact

    figures = noderisk.simulated(
        load_artifact(), scenarios=("node-degradation",), seeds=(7001, 7002), cycles=120
    )

    assert set(figures["average_precision"]) == {
        "trees on the node",
        "any pod fails",
        "its worst pod",
    }
    assert figures["better"] in figures["average_precision"]
    assert figures["rows"] > 100
