# SPDX-License-Identifier: Apache-2.0
"""Asserts that the batched simulator and the plain Python peer are in the same state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.peers.python_simulator import RUNNING, Pod, PythonSimulator
from pilothouse.scenarios import Range, Scenario
from pilothouse.sim.observation import Observer
from pilothouse.sim.simulation import Simulation

_POD_COLUMNS: tuple[tuple[str, Callable[[Pod], int]], ...] = (
    ("uid", lambda pod: pod.uid),
    ("key", lambda pod: pod.key),
    ("phase", lambda pod: pod.phase),
    ("timer", lambda pod: pod.timer),
    ("since", lambda pod: pod.since),
    ("memory", lambda pod: pod.memory if pod.phase == RUNNING else 0),
    ("remaining", lambda pod: pod.remaining),
    ("restarts", lambda pod: pod.restarts),
    ("ooms", lambda pod: pod.ooms),
    ("down", lambda pod: int(pod.down)),
    ("work", lambda pod: pod.work.index),
    ("node", lambda pod: -1 if pod.node is None else pod.node.index),
)
_WORKLOAD_COLUMNS = ("load", "latency", "ready", "have", "owed", "violation")
_NODE_COLUMNS = (
    "errors",
    "lag_ms",
    "power",
    "cpu_requested",
    "memory_requested",
    "power_mw",
    "cpu_used",
    "memory_used",
)
_TOLLS = ("failed", "violation", "waiting", "energy", "cost", "carbon")


def without_autoscaling(scenario: Scenario) -> Scenario:
    """What the peer models: no HPA, no node autoscaler."""
    return replace(
        scenario,
        services=replace(scenario.services, autoscaled=Range(0, 0)),
        world=replace(scenario.world, spare_nodes=Range(0, 0)),
    )


def observation_difference(simulation: Simulation, cluster: int, peer: PythonSimulator) -> str:
    """Where what a policy would see differs."""
    s, seen = simulation.state, Observer(simulation.state).observe(simulation.state)
    theirs = peer._observation()
    nodes, workloads = len(peer.nodes), len(peer.workloads)
    if seen.nodes[:, cluster, :nodes].T.tolist() != theirs["nodes"]:
        return f"nodes as observed at tick {s.tick}"
    if seen.workloads[:, cluster, :workloads].T.tolist() != theirs["workloads"]:
        return f"workloads as observed at tick {s.tick}"
    mine = np.flatnonzero(seen.pod_home == cluster)
    mine = mine[np.argsort(seen.pod_uid[mine])]
    phase, restarts = seen.pod_phase[mine], seen.pod_restarts[mine]
    used, held = seen.pod_used[mine], seen.pod_held[mine]
    node = seen.pod_node[mine]
    node = np.where(node == s.nobody_node, -1, node - cluster * s.nodes)
    served = phase == RUNNING
    rows = [seen.pod_uid[mine], node, phase, used * served, held * served, restarts]
    if np.stack(rows, axis=1).tolist() != sorted(theirs["pods"]):
        return f"pods as observed at tick {s.tick}"
    return ""


def first_difference(simulation: Simulation, cluster: int, peer: PythonSimulator) -> str:
    """Where the two differ, in words; empty when they agree."""
    s = simulation.state
    slots = np.flatnonzero(s.home == cluster)
    slots = slots[np.argsort(s.uid[slots])]
    pods = sorted(peer.pods.values(), key=lambda pod: pod.uid)
    for name, value in _POD_COLUMNS:
        ours = s.held(s.tick)[slots] if name == "memory" else getattr(s, name)[slots]
        if name == "memory":
            ours = np.where(s.phase[slots] == RUNNING, ours, 0)
        if name == "node":
            ours = np.where(ours == s.nobody_node, -1, ours - cluster * s.nodes)
        if name == "work":
            ours = ours - cluster * s.workloads
        if ours.tolist() != [value(pod) for pod in pods]:
            return f"pod.{name} at tick {s.tick}"
    for names, width, prefix, rows in (
        (_WORKLOAD_COLUMNS, s.workloads, "w_", peer.workloads),
        (_NODE_COLUMNS, s.nodes, "n_", peer.nodes),
    ):
        span = slice(cluster * width, cluster * width + len(rows))
        for name in names:
            theirs = [int(getattr(row, name)) for row in rows]
            if getattr(s, prefix + name)[span].tolist() != theirs:
                return f"{prefix}{name} at tick {s.tick}"
    for name in _TOLLS:
        if int(getattr(s, f"c_{name}")[cluster]) != getattr(peer, name):
            return f"toll {name} at tick {s.tick}"
    return observation_difference(simulation, cluster, peer)
