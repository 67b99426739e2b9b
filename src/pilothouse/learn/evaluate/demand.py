# SPDX-License-Identifier: Apache-2.0
"""How much will a machine use? Quantiles, judged later in time and on machines never seen.

Rivals get the same care: each simple forecast is widened by the quantile of its own residuals on
the training part, absolute or relative to the level, whichever is better for it. The upper quantile
is shifted by what a calibration part showed to be missing, so that its coverage is what it says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pilothouse.errors import TraceUnreadable
from pilothouse.features.series import FAR, HISTORY, STEPS, demand_features, mean_known
from pilothouse.learn.evaluate import metrics
from pilothouse.learn.traces.importing import table
from pilothouse.learn.train.boosting import Boost, fit
from pilothouse.predict.trees import Ensemble

Floats = NDArray[np.float32]
QUANTILES = (0.5, 0.95)
STEP_SECONDS = 300
FEWEST_POINTS = 20
HORIZON_STEPS = (1, 3, 6, 12)  # 5, 15, 30 and 60 minutes of five-minute slots
DAY_STEPS = 288
BOOST = Boost(trees=150, depth=5, rate=0.1, least_weight=20, columns=0.7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Machines by slots; NaN where nothing was measured."""

    mean: Floats  # (machines, slots)
    peak: Floats

    @classmethod
    def of(cls, dataset: Path, what: str = "cpu") -> Series:
        rows = _machine_usage(dataset)
        step = int((rows["end_us"] - rows["start_us"]).mode()[0])
        machine = rows["machine"].rank("dense").cast(pl.Int64).to_numpy() - 1
        slot = (rows["start_us"] // step).to_numpy()
        slot = slot - slot.min()
        shape = (int(machine.max()) + 1, int(slot.max()) + 1)
        mean, peak = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
        mean[machine, slot] = rows[f"{what}_mean"].to_numpy()
        peak[machine, slot] = rows[f"{what}_max"].to_numpy()
        return cls(mean=mean, peak=peak)


def _machine_usage(dataset: Path) -> pl.DataFrame:
    """Use per machine as it was published, or added up over the instances of each machine."""
    rows = table(dataset, "machine_usage").collect()
    if len(rows):
        return rows
    use = [f"{what}_{how}" for what in ("cpu", "memory") for how in ("mean", "max")]
    rows = (
        table(dataset, "usage")
        .filter(pl.col("machine").is_not_null())
        .group_by("cell", "machine", "start_us", "end_us")
        # Wide, because sums of narrow floats depend on the order in which threads come by.
        .agg(pl.col(use).cast(pl.Float64).sum())
        .sort("cell", "machine", "start_us", "end_us")
        .with_columns(machine=pl.struct("cell", "machine").rank("dense"))
        .collect()
    )
    if not len(rows):
        raise TraceUnreadable(
            f"{dataset.name} has no use of machines, published or by instance. Import another "
            "trace: machine-usage or google-2019."
        )
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """Machines and slots to forecast from."""

    machine: NDArray[np.int64]
    slot: NDArray[np.int64]

    @classmethod
    def grid(cls, machines: NDArray[np.int64], first: int, last: int, every: int) -> Points:
        slots = np.arange(max(first, HISTORY), last, every)
        return cls(machine=np.repeat(machines, len(slots)), slot=np.tile(slots, len(machines)))


def refuse_short(series: Series, parts: dict[str, Points], long: str, name: str) -> None:
    """Every part needs points whose outcome is known at the longest horizon."""
    for part, points in parts.items():
        now, then = points.slot, points.slot + max(HORIZON_STEPS)
        known = np.isfinite(series.mean[points.machine, now] + series.mean[points.machine, then])
        if known.sum() < FEWEST_POINTS:
            machines, slots = series.mean.shape
            raise TraceUnreadable(
                f"{name} has {slots} steps of {machines} machines, and {int(known.sum())} points "
                f"to {part} with (needs {FEWEST_POINTS}); ten hours are looked back at. Give a "
                f"trace of {long} or more."
            )


def features_at(series: Series, points: Points, steps: int) -> tuple[Floats, Floats]:
    """Features and level, only from slots at or before each point's own."""
    m, s = points.machine, points.slot
    recent = np.stack([series.mean[m, s - k] for k in range(STEPS)], axis=1)
    half = STEPS // 2
    far = []
    for block in range(FAR):
        start = STEPS + block * half
        values = np.stack([series.mean[m, s - start - k] for k in range(half)], axis=1)
        far.append(mean_known(values))
    day = np.stack([_at(series, m, s - DAY_STEPS), _at(series, m, s - DAY_STEPS + steps)], axis=1)
    return demand_features(recent, np.stack(far, axis=1), series.peak[m, s], day, steps)


def _at(series: Series, machine: NDArray[np.int64], slot: NDArray[np.int64]) -> Floats:
    inside = slot >= 0
    return np.where(inside, series.mean[machine, np.maximum(slot, 0)], np.float32(np.nan))


def evaluate(
    dataset: Path,
    *,
    what: str = "cpu",
    boost: Boost = BOOST,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Train on some machines early, judge on others later."""
    series = Series.of(dataset, what)
    machines, slots = series.mean.shape
    order = np.random.default_rng(0).permutation(machines)
    known, unseen = np.sort(order[machines // 3 :]), np.sort(order[: machines // 3])
    cut = {
        name: int(slots * share) for name, share in (("stop", 0.5), ("fit", 0.55), ("test", 0.6))
    }
    gap = max(HORIZON_STEPS)  # the embargo: no target of one part lies in the next
    parts = {
        "train": Points.grid(known, HISTORY, cut["stop"] - gap, 6),
        "stop": Points.grid(known, cut["stop"], cut["fit"] - gap, 6),
        "calibrate": Points.grid(known, cut["fit"], cut["test"] - gap, 3),
        "test": Points.grid(unseen, cut["test"], slots - gap, 4),
    }
    refuse_short(series, parts, "two days", dataset.name)
    out: dict[str, Any] = {
        "track": f"demand per machine, {what}",
        "rows": {name: len(points.slot) for name, points in parts.items()},
        "machines": {"train": len(known), "test": len(unseen)},
        "quantiles": {},
    }
    for quantile in QUANTILES:
        out["quantiles"][f"p{100 * quantile:g}"] = _quantile(
            series, parts, quantile, boost, progress
        )
    return out


def _quantile(
    series: Series,
    parts: dict[str, Points],
    quantile: float,
    boost: Boost,
    progress: Callable[[str], None],
) -> dict[str, Any]:
    horizons: list[dict[str, Any]] = []
    machines: list[NDArray[np.int64]] = []
    covered: list[NDArray[np.bool_]] = []
    for steps in HORIZON_STEPS:
        progress(f"p{100 * quantile:g}, {5 * steps} min")
        data = {name: rows_at(series, points, steps) for name, points in parts.items()}
        ensemble = _fit(data, quantile, boost)
        shift = _missing_width(ensemble, data["calibrate"], quantile)
        test = data["test"]
        forecast = test.forecast(ensemble, shift)
        rivals = _rivals(series, parts, steps, quantile, data)
        over = test.actual <= forecast
        machines.append(test.machine)
        covered.append(over)
        horizons.append(
            {
                "minutes": 5 * steps,
                "forecaster": metrics.pinball(test.actual, forecast, quantile),
                "rivals": rivals,
                "coverage": float(over.mean()),
                "coverage_per_machine": _per_machine(test.machine, over),
            }
        )
    names = list(horizons[0]["rivals"])
    means = {n: float(np.mean([h["rivals"][n] for h in horizons])) for n in names}
    ours = float(np.mean([h["forecaster"] for h in horizons]))
    best = min(means, key=lambda n: means[n])
    return {
        "pinball": ours,
        "rivals": means,
        "best_rival": best,
        "lower_by": 1 - ours / means[best],
        "no_horizon_worse": all(h["forecaster"] <= min(h["rivals"].values()) for h in horizons),
        "coverage": float(np.mean([h["coverage"] for h in horizons])),
        "machines_covered": _per_machine(np.concatenate(machines), np.concatenate(covered)),
        "horizons": horizons,
    }


def _per_machine(machine: NDArray[np.int64], covered: NDArray[np.bool_]) -> list[float]:
    """The share covered of each machine, in the order of the machines."""
    return [round(float(covered[machine == m].mean()), 4) for m in np.unique(machine)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Points with a known outcome: what is seen, and what came."""

    x: Floats  # (rows, NAMES)
    level: Floats
    actual: Floats
    machine: NDArray[np.int64]

    @property
    def target(self) -> Floats:
        """What is learned: a change from the newest sample, in units of the level."""
        return np.asarray(self.actual / self.level - self.x[:, 0], np.float32)

    def forecast(self, ensemble: Ensemble, shift: float) -> Floats:
        return np.asarray((ensemble.margin(self.x) + self.x[:, 0] + shift) * self.level, np.float32)


def rows_at(series: Series, points: Points, steps: int) -> Rows:
    x, level = features_at(series, points, steps)
    actual = series.mean[points.machine, points.slot + steps]
    now = series.mean[points.machine, points.slot]
    keep = np.isfinite(actual) & np.isfinite(now)
    return Rows(x=x[keep], level=level[keep], actual=actual[keep], machine=points.machine[keep])


def _fit(data: dict[str, Rows], quantile: float, boost: Boost) -> Ensemble:
    train, stop = data["train"], data["stop"]
    return fit(train.x, train.target, boost, quantile=quantile, valid=(stop.x, stop.target))


def _missing_width(ensemble: Ensemble, part: Rows, quantile: float) -> float:
    """What must be added, in units of the level, for the quantile to cover what it claims."""
    residual = part.actual / part.level - part.x[:, 0] - ensemble.margin(part.x)
    return float(np.quantile(residual, quantile)) if quantile != 0.5 else 0.0


def _rivals(
    series: Series,
    parts: dict[str, Points],
    steps: int,
    quantile: float,
    data: dict[str, Rows],
) -> dict[str, float]:
    out, seen = {}, data["test"]
    for name, guess in _GUESSES.items():
        train, test = (_guessed(series, parts[p], steps, guess) for p in ("train", "test"))
        missing = np.isnan(test[0])
        flat = np.where(missing, test[1], test[0])  # a rival without a day ago says the last value
        ok = np.isfinite(train[0])
        residual = train[2][ok] - train[0][ok]
        ways = (
            flat + np.quantile(residual, quantile),
            flat + np.quantile(residual / data["train"].level[ok], quantile) * seen.level,
        )
        out[name] = min(metrics.pinball(test[2], way, quantile) for way in ways)
    recent = seen.x[:, :12] * seen.level[:, None]
    width = 1.645 if quantile != 0.5 else 0.0
    sigma = recent.mean(axis=1) + width * recent.std(axis=1)
    out["n-sigma"] = metrics.pinball(seen.actual, sigma, quantile)
    return out


def _guessed(
    series: Series, points: Points, steps: int, guess: Callable[..., Floats]
) -> tuple[Floats, Floats, Floats]:
    m, s = points.machine, points.slot
    actual, now = series.mean[m, s + steps], series.mean[m, s]
    keep = np.isfinite(actual) & np.isfinite(now)
    m, s = m[keep], s[keep]
    return guess(series, m, s, steps), now[keep], actual[keep]


_GUESSES: dict[str, Callable[..., Floats]] = {
    "last value": lambda series, m, s, steps: series.mean[m, s],
    "30 minute mean": lambda series, m, s, steps: mean_known(
        np.stack([series.mean[m, s - k] for k in range(6)], axis=1)
    ),
    "seasonal naive": lambda series, m, s, steps: _at(series, m, s + steps - DAY_STEPS),
}
