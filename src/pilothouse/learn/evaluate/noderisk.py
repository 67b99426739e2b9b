# SPDX-License-Identifier: Apache-2.0
"""Will a node go away? Judged on its own, on a real trace and on simulator histories.

Machine removals of a trace are split by time, with the machine's own rate of removals and the
fleet's as rivals. On simulator histories two ways to a node's risk stand side by side: trees that
look at the node, and the risks of its pods taken together. Whichever ranks better is the one a
forecaster should use; both figures are printed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pilothouse.domain import HORIZONS_SECONDS, Phase, Power
from pilothouse.errors import TraceUnreadable
from pilothouse.features.history import AsOf
from pilothouse.features.live import LiveHistory, node_failures
from pilothouse.learn.evaluate import metrics
from pilothouse.learn.evaluate.jobrisk import DAY_US, Cuts, curves
from pilothouse.learn.traces.importing import table
from pilothouse.learn.train.boosting import Boost, fit
from pilothouse.learn.train.logistic import Logistic
from pilothouse.predict.calibration import Calibration, isotonic
from pilothouse.predict.learned import RiskArtifact
from pilothouse.scenarios import load as load_scenario
from pilothouse.sim.cluster import SimCluster

HOUR_US = 3_600_000_000
EVERY_US = 4 * HOUR_US  # between two rows of one machine; machines take turns
RECENT_HOURS = (1, 6, 24)
BOOST = Boost(trees=100, depth=4, rate=0.1, least_weight=30)
MEASURED_HORIZON = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRows:
    """Machines that are there at a moment, what was known, and whether they were removed soon."""

    names: tuple[str, ...]
    features: NDArray[np.float32]  # (rows, features)
    time_us: NDArray[np.int64]
    machine: NDArray[np.int64]
    labels: NDArray[np.int8]  # (rows, horizons)

    def column(self, name: str) -> NDArray[np.float32]:
        return self.features[:, self.names.index(name)]


def machine_rows(dataset: Path) -> MachineRows:
    """Rows of every machine that is in the fleet, every few hours, until an hour before the end."""
    events = table(dataset, "machines").sort("time_us").collect()
    if not len(events.filter(pl.col("event") == "REMOVE")):
        raise TraceUnreadable(
            f"{dataset.name} has no machine removals. Import google-2011 with its machine events."
        )
    machine, time = events["machine"].to_numpy(), events["time_us"].to_numpy()
    kind = events["event"].cast(pl.String).to_numpy()
    last = int(time.max()) - MEASURED_HORIZON * 1_000_000
    who, at = _grid(np.unique(machine), last)
    of = {name: AsOf(machine[kind == name], time[kind == name]) for name in ("ADD", "REMOVE")}
    added, removed = (of[name].at(who, at) for name in ("ADD", "REMOVE"))
    there = added.count > removed.count
    who, at = who[there], at[there]
    columns = _columns(events, of["REMOVE"], who, at)
    return MachineRows(
        names=tuple(columns),
        features=np.stack([np.asarray(v, np.float32) for v in columns.values()], axis=1),
        time_us=at,
        machine=who,
        labels=_labels(machine[kind == "REMOVE"], time[kind == "REMOVE"], who, at),
    )


def _grid(machines: NDArray[np.int64], last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Moments of each machine; the first ones differ, so that no hour of the day is special."""
    turns = np.arange(len(machines)) * 7919 % (EVERY_US // HOUR_US) * HOUR_US + HOUR_US
    moments = np.arange(0, last, EVERY_US)
    who = np.repeat(machines, len(moments))
    at = (turns[:, None] + moments[None, :]).ravel()
    return who[at <= last], at[at <= last]


def _columns(
    events: pl.DataFrame, removals: AsOf, who: NDArray[np.int64], at: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    machine, time = events["machine"].to_numpy(), events["time_us"].to_numpy()
    kind = events["event"].cast(pl.String).to_numpy()
    own = removals.at(who, at)
    fleet = AsOf(np.zeros((kind == "REMOVE").sum(), np.int64), time[kind == "REMOVE"])
    everywhere = fleet.at(np.zeros(len(at), np.int64), at)
    added = AsOf(machine[kind == "ADD"], time[kind == "ADD"]).at(who, at)
    updated = AsOf(machine[kind == "UPDATE"], time[kind == "UPDATE"]).at(who, at)
    sizes = events.group_by("machine").agg(
        pl.col("cpu_capacity").drop_nulls().first(), pl.col("memory_capacity").drop_nulls().first()
    )
    size = pl.DataFrame({"machine": who}).join(
        sizes, on="machine", how="left", maintain_order="left"
    )
    out: dict[str, NDArray[Any]] = {
        "removals": own.count,
        "removals_per_day": own.count / (at / DAY_US + 1),
        "hours_since_removal": own.elapsed() / 3600,
        "hours_since_added": added.elapsed() / 3600,
        "updates": updated.count,
        "hours_since_update": updated.elapsed() / 3600,
        "cpu_capacity": size["cpu_capacity"].fill_null(float("nan")).to_numpy(),
        "memory_capacity": size["memory_capacity"].fill_null(float("nan")).to_numpy(),
        "hour_of_day": at / HOUR_US % 24,
        "fleet_minutes_since_removal": everywhere.elapsed() / 60,
    }
    for hours in RECENT_HOURS:
        out[f"removals_{hours}h"] = own.since(hours * HOUR_US).count
        out[f"fleet_removals_{hours}h"] = everywhere.since(hours * HOUR_US).count
    return out


def _labels(
    machine: NDArray[np.int64],
    time: NDArray[np.int64],
    who: NDArray[np.int64],
    at: NDArray[np.int64],
) -> NDArray[np.int8]:
    removals = AsOf(machine, time)
    before = removals.at(who, at).count
    horizons = [removals.at(who, at + h * 1_000_000).count > before for h in HORIZONS_SECONDS]
    return np.stack(horizons, axis=1).astype(np.int8)


def removals(dataset: Path, cuts: Cuts | None = None) -> dict[str, Any]:
    """Machine removals within the hour, split by time; jobs never enter."""
    cuts = cuts or Cuts()
    rows = machine_rows(dataset)
    day = rows.time_us / DAY_US
    gap = 1 / 24  # the embargo: no label of one part is decided in the next
    parts = {
        "train": np.flatnonzero(day < cuts.train - gap),
        "stop": np.flatnonzero((day >= cuts.train) & (day < cuts.stop - gap)),
        "calibrate": np.flatnonzero((day >= cuts.stop) & (day < cuts.test - gap)),
        "test": np.flatnonzero(day >= cuts.test),
    }
    x, column = rows.features, HORIZONS_SECONDS.index(MEASURED_HORIZON)
    y = rows.labels[:, column].astype(np.float32)
    train, stop, test = parts["train"], parts["stop"], parts["test"]
    trees = fit(x[train], y[train], BOOST, valid=(x[stop], y[stop]))
    held = trees.margin(x[parts["calibrate"]])
    points = [isotonic(held, rows.labels[parts["calibrate"], h], least=500) for h in range(4)]
    calibration = Calibration(
        margins=tuple(p[0] for p in points), probabilities=tuple(p[1] for p in points)
    )
    margin = trees.margin(x[test])
    probability = calibration(margin)
    rivals: dict[str, NDArray[Any]] = {
        "machine's removals so far": rows.column("removals")[test],
        "machine's removals in a day": rows.column("removals_24h")[test],
        "fleet's removals in an hour": rows.column("fleet_removals_1h")[test],
        "logistic regression": Logistic.fit(x[train], y[train]).margin(x[test]),
    }
    return {
        "track": "machines removed within the hour",
        "rows": {name: len(part) for name, part in parts.items()},
        **_judged(y[test], margin, probability[:, column], rivals, rows.machine[test],
                  float(y[train].mean())),
        "never_falls_with_the_horizon": bool((np.diff(probability, axis=1) >= 0).all()),
    }  # fmt: skip


def _judged(
    outcome: NDArray[np.float32],
    score: NDArray[np.float64],
    probability: NDArray[np.float64],
    rivals: dict[str, NDArray[Any]],
    group: NDArray[np.int64],
    base: float,
) -> dict[str, Any]:
    scores = {name: metrics.average_precision(outcome, s) for name, s in rivals.items()}
    best = max(scores, key=lambda n: scores[n])

    def gap(drawn: NDArray[np.intp]) -> float:
        mine = metrics.average_precision(outcome[drawn], score[drawn])
        return mine - metrics.average_precision(outcome[drawn], rivals[best][drawn])

    return {
        "base_rate": {"train": base, "test": float(outcome.mean())},
        "average_precision": {"forecaster": metrics.average_precision(outcome, score), **scores},
        "best_rival": best,
        "gap_interval": metrics.bootstrap(group, gap, resamples=50),
        "brier_skill": metrics.brier_skill(outcome, probability, base),
        "calibration_slope": metrics.calibration_slope(outcome, probability),
        "top_1_percent_ratio": metrics.top_ratio(outcome, probability),
        "at_budgets": metrics.at_budgets(outcome, score),
        "curves": curves(outcome, score, probability),
    }


def simulated(
    artifact: RiskArtifact,
    *,
    scenarios: tuple[str, ...] = ("node-degradation", "harbor", "sudden-node-loss"),
    seeds: tuple[int, ...] = (7001, 7002, 7003),
    cycles: int = 240,
    progress: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Two ways to a node's risk on runs nobody trained on, 15 minutes ahead."""
    if artifact.nodes is None:
        raise TraceUnreadable(f"{artifact.name} has no trees for nodes, so nothing to compare.")
    parts: list[tuple[NDArray[Any], ...]] = []
    for number, (scenario, seed) in enumerate((s, n) for s in scenarios for n in seeds):
        progress(f"{scenario}, seed {seed}")
        scores, outcome = _watched(artifact, scenario, seed, cycles)
        parts.append((*scores, outcome, np.full(len(outcome), number)))
    own, any_pod, worst, outcome, run = (np.concatenate(p) for p in zip(*parts, strict=True))
    ways = {"trees on the node": own, "any pod fails": any_pod, "its worst pod": worst}
    table = {name: metrics.average_precision(outcome, s) for name, s in ways.items()}

    def gap(drawn: NDArray[np.intp]) -> float:
        mine = metrics.average_precision(outcome[drawn], own[drawn])
        return mine - metrics.average_precision(outcome[drawn], any_pod[drawn])

    return {
        "track": "nodes of the simulator, 15 minutes ahead",
        "rows": len(outcome),
        "runs": len(parts),
        "base_rate": float(outcome.mean()),
        "average_precision": table,
        "better": max(table, key=lambda n: table[n]),
        "gap_interval": metrics.bootstrap(run, gap, resamples=200),
        "at_budgets": metrics.at_budgets(outcome, own),
    }


def _watched(
    artifact: RiskArtifact, scenario: str, seed: int, cycles: int
) -> tuple[tuple[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[np.int8]]:
    """Scores of awake nodes along one run nobody acts on, and what became of them."""
    cluster, history = SimCluster(load_scenario(scenario), seed=seed), LiveHistory()
    seen: list[tuple[int, NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]] = []
    deaths: list[tuple[int, int]] = []
    before, column = None, HORIZONS_SECONDS.index(900)
    for number in range(cycles):
        cluster.advance(15)
        snapshot = cluster.observe()
        history.see(snapshot)
        if before is not None:
            dead = node_failures(before, snapshot)
            deaths += [(int(u), snapshot.taken_seconds) for u in snapshot.nodes.uid[dead]]
        before = snapshot
        if number < 8 or number % 4:
            continue
        nodes, pods = snapshot.nodes, snapshot.pods
        assert artifact.nodes is not None
        risk = artifact.nodes.probabilities(history.node_features())[:, column]
        running = np.flatnonzero((pods.phase == Phase.RUNNING) & (pods.node >= 0))
        each = artifact.pods.probabilities(history.pod_features()[running])[:, column]
        lives, worst = np.ones(len(nodes)), np.zeros(len(nodes))
        np.multiply.at(lives, pods.node[running], 1 - each)
        np.maximum.at(worst, pods.node[running], each)
        awake = np.flatnonzero((nodes.ready == 1) & (nodes.power == Power.AWAKE))
        seen.append(
            (snapshot.taken_seconds, nodes.uid[awake], risk[awake], 1 - lives[awake], worst[awake])
        )
    end = before.taken_seconds if before is not None else 0
    known = [part for part in seen if part[0] + 900 <= end]
    outcome = [
        np.isin(uid, [u for u, when in deaths if at < when <= at + 900])
        for at, uid, *_ in known
    ]  # fmt: skip
    columns = [np.concatenate([part[k] for part in known]) for k in (2, 3, 4)]
    return (columns[0], columns[1], columns[2]), np.concatenate(outcome).astype(np.int8)
