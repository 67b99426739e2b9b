# SPDX-License-Identifier: Apache-2.0
"""Pods that are started anew: stuck at their limit, or about to be killed there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.benefit.arm import loop_over
from pilothouse.domain import Driver, Forecast, Phase, Power, Proposal, Snapshot, WorkloadKind
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
    with_node,
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


def bridged(ready: int = 2) -> Snapshot:
    """A service whose owner declared one replica and which has more, all of them ready."""
    snapshot = a_snapshot(pods=8 * ready, workloads=8)
    assert len(of_service(snapshot)) == ready
    return with_workload(snapshot, SERVICE, replicas_baseline=1, min_available=0)


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


def test_pod_measured_above_its_limit_is_asked_for_with_a_score_that_counts() -> None:
    snapshot = a_snapshot()
    row = of_service(snapshot)[0]
    ready = int(snapshot.workloads.min_available[SERVICE]) + 1
    hurt = with_workload(snapshot, SERVICE, in_violation=1, replicas_ready=ready)
    above = holding(hurt, row, 1.05)
    assert [wish.score for wish in moved(above, a_forecast(above))] == [1.0]


def test_full_pod_is_left_alone_where_load_fills_all_of_its_service() -> None:
    snapshot = a_snapshot()
    hurt = with_workload(snapshot, SERVICE, in_violation=1, min_available=1)
    first, *others = of_service(hurt)
    one = holding(hurt, first, 0.95)
    assert [wish.target for wish in moved(one, a_forecast(one))] == [one.pod_ref(first)]
    for row in others:
        one = holding(one, row, 0.95)
    assert not moved(one, a_forecast(one))


def test_leaking_pod_is_started_anew_while_an_extra_replica_answers() -> None:
    row = of_service(bridged())[1]
    snapshot = holding(bridged(), row, 0.7)
    (wish,) = moved(snapshot, leaking(snapshot, row))
    assert wish.target == snapshot.pod_ref(row)
    held = snapshot.pods.memory_used_mib[row] / snapshot.pods.memory_limit_mib[row]
    assert wish.reason == (
        f"{wish.target.short} holds {held:.2f} of its memory limit (needs 0.60) and is killed "
        "within 5 min with probability 0.90 (needs 0.70): memory +48 MiB/min: start it anew, "
        "media/app-1 has 1 more that answer"
    )


def test_only_the_fullest_leaking_pod_of_a_service_is_started_anew() -> None:
    first, second = of_service(bridged())[:2]
    snapshot = holding(holding(bridged(), first, 0.7), second, 0.8)
    forecast = leaking(snapshot, first, 960)
    forecast = with_risk(forecast, "pod_risk", second, 900, Driver.MEMORY_GROWTH, 48)
    assert [wish.target for wish in moved(snapshot, forecast)] == [snapshot.pod_ref(second)]


@pytest.mark.parametrize(
    "other",
    [
        {"replicas_desired": 1},  # a rollout, or somebody who scaled down: the second one goes
        {"replicas_baseline": 2},  # what its owner declared, and a service of two at that
        {"replicas_baseline": 2, "replicas_desired": 3},  # a service of two with an extra replica
        {"replicas_desired": 3},  # the third is not back
        {"autoscaled": 1},  # whose the second one is nobody knows
        {"min_available": 2},
    ],
)
def test_leaking_pod_is_left_alone_except_in_a_service_of_one_with_an_extra_replica(
    other: dict[str, int],
) -> None:
    row = of_service(bridged())[0]
    snapshot = holding(bridged(), row, 0.7)
    forecast = leaking(snapshot, row)
    assert moved(snapshot, forecast)
    assert not moved(with_workload(snapshot, SERVICE, **other), forecast)


def test_next_leaking_pod_waits_until_the_last_ones_replacement_is_ready() -> None:
    row, *_, third = of_service(bridged(3))
    snapshot = holding(bridged(3), row, 0.7)
    missing = with_pod(snapshot, third, phase=Phase.STARTING)
    missing = with_workload(missing, SERVICE, replicas_ready=2)
    assert moved(snapshot, leaking(snapshot, row))
    assert not moved(missing, leaking(missing, row))


def closed_node(snapshot: Snapshot, pod: int, **values: int) -> Snapshot:
    return with_node(snapshot, int(snapshot.pods.node[pod]), **values)


@pytest.mark.parametrize("why", ["starting", "tainted", "unready", "asleep", "nowhere", "full"])
def test_sibling_that_will_not_answer_does_not_count(why: str) -> None:
    row, other = of_service(bridged())
    snapshot = holding(holding(bridged(), row, 0.95), other, 0.9)
    wounded = {
        "starting": lambda: with_pod(snapshot, other, phase=Phase.STARTING),
        "tainted": lambda: closed_node(snapshot, other, tainted=1),
        "unready": lambda: closed_node(snapshot, other, ready=0),
        "asleep": lambda: closed_node(snapshot, other, power=Power.ASLEEP),
        "nowhere": lambda: with_pod(snapshot, other, node=-1),
        "full": lambda: snapshot,
    }
    forecast = leaking(snapshot, row)
    assert moved(snapshot, forecast)
    if why == "full":  # and about to be killed as well
        forecast = with_risk(forecast, "pod_risk", other, 900, Driver.MEMORY_GROWTH, 48)
    assert not moved(wounded[why](), forecast)


def test_pod_without_a_memory_limit_is_never_worn() -> None:
    row = of_service(bridged())[0]
    snapshot = holding(bridged(), row, 0.7)
    assert moved(snapshot, leaking(snapshot, row))
    assert not moved(with_pod(snapshot, row, memory_limit_mib=0), leaking(snapshot, row))


def test_of_five_leaking_services_the_two_fullest_are_asked_for_in_a_cycle() -> None:
    snapshot = a_snapshot(pods=16, workloads=8)
    forecast, targets = a_forecast(snapshot), []
    for service in range(5):
        row = int(np.flatnonzero(snapshot.pods.workload == service)[0])
        snapshot = with_workload(snapshot, service, replicas_baseline=1)
        snapshot = holding(snapshot, row, 0.65 + 0.04 * service)
        forecast = with_risk(forecast, "pod_risk", row, 900, Driver.MEMORY_GROWTH, 48)
        targets.append(snapshot.pod_ref(row))
    assert {wish.target for wish in moved(snapshot, forecast)} == set(targets[3:])


@pytest.mark.parametrize(
    ("replicas", "driver", "autoscaled", "seconds"),
    [
        (1, Driver.MEMORY_GROWTH, 0, SETTINGS.guard.window_seconds + 120),
        (1, Driver.RESTARTS, 0, 300),
        (1, Driver.MEMORY_GROWTH, 1, 300),
        (2, Driver.MEMORY_GROWTH, 0, 300),
    ],
)
def test_extra_replica_of_a_leaking_service_of_one_outlasts_the_window_by_a_start(
    replicas: int, driver: Driver, autoscaled: int, seconds: int
) -> None:
    snapshot = a_snapshot(pods=8 * replicas, workloads=8)
    snapshot = with_workload(snapshot, SERVICE, autoscaled=autoscaled)
    forecast = with_risk(a_forecast(snapshot), "workload_risk", SERVICE, 900, driver, 48)
    (wish,) = Safety(SETTINGS).propose(snapshot, forecast)
    assert wish.payload["seconds"] == seconds


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
    waited: dict[tuple[str, int], int] = {}  # by bridge, until its first pod is started anew
    for cycle in range(1, 161):
        cluster.advance(SETTINGS.run.cycle_seconds)
        turn = loop.turn(cycle, Controls(), lambda *_: "")
        for action in turn.decision.actions:
            if action.target.kind == "workload" and action.restores:
                bridged_at.pop(str(action.target), None)
            elif action.target.kind == "workload" and action.agent == "safety":
                bridged_at[str(action.target)] = cycle
            elif action.target.kind == "pod" and action.agent == "safety":
                owner = str(owner_of(action.target, turn.snapshot))
                began = bridged_at[owner]  # never without a replica in force
                waited.setdefault((owner, began), cycle - began)
    assert waited
    assert (
        max(waited.values()) * SETTINGS.run.cycle_seconds < 120
    )  # a start later, not a window later
