# SPDX-License-Identifier: Apache-2.0
"""Pods that are started anew: stuck at their limit, or about to be killed there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.benefit.arm import loop_over
from pilothouse.domain import Driver, Forecast, Phase, Proposal, Snapshot, WorkloadKind
from pilothouse.guard.ledger import owner_of
from pilothouse.guard.switch import Controls
from pilothouse.propose.registry import default_agents
from pilothouse.propose.safety import Safety
from pilothouse.scenarios import load
from pilothouse.scenarios.scenario import Range
from pilothouse.settings import Settings
from pilothouse.sim.cluster import SimCluster
from pilothouse.testing.builders import (
    a_forecast,
    a_snapshot,
    with_namespace,
    with_pod,
    with_risk,
    with_workload,
)

SETTINGS = Settings()
SERVICE = 1


def moved(snapshot: Snapshot, forecast: Forecast) -> list[Proposal]:
    return [w for w in Safety(SETTINGS).propose(snapshot, forecast) if w.kind == "migrate"]


def of_service(snapshot: Snapshot) -> list[int]:
    return np.flatnonzero(snapshot.pods.workload == SERVICE).tolist()


def holding(snapshot: Snapshot, row: int, share: float) -> Snapshot:
    limit = int(snapshot.pods.memory_limit_mib[row])
    return with_pod(snapshot, row, memory_used_mib=round(limit * share))


def bridged(ready: int = 3) -> Snapshot:
    """A service with one replica more than its owner declared, all of them ready."""
    snapshot = a_snapshot(pods=8 * ready, workloads=8)
    assert len(of_service(snapshot)) == ready
    return with_workload(snapshot, SERVICE, replicas_baseline=ready - 1)


def leaking(snapshot: Snapshot, row: int, risk: int = 900) -> Forecast:
    return with_risk(a_forecast(snapshot), "pod_risk", row, risk, Driver.MEMORY_GROWTH, 48)


def test_pod_that_stays_at_its_memory_limit_is_started_anew_when_its_service_suffers() -> None:
    snapshot = a_snapshot()
    row = of_service(snapshot)[0]
    snapshot = holding(snapshot, row, 0.95)
    forecast = a_forecast(snapshot)
    assert not moved(snapshot, forecast)
    ready = int(snapshot.workloads.min_available[SERVICE]) + 1
    hurt = with_workload(snapshot, SERVICE, in_violation=1, replicas_ready=ready)
    assert [wish.target for wish in moved(hurt, forecast)] == [hurt.pod_ref(row)]
    growing = with_risk(forecast, "pod_risk", row, 950)
    assert not moved(hurt, growing)


def test_leaking_pod_is_started_anew_while_an_extra_replica_answers() -> None:
    row = of_service(bridged())[2]
    snapshot = holding(bridged(), row, 0.7)
    (wish,) = moved(snapshot, leaking(snapshot, row))
    assert wish.target == snapshot.pod_ref(row)
    held = snapshot.pods.memory_used_mib[row] / snapshot.pods.memory_limit_mib[row]
    assert wish.reason == (
        f"{wish.target.short} holds {held:.2f} of its memory limit (needs 0.60) and is killed "
        "within 5 min with probability 0.90 (needs 0.70): memory +48 MiB/min: start it anew, "
        f"media/app-1 has {len(of_service(snapshot)) - 1} more ready"
    )


def test_only_the_fullest_leaking_pod_of_a_service_is_started_anew() -> None:
    first, second = of_service(bridged())[:2]
    snapshot = holding(holding(bridged(), first, 0.7), second, 0.8)
    forecast = leaking(snapshot, first, 960)
    forecast = with_risk(forecast, "pod_risk", second, 900, Driver.MEMORY_GROWTH, 48)
    assert [wish.target for wish in moved(snapshot, forecast)] == [snapshot.pod_ref(second)]


def test_leaking_pod_is_left_alone_without_an_extra_replica() -> None:
    row = of_service(bridged())[0]
    snapshot = holding(bridged(), row, 0.7)
    forecast, ready = leaking(snapshot, row), len(of_service(snapshot))
    assert moved(snapshot, forecast)
    assert not moved(with_workload(snapshot, SERVICE, replicas_baseline=ready), forecast)


def test_service_of_many_has_its_budget_for_replicas() -> None:
    few, many = (holding(bridged(n), of_service(bridged(n))[0], 0.7) for n in (4, 5))
    assert moved(few, leaking(few, of_service(few)[0]))
    assert not moved(many, leaking(many, of_service(many)[0]))


def test_replica_of_a_service_of_few_stays_until_the_next_one_can_be_asked_for() -> None:
    def lasts(replicas: int) -> object:
        snapshot = a_snapshot(pods=8 * replicas, workloads=8)
        forecast = with_risk(a_forecast(snapshot), "workload_risk", SERVICE, 900)
        (wish,) = Safety(SETTINGS).propose(snapshot, forecast)
        return wish.payload["seconds"]

    assert lasts(3) == SETTINGS.guard.window_seconds
    assert lasts(4) == 300


def test_next_leaking_pod_waits_until_the_last_ones_replacement_is_ready() -> None:
    row, other = of_service(bridged())[:2]
    snapshot = holding(bridged(), row, 0.7)
    ready = len(of_service(snapshot))
    missing = with_pod(snapshot, other, phase=Phase.STARTING)
    missing = with_workload(missing, SERVICE, replicas_ready=ready - 1)
    assert moved(snapshot, leaking(snapshot, row))
    assert not moved(missing, leaking(missing, row))


def test_last_ready_replica_is_never_started_anew_however_few_are_declared() -> None:
    row = of_service(bridged())[0]
    alone = holding(bridged(), row, 0.7)
    none = {"replicas_baseline": 0, "replicas_desired": 1, "min_available": 0}
    assert moved(with_workload(alone, SERVICE, replicas_ready=2, **none), leaking(alone, row))
    assert not moved(with_workload(alone, SERVICE, replicas_ready=1, **none), leaking(alone, row))


@pytest.mark.parametrize(
    ("share", "risk", "driver"),
    [
        (0.5, 900, Driver.MEMORY_GROWTH),  # far from its limit
        (0.7, 690, Driver.MEMORY_GROWTH),  # not soon enough
        (0.7, 900, Driver.RESTARTS),  # it crashes for another reason
    ],
)
def test_pod_that_is_not_about_to_be_killed_for_memory_is_left_alone(
    share: float, risk: int, driver: Driver
) -> None:
    row = of_service(bridged())[0]
    snapshot = holding(bridged(), row, share)
    assert not moved(snapshot, with_risk(a_forecast(snapshot), "pod_risk", row, risk, driver, 48))


def test_leak_is_not_acted_on_where_the_forecaster_abstains() -> None:
    row = of_service(bridged())[0]
    snapshot = holding(bridged(), row, 0.7)
    forecast = leaking(snapshot, row)
    abstains = np.ones(len(snapshot.pods), np.int32)
    unsure = replace(forecast, pod_risk=replace(forecast.pod_risk, abstains=abstains))
    assert moved(snapshot, forecast)
    assert not moved(snapshot, unsure)


@pytest.mark.parametrize("why", ["protected", "kept", "batch", "starting"])
def test_pod_that_may_not_be_moved_is_left_to_the_kernel(why: str) -> None:
    row = of_service(bridged())[0]
    snapshot = holding(bridged(), row, 0.7)
    space = int(snapshot.workloads.namespace[SERVICE])
    closed = {
        "protected": lambda: with_namespace(snapshot, space, protected=1),
        "kept": lambda: with_pod(snapshot, row, evictable=0),
        "batch": lambda: with_workload(snapshot, SERVICE, kind=WorkloadKind.BATCH),
        "starting": lambda: with_pod(snapshot, row, phase=Phase.STARTING),
    }
    assert moved(snapshot, leaking(snapshot, row))
    assert not moved(closed[why](), leaking(snapshot, row))


def test_leaking_services_of_one_are_bridged_and_started_anew_within_the_shipped_budgets() -> None:
    scenario = load("memory-growth")
    services = replace(scenario.services, replicas=Range(1, 1))
    cluster = SimCluster(replace(scenario, services=services), seed=1_000)
    loop = loop_over(cluster, default_agents(SETTINGS), SETTINGS, run_id="leaks")
    bridged_at: dict[str, int] = {}
    waited: list[int] = []
    for cycle in range(1, 161):
        cluster.advance(SETTINGS.run.cycle_seconds)
        turn = loop.turn(cycle, Controls(), lambda *_: "")
        for action in turn.decision.actions:
            if action.restores or action.agent != "safety":
                continue
            if action.target.kind == "workload":
                bridged_at[str(action.target)] = cycle
            elif action.target.kind == "pod":
                owner = owner_of(action.target, turn.snapshot)
                waited.append(cycle - bridged_at.pop(str(owner)))  # never without a replica first
    assert waited
    assert max(waited) * SETTINGS.run.cycle_seconds < 120  # a start later, not a window later
