# SPDX-License-Identifier: Apache-2.0
"""Who lives where in a snapshot, and who may be asked to move.

Agents and the planner read this; the guard works out for itself what is protected, so that a
mistake here cannot become permission there.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import Phase, Power, Snapshot, WorkloadKind

Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]


class Population:
    """Views over one snapshot, each computed once."""

    def __init__(self, snapshot: Snapshot, protected_priority: int) -> None:
        self.snapshot = snapshot
        self._protected_priority = protected_priority

    @cached_property
    def workload_open(self) -> Mask:
        """(workloads,) owner opted in and nothing forbids touching it."""
        spaces, workloads = self.snapshot.namespaces, self.snapshot.workloads
        allowed = (spaces.managed == 1) & (spaces.protected == 0)
        mask: Mask = allowed[workloads.namespace] & (workloads.priority < self._protected_priority)
        return mask

    @cached_property
    def movable(self) -> Mask:
        """(pods,) may be evicted as far as the snapshot says."""
        pods = self.snapshot.pods
        mask: Mask = self.workload_open[pods.workload] & (pods.evictable == 1)
        return mask

    @cached_property
    def resident(self) -> Mask:
        """(pods,) bound and not on its way out."""
        pods = self.snapshot.pods
        away = (pods.phase == Phase.PENDING) | (pods.phase == Phase.TERMINATING)
        mask: Mask = (pods.node >= 0) & ~away
        return mask

    @cached_property
    def batch(self) -> Mask:
        """(pods,) belongs to a workload that finishes."""
        kind = self.snapshot.workloads.kind[self.snapshot.pods.workload]
        mask: Mask = kind == WorkloadKind.BATCH
        return mask

    @cached_property
    def _order(self) -> tuple[Rows, NDArray[np.int64]]:
        node = np.where(self.resident, self.snapshot.pods.node, -1)
        order = np.argsort(node, kind="stable")
        starts = np.searchsorted(node[order], np.arange(len(self.snapshot.nodes) + 1))
        return order, starts.astype(np.int64)

    def on_node(self, row: int) -> Rows:
        """Rows of the pods that live on a node, in order of creation."""
        order, starts = self._order
        return order[starts[row] : starts[row + 1]]

    @cached_property
    def _workload_order(self) -> tuple[Rows, NDArray[np.int64]]:
        owner = self.snapshot.pods.workload
        order = np.argsort(owner, kind="stable")
        starts = np.searchsorted(owner[order], np.arange(len(self.snapshot.workloads) + 1))
        return order, starts.astype(np.int64)

    def of_workload(self, row: int) -> Rows:
        """Rows of a workload's pods, in order of creation."""
        order, starts = self._workload_order
        return order[starts[row] : starts[row + 1]]

    def count_by_node(self, mask: Mask) -> NDArray[np.int64]:
        """(nodes,) residents of each node under a mask."""
        chosen = self.snapshot.pods.node[self.resident & mask]
        return np.bincount(chosen, minlength=len(self.snapshot.nodes))

    @cached_property
    def takes_pods(self) -> Mask:
        """(nodes,) awake, ready and not closed to new pods."""
        nodes = self.snapshot.nodes
        mask: Mask = (nodes.ready == 1) & (nodes.power == Power.AWAKE) & (nodes.tainted == 0)
        return mask
