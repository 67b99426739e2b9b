# SPDX-License-Identifier: Apache-2.0
"""A learned, calibrated risk forecaster behind the same interface as the transparent one.

It sees the same snapshots, keeps its own history of windows, and evaluates small trees with NumPy.
Where it cannot know it does not guess: a cold start, a stale source or inputs unlike its training
data hand the cycle to the transparent baseline, and the forecast says so. Facts (a node that is not
ready) and demand come from the baseline too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import (
    Abstention,
    Attribution,
    Driver,
    Forecast,
    RiskTable,
    Shift,
    Snapshot,
    horizon_column,
)
from pilothouse.errors import ArtifactBroken
from pilothouse.features.core import CORE
from pilothouse.features.familiarity import Familiarity, Range, summary
from pilothouse.features.live import NODE, LiveHistory
from pilothouse.predict.baseline import AT_RISK_PERMILLE, EwmaTrend, workload_risk
from pilothouse.predict.calibration import Calibration
from pilothouse.predict.drift import Bins, Drift
from pilothouse.predict.sealed import read, seal, unseal
from pilothouse.predict.trees import Ensemble
from pilothouse.settings import ForecastSettings, SafetySettings

SHIPPED = "harbor.json"
EXPLAINED_PERMILLE = 50  # rows below this risk, or half of where we act, are nobody's proposal
MOST_EXPLAINED = 12
SHIFTED = 0.25  # stability index from which a feature's drift is told
SHIFTS_TOLD = 3
FEATURES_TOLD = 3  # of an explained row: whatever moved its risk most
COMPLETE_PERMILLE = 700  # a fifth of the nodes may be down; a missing source is another matter
STALE_SHARE = 0.3
TOLD_SECONDS = 900  # which horizon's risks are explained, unless agents look further
Matrix = NDArray[np.float32]
Grid = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RiskPart:
    """Trees, their calibration and the ranges they were trained in, for pods or for nodes."""

    names: tuple[str, ...]
    ensemble: Ensemble
    calibration: Calibration
    ranges: Range
    bins: Bins | None = None  # for drift; a forecaster without them says nothing about it

    def probabilities(self, rows: Matrix) -> NDArray[np.float64]:
        """(rows, horizons), never falling with the horizon."""
        return self.calibration(self.ensemble.margin(rows))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RiskPart:
        return cls(
            names=tuple(data["names"]),
            ensemble=Ensemble.from_dict(data["ensemble"]),
            calibration=Calibration.from_dict(data["calibration"]),
            ranges=Range.from_dict(data["ranges"]),
            bins=Bins.from_dict(data["bins"]) if data.get("bins") else None,
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "names": list(self.names),
            "ensemble": self.ensemble.to_dict(),
            "calibration": self.calibration.to_dict(),
            "ranges": self.ranges.to_dict(),
            "bins": self.bins.to_dict() if self.bins else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RiskArtifact:
    """Everything a learned forecaster needs, in one JSON file with a hash over its content."""

    name: str
    pods: RiskPart
    nodes: RiskPart | None
    familiarity: Familiarity | None
    window_seconds: int
    thresholds: dict[str, float]  # of the Safety agent, by the names of its settings
    card: dict[str, Any]

    def dump(self) -> bytes:
        return seal(
            {
                "name": self.name,
                "pods": self.pods.to_dict(),
                "nodes": self.nodes.to_dict() if self.nodes else None,
                "familiarity": self.familiarity.to_dict() if self.familiarity else None,
                "window_seconds": self.window_seconds,
                "thresholds": self.thresholds,
                "card": self.card,
            }
        )

    @classmethod
    def parse(cls, data: bytes, source: str) -> RiskArtifact:
        body = unseal(data, source, "risk")
        if "pods" not in body:
            raise ArtifactBroken(
                f"{source} forecasts no risk. Name it with --demand if it forecasts demand."
            )
        pods = RiskPart.from_dict(body["pods"])
        nodes = RiskPart.from_dict(body["nodes"]) if body["nodes"] else None
        for part, known in ((pods, CORE), (nodes, NODE)):
            if part is not None and part.names != known:
                raise ArtifactBroken(
                    f"{source} was trained on other features than this build computes. "
                    "Train it again."
                )
        familiarity = body["familiarity"]
        return cls(
            name=body["name"],
            pods=pods,
            nodes=nodes,
            familiarity=Familiarity.from_dict(familiarity) if familiarity else None,
            window_seconds=int(body["window_seconds"]),
            thresholds=body["thresholds"],
            card=body["card"],
        )


def load_artifact(path: Path | None = None) -> RiskArtifact:
    """A trained forecaster from a file, or the one that ships with the package."""
    if path is None:
        shipped = resources.files("pilothouse.predict") / "shipped" / SHIPPED
        return RiskArtifact.parse(shipped.read_bytes(), SHIPPED)
    return RiskArtifact.parse(read(path, "risk"), str(path))


class Learned:
    """Learned risk with the transparent baseline underneath; see the module."""

    def __init__(self, artifact: RiskArtifact, settings: ForecastSettings) -> None:
        self.artifact = artifact
        self.name = artifact.name
        self.thresholds = artifact.thresholds
        # Where a forecaster's own threshold lies below a half, a pod is at risk from there on.
        level = artifact.thresholds.get("replicate_risk", 1.0)
        self._at_risk = min(AT_RISK_PERMILLE, round(1000 * level))
        defaults = SafetySettings()
        usual = defaults.workload_horizon_seconds
        ours = int(artifact.thresholds.get("workload_horizon_seconds", usual))
        self._usual_column, self._our_column = horizon_column(usual), horizon_column(ours)
        self._told_column = horizon_column(max(ours, TOLD_SECONDS))
        self._explained = max(min(EXPLAINED_PERMILLE, self._at_risk // 2), 1)
        self._settings = settings
        self._baseline = EwmaTrend(settings)
        self._history = LiveHistory(artifact.window_seconds)
        self._drift = {
            scope: Drift(part.bins)
            for scope, part in (("nodes", artifact.nodes), ("pods", artifact.pods))
            if part is not None and part.bins is not None
        }
        self._at: int | None = None  # when we last forecast ourselves
        self._seen: int | None = None
        self._next_look = 0

    def predict(self, snapshot: Snapshot) -> Forecast:
        """Take in one snapshot and look ahead."""
        base = self._baseline.predict(snapshot)
        self._history.see(snapshot)
        self._next_look = snapshot.taken_seconds + self._pace(snapshot)
        why = self._cannot_know(snapshot)
        if why is not None:
            return self._fall_back(base, why)
        elapsed = 0 if self._at is None else snapshot.taken_seconds - self._at
        self._at = snapshot.taken_seconds
        nodes, odd_nodes, node_why = self._node_risk(base.node_risk, snapshot, elapsed)
        pods, pod_why = self._pod_risk(base.pod_risk, elapsed)
        notes = base.abstentions
        if odd_nodes:
            notes = (*notes, self._note("nodes", odd_nodes))
        return Forecast(
            cluster=base.cluster,
            made_seconds=base.made_seconds,
            forecaster=self.name,
            node_risk=nodes,
            pod_risk=pods,
            workload_risk=workload_risk(snapshot, pods, self._at_risk),
            node_demand=base.node_demand,
            workload_demand=base.workload_demand,
            abstentions=notes,
            attributions=(*node_why, *pod_why),
            drift=self._shifts(),
        )

    def _pace(self, snapshot: Snapshot) -> int:
        """Seconds between two snapshots: an abstention holds until the next one is looked at."""
        before, self._seen = self._seen, snapshot.taken_seconds
        return max(snapshot.taken_seconds - before, 0) if before is not None else 0

    def _cannot_know(self, snapshot: Snapshot) -> str | None:
        for source in snapshot.sources:
            if source.completeness_permille < COMPLETE_PERMILLE:
                return (
                    f"{source.name} has {source.completeness_permille / 10:g} % of its samples "
                    f"(needs {COMPLETE_PERMILLE / 10:g} %)"
                )
        # A dead node's numbers age without end; that is one row's matter, not the source's.
        ready = snapshot.nodes.ready == 1
        limit = self._settings.stale_seconds
        stale = ready & (snapshot.nodes.age_seconds > limit)
        if stale.sum() > STALE_SHARE * max(int(ready.sum()), 1):
            return (
                f"usage of {int(stale.sum())} of {int(ready.sum())} nodes is older than {limit} s"
            )
        if self.artifact.familiarity is None:
            return None
        return self.artifact.familiarity.complaint(summary(snapshot))

    def _note(self, scope: str, why: str) -> Abstention:
        return Abstention(
            scope=scope,
            reason=f"{self.name} abstains: {why}; {self._baseline.name} is used instead until "
            "that ends, asked again every cycle",
            until_seconds=self._next_look,
        )

    def _fall_back(self, base: Forecast, why: str) -> Forecast:
        return Forecast(
            cluster=base.cluster,
            made_seconds=base.made_seconds,
            forecaster=f"{base.forecaster} for {self.name}",
            node_risk=self._on_our_scale(base.node_risk),
            pod_risk=self._on_our_horizon(self._on_our_scale(base.pod_risk)),
            workload_risk=self._on_our_horizon(self._on_our_scale(base.workload_risk)),
            node_demand=base.node_demand,
            workload_demand=base.workload_demand,
            abstentions=(*base.abstentions, self._note("all", why)),
        )

    def _on_our_scale(self, table: RiskTable) -> RiskTable:
        """The baseline's risks, moved so that its default thresholds fall on ours.

        Agents act on our thresholds; the baseline's numbers are not calibrated and would make them
        act far too early. After the move they do what they would have done with the baseline.
        """
        if not self.thresholds:
            return table
        defaults = SafetySettings()
        names = ("throttle_risk", "migrate_risk", "replicate_risk")
        before = [0.0, *(1000 * getattr(defaults, n) for n in names), 1000.0]
        after = [0.0, *(1000 * self.thresholds[n] for n in names), 1000.0]
        moved = np.interp(table.risk_permille, before, after)
        return replace(table, risk_permille=np.floor(moved + 1e-6).astype(np.int32))

    def _on_our_horizon(self, table: RiskTable) -> RiskTable:
        """The baseline's risk at the horizon where it is usually asked, wherever we are asked.

        Agents look at workloads as far ahead as our thresholds say. The baseline is sure of much
        within an hour, and would be heard far more often than with its own horizon.
        """
        if self._our_column <= self._usual_column:
            return table
        risk = table.risk_permille.copy()
        between = slice(self._usual_column, self._our_column + 1)
        risk[:, between] = risk[:, [self._usual_column]]
        return replace(table, risk_permille=risk)

    def _node_risk(
        self, base: RiskTable, snapshot: Snapshot, elapsed: int
    ) -> tuple[RiskTable, str, tuple[Attribution, ...]]:
        part = self.artifact.nodes
        if part is None:
            return self._on_our_scale(base), "", ()
        base = self._on_our_scale(base)
        rows = self._history.node_features()
        nodes = snapshot.nodes
        fact = (nodes.ready != 1) | (base.driver == Driver.UNREADY)
        usable = (base.abstains == 0) & ~fact & np.isfinite(rows[:, 0])
        self._watch_drift("nodes", rows[usable], elapsed)
        odd = usable & part.ranges.outside(rows)
        table, why = self._with_risk(base, part, rows, usable & ~odd, "nodes")
        if not odd.any():
            return table, "", why
        first = int(np.flatnonzero(odd)[0])
        return table, part.ranges.sentence(part.names, rows[first], str(nodes.names[first])), why

    def _pod_risk(self, base: RiskTable, elapsed: int) -> tuple[RiskTable, tuple[Attribution, ...]]:
        part = self.artifact.pods
        base = self._on_our_horizon(self._on_our_scale(base))
        rows = self._history.pod_features()
        usable = (base.abstains == 0) & np.isfinite(rows[:, 0])
        self._watch_drift("pods", rows[usable], elapsed)
        return self._with_risk(base, part, rows, usable & ~part.ranges.outside(rows), "pods")

    def _watch_drift(self, scope: str, rows: Matrix, elapsed: int) -> None:
        if scope in self._drift:
            self._drift[scope].take(rows, elapsed)

    def _shifts(self) -> tuple[Shift, ...]:
        """The features that moved most, where they moved enough to be told."""
        told = []
        for scope, drift in self._drift.items():
            index = drift.index()
            part = self.artifact.nodes if scope == "nodes" else self.artifact.pods
            if index is None or part is None:
                continue
            for column in np.argsort(-index, kind="stable")[:SHIFTS_TOLD].tolist():
                if index[column] >= SHIFTED:
                    moved = round(1000 * float(index[column]))
                    told.append(
                        Shift(scope=scope, feature=part.names[column], index_thousandths=moved)
                    )
        return tuple(told)

    def _with_risk(
        self,
        base: RiskTable,
        part: RiskPart,
        rows: Matrix,
        usable: NDArray[np.bool_],
        scope: str,
    ) -> tuple[RiskTable, tuple[Attribution, ...]]:
        """The baseline's table with our risks where we know; elsewhere it stays the baseline's."""
        risk, driver, value = (
            base.risk_permille.copy(),
            base.driver.copy(),
            base.driver_value.copy(),
        )
        why: tuple[Attribution, ...] = ()
        picked = np.flatnonzero(usable)
        if len(picked):
            ours = np.rint(1000 * part.probabilities(rows[picked])).astype(np.int32)
            risk[picked] = ours
            told = ours[:, self._told_column]
            worst = np.argsort(-told, kind="stable")[:MOST_EXPLAINED]
            worst = worst[told[worst] >= self._explained]
            quiet = np.setdiff1d(picked, picked[worst])
            driver[quiet] = np.where(risk[quiet, -1] < 1, int(Driver.NONE), driver[quiet])
            value[quiet] = np.where(driver[quiet] == int(Driver.NONE), 0, value[quiet])
            if len(worst):
                chosen = picked[worst]
                shapley = part.ensemble.contributions(rows[chosen])[:, :-1]
                named, numbers = _drivers(part, rows[chosen], shapley, _DRIVERS[scope])
                driver[chosen], value[chosen] = named, numbers
                why = _attributions(scope, base.uid[chosen], part.names, rows[chosen], shapley)
        table = RiskTable(
            uid=base.uid,
            risk_permille=risk,
            driver=driver,
            driver_value=value,
            abstains=base.abstains,
        )
        return table, why


def _attributions(
    scope: str,
    uids: NDArray[np.int64],
    names: tuple[str, ...],
    rows: Matrix,
    shapley: NDArray[np.float64],
) -> tuple[Attribution, ...]:
    """The features that moved each row most, in integers, because a forecast is on record."""
    told = []
    for row, uid in enumerate(uids.tolist()):
        for column in np.argsort(-np.abs(shapley[row]), kind="stable")[:FEATURES_TOLD].tolist():
            told.append(
                Attribution(
                    scope=scope,
                    uid=uid,
                    feature=names[column],
                    value_thousandths=round(1000 * float(np.nan_to_num(rows[row, column]))),
                    adds_thousandths=round(1000 * float(shapley[row, column])),
                )
            )
    return tuple(told)


_NODE_DRIVERS = {
    **{n: Driver.ERRORS for n in NODE if n.startswith("errors")},
    **{n: Driver.HEARTBEAT for n in NODE if n.startswith("lag")},
    "cpu_pressure": Driver.CPU_PRESSURE,
    "memory_pressure": Driver.MEMORY_GROWTH,
    "memory_slope": Driver.MEMORY_GROWTH,
    "failures": Driver.RESTARTS,
}
_POD_DRIVERS = {
    **{n: Driver.MEMORY_GROWTH for n in CORE if n.startswith("memory")},
    **{n: Driver.CPU_PRESSURE for n in CORE if n.startswith("cpu") and n != "cpu_request"},
    "restarts": Driver.RESTARTS,
    "job_failures": Driver.RESTARTS,
    "job_failure_share": Driver.RESTARTS,
    "job_hours_since_failure": Driver.RESTARTS,
}
_DRIVERS = {"nodes": _NODE_DRIVERS, "pods": _POD_DRIVERS}
# Which feature tells a driver's number, and by what it is multiplied to be in the driver's unit.
_NUMBERS = {
    Driver.ERRORS: ("errors", 1.0),
    Driver.HEARTBEAT: ("lag", 1000.0),
    Driver.CPU_PRESSURE: ("cpu_pressure", 1000.0),
    Driver.RESTARTS: ("restarts", 1.0),
}


def _drivers(
    part: RiskPart, rows: Matrix, contributions: NDArray[np.float64], drivers: dict[str, Driver]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The group of features that raised each row most, by exact Shapley values."""
    groups = sorted(set(drivers.values()))
    members = [[part.names.index(n) for n, d in drivers.items() if d == g] for g in groups]
    by_group = np.stack([contributions[:, m].sum(axis=1) for m in members], axis=1)
    best = by_group.argmax(axis=1)
    named = np.array([int(groups[b]) for b in best], np.int32)
    numbers = np.zeros(len(rows), np.int32)
    for row, group in enumerate(best.tolist()):
        name, factor = _NUMBERS.get(groups[group], ("", 0.0))
        if name not in part.names:
            name, factor = _fallback_number(groups[group], part.names)
        if name:
            numbers[row] = int(np.nan_to_num(rows[row, part.names.index(name)] * factor))
    return named, numbers


def _fallback_number(driver: Driver, names: tuple[str, ...]) -> tuple[str, float]:
    if driver is Driver.CPU_PRESSURE and "cpu_over_request" in names:
        return "cpu_over_request", 1000.0
    if driver is Driver.MEMORY_GROWTH:
        return "memory_slope", 1000.0 / 60.0  # per mille of the limit per minute
    return ("failures", 1.0) if "failures" in names else ("", 0.0)
