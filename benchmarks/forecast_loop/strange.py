# SPDX-License-Identifier: Apache-2.0
"""Snapshots unlike training, and how soon the forecaster says that it does not know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pilothouse.domain import Snapshot, Source
from pilothouse.predict.learned import Learned, load_artifact
from pilothouse.scenarios import load
from pilothouse.settings import ForecastSettings
from pilothouse.sim.cluster import SimCluster

WITHIN_SECONDS = 60
CYCLE_SECONDS = 15


def load_times_three(s: Snapshot) -> Snapshot:
    return replace(
        s,
        workloads=replace(s.workloads, load_permille=s.workloads.load_permille * 3),
        pods=replace(s.pods, cpu_used_millicores=s.pods.cpu_used_millicores * 3),
        nodes=replace(s.nodes, cpu_used_millicores=s.nodes.cpu_used_millicores * 3),
    )


def units_times_a_thousand(s: Snapshot) -> Snapshot:
    nodes, pods = s.nodes, s.pods
    return replace(
        s,
        nodes=replace(
            nodes,
            cpu_capacity_millicores=nodes.cpu_capacity_millicores * 1000,
            cpu_used_millicores=nodes.cpu_used_millicores * 1000,
        ),
        pods=replace(
            pods,
            cpu_request_millicores=pods.cpu_request_millicores * 1000,
            cpu_used_millicores=pods.cpu_used_millicores * 1000,
        ),
    )


def unseen_node_type(s: Snapshot) -> Snapshot:
    capacity = s.nodes.cpu_capacity_millicores.copy()
    capacity[0] = 192_000
    return replace(s, nodes=replace(s.nodes, cpu_capacity_millicores=capacity))


def source_missing(s: Snapshot) -> Snapshot:
    return replace(s, sources=(Source(name="metrics", age_seconds=0, completeness_permille=400),))


def familiar(s: Snapshot) -> Snapshot:
    return s


CHANGES: dict[str, Callable[[Snapshot], Snapshot]] = {
    "load × 3": load_times_three,
    "units × 1000": units_times_a_thousand,
    "a node type never seen": unseen_node_type,
    "a source missing": source_missing,
    "familiar": familiar,
}


def abstained(scenarios: tuple[str, ...], seeds: tuple[int, ...], cycles: int) -> dict[str, float]:
    """Share of the snapshots after the first minute that are handed to the baseline."""
    artifact = load_artifact()
    said: dict[str, list[bool]] = {name: [] for name in CHANGES}
    for scenario in scenarios:
        for seed in seeds:
            cluster = SimCluster(load(scenario), seed=seed)
            learned = {name: Learned(artifact, ForecastSettings()) for name in CHANGES}
            for cycle in range(cycles):
                cluster.advance(CYCLE_SECONDS)
                snapshot = cluster.observe()
                for name, change in CHANGES.items():
                    forecast = learned[name].predict(change(snapshot))
                    if cycle * CYCLE_SECONDS >= WITHIN_SECONDS:
                        said[name].append(" for " in forecast.forecaster)
    return {name: float(np.mean(values)) for name, values in said.items()}
