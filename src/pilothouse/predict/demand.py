# SPDX-License-Identifier: Apache-2.0
"""Learned demand beside any forecaster of risk: p50 and p95 of CPU per node and workload.

The forecaster underneath is asked first; where we know, its demand is replaced by ours, and where
we do not (too little history, numbers unlike training) it stays as it is and the forecast says so.
Risk is not ours to touch. Rows that agents are likely to act on, the idlest nodes and the tightest
workloads, carry what moved their upper demand, in shares of their own level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import (
    HORIZONS_SECONDS,
    Abstention,
    Attribution,
    DemandTable,
    Forecast,
    Snapshot,
    horizon_column,
)
from pilothouse.errors import ArtifactBroken
from pilothouse.features.demand import capacity_millicores
from pilothouse.features.demand_history import SCOPES, DemandHistory, DemandRows
from pilothouse.features.familiarity import Range
from pilothouse.features.series import LIVE
from pilothouse.predict.sealed import read, seal, unseal
from pilothouse.predict.trees import Ensemble

QUANTILES = (0.5, 0.95)
LEAST_LEVEL = 1.0  # millicores; below it a share of the level means nothing
TOLD_SECONDS = 900  # where agents look
MOST_TOLD = 12  # rows of each table
FEATURES_TOLD = 3
Grid = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DemandPart:
    """Trees of one table by quantile and horizon, and the ranges they were trained in."""

    ensembles: tuple[tuple[Ensemble, ...], ...]  # (quantiles, horizons)
    shifts: tuple[tuple[float, ...], ...]  # what calibration added, in units of the level
    ranges: Range

    def quantiles(self, features: NDArray[np.float32]) -> NDArray[np.float64]:
        """(quantiles, rows, horizons) in units of the level; the upper is never the lower."""
        now = features[:, 0].astype(np.float64)
        grid = np.stack(
            [
                np.stack(
                    [e.margin(features) + now + shift for e, shift in zip(row, add, strict=True)],
                    axis=1,
                )
                for row, add in zip(self.ensembles, self.shifts, strict=True)
            ]
        )
        return np.maximum.accumulate(np.maximum(grid, 0.0), axis=0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "ensembles": [[e.to_dict() for e in row] for row in self.ensembles],
            "shifts": [[float(f"{v:.9g}") for v in row] for row in self.shifts],
            "ranges": self.ranges.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> DemandPart:
        return cls(
            ensembles=tuple(tuple(Ensemble.from_dict(e) for e in row) for row in data["ensembles"]),
            shifts=tuple(tuple(float(v) for v in row) for row in data["shifts"]),
            ranges=Range.from_dict(data["ranges"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DemandArtifact:
    """A trained demand forecaster, in one JSON file with a hash over its content."""

    name: str
    step_seconds: int
    least_steps: int  # known steps from which a row is forecast
    parts: dict[str, DemandPart]  # by table; a table that was not trained is left to others
    card: dict[str, Any]

    def dump(self) -> bytes:
        return seal(
            {
                "name": self.name,
                "names": list(LIVE),
                "step_seconds": self.step_seconds,
                "least_steps": self.least_steps,
                "demand": {scope: part.to_dict() for scope, part in self.parts.items()},
                "card": self.card,
            }
        )

    @classmethod
    def parse(cls, data: bytes, source: str) -> DemandArtifact:
        body = unseal(data, source, "demand")
        if "demand" not in body:
            raise ArtifactBroken(
                f"{source} forecasts no demand. Name it with --forecaster if it forecasts risk."
            )
        if tuple(body["names"]) != LIVE:
            raise ArtifactBroken(
                f"{source} was trained on other features than this build computes. Train it again."
            )
        return cls(
            name=body["name"],
            step_seconds=int(body["step_seconds"]),
            least_steps=int(body["least_steps"]),
            parts={scope: DemandPart.from_dict(part) for scope, part in body["demand"].items()},
            card=body["card"],
        )


def load_demand(path: Path) -> DemandArtifact:
    """A trained demand forecaster; none ships with the package."""
    return DemandArtifact.parse(read(path, "demand"), str(path))


class _Forecaster(Protocol):
    name: str

    def predict(self, snapshot: Snapshot) -> Forecast: ...


class WithDemand:
    """Another forecaster's risk with learned demand; see the module."""

    def __init__(self, under: _Forecaster, artifact: DemandArtifact) -> None:
        self.artifact = artifact
        self.name = f"{under.name}, {artifact.name}"
        self.thresholds: dict[str, float] = getattr(under, "thresholds", {})
        self._under = under
        self._history = DemandHistory(artifact.step_seconds)

    def predict(self, snapshot: Snapshot) -> Forecast:
        """Take in one snapshot and look ahead."""
        forecast = self._under.predict(snapshot)
        self._history.see(snapshot)
        tables = {"nodes": forecast.node_demand, "workloads": forecast.workload_demand}
        notes: list[Abstention] = []
        told: list[Attribution] = []
        for scope in SCOPES:
            part, seen = self.artifact.parts.get(scope), self._history.rows(scope)
            if part is None or not np.array_equal(seen.uid, tables[scope].uid):
                continue
            usable, why = self._usable(part, seen, tables[scope])
            if why:
                notes.append(self._note(scope, why, snapshot))
            if usable.any():
                tables[scope] = _replaced(tables[scope], part, seen, usable)
                told += _told(scope, part, seen, _watched(scope, snapshot, tables[scope], usable))
        return replace(
            forecast,
            node_demand=tables["nodes"],
            workload_demand=tables["workloads"],
            demand_by=self.artifact.name,
            abstentions=(*forecast.abstentions, *notes),
            attributions=(*forecast.attributions, *told),
        )

    def _usable(
        self, part: DemandPart, seen: DemandRows, table: DemandTable
    ) -> tuple[NDArray[np.bool_], str]:
        """Rows we forecast, and why no row, or one of them, is left to the other forecaster."""
        asked = (table.abstains == 0) & np.isfinite(seen.now) & (seen.level >= LEAST_LEVEL)
        young = asked & (seen.steps < self.artifact.least_steps)
        odd = asked & ~young & part.ranges.outside(seen.features)
        if asked.any() and (young == asked).all():
            minutes = self.artifact.step_seconds / 60
            return asked & ~young, (
                f"{int(seen.steps[young].max()) * minutes:g} min of history, needs "
                f"{self.artifact.least_steps * minutes:g} min"
            )
        if odd.any():
            first = int(np.flatnonzero(odd)[0])
            who = f"{int(odd.sum())} of {int(asked.sum())} rows are unlike training; one of them"
            return asked & ~young & ~odd, part.ranges.sentence(LIVE, seen.features[first], who)
        return asked & ~young, ""

    def _note(self, scope: str, why: str, snapshot: Snapshot) -> Abstention:
        return Abstention(
            scope=f"demand of {scope}",
            reason=f"{self.artifact.name} abstains: {why}; {self._under.name} is used there, "
            "asked again every cycle",
            until_seconds=snapshot.taken_seconds,
        )


def _replaced(
    table: DemandTable, part: DemandPart, seen: DemandRows, usable: NDArray[np.bool_]
) -> DemandTable:
    rows = np.flatnonzero(usable)
    median, upper = part.quantiles(seen.features[rows]) * seen.level[rows, None]
    return replace(
        table,
        median_millicores=_with(table.median_millicores, rows, median),
        upper_millicores=_with(table.upper_millicores, rows, upper),
    )


def _with(grid: Grid, rows: NDArray[np.intp], values: NDArray[np.float64]) -> Grid:
    out = grid.copy()
    out[rows] = np.rint(np.minimum(values, 2_000_000_000)).astype(np.int32)
    return out


def _watched(
    scope: str, snapshot: Snapshot, table: DemandTable, usable: NDArray[np.bool_]
) -> NDArray[np.intp]:
    """The rows agents look at first: the idlest nodes, the workloads with least to spare."""
    upper = table.upper_millicores[:, horizon_column(TOLD_SECONDS)].astype(np.float64)
    if scope == "nodes":
        tight = upper / np.maximum(snapshot.nodes.cpu_capacity_millicores, 1)
    else:
        tight = -upper / np.maximum(capacity_millicores(snapshot), 1)
    rows = np.flatnonzero(usable)
    return rows[np.argsort(tight[rows], kind="stable")][:MOST_TOLD]


def _told(
    scope: str, part: DemandPart, seen: DemandRows, rows: NDArray[np.intp]
) -> list[Attribution]:
    """What moved the upper demand of these rows away from the newest step."""
    upper = part.ensembles[-1][HORIZONS_SECONDS.index(TOLD_SECONDS)]
    shapley = upper.contributions(seen.features[rows])[:, :-1]
    told = []
    for place, row in enumerate(rows.tolist()):
        order = np.argsort(-np.abs(shapley[place]), kind="stable")[:FEATURES_TOLD]
        for column in order.tolist():
            value = float(np.nan_to_num(seen.features[row, column]))
            told.append(
                Attribution(
                    scope=f"demand of {scope}",
                    uid=int(seen.uid[row]),
                    feature=LIVE[column],
                    value_thousandths=round(1000 * value),
                    adds_thousandths=round(1000 * float(shapley[place, column])),
                )
            )
    return told
