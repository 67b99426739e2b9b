# SPDX-License-Identifier: Apache-2.0
"""The lines of benchmarks/forecasts: each can fail, and every track has its function."""

from __future__ import annotations

import math
import time

import pytest

pytest.importorskip("polars")
pytest.importorskip("xgboost")

from benchmarks.forecasts import inference
from benchmarks.forecasts.claims import LINES, Claim
from benchmarks.forecasts.run import TRACKS, _short

CALIBRATED = {
    "brier_skill_interval": [0.1, 0.2],
    "calibration_slope": 1.0,
    "top_1_percent_ratio": 1.0,
}
QUANTILE = {"lower_by": 0.2, "no_horizon_worse": True, "coverage": 0.95}
GOOD = {
    "instances": {
        "over_best_baseline": 1.0,
        "times_base_rate": 4.0,
        "leak_check": {
            "moved_by_the_future": [],
            "unlike_the_dataset": [],
            "suspects": {},
            "not_run": "",
        },
    },
    "jobs": {"gain_over_name_rate": 0.2, "gain_interval": [0.1, 0.3], **CALIBRATED},
    "demand": {"quantiles": {"p50": QUANTILE, "p95": QUANTILE}},
    "simulator": {"pods": CALIBRATED, "nodes": CALIBRATED, "falling": 0},
    "live": {
        "full": {"features": 60.0, "risk": 60.0},
        "tenth": {"features": 30.0, "risk": 30.0},
    },
}
BAD = [
    ("instances", ("over_best_baseline",), 0.94),
    ("instances", ("times_base_rate",), 1.9),
    ("instances", ("leak_check", "moved_by_the_future"), ["cpu_mean"]),
    ("instances", ("leak_check", "unlike_the_dataset"), ["job_failures"]),
    ("instances", ("leak_check", "suspects"), {"final_event": 0.99}),
    ("instances", ("leak_check", "not_run"), "no dataset"),
    ("jobs", ("gain_over_name_rate",), 0.04),
    ("jobs", ("gain_interval",), [-0.01, 0.2]),
    ("jobs", ("brier_skill_interval",), [-0.1, 0.2]),
    ("jobs", ("calibration_slope",), 1.4),
    ("jobs", ("top_1_percent_ratio",), math.nan),
    ("demand", ("quantiles", "p50"), {**QUANTILE, "lower_by": 0.04}),
    ("demand", ("quantiles", "p95"), {**QUANTILE, "lower_by": 0.11}),
    ("demand", ("quantiles", "p95"), {**QUANTILE, "coverage": 0.92}),
    ("demand", ("quantiles", "p50"), {**QUANTILE, "no_horizon_worse": False}),
    ("simulator", ("nodes", "calibration_slope"), 0.6),
    ("simulator", ("falling",), 1),
    ("live", ("full", "risk"), 300.0),
    ("live", ("tenth",), {"features": 1.0, "risk": 1.0}),
]


def changed(figures: dict, path: tuple[str, ...], value: object) -> dict:
    first, *rest = path
    inner = changed(figures[first], tuple(rest), value) if rest else value
    return {**figures, first: inner}


@pytest.mark.parametrize("track", list(LINES))
def test_good_figures_hold(track: str) -> None:
    assert all(claim.holds for claim in LINES[track](GOOD[track]))


@pytest.mark.parametrize(("track", "path", "value"), BAD)
def test_a_figure_past_its_limit_fails_its_line(track, path, value) -> None:
    claims = LINES[track](changed(GOOD[track], path, value))

    assert [claim.holds for claim in claims].count(False) == 1
    assert any(claim.sentence.startswith("FAILS") for claim in claims)


def test_every_line_has_a_track_and_limits() -> None:
    assert LINES.keys() <= TRACKS.keys()
    for track, lines in LINES.items():
        for claim in lines(GOOD[track]):
            assert math.isfinite(claim.least) or math.isfinite(claim.most), claim.text


def test_what_is_not_a_number_does_not_hold() -> None:
    assert not Claim(track="x", text="y", value=math.nan, least=0).holds


def test_results_leave_out_curves_and_keep_the_rest() -> None:
    horizons = [{"minutes": 5, "coverage_per_machine": [0.9]}]
    figures = {"curves": [1], "machines_covered": [0.9123456], "horizons": horizons}

    assert _short(figures) == {"machines_covered": [0.91235], "horizons": [{"minutes": 5}]}


def test_live_cycle_of_a_large_cluster_is_quick_and_grows_with_its_size() -> None:
    sizes = {"tenth": 500, "full": 5_000}
    least: dict[str, dict[str, float]] = {}
    for _ in range(3):  # others on the machine only ever add to the time, so the least counts
        for name, nodes in sizes.items():
            found = inference.measure(nodes, 10 * nodes, 6, time.process_time)
            before = least.get(name, found)
            least[name] = {step: min(found[step], before[step]) for step in found}
        claims = LINES["live"](least)
        if all(claim.holds for claim in claims):
            break

    assert min(least["tenth"].values()) > 0
    assert all(claim.holds for claim in claims), [claim.sentence for claim in claims]
