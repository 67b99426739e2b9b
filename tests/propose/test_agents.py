# SPDX-License-Identifier: Apache-2.0
"""What each agent wants, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from pilothouse.domain import (
    ActionKind,
    Driver,
    Forecast,
    Gate,
    PendingCause,
    Phase,
    Power,
    Proposal,
    Snapshot,
    WorkloadKind,
)
from pilothouse.errors import NameTaken
from pilothouse.propose import Proposer
from pilothouse.propose.admission import Admission
from pilothouse.propose.efficiency import Efficiency
from pilothouse.propose.registry import (
    THIRD_PARTY_RANK,
    Registration,
    default_agents,
    refuse_twins,
)
from pilothouse.propose.safety import Safety
from pilothouse.settings import AdmissionSettings, Settings
from pilothouse.testing.builders import (
    a_forecast,
    a_snapshot,
    with_demand,
    with_namespace,
    with_node,
    with_pod,
    with_risk,
    with_workload,
)
from pilothouse.testing.contracts import ProposerContract


class TestSafetyContract(ProposerContract):
    def make(self) -> Proposer:
        return Safety(Settings())


class TestEfficiencyContract(ProposerContract):
    def make(self) -> Proposer:
        return Efficiency(Settings())


class TestAdmissionContract(ProposerContract):
    def make(self) -> Proposer:
        return Admission(Settings())


def wishes(agent: Proposer, snapshot: Snapshot, forecast: Forecast) -> list[tuple[str, str]]:
    return [(p.kind.value, p.target.short) for p in agent.propose(snapshot, forecast)]


def batch(snapshot: Snapshot, row: int = 0) -> Snapshot:
    """Workload ``row`` finishes instead of serving."""
    return with_workload(snapshot, row, kind=WorkloadKind.BATCH, latency_objective_ms=0)


def waiting(snapshot: Snapshot, count: int, cause: PendingCause) -> Snapshot:
    """The first pods of a cluster wait for room."""
    pods = snapshot.pods
    rows = np.arange(len(pods)) < count
    return replace(
        snapshot,
        pods=replace(
            pods,
            phase=np.where(rows, Phase.PENDING, pods.phase).astype(np.int32),
            pending_cause=np.where(rows, cause, pods.pending_cause).astype(np.int32),
            node=np.where(rows, -1, pods.node).astype(np.int32),
        ),
    )


# Safety.


@pytest.mark.parametrize(
    ("risk", "kinds"),
    [
        (490, ["noop"]),
        (700, ["migrate"]),
        (829, ["migrate"]),
        (830, ["replicate", "migrate"]),
    ],
)
def test_safety_wants_more_the_higher_the_risk(risk: int, kinds: list[str]) -> None:
    snapshot = a_snapshot()
    forecast = with_risk(a_forecast(snapshot), "node_risk", 2, risk)
    found = wishes(Safety(Settings()), snapshot, forecast)
    assert [kind for kind, _ in found] == kinds
    assert all(target == "node-2" for _, target in found)


def test_safety_throttles_batch_work_on_a_node_at_some_risk() -> None:
    snapshot = batch(batch(batch(a_snapshot())), 1)
    forecast = with_risk(a_forecast(snapshot), "node_risk", 0, 550)
    assert wishes(Safety(Settings()), snapshot, forecast) == [("throttle", "node-0")]


def test_safety_steps_back_from_throttling_while_objectives_are_broken_elsewhere() -> None:
    snapshot = with_workload(batch(batch(a_snapshot()), 1), 2, in_violation=1)
    forecast = with_risk(a_forecast(snapshot), "node_risk", 0, 550)
    assert ("throttle", "node-0") not in wishes(Safety(Settings()), snapshot, forecast)


def test_safety_quotes_the_numbers_that_decided() -> None:
    snapshot = with_node(a_snapshot(), 2, errors_per_minute=14, heartbeat_lag_ms=6_100)
    forecast = with_risk(a_forecast(snapshot), "node_risk", 2, 780, Driver.ERRORS, 14)
    first = Safety(Settings()).propose(snapshot, forecast)[0]
    assert first.reason == (
        "node-2 fails within 15 min with probability 0.78 (needs 0.70): "
        "14 errors/min, heartbeat 6.1 s late"
    )
    assert first.otherwise == "below 0.70 the choice would have been: throttle node-2"


def test_safety_does_not_act_on_a_row_the_forecaster_abstains_for() -> None:
    snapshot = a_snapshot()
    forecast = with_risk(a_forecast(snapshot), "node_risk", 2, 990)
    table = forecast.node_risk
    abstains = table.abstains.copy()
    abstains[2] = 1
    forecast = replace(forecast, node_risk=replace(table, abstains=abstains))
    assert wishes(Safety(Settings()), snapshot, forecast)[0][0] == "noop"


def test_safety_replaces_what_a_lost_node_left_behind() -> None:
    snapshot = with_node(a_snapshot(), 1, ready=0)
    forecast = with_risk(a_forecast(snapshot), "node_risk", 1, 1000, Driver.UNREADY, 60)
    assert wishes(Safety(Settings()), snapshot, forecast) == [("migrate", "node-1")]


def test_safety_asks_for_a_replica_before_demand_exceeds_what_a_service_has() -> None:
    snapshot = a_snapshot()
    forecast = with_demand(a_forecast(snapshot), "workload_demand", 0, median=15_000, upper=20_000)
    name = snapshot.workload_ref(0).short
    assert wishes(Safety(Settings()), snapshot, forecast) == [("replicate", name)]


def test_safety_wakes_a_node_when_pods_wait_for_room() -> None:
    snapshot = with_node(a_snapshot(), 3, power=Power.ASLEEP, ready=0)
    snapshot = waiting(snapshot, 2, PendingCause.RESOURCES)
    found = Safety(Settings()).propose(snapshot, a_forecast(snapshot))
    wakes = [p for p in found if p.kind is ActionKind.POWER_STATE]
    assert [p.payload for p in wakes] == [{"state": "awake"}]


def test_safety_wakes_a_node_before_pressure_is_visible() -> None:
    snapshot = with_node(a_snapshot(nodes=2, pods=8), 1, power=Power.ASLEEP, ready=0)
    forecast = with_demand(a_forecast(snapshot), "node_demand", 0, median=9_000, upper=13_500)
    assert ("power_state", "node-1") in wishes(Safety(Settings()), snapshot, forecast)


def test_safety_throttles_a_noisy_neighbor_far_enough_to_help() -> None:
    snapshot = batch(a_snapshot(nodes=2, pods=8, workloads=2))
    snapshot = with_workload(snapshot, 1, in_violation=1)
    pods = snapshot.pods
    row = int(np.flatnonzero((pods.workload == 0) & (pods.node == 0))[0])
    snapshot = with_pod(snapshot, row, cpu_limit_millicores=14_000, cpu_used_millicores=13_000)
    snapshot = with_pod(snapshot, 1, node=0)
    snapshot = with_node(snapshot, 0, cpu_used_millicores=15_900)
    found = Safety(Settings()).propose(snapshot, a_forecast(snapshot))
    throttles = [p for p in found if p.kind is ActionKind.THROTTLE]
    assert [p.target.short for p in throttles] == ["node-0"]
    assert 0.5 <= float(throttles[0].payload["factor"]) < 0.8


def test_safety_leaves_a_noisy_neighbor_alone_where_throttling_could_not_help() -> None:
    snapshot = batch(a_snapshot(nodes=2, pods=8, workloads=2))
    snapshot = with_workload(snapshot, 1, in_violation=1)
    snapshot = with_pod(snapshot, 1, node=0)
    # Nearly all of the node's CPU is used by the service itself.
    snapshot = with_node(snapshot, 0, cpu_used_millicores=15_900)
    found = wishes(Safety(Settings()), snapshot, a_forecast(snapshot))
    assert ("throttle", "node-0") not in found


# Efficiency.


def test_efficiency_sleeps_an_empty_node() -> None:
    snapshot = a_snapshot(nodes=6, pods=24)
    pods = snapshot.pods
    elsewhere = np.where(pods.node == 4, 2, pods.node).astype(np.int32)
    snapshot = replace(snapshot, pods=replace(pods, node=elsewhere))
    snapshot = with_node(snapshot, 4, pods=0, cpu_used_millicores=0, cpu_requested_millicores=0)
    forecast = with_demand(a_forecast(snapshot), "node_demand", 4, median=0, upper=0)
    first = Efficiency(Settings()).propose(snapshot, forecast)[0]
    assert (first.kind, first.target.short) == (ActionKind.POWER_STATE, "node-4")
    assert first.payload == {"state": "asleep", "drain": True}
    assert first.score == 1.0


def test_efficiency_never_sleeps_or_slows_while_somebody_waits() -> None:
    snapshot = waiting(a_snapshot(), 1, PendingCause.RESOURCES)
    found = {p.kind for p in Efficiency(Settings()).propose(snapshot, a_forecast(snapshot))}
    assert not found & {ActionKind.POWER_STATE, ActionKind.DVFS}


def test_efficiency_slows_the_idlest_node() -> None:
    snapshot = a_snapshot()
    forecast = with_demand(a_forecast(snapshot), "node_demand", 3, median=90, upper=100)
    slowed = [
        p for p in Efficiency(Settings()).propose(snapshot, forecast) if p.kind is ActionKind.DVFS
    ]
    assert slowed[0].target.short == "node-3"
    assert slowed[0].payload == {"frequency_permille": 650}


def test_efficiency_gives_the_clock_back_when_the_node_is_needed() -> None:
    snapshot = with_node(a_snapshot(), 3, frequency_permille=650)
    forecast = with_demand(a_forecast(snapshot), "node_demand", 3, median=7_000, upper=9_000)
    first = Efficiency(Settings()).propose(snapshot, forecast)[0]
    assert (first.kind, first.target.short) == (ActionKind.DVFS, "node-3")
    assert first.payload == {"frequency_permille": 1000}


def test_efficiency_leaves_a_node_at_risk_alone() -> None:
    snapshot = a_snapshot()
    forecast = with_demand(a_forecast(snapshot), "node_demand", 3, median=900, upper=1_000)
    forecast = with_risk(forecast, "node_risk", 3, 600)
    assert "node-3" not in [t for _, t in wishes(Efficiency(Settings()), snapshot, forecast)]


def test_efficiency_shows_its_best_candidate_when_it_wants_nothing() -> None:
    snapshot = a_snapshot()
    forecast = a_forecast(snapshot)
    for row in range(len(snapshot.nodes)):
        forecast = with_demand(forecast, "node_demand", row, median=9_000, upper=9_760 + row)
    only = Efficiency(Settings()).propose(snapshot, forecast)
    assert [p.kind for p in only] == [ActionKind.NOOP]
    assert only[0].reason == "lowest demand node-0 0.61 (needs < 0.45)"


# Admission.


def one(found: list[Proposal] | tuple[Proposal, ...]) -> Proposal:
    assert len(found) == 1
    return found[0]


def test_admission_deprioritizes_batch_work_while_nobody_is_hurt() -> None:
    snapshot = waiting(batch(batch(a_snapshot(pods=40)), 1), 10, PendingCause.RESOURCES)
    wish = one(list(Admission(Settings()).propose(snapshot, a_forecast(snapshot))))
    assert wish.kind is ActionKind.ADMISSION
    assert wish.payload == {"decision": "deprioritize"}
    assert wish.target.kind == "namespace"


def crowded() -> Snapshot:
    """Ten waiting pods, a hot node, and a service that suffers on it."""
    snapshot = waiting(batch(a_snapshot(pods=40)), 10, PendingCause.RESOURCES)
    snapshot = with_node(snapshot, 3, cpu_used_millicores=15_500)
    owner = int(snapshot.pods.workload[(snapshot.pods.node == 3) & (snapshot.pods.workload > 0)][0])
    return with_workload(snapshot, owner, in_violation=1)


def test_admission_holds_new_batch_work_while_services_suffer_on_full_nodes() -> None:
    snapshot = crowded()
    first = Admission(Settings()).propose(snapshot, a_forecast(snapshot))[0]
    assert first.payload == {"decision": "queue"}


def test_admission_rejects_only_where_a_person_allowed_it() -> None:
    settings = Settings(admission=AdmissionSettings(allow_reject=True))
    snapshot = crowded()
    first = Admission(settings).propose(snapshot, a_forecast(snapshot))[0]
    assert first.payload == {"decision": "reject"}


def test_admission_does_not_queue_against_a_selector_that_matches_nothing() -> None:
    snapshot = waiting(batch(a_snapshot(pods=40)), 10, PendingCause.SELECTOR)
    found = Admission(Settings()).propose(snapshot, a_forecast(snapshot))
    assert [p.kind for p in found] == [ActionKind.NOOP]


def test_admission_opens_a_gate_as_soon_as_the_queue_is_healthy() -> None:
    snapshot = with_namespace(a_snapshot(), "media", gate=Gate.QUEUE)
    snapshot = waiting(snapshot, 12, PendingCause.GATED)  # held by us: no reason to hold on
    wish = one(list(Admission(Settings()).propose(snapshot, a_forecast(snapshot))))
    assert (wish.target.name, wish.payload) == ("media", {"decision": "admit"})


def test_admission_caps_batch_work_when_half_the_nodes_are_overloaded() -> None:
    snapshot = batch(a_snapshot(nodes=4, pods=16, workloads=2))
    for row in (0, 1):
        snapshot = with_node(snapshot, row, cpu_used_millicores=15_000 + row)
    found = Admission(Settings()).propose(snapshot, a_forecast(snapshot))
    assert [p.kind for p in found] == [ActionKind.RESOURCE_CAP]
    assert found[0].payload == {"factor": 0.85}


# Who goes first.


def test_ranks_put_restores_first_and_saving_last() -> None:
    order = sorted(default_agents(Settings()), key=lambda agent: agent.rank)
    assert [agent.name for agent in order] == ["janitor", "safety", "admission", "efficiency"]


class _Named:
    """An agent of a third party, under any name."""

    title = "Stranger"

    def __init__(self, name: str) -> None:
        self.name = name

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> Sequence[Proposal]:
        return ()


def test_nobody_else_registers_as_the_janitor() -> None:
    with pytest.raises(NameTaken, match='"janitor" belongs to the built-in agent'):
        Registration(_Named("janitor"), THIRD_PARTY_RANK, "Stranger")
    assert Registration(_Named("porter"), THIRD_PARTY_RANK, "Stranger").name == "porter"


def test_two_agents_under_one_name_are_refused() -> None:
    ours = default_agents(Settings())
    refuse_twins((*ours, Registration(_Named("porter"), THIRD_PARTY_RANK, "Stranger")))
    with pytest.raises(NameTaken, match='"safety" is used by Safety, _Named'):
        refuse_twins((*ours, Registration(_Named("safety"), THIRD_PARTY_RANK, "Stranger")))
