# SPDX-License-Identifier: Apache-2.0
"""What a learner sees of a whole batch after a tick: plain arrays, without metric lag.

The loop sees a ``Snapshot`` of one cluster with names and lag; this is its fast sibling for
stepping hundreds of clusters. The arrays belong to the observer and the simulation and change with
the next tick: whoever keeps one copies it. Padding rows are zero in ``exists``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pilothouse.sim.state import B1, I4, I8, State

NODE_FEATURES = (
    "n_exists",
    "n_ready",
    "n_power",
    "n_pods",
    "n_cpu_requested",
    "n_memory_requested",
    "n_cpu_used",
    "n_memory_used",
    "n_errors",
    "n_lag_ms",
    "n_power_mw",
)
WORKLOAD_FEATURES = ("w_exists", "w_load", "w_latency", "w_ready", "w_have", "w_violation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Arrays of one tick."""

    nodes: I4  # (features, batch, nodes), see NODE_FEATURES
    workloads: I4  # (features, batch, workloads), see WORKLOAD_FEATURES
    pod_home: I8  # (slots,) cluster, or the batch size where the slot is empty
    pod_uid: I8  # (slots,)
    pod_node: I8  # (slots,) node row, or one past the last where unbound
    pod_phase: B1  # (slots,)
    pod_used: I4  # (slots,) millicores
    pod_held: I4  # (slots,) MiB
    pod_restarts: I4  # (slots,)


class Observer:
    """Looks at one batch again and again without allocating."""

    def __init__(self, s: State) -> None:
        self._nodes: I4 = np.empty((len(NODE_FEATURES), s.batch * s.nodes), dtype=np.int32)
        rows = s.batch * s.workloads
        self._workloads: I4 = np.empty((len(WORKLOAD_FEATURES), rows), dtype=np.int32)

    def observe(self, s: State) -> Observation:
        """Everything a policy may look at, for the whole batch."""
        for place, name in enumerate(NODE_FEATURES):
            self._nodes[place] = getattr(s, name)[:-1]
        for place, name in enumerate(WORKLOAD_FEATURES):
            self._workloads[place] = getattr(s, name)[:-1]
        return Observation(
            nodes=self._nodes.reshape(-1, s.batch, s.nodes),
            workloads=self._workloads.reshape(-1, s.batch, s.workloads),
            pod_home=s.home,
            pod_uid=s.uid,
            pod_node=s.node,
            pod_phase=s.phase,
            pod_used=s.used(s.tick),
            pod_held=s.held(s.tick),
            pod_restarts=s.restarts,
        )
