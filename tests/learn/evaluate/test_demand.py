# SPDX-License-Identifier: Apache-2.0
"""Demand per machine by its command, on made-up machines: with a day to learn, and with none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

pytest.importorskip("xgboost")

from benchmarks.forecasts.claims import LINES
from pilothouse.cli import main
from pilothouse.learn.evaluate import demand
from pilothouse.learn.traces.machineusage import SCALE

MACHINES, DAYS = 36, 8
SLOTS = DAYS * demand.DAY_STEPS


def written(path: Path, cpu: NDArray[np.float64], memory: NDArray[np.float64]) -> Path:
    """Columns and units as published: scaled shares, one row per machine and slot."""
    machines, slots = cpu.shape
    columns = {
        "slot": np.tile(np.arange(slots), machines),
        "machine_id": np.repeat(np.arange(machines) + 1_000, slots),
        "avgcpu": cpu.ravel() * SCALE,
        "avgmem": memory.ravel() * SCALE,
        "maxcpu": cpu.ravel() * 1.2 * SCALE,
        "maxmem": memory.ravel() * 1.1 * SCALE,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(columns).write_parquet(path)
    return path


def wandering(dice: np.random.Generator, pull: float, size: float) -> NDArray[np.float64]:
    """Each machine goes its own way; ``pull`` of 1 forgets nothing and is a random walk."""
    steps = dice.normal(0, size, (MACHINES, SLOTS))
    out = np.zeros_like(steps)
    for slot in range(1, SLOTS):
        out[:, slot] = pull * out[:, slot - 1] + steps[:, slot]
    return out


def daily(dice: np.random.Generator) -> NDArray[np.float64]:
    """A day that repeats, each machine at its own hours; some are noisier than others."""
    phase, level = dice.random((MACHINES, 1)), dice.uniform(0.2, 0.5, (MACHINES, 1))
    day = np.sin(2 * np.pi * (np.arange(SLOTS) / demand.DAY_STEPS + phase))
    noise = wandering(dice, 0.9, 0.008) + dice.normal(0, 0.008, (MACHINES, SLOTS))
    uneven = dice.uniform(0.3, 1.7, (MACHINES, 1))
    return np.maximum(level * (1 + 0.6 * day) + uneven * noise, 0.01)


def judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], series: NDArray[np.float64], what: str
) -> dict[str, Any]:
    flat = np.full_like(series, 0.3)
    cpu, memory = (series, flat) if what == "cpu" else (flat, series)
    source = written(tmp_path / "trace" / "machine_usage.parquet", cpu, memory)
    assert main(["traces", "import", "machine-usage", str(source)]) == 0
    capsys.readouterr()
    command = ["evaluate", "demand", "--dataset", "machine-usage", "--what", what, "--json"]
    assert main(command) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_learned_day_beats_every_rival_and_covers_what_it_claims(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = judged(tmp_path, capsys, daily(np.random.default_rng(3)), "cpu")

    for claim in LINES["demand"](figures):
        assert claim.holds, claim.sentence
    assert figures["machines"] == {"train": 24, "test": 12}
    high = figures["quantiles"]["p95"]
    assert len(high["machines_covered"]) == 12
    assert np.mean(high["machines_covered"]) == pytest.approx(high["coverage"], abs=1e-3)
    assert figures["p95 coverage by machine"]["least"] == min(high["machines_covered"]) < 0.95
    assert (home / "reports" / "demand-cpu-machine-usage" / "report.html").is_file()


def test_walk_that_nobody_can_know_is_not_beaten(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    walk = np.abs(0.5 + wandering(np.random.default_rng(4), 1.0, 0.004))
    figures = judged(tmp_path, capsys, walk, "memory")
    verdict = {claim.text: claim.holds for claim in LINES["demand"](figures)}

    assert not verdict["p50 pinball lower by"]
    assert not verdict["p95 pinball lower by"]


def test_short_series_and_unknown_resource_are_refused(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day = np.full((4, demand.DAY_STEPS), 0.3)
    source = written(tmp_path / "machine_usage.parquet", day, day)
    assert main(["traces", "import", "machine-usage", str(source)]) == 0
    assert main(["evaluate", "demand", "--dataset", "machine-usage"]) == 2
    assert "two days or more" in capsys.readouterr().err
    assert main(["evaluate", "demand", "--dataset", "machine-usage", "--what", "disk"]) == 2
    assert '"disk"' in capsys.readouterr().err
