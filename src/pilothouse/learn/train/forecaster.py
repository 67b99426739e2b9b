# SPDX-License-Identifier: Apache-2.0
"""Train, and leave an artefact behind: whole, hashed, with the figures it was judged by."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pilothouse.domain import HORIZONS_SECONDS
from pilothouse.errors import TraceUnreadable
from pilothouse.features.core import CORE
from pilothouse.features.familiarity import Range
from pilothouse.home import folder
from pilothouse.journal import JournalReader
from pilothouse.learn import artifacts
from pilothouse.learn.crew import HERE, Crew
from pilothouse.learn.dataset import windows
from pilothouse.learn.train import demand, simulated
from pilothouse.learn.train.boosting import fit
from pilothouse.predict.calibration import Calibration, isotonic
from pilothouse.predict.drift import Bins
from pilothouse.predict.learned import RiskArtifact, RiskPart

FILE = "forecaster.json"
LABELLED_SECONDS = 3_600  # what trace trees are fitted to; shorter horizons are calibrated from it
ALERT_SHARE = 0.1  # of held-out windows: a replica for five minutes is cheap, and the guard counts
LEAST_WATCHED_SECONDS = 2_400  # of a journal
FEWEST_FAILURES = 10  # windows that say when to stop
LEAST_RISK = 0.01  # below this nobody is woken, however seldom a trace fails


def train_risk(
    name: str,
    *,
    dataset: str | None,
    journals: tuple[Path, ...],
    seeds: int,
    cycles: int,
    progress: Callable[[int, int], None],
    crew: Crew = HERE,
) -> tuple[Path, dict[str, Any]]:
    """The forecaster's file and its card."""
    inputs: tuple[artifacts.Part, ...] = ()
    if dataset is not None:
        features = artifacts.find(dataset, "processed")
        inputs = artifacts.load(features).files
        made = on_trace(features, name=f"{name}/1")
    elif journals:
        inputs = tuple(artifacts.part_of(path) for path in journals)
        made = on_journals(journals, name=f"{name}/1", crew=crew)
    else:
        recipe = simulated.Recipe(seeds=tuple(range(1000, 1000 + seeds)), cycles=cycles)
        made = simulated.train(recipe, name=f"{name}/1", progress=progress, crew=crew)
    return _save(name, made.dump(), made.card, inputs, "risk"), made.card


def _save(
    name: str,
    data: bytes,
    card: dict[str, Any],
    inputs: tuple[artifacts.Part, ...],
    track: str,
) -> Path:
    target = folder("models") / name
    with artifacts.replacing(target) as building:
        artifacts.write_atomically(building / FILE, data)
        artifacts.seal(
            building,
            name=name,
            kind="forecaster",
            track=track,
            inputs=inputs,
            settings={"command": card.get("command", "")},
            facts={"card": card},
        )
    return target / FILE


def on_journals(journals: tuple[Path, ...], *, name: str, crew: Crew = HERE) -> RiskArtifact:
    """Own runs, through the live feature code; each journal is cut into stretches of time."""
    node_rows, pod_rows, summaries = simulated.Rows(), simulated.Rows(), []
    for path in journals:
        snapshots = (recorded.snapshot for recorded in JournalReader(path).cycles())
        nodes, pods, (failures, seen, end) = simulated.watch(snapshots, 2)
        watched = end - nodes[0].at if nodes else 0
        if watched < LEAST_WATCHED_SECONDS:
            raise TraceUnreadable(
                f"{path} has {watched // 60} min of cycles to learn from, and what happens within "
                f"15 min must be known for most of them: needs {LEAST_WATCHED_SECONDS // 60} min. "
                "Let it run longer."
            )
        dice = np.random.default_rng(0)
        # Stretches stand in for runs; the forecast horizon before each cut is left out by labels.
        for number, (node, pod) in enumerate(zip(nodes, pods, strict=True)):
            stretch = 10 * number // len(nodes)
            simulated._keep(node_rows, node, failures["nodes"], end, stretch, None, dice)
            simulated._keep(pod_rows, pod, failures["pods"], end, stretch, None, dice)
        summaries.append(seen)
    if not simulated.teaches(pod_rows):
        raise TraceUnreadable(
            f"Hardly a pod failed in {', '.join(p.name for p in journals)}: there is nothing to "
            "learn from. Let it run longer, or add journals with --journal."
        )
    return simulated.assemble(
        node_rows,
        pod_rows,
        np.concatenate(summaries),
        name=name,
        crew=crew,
        card={
            "trained_on": {"journals": [p.name for p in journals]},
            "command": "pilothouse train risk --journal FILE",
        },
    )


def on_trace(features: Path, *, name: str) -> RiskArtifact:
    """Pod risk from a trace with the core schema; nodes stay with the transparent baseline.

    Jobs are dealt to training, stopping and calibration whole, so that a calibration row's job was
    never trained on.
    """
    rows = windows.load(features)
    if not len(rows):
        raise TraceUnreadable(f"{features.name} has no rows. Make features again.")
    x = rows.select(pl.col(n).cast(pl.Float32) for n in CORE).to_numpy()
    labels = rows.select(f"label_{h}" for h in HORIZONS_SECONDS).to_numpy()
    job = rows["job"].to_numpy()
    _, member, count = np.unique(job, return_inverse=True, return_counts=True)
    turn = np.random.default_rng(0).integers(0, 10, len(count))[member]
    column = HORIZONS_SECONDS.index(LABELLED_SECONDS)
    known = labels[:, column] >= 0
    train, stop = np.flatnonzero(known & (turn < 6)), np.flatnonzero(known & (turn == 6))
    weight = (1 / np.sqrt(count))[member][train]
    weight *= len(weight) / weight.sum()  # a leaf's least weight counts rows, however long jobs are
    y = labels[:, column].astype(np.float32)
    # Without failures in it, the stopping part would stop at the first tree.
    valid = (x[stop], y[stop]) if y[stop].sum() >= FEWEST_FAILURES else None
    ensemble = fit(x[train], y[train], simulated.POD_BOOST, weight=weight, valid=valid)
    margin = ensemble.margin(x)
    points = []
    for horizon in range(len(HORIZONS_SECONDS)):
        use = np.flatnonzero((turn > 6) & (labels[:, horizon] >= 0))
        points.append(isotonic(margin[use], labels[use, horizon], least=100))
    part = RiskPart(
        names=CORE,
        ensemble=ensemble,
        calibration=Calibration(
            margins=tuple(p[0] for p in points), probabilities=tuple(p[1] for p in points)
        ),
        ranges=Range.of(x, CORE),
        bins=Bins.of(x[train]),
    )
    held = np.flatnonzero(known & (turn > 6))
    thresholds, at_budget = _bridging(part.probabilities(x[held])[:, column], y[held])
    return RiskArtifact(
        name=name,
        pods=part,
        nodes=None,
        familiarity=None,
        window_seconds=300,
        thresholds=thresholds,
        card={
            "trained_on": {"dataset": features.name, "rows": len(train)},
            "command": f"pilothouse train risk --dataset {features.name}",
            "pods": {"base_rate": round(float(y[train].mean()), 5), **at_budget},
        },
    )


def _bridging(
    risk: NDArray[np.float64], failed: NDArray[np.float32]
) -> tuple[dict[str, float], dict[str, float]]:
    """Thresholds by an alert budget on held-out jobs, and what the budget buys there.

    Failures of a trace's pods are rare, so no calibrated risk of theirs comes near a half; how high
    it does come is the trace's own matter. A replica that bridges a restart is asked for from the
    lowest risk that at most ``ALERT_SHARE`` of the windows reach. The other two follow below it:
    nodes are the baseline's, whose risks are moved onto this scale. All are whole per mille,
    because risks are.
    """
    order = np.sort(risk)
    least = order[-max(int(ALERT_SHARE * len(order)), 1)]
    if (risk >= least).mean() > ALERT_SHARE:  # a plateau that the budget cannot pay for
        higher = order[order > least]
        least = higher[0] if len(higher) else least
    level = max(float(np.ceil(1000 * least)) / 1000, LEAST_RISK)
    alert = risk >= level
    card = {
        "alert_share": round(float(alert.mean()), 4),
        "alert_precision": round(float(failed[alert].mean()), 4) if alert.any() else 0.0,
        "alert_recall": round(float(failed[alert].sum() / max(failed.sum(), 1)), 4),
    }
    thresholds = {
        "replicate_risk": level,
        "migrate_risk": round(0.8 * level, 3),
        "throttle_risk": round(0.6 * level, 3),
        "workload_horizon_seconds": LABELLED_SECONDS,
    }
    return thresholds, card


def train_demand(
    name: str,
    *,
    dataset: str | None,
    journals: tuple[Path, ...],
    seeds: int,
    cycles: int,
    progress: Callable[[], None],
    crew: Crew = HERE,
) -> tuple[Path, dict[str, Any]]:
    """The demand forecaster's file and its card."""
    inputs: tuple[artifacts.Part, ...] = ()
    version = f"{name}/1"
    if dataset is not None:
        source = artifacts.find(dataset, "processed")
        inputs = artifacts.load(source).files
        made = demand.on_trace(source, name=version, progress=progress, crew=crew)
    elif journals:
        inputs = tuple(artifacts.part_of(path) for path in journals)
        made = demand.on_journals(journals, name=version, crew=crew)
    else:
        recipe = simulated.Recipe(seeds=tuple(range(1000, 1000 + seeds)), cycles=cycles)
        made = demand.on_simulator(recipe, name=version, progress=progress, crew=crew)
    return _save(name, made.dump(), made.card, inputs, "demand"), made.card
