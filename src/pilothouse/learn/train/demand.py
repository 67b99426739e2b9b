# SPDX-License-Identifier: Apache-2.0
"""Train demand quantiles for the loop: on simulator histories, on journals, or on a trace.

Rows come from the class that the forecaster uses in the loop. What is learned is the change from
the newest step, in units of the row's own level. Whole runs of the simulator are kept apart, to
train, to calibrate the upper quantile, and to judge beside the transparent forecaster, which saw
the very same snapshots. Journals and traces are cut by time, and a row whose outcome lies beyond
its cut is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import HORIZONS_SECONDS, DemandTable, Snapshot
from pilothouse.errors import TraceUnreadable
from pilothouse.features.demand_history import SCOPES, DemandHistory, DemandRows
from pilothouse.features.familiarity import Range
from pilothouse.features.live import WINDOW_SECONDS
from pilothouse.features.series import HISTORY, LIVE, NAMES
from pilothouse.journal import JournalReader
from pilothouse.learn.crew import HERE, Crew
from pilothouse.learn.evaluate import demand as track
from pilothouse.learn.evaluate import metrics
from pilothouse.learn.train import simulated
from pilothouse.learn.train.boosting import Boost, fit
from pilothouse.predict.baseline import EwmaTrend
from pilothouse.predict.demand import LEAST_LEVEL, QUANTILES, DemandArtifact, DemandPart
from pilothouse.predict.trees import Ensemble
from pilothouse.settings import ForecastSettings

Floats = NDArray[np.float32]
BOOST = Boost(trees=40, depth=3, rate=0.15, least_weight=30, threads=1)
LEAST_STEPS = 5  # of the loop's minutes; a row of fewer is the transparent forecaster's
TRAIN, CALIBRATE, JUDGE = range(3)
TURNS = (TRAIN, TRAIN, TRAIN, CALIBRATE, JUDGE)  # of runs, one after the other
CUTS = (0.6, 0.8)  # of a journal: where calibration and judging begin
FEWEST_ROWS = 500
FEWEST_POINTS = 20  # of a trace, in each of its parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Rows of one table with what came, by horizon, and what the transparent one had said."""

    x: Floats  # (rows, LIVE)
    level: Floats
    actual: Floats  # (rows, horizons), millicores; NaN where nobody knows
    said: Floats  # (quantiles, rows, horizons), millicores
    turn: NDArray[np.int8]

    @classmethod
    def joined(cls, parts: list[Rows]) -> Rows:
        return cls(
            x=np.concatenate([p.x for p in parts]),
            level=np.concatenate([p.level for p in parts]),
            actual=np.concatenate([p.actual for p in parts]),
            said=np.concatenate([p.said for p in parts], axis=1),
            turn=np.concatenate([p.turn for p in parts]),
        )

    def target(self, horizon: int) -> Floats:
        return np.asarray(self.actual[:, horizon] / self.level - self.x[:, 0], np.float32)

    def of(self, turn: int, horizon: int) -> NDArray[np.intp]:
        return np.flatnonzero((self.turn == turn) & np.isfinite(self.actual[:, horizon]))


@dataclass(frozen=True, slots=True)
class _Course:
    """One table along a run: the newest step at every snapshot, and what was seen at some."""

    at: list[int] = field(default_factory=list)
    now: list[tuple[NDArray[np.int64], Floats]] = field(default_factory=list)  # uids and steps
    seen: list[tuple[int, DemandRows, Floats, NDArray[np.bool_]]] = field(default_factory=list)

    def look(self, scope: str, history: DemandHistory, table: DemandTable) -> None:
        """Rows of this snapshot, what the transparent one says of them, and which count."""
        rows = history.rows(scope)
        usable = (table.abstains == 0) & np.isfinite(rows.now) & (rows.steps >= LEAST_STEPS)
        said = np.stack([table.median_millicores, table.upper_millicores]).astype(np.float32)
        self.seen.append((len(self.at) - 1, rows, said, usable & (rows.level >= LEAST_LEVEL)))

    def rows(self, turn_of: Callable[[float], int]) -> Rows:
        if not self.seen:
            raise TraceUnreadable("A run of one cycle has no history. Let it run longer.")
        times = np.array(self.at)
        shares = (times - times[0]) / max(times[-1] - times[0], 1)
        turns = [turn_of(float(share)) for share in shares]
        parts = []
        for number, rows, said, usable in self.seen:
            keep = np.flatnonzero(usable)
            parts.append(
                Rows(
                    x=rows.features[keep],
                    level=rows.level[keep],
                    actual=self._outcomes(number, rows.uid[keep], times, turns),
                    said=said[:, keep],
                    turn=np.full(len(keep), turns[number], np.int8),
                )
            )
        return Rows.joined(parts)

    def _outcomes(
        self, number: int, uid: NDArray[np.int64], times: NDArray[np.int64], turns: list[int]
    ) -> Floats:
        actual = np.full((len(uid), len(HORIZONS_SECONDS)), np.nan, np.float32)
        for column, seconds in enumerate(HORIZONS_SECONDS):
            # A live loop does not keep to the second; half a step late is the same moment.
            due = times[number] + seconds
            after = int(np.searchsorted(times, due))
            late = after == len(times) or times[after] > due + WINDOW_SECONDS // 2
            if not late and turns[after] == turns[number]:
                then, used = self.now[after]
                place = np.minimum(np.searchsorted(then, uid), len(then) - 1)
                actual[:, column] = np.where(then[place] == uid, used[place], np.float32(np.nan))
        return actual


def watch(
    snapshots: Iterable[Snapshot], turn_of: Callable[[float], int], every: int = 2
) -> dict[str, Rows]:
    """Rows of nodes and workloads along a run; ``turn_of`` deals out its course, 0 to 1."""
    history, baseline = DemandHistory(WINDOW_SECONDS), EwmaTrend(ForecastSettings())
    courses = {scope: _Course() for scope in SCOPES}
    for number, snapshot in enumerate(snapshots):
        history.see(snapshot)
        forecast = baseline.predict(snapshot)
        if not number:
            continue
        tables = {"nodes": forecast.node_demand, "workloads": forecast.workload_demand}
        for scope, course in courses.items():
            course.at.append(snapshot.taken_seconds)
            course.now.append(history.newest(scope))
            if number % every == 0:
                course.look(scope, history, tables[scope])
    return {scope: course.rows(turn_of) for scope, course in courses.items()}


def on_simulator(
    recipe: simulated.Recipe,
    *,
    name: str,
    progress: Callable[[], None] = lambda: None,
    crew: Crew = HERE,
) -> DemandArtifact:
    """Histories of the simulator, watched and under the loop, as for risk."""
    runs = []
    for rows in crew.map(partial(_simulated, recipe), recipe.plans):
        runs.append(rows)
        progress()
    card = {
        "trained_on": {"scenarios": list(recipe.scenarios), "seeds": list(recipe.seeds)},
        "command": f"pilothouse train demand --name {name.partition('/')[0]} "
        f"--seeds {len(recipe.seeds)} --cycles {recipe.cycles}",
        "not_for": "other clusters without training on their own journal",
    }
    return _assemble(runs, name=name, card=card, crew=crew)


def _simulated(recipe: simulated.Recipe, plan: simulated.Plan) -> dict[str, Rows]:
    return watch(simulated.snapshots_of(recipe, plan), lambda share: TURNS[plan[0] % len(TURNS)])


def on_journals(journals: tuple[Path, ...], *, name: str, crew: Crew = HERE) -> DemandArtifact:
    """Own runs; each journal is cut into stretches of time."""
    card = {
        "trained_on": {"journals": [path.name for path in journals]},
        "command": "pilothouse train demand --journal FILE",
    }
    runs = list(crew.map(_recorded, journals))
    return _assemble(runs, name=name, card=card, crew=crew)


def _recorded(journal: Path) -> dict[str, Rows]:
    snapshots = (cycle.snapshot for cycle in JournalReader(journal).cycles())
    return watch(snapshots, lambda share: int(np.searchsorted(CUTS, share, side="right")))


def _assemble(
    runs: list[dict[str, Rows]], *, name: str, card: dict[str, Any], crew: Crew
) -> DemandArtifact:
    parts: dict[str, DemandPart] = {}
    for scope in SCOPES:
        rows = Rows.joined([run[scope] for run in runs])
        fewest = min(len(rows.of(turn, len(HORIZONS_SECONDS) - 1)) for turn in range(3))
        if fewest < FEWEST_ROWS // 10 or len(rows.x) < FEWEST_ROWS:
            raise TraceUnreadable(
                f"There are {len(rows.x)} rows of {scope} to learn demand from, and {fewest} whose "
                "next hour is known in the thinnest part. Let it run longer (six hours or more), "
                "or add journals with --journal."
            )
        parts[scope], card[scope] = _part(rows, crew)
    return DemandArtifact(
        name=name, step_seconds=WINDOW_SECONDS, least_steps=LEAST_STEPS, parts=parts, card=card
    )


def _part(rows: Rows, crew: Crew) -> tuple[DemandPart, dict[str, Any]]:
    wanted = [(q, h) for q in range(len(QUANTILES)) for h in range(len(HORIZONS_SECONDS))]
    made = list(crew.map(partial(_fitted, rows), wanted))
    count = len(HORIZONS_SECONDS)
    by_quantile = [made[count * q : count * (q + 1)] for q in range(len(QUANTILES))]
    part = DemandPart(
        ensembles=tuple(tuple(e for e, _ in row) for row in by_quantile),
        shifts=tuple(tuple(shift for _, shift in row) for row in by_quantile),
        ranges=Range.of(rows.x, LIVE),
    )
    return part, _figures(part, rows)


def _fitted(rows: Rows, wanted: tuple[int, int]) -> tuple[Ensemble, float]:
    quantile, horizon = wanted
    train, held = rows.of(TRAIN, horizon), rows.of(CALIBRATE, horizon)
    target, level = rows.target(horizon), QUANTILES[quantile]
    ensemble = fit(rows.x[train], target[train], BOOST, quantile=level)
    if level == 0.5:
        return ensemble, 0.0
    missing = np.quantile(target[held] - ensemble.margin(rows.x[held]), level)
    return ensemble, float(missing)


def _figures(part: DemandPart, rows: Rows) -> dict[str, Any]:
    """Pinball loss in millicores beside the transparent forecaster's, on runs kept to judge."""
    ours, theirs, covered, usual = [], [], [], []
    for horizon in range(len(HORIZONS_SECONDS)):
        test = rows.of(JUDGE, horizon)
        actual = rows.actual[test, horizon]
        said = part.quantiles(rows.x[test])[:, :, horizon] * rows.level[test]
        for number, quantile in enumerate(QUANTILES):
            ours.append(metrics.pinball(actual, said[number], quantile))
            theirs.append(metrics.pinball(actual, rows.said[number, test, horizon], quantile))
        covered.append(float((actual <= said[-1]).mean()))
        usual.append(float((actual <= rows.said[-1, test, horizon]).mean()))
    mine, base = (np.array(v).reshape(-1, len(QUANTILES)) for v in (ours, theirs))
    return {
        "rows": len(rows.x),
        "p50_lower_by": round(float(1 - mine[:, 0].mean() / base[:, 0].mean()), 4),
        "p95_lower_by": round(float(1 - mine[:, 1].mean() / base[:, 1].mean()), 4),
        "p95_lower_by_horizon": [round(float(v), 4) for v in 1 - mine[:, 1] / base[:, 1]],
        "p95_coverage": round(float(np.mean(covered)), 4),
        "p95_coverage_transparent": round(float(np.mean(usual)), 4),
    }


def on_trace(
    dataset: Path,
    *,
    name: str,
    boost: Boost = track.BOOST,
    progress: Callable[[], None] = lambda: None,
    crew: Crew = HERE,
) -> DemandArtifact:
    """Machines of a trace. Without unit and calendar, so that a live node is no stranger to it."""
    series = track.Series.of(dataset)
    machines, slots = series.mean.shape
    every, gap = np.arange(machines), max(track.HORIZON_STEPS)
    cuts = (int(slots * 0.7), int(slots * 0.8))
    points = {
        "train": track.Points.grid(every, HISTORY, cuts[0] - gap, 6),
        "stop": track.Points.grid(every, cuts[0], cuts[1] - gap, 6),
        "calibrate": track.Points.grid(every, cuts[1], slots - gap, 6),
    }
    if min(len(p.slot) for p in points.values()) < FEWEST_POINTS:
        raise TraceUnreadable(
            f"{dataset.name} has {slots} steps of {machines} machines; ten hours are looked back "
            "at, and what follows must be long enough to train, stop and calibrate on. Give a "
            "trace of a day or more."
        )
    wanted = [(q, steps) for q in range(len(QUANTILES)) for steps in track.HORIZON_STEPS]
    made = []
    for one in crew.map(partial(_fitted_on_trace, series, points, boost), wanted):
        made.append(one)
        progress()
    count = len(track.HORIZON_STEPS)
    by_quantile = [made[count * q : count * (q + 1)] for q in range(len(QUANTILES))]
    seen = _live(track.rows_at(series, points["train"], 1))
    part = DemandPart(
        ensembles=tuple(tuple(e for e, _ in row) for row in by_quantile),
        shifts=tuple(tuple(shift for _, shift in row) for row in by_quantile),
        ranges=Range.of(seen, LIVE),
    )
    card = {
        "trained_on": dataset.name,
        "machines": machines,
        "rows": len(seen),
        "command": f"pilothouse train demand --dataset {dataset.name}",
    }
    return DemandArtifact(
        name=name,
        step_seconds=track.STEP_SECONDS,
        least_steps=HISTORY,
        parts={"nodes": part},
        card=card,
    )


def _live(rows: track.Rows) -> Floats:
    return rows.x[:, [NAMES.index(n) for n in LIVE]]


def _fitted_on_trace(
    series: track.Series, points: dict[str, track.Points], boost: Boost, wanted: tuple[int, int]
) -> tuple[Ensemble, float]:
    number, steps = wanted
    quantile = QUANTILES[number]
    data = {part: track.rows_at(series, at, steps) for part, at in points.items()}
    train, stop, held = data["train"], data["stop"], data["calibrate"]
    ensemble = fit(
        _live(train), train.target, boost, quantile=quantile, valid=(_live(stop), stop.target)
    )
    if quantile == 0.5:
        return ensemble, 0.0
    return ensemble, float(np.quantile(held.target - ensemble.margin(_live(held)), quantile))
