# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np

from pilothouse.domain import Phase
from pilothouse.journal import digest_of
from pilothouse.testing.builders import (
    a_forecast,
    a_snapshot,
    consistent,
    moved,
    with_demand,
    with_node,
    with_pod,
    with_risk,
)


def test_a_snapshot_is_calm_and_consistent() -> None:
    snapshot = a_snapshot(nodes=10, pods=200)
    seen = snapshot.interpreted

    assert (seen.queue_length, seen.failed_pods, seen.violations) == (0, 0, 0)
    assert not seen.overloaded.any()
    assert seen.awake.all()
    assert snapshot.nodes.cpu_used_millicores.sum() == snapshot.pods.cpu_used_millicores.sum()
    assert snapshot.workloads.replicas_ready.sum() == 200
    assert digest_of(consistent(snapshot)) == digest_of(snapshot)


def test_the_same_seed_builds_the_same_values() -> None:
    assert digest_of(a_snapshot(seed=3)) == digest_of(a_snapshot(seed=3))
    assert digest_of(a_snapshot(seed=3)) != digest_of(a_snapshot(seed=4))
    assert digest_of(moved(a_snapshot(), 1)) == digest_of(moved(a_snapshot(), 1))


def test_moved_replaces_some_pods_and_changes_the_use_of_the_others() -> None:
    before = a_snapshot(nodes=10, pods=1_000)
    after = moved(before, 1)

    stayed = np.isin(before.pods.uid, after.pods.uid)
    assert stayed.sum() == 990
    assert len(after.pods) == 1_000
    assert (np.diff(after.pods.uid) > 0).all()
    was, now = before.pods.cpu_used_millicores[stayed], after.pods.cpu_used_millicores[:990]
    assert (was != now).mean() > 0.9
    assert after.taken_seconds == before.taken_seconds + 15


def test_one_row_changes_and_the_original_does_not() -> None:
    snapshot = a_snapshot()
    broken = with_pod(with_node(snapshot, "node-2", ready=0), 5, phase=Phase.FAILED)

    assert broken.nodes.ready.tolist() == [1, 1, 0, 1, 1, 1]
    assert broken.interpreted.failed_pods == 1
    assert snapshot.nodes.ready.all()
    assert snapshot.find(snapshot.pod_ref(5)) == 5


def test_a_forecast_fits_its_snapshot_and_can_be_changed_by_row() -> None:
    snapshot = a_snapshot()
    forecast = a_forecast(snapshot)
    worse = with_demand(
        with_risk(forecast, "node_risk", 1, 780), "node_demand", 1, median=5, upper=9
    )

    assert (np.diff(forecast.pod_risk.risk_permille, axis=1) >= 0).all()
    assert worse.node_risk.risk_permille[1].tolist() == [780] * 4
    assert worse.node_demand.upper_millicores[1].tolist() == [9] * 4
    assert forecast.node_risk.risk_permille.max() < 100
