# SPDX-License-Identifier: Apache-2.0
"""Compares one cluster of a batch with another run of it, column by column."""

from __future__ import annotations

import numpy as np

from pilothouse.sim.simulation import Simulation
from pilothouse.sim.state import (
    CLUSTER_COLUMNS,
    NODE_COLUMNS,
    POD_COLUMNS,
    WORKLOAD_COLUMNS,
)

_NODE_REFERENCES = {"node", "active_node", "avoid"}
_WORKLOAD_REFERENCES = {"work", "active_work"}
_PLACES = {"home", "w_home", "n_place"}
_RECENT = {"used_0", "used_1", "used_2", "held_0", "held_1", "held_2"}


def cluster_columns(simulation: Simulation, cluster: int) -> dict[str, np.ndarray]:
    """Every column of one cluster, without padding and independent of slots."""
    s, plan = simulation.state, simulation.blueprints[cluster]
    out = {n: getattr(s, n)[cluster : cluster + 1] for n, _, _ in CLUSTER_COLUMNS}
    first = cluster * s.nodes
    for name, _, _ in NODE_COLUMNS:
        out[name] = getattr(s, name)[first : first + len(plan.node_names)]
    first = cluster * s.workloads
    for name, _, _ in WORKLOAD_COLUMNS:
        column = getattr(s, name)[first : first + len(plan.workload_names)]
        out[name] = (
            np.where(column >= 0, column - cluster * s.nodes, -1) if name == "w_avoid" else column
        )
    slots = np.flatnonzero(s.home == cluster)
    slots = slots[np.argsort(s.uid[slots])]
    for name, _, _ in POD_COLUMNS:
        if name in _RECENT or name in _PLACES:
            continue  # what the slot's last pod left behind; a view never shows it
        column = getattr(s, name)[slots]
        if name in _NODE_REFERENCES:
            column = np.where(
                (column == s.nobody_node) | (column < 0), -1, column - cluster * s.nodes
            )
        if name in _WORKLOAD_REFERENCES:
            column = np.where(column == s.nobody_work, -1, column - cluster * s.workloads)
        out[name] = column
    return out


def first_difference(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> str:
    """The first column that differs, or nothing."""
    for name in a:
        if name not in _PLACES and not np.array_equal(a[name], b[name]):
            return f"{name}: {a[name]} != {b[name]}"
    return ""
