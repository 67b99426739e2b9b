# SPDX-License-Identifier: Apache-2.0
"""Train the default forecaster on histories of the simulator, through the live feature code.

Every second run is only watched; the others are under the loop with the transparent forecaster, so
that drained, sleeping and replicated clusters are familiar too. Rows are what the forecaster would
see in the loop; labels are what happened to the node or pod later in the same run, unknown where
the run ends first. Whole runs are set aside to judge; calibration sees every other run through
trees that did not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import HORIZONS_SECONDS, Phase, Power, Snapshot
from pilothouse.features.core import CORE
from pilothouse.features.familiarity import Familiarity, Range, summary
from pilothouse.features.live import NODE, WINDOW_SECONDS, LiveHistory, node_failures, pod_failures
from pilothouse.journal import Journal
from pilothouse.learn.crew import HERE, Crew
from pilothouse.learn.evaluate import metrics
from pilothouse.learn.train.boosting import Boost, fit
from pilothouse.predict.calibration import Calibration, isotonic
from pilothouse.predict.drift import Bins
from pilothouse.predict.learned import RiskArtifact, RiskPart
from pilothouse.predict.trees import Ensemble
from pilothouse.run import Runner
from pilothouse.scenarios import load as load_scenario
from pilothouse.settings import RunSettings, ScoreSettings, Settings
from pilothouse.sim.cluster import SimCluster

UNKNOWN = -1
TRAINING = (  # the families kept for judging in the loop (evaluate/inloop.py) are not among them
    "harbor",
    "memory-growth",
    "node-degradation",
    "weary-nodes",
    "sudden-node-loss",
    "cpu-saturation",
    "noisy-neighbor",
    "light",
    "idle",
)
FOLDS = 4
FEWEST_FAILURES = 20  # rows before a failure; from fewer nothing is learned
MISS_OVER_ACTION = 1 / 9
HOLD_SECONDS = 600  # of 300 to 1,800; shorter ones let a dying node take pods again
JUDGED_EVERY = 5
POD_BOOST = Boost(trees=40, depth=4, rate=0.15, least_weight=20, threads=1)
NODE_BOOST = Boost(trees=40, depth=4, rate=0.15, least_weight=10, threads=1)


Plan = tuple[int, tuple[str, int]]  # the run's number, its scenario and seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Which runs, how long, and what a miss costs against a needless action."""

    scenarios: tuple[str, ...] = TRAINING
    seeds: tuple[int, ...] = tuple(range(1000, 1003))
    cycles: int = 300
    cycle_seconds: int = 15
    every: int = 2  # cycles between two rows of one object
    pod_share: float = 0.25  # of pods kept where nothing is about to happen
    miss_over_action: float = MISS_OVER_ACTION
    """What a node that dies under its pods costs, in needless migrations. Less than one: a needless
    migration keeps, for half an hour, one of the few places the guard gives to all of them, so the
    next failing node is not emptied. Of 0.75, 0.85 and 0.9, each holding for 600 s, acting from 0.9
    suffered least on the tuning family ``weary-nodes`` and acted least; three seeds, so the choice
    is a rough one (0.85 suffered less with 400 s there and more on ``node-degradation``)."""

    @property
    def plans(self) -> list[Plan]:
        """Seeds outside, scenarios inside: every part of a split by run sees every scenario."""
        return list(enumerate((s, seed) for seed in self.seeds for s in self.scenarios))


@dataclass(slots=True)
class Rows:
    """Feature rows with labels and the run they come from."""

    features: list[NDArray[np.float32]] = field(default_factory=list)
    labels: list[NDArray[np.int8]] = field(default_factory=list)
    run: list[NDArray[np.int32]] = field(default_factory=list)

    def add(self, other: Rows) -> None:
        self.features += other.features
        self.labels += other.labels
        self.run += other.run

    def stacked(self) -> tuple[NDArray[np.float32], NDArray[np.int8], NDArray[np.int32]]:
        return np.concatenate(self.features), np.concatenate(self.labels), np.concatenate(self.run)


@dataclass(frozen=True, slots=True)
class _Seen:
    at: int
    uid: NDArray[np.int64]
    rows: NDArray[np.float32]


def watch(snapshots: Iterable[Snapshot], every: int) -> tuple[list[_Seen], list[_Seen], Any]:
    """Feature rows of nodes and pods along a run, and when each failed."""
    history = LiveHistory()
    nodes: list[_Seen] = []
    pods: list[_Seen] = []
    failures: dict[str, list[tuple[int, int]]] = {"nodes": [], "pods": []}
    summaries = []
    before: Snapshot | None = None
    end = 0
    for number, snapshot in enumerate(snapshots):
        history.see(snapshot)
        end = snapshot.taken_seconds
        if before is not None:
            for row in node_failures(before, snapshot).tolist():
                failures["nodes"].append((int(snapshot.nodes.uid[row]), end))
            for row in pod_failures(before, snapshot).tolist():
                failures["pods"].append((int(snapshot.pods.uid[row]), end))
        before = snapshot
        summaries.append(summary(snapshot))
        if number % every or number < 2:
            continue
        awake = np.flatnonzero((snapshot.nodes.ready == 1) & (snapshot.nodes.power == Power.AWAKE))
        nodes.append(_Seen(end, snapshot.nodes.uid[awake], history.node_features()[awake]))
        running = np.flatnonzero(snapshot.pods.phase == Phase.RUNNING)
        pods.append(_Seen(end, snapshot.pods.uid[running], history.pod_features()[running]))
    return nodes, pods, (failures, np.array(summaries), end)


def _labels(seen: _Seen, failures: list[tuple[int, int]], end: int) -> NDArray[np.int8]:
    next_failure = np.full(len(seen.uid), 2**40)
    for uid, at in failures:
        if at > seen.at:
            rows = seen.uid == uid
            next_failure[rows] = np.minimum(next_failure[rows], at)
    out = np.empty((len(seen.uid), len(HORIZONS_SECONDS)), np.int8)
    for column, seconds in enumerate(HORIZONS_SECONDS):
        fails = next_failure <= seen.at + seconds
        known = seen.at + seconds <= end
        out[:, column] = np.where(fails, 1, 0 if known else UNKNOWN)
    return out


def collect(
    recipe: Recipe,
    progress: Callable[[int, int], None] = lambda done, total: None,
    crew: Crew = HERE,
) -> tuple[Rows, Rows, NDArray[np.float64]]:
    """Watch every run of the recipe."""
    node_rows, pod_rows, summaries = Rows(), Rows(), []
    plans = recipe.plans
    for nodes, pods, seen in crew.map(partial(_watched, recipe), plans):
        node_rows.add(nodes)
        pod_rows.add(pods)
        summaries.append(seen)
        progress(len(summaries), len(plans))
    return node_rows, pod_rows, np.concatenate(summaries)


def _watched(recipe: Recipe, plan: Plan) -> tuple[Rows, Rows, NDArray[np.float64]]:
    """Rows of nodes and of pods, and the summaries, of one run."""
    number, (_, seed) = plan
    nodes, pods, (failures, seen, end) = watch(snapshots_of(recipe, plan), recipe.every)
    dice = np.random.default_rng([seed, number])
    node_rows, pod_rows = Rows(), Rows()
    for part in nodes:
        _keep(node_rows, part, failures["nodes"], end, number, None, dice)
    for part in pods:
        _keep(pod_rows, part, failures["pods"], end, number, recipe.pod_share, dice)
    return node_rows, pod_rows, seen


def snapshots_of(recipe: Recipe, plan: Plan) -> Iterator[Snapshot]:
    """One run: every second one is only watched, the others are under the loop."""
    number, (scenario, seed) = plan
    acted = (number + number // len(recipe.scenarios)) % 2 == 1
    return (_acted if acted else _run)(scenario, seed, recipe)


def _run(scenario: str, seed: int, recipe: Recipe) -> Iterator[Snapshot]:
    cluster = SimCluster(load_scenario(scenario), seed=seed)
    for _ in range(recipe.cycles):
        cluster.advance(recipe.cycle_seconds)
        yield cluster.observe()


def _acted(scenario: str, seed: int, recipe: Recipe) -> Iterator[Snapshot]:
    """A run under the loop, agents enforcing, with the transparent forecaster."""
    settings = Settings(
        run=RunSettings(
            scenario=scenario,
            seed=seed,
            cycle_seconds=recipe.cycle_seconds,
            interval_wall_seconds=0.0,
        ),
        score=ScoreSettings(forks=False),
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        Journal.open(Path(folder) / "run.db", settings=settings.journal) as journal,
    ):
        for report in Runner(settings=settings, journal=journal).cycles(recipe.cycles):
            yield report.turn.snapshot


def _keep(
    rows: Rows,
    part: _Seen,
    failures: list[tuple[int, int]],
    end: int,
    run: int,
    share: float | None,
    dice: np.random.Generator,
) -> None:
    labels = _labels(part, failures, end)
    known = np.isfinite(part.rows[:, 0])
    if share is not None:
        # Rows are drawn blindly to what will happen, so base rates stay the run's own.
        known &= dice.random(len(known)) < share
    picked = np.flatnonzero(known)
    if len(picked):
        rows.features.append(part.rows[picked])
        rows.labels.append(labels[picked])
        rows.run.append(np.full(len(picked), run, np.int32))


def train(
    recipe: Recipe | None = None,
    *,
    name: str = "learned/1",
    progress: Callable[[int, int], None] = lambda done, total: None,
    crew: Crew = HERE,
) -> RiskArtifact:
    """Collect, fit, calibrate and judge; the card carries the figures."""
    recipe = recipe or Recipe()
    node_rows, pod_rows, summaries = collect(recipe, progress, crew)
    return assemble(
        node_rows,
        pod_rows,
        summaries,
        name=name,
        crew=crew,
        miss_over_action=recipe.miss_over_action,
        card={
            "trained_on": {
                "scenarios": list(recipe.scenarios),
                "seeds": list(recipe.seeds),
                "cycles": recipe.cycles,
                "cycle_seconds": recipe.cycle_seconds,
            },
            "command": f"pilothouse train risk --name {name.partition('/')[0]} "
            f"--seeds {len(recipe.seeds)} --cycles {recipe.cycles}",
        },
    )


def assemble(
    node_rows: Rows,
    pod_rows: Rows,
    summaries: NDArray[np.float64],
    *,
    name: str,
    card: dict[str, Any],
    miss_over_action: float = MISS_OVER_ACTION,
    hold_seconds: int = HOLD_SECONDS,
    crew: Crew = HERE,
) -> RiskArtifact:
    """Fit, calibrate and judge both parts."""
    nodes, node_card = None, {"left_to": "the transparent baseline: hardly a node failed"}
    if teaches(node_rows):
        nodes, node_card = _fit_part(node_rows, NODE, NODE_BOOST, crew)
    pods, pod_card = _fit_part(pod_rows, CORE, POD_BOOST, crew)
    return RiskArtifact(
        name=name,
        pods=pods,
        nodes=nodes,
        familiarity=Familiarity.of(summaries),
        window_seconds=WINDOW_SECONDS,
        thresholds={**thresholds(miss_over_action), "hold_seconds": hold_seconds},
        card={
            **card,
            "nodes": node_card,
            "pods": pod_card,
            "not_for": "other clusters without training on their own journal",
        },
    )


def teaches(rows: Rows) -> bool:
    """Whether enough failures are known outside the runs kept to judge."""
    if not rows.features:
        return False
    _, labels, run = rows.stacked()
    failed = labels[:, HORIZONS_SECONDS.index(900)] == 1
    return int((failed & ~_judged(run)).sum()) >= FEWEST_FAILURES


def thresholds(miss_over_action: float) -> dict[str, float]:
    """Act from the risk at which a miss costs what a needless action does.

    With a miss worth ``k`` actions, expected costs break even at ``1 / (1 + k)``. Replicas come
    only when a failure is all but certain; throttling comes just before moving.
    """
    level = 1 / (1 + miss_over_action)
    return {
        "migrate_risk": round(level, 3),
        "replicate_risk": round(1 - (1 - level) / 5, 3),
        "throttle_risk": round(0.95 * level, 3),
    }


def _fit_part(
    rows: Rows, names: tuple[str, ...], boost: Boost, crew: Crew
) -> tuple[RiskPart, dict[str, Any]]:
    """Fit on all runs but those kept to judge; calibrate on what was said about unseen runs.

    Every run is forecast once by trees that never saw it, and those forecasts are calibrated. With
    few runs a calibration part of its own would miss whole kinds of trouble.
    """
    x, labels, run = rows.stacked()
    column = HORIZONS_SECONDS.index(900)
    y = labels[:, column].astype(np.float32)
    known = labels[:, column] != UNKNOWN
    judged = _judged(run)
    ours = np.flatnonzero(known & ~judged)
    folds = [~judged & (run % FOLDS == fold) for fold in range(FOLDS)]
    shown = [np.flatnonzero(known & ~judged & ~here) for here in folds]
    *blind, ensemble = crew.map(partial(_fit_rows, x, y, boost), [*shown, ours])
    unseen = np.full(len(y), np.nan)
    for here, trees in zip(folds, blind, strict=True):
        unseen[here] = trees.margin(x[here])
    points, values = [], []
    for horizon in range(len(HORIZONS_SECONDS)):
        use = np.flatnonzero(~judged & (labels[:, horizon] != UNKNOWN))
        m, p = isotonic(unseen[use], labels[use, horizon], least=40)
        points.append(m)
        values.append(p)
    part = RiskPart(
        names=names,
        ensemble=ensemble,
        calibration=Calibration(margins=tuple(points), probabilities=tuple(values)),
        ranges=Range.of(x[~judged], names),
        bins=Bins.of(x[ours]),
    )
    return part, _card(part, x, labels, run, np.flatnonzero(judged), y[ours].mean())


def _fit_rows(
    x: NDArray[np.float32], y: NDArray[np.float32], boost: Boost, rows: NDArray[np.intp]
) -> Ensemble:
    return fit(x[rows], y[rows], boost)


def _judged(run: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Every fifth run. A prime number of kinds would do; with nine, each kind has its turn."""
    return np.asarray(run % JUDGED_EVERY == JUDGED_EVERY - 1)


def _card(
    part: RiskPart,
    x: NDArray[np.float32],
    labels: NDArray[np.int8],
    run: NDArray[np.int32],
    test: NDArray[np.intp],
    base: float,
) -> dict[str, Any]:
    column = HORIZONS_SECONDS.index(900)
    use = test[labels[test, column] != UNKNOWN]
    probability = part.probabilities(x[use])[:, column]
    y = labels[use, column]
    low, high = metrics.bootstrap(
        run[use],
        lambda drawn: metrics.brier_skill(y[drawn], probability[drawn], float(base)),
        resamples=100,
    )
    return {
        "test_rows": len(use),
        "base_rate": round(float(y.mean()), 5),
        "average_precision": round(metrics.average_precision(y, probability), 4),
        "brier_skill": round(metrics.brier_skill(y, probability, float(base)), 4),
        "brier_skill_interval": [round(low, 4), round(high, 4)],
        "calibration_slope": round(metrics.calibration_slope(y, probability), 3),
        "top_1_percent_ratio": round(metrics.top_ratio(y, probability), 3),
        "outside_ranges": round(float(part.ranges.outside(x[test]).mean()), 5),
    }
