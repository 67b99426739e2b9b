# SPDX-License-Identifier: Apache-2.0
"""When and where to act: rules that paired runs against doing nothing taught us."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pilothouse.domain import Snapshot, WorkloadKind
from pilothouse.propose.admission import Admission
from pilothouse.propose.safety import Safety
from pilothouse.settings import Settings
from pilothouse.testing.builders import (
    a_forecast,
    a_snapshot,
    with_risk,
)

SETTINGS = Settings()


def burst(snapshot: Snapshot, count: int) -> Snapshot:
    """Every workload is batch, and the first pods have only just come."""
    pods, workloads = snapshot.pods, snapshot.workloads
    young = np.arange(len(pods)) < count
    created = np.where(young, snapshot.taken_seconds - 15, 0).astype(np.int32)
    kind = np.full(len(workloads), int(WorkloadKind.BATCH), np.int32)
    return replace(
        snapshot,
        pods=replace(pods, created_seconds=created),
        workloads=replace(workloads, kind=kind),
    )


def requested(snapshot: Snapshot, share: float) -> Snapshot:
    """Every node at full clock, half used, and this share of it requested."""
    nodes = snapshot.nodes
    capacity = nodes.cpu_capacity_millicores
    return replace(
        snapshot,
        nodes=replace(
            nodes,
            cpu_requested_millicores=(capacity * share).astype(np.int32),
            cpu_used_millicores=capacity // 2,
            frequency_permille=np.full(len(nodes), 1000, np.int32),
        ),
    )


@pytest.mark.parametrize(
    ("pods", "share", "holds"), [(8, 0.85, True), (8, 0.7, False), (4, 0.85, False)]
)
def test_burst_of_batch_pods_is_held_before_a_filling_cluster_hurts_anybody(pods, share, holds):
    snapshot = requested(burst(a_snapshot(nodes=8, pods=64), pods), share)
    found = Admission(SETTINGS).propose(snapshot, a_forecast(snapshot))
    assert any(wish.payload.get("decision") == "queue" for wish in found) == holds


def test_replica_of_a_leaking_service_is_asked_for_late_and_not_for_long():
    snapshot = a_snapshot()
    calm, leaking = a_forecast(snapshot), with_risk(a_forecast(snapshot), "workload_risk", 1, 900)
    replicas = [w for w in Safety(SETTINGS).propose(snapshot, leaking) if w.kind == "replicate"]
    assert [wish.target for wish in replicas] == [snapshot.workload_ref(1)]
    assert replicas[0].payload["seconds"] < SETTINGS.guard.ttl_seconds["replicate"]
    table = leaking.workload_risk
    later = table.risk_permille.copy()
    later[:, 0] = calm.workload_risk.risk_permille[:, 0]
    leaking = replace(leaking, workload_risk=replace(table, risk_permille=later))
    found = Safety(SETTINGS).propose(snapshot, leaking)
    assert not [wish for wish in found if wish.kind == "replicate"]
