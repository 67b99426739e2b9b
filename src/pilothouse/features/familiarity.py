# SPDX-License-Identifier: Apache-2.0
"""Is this input like what a forecaster was trained on?

Two questions. Is the cluster as a whole familiar: its load, its pressure, the size of its machines
and pods? And is a single row inside the ranges its features had in training? The limits come from
held-out data and are widened a little, because the edge of a sample is not the edge of the world.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import Phase, Power, Snapshot, WorkloadKind

Floats = NDArray[np.float64]
ANY = 1e12
WIDEN = 0.15  # of the range seen, on both sides

# Numbers that only grow with time. A run that lasts longer than training is nothing strange; the
# trees treat it as the oldest they have seen.
GROWING = frozenset(
    {
        "age_hours",
        "failures",
        "hours_since_failure",
        "job_failures",
        "job_hours_since_failure",
        "machine_failures",
        "machine_hours_since_failure",
        "restarts",
        "user_failures",
        "windows_seen",
    }
)

SUMMARY = (
    "load over requests",
    "cpu over capacity",
    "memory over capacity",
    "largest cores per node",
    "smallest cores per node",
    "largest MiB per core",
    "smallest MiB per core",
    "median millicores per pod",
    "median MiB per pod",
    "pods per node",
    "cpu over request",
)


def summary(snapshot: Snapshot) -> Floats:
    """A few numbers about the whole cluster, in the order of ``SUMMARY``."""
    nodes, pods, workloads = snapshot.nodes, snapshot.pods, snapshot.workloads
    awake = (nodes.ready == 1) & (nodes.power == Power.AWAKE)
    running = pods.phase == Phase.RUNNING
    if not awake.any() or not running.any():
        return np.full(len(SUMMARY), np.nan)
    cpu = nodes.cpu_capacity_millicores[awake].astype(float)
    memory = nodes.memory_capacity_mib[awake].astype(float)
    # Sizes of all machines, asleep or not: a machine that sleeps does not make others strange.
    cores = nodes.cpu_capacity_millicores / 1000
    per_core = nodes.memory_capacity_mib / np.maximum(cores, 1e-3)
    service = workloads.kind == WorkloadKind.SERVICE
    load = float(workloads.load_permille[service].mean()) / 1000 if service.any() else np.nan
    request = np.maximum(pods.cpu_request_millicores[running], 1)
    return np.array(
        [
            load,
            nodes.cpu_used_millicores[awake].sum() / cpu.sum(),
            nodes.memory_used_mib[awake].sum() / memory.sum(),
            cores.max(),
            cores.min(),
            per_core.max(),
            per_core.min(),
            float(np.median(request)),
            float(np.median(pods.memory_request_mib[running])),
            nodes.pods[awake].mean(),
            float((pods.cpu_used_millicores[running] / request).mean()),
        ]
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Familiarity:
    """The range each number of the summary had."""

    low: Floats
    high: Floats

    @classmethod
    def of(cls, summaries: Floats) -> Familiarity:
        low, high = np.nanmin(summaries, axis=0), np.nanmax(summaries, axis=0)
        room = WIDEN * (high - low) + 0.02 * np.abs(high)
        low, high = low - room, high + room
        # A largest that is small, or a smallest that is large, is nothing strange.
        low[[n.startswith("largest") for n in SUMMARY]] = -ANY
        high[[n.startswith("smallest") for n in SUMMARY]] = ANY
        return cls(low=low, high=high)

    def complaint(self, values: Floats) -> str | None:
        """What is unlike training, or None."""
        if np.isnan(values).all():
            return "no running pod on a ready node"
        odd = np.flatnonzero((values < self.low) | (values > self.high))
        if not len(odd):
            return None
        # The number that is furthest out tells the story.
        span = np.maximum(self.high - self.low, 1e-9)
        away = np.maximum(self.low - values, values - self.high)[odd] / span[odd]
        worst = int(odd[np.argmax(away)])
        return (
            f"{SUMMARY[worst]} is {values[worst]:.4g}, in training it was "
            f"{self.low[worst]:.4g} to {self.high[worst]:.4g}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {"low": [round(v, 6) for v in self.low], "high": [round(v, 6) for v in self.high]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Familiarity:
        return cls(low=np.array(data["low"], float), high=np.array(data["high"], float))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Range:
    """The range each feature had in training; a missing value is always inside."""

    low: Floats
    high: Floats

    @classmethod
    def of(cls, rows: NDArray[np.float32], names: tuple[str, ...]) -> Range:
        low = np.nanmin(np.append(rows, np.zeros((1, rows.shape[1])), axis=0), axis=0)
        high = np.nanmax(np.append(rows, np.zeros((1, rows.shape[1])), axis=0), axis=0)
        room = WIDEN * (high - low) + 1e-6
        open_ended = np.array([name in GROWING for name in names])
        return cls(low=low - room, high=np.where(open_ended, ANY, high + room))

    def outside(self, rows: NDArray[np.float32]) -> NDArray[np.bool_]:
        """(rows,) some feature lies outside."""
        return np.asarray(((rows < self.low) | (rows > self.high)).any(axis=1))

    def sentence(self, names: tuple[str, ...], row: NDArray[np.float32], who: str) -> str:
        odd = np.flatnonzero((row < self.low) | (row > self.high))
        if not len(odd):
            return f"{who} is inside every range"
        column = int(odd[0])
        return (
            f"{who} has {names[column]} {row[column]:.4g}, in training it was "
            f"{self.low[column]:.4g} to {self.high[column]:.4g}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "low": [float(f"{v:.6g}") for v in self.low],
            "high": [float(f"{v:.6g}") for v in self.high],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Range:
        return cls(low=np.array(data["low"], float), high=np.array(data["high"], float))
