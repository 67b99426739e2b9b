# SPDX-License-Identifier: Apache-2.0
"""What each kind of proposal would write, and what a made-up one comes to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilothouse.act.planner import Planner, plan
from pilothouse.domain import ActionKind, Phase, Power, Ref, Snapshot, Verb, WorkloadKind
from pilothouse.settings import ActSettings, Settings
from pilothouse.testing.builders import (
    a_proposal,
    a_snapshot,
    with_namespace,
    with_node,
    with_pod,
    with_workload,
)

NODE = Ref("sim", "node", "", "node-0")


def writes(
    snapshot: Snapshot, kind: ActionKind, target: Ref, **payload: Any
) -> list[tuple[str, int]]:
    made = plan(a_proposal(target, kind=kind, payload=payload), snapshot, Settings())
    return [(write.verb.value, write.value) for write in made.writes]


def test_migrating_a_node_taints_and_drains_it() -> None:
    # Every workload but the protected one may be moved, so take that one off the node.
    made = plan(a_proposal(NODE), open_snapshot(), Settings())
    assert [(w.verb, w.value) for w in made.writes] == [(Verb.TAINT, 1), (Verb.DRAIN, 1)]
    assert [(w.verb, w.value, w.expect) for w in made.inverse] == [
        (Verb.DRAIN, 0, 1),
        (Verb.TAINT, 0, 1),
    ]
    assert made.disturbs == 4
    assert NODE in made.nodes


def open_snapshot() -> Snapshot:
    """Nobody is protected."""
    return with_namespace(a_snapshot(), "kube-system", protected=0, managed=1)


def test_a_node_with_protected_pods_is_emptied_pod_by_pod_around_them() -> None:
    snapshot = a_snapshot(nodes=2, pods=8, workloads=4)
    protected = np.flatnonzero((snapshot.pods.workload == 3) & (snapshot.pods.node == 1))
    made = plan(a_proposal(Ref("sim", "node", "", "node-1")), snapshot, Settings())
    verbs = [write.verb for write in made.writes]
    assert Verb.DRAIN not in verbs
    assert verbs[0] is Verb.TAINT
    touched = {snapshot.pods.names[row] for row in protected.tolist()}
    assert touched
    assert not touched & {write.target.name for write in made.writes}


def test_a_step_by_step_drain_goes_around_protected_pods_by_itself() -> None:
    snapshot = a_snapshot(nodes=2, pods=8, workloads=4)
    node = Ref("sim", "node", "", "node-1")
    live = replace(Settings(), act=ActSettings(stepwise=True))
    made = plan(a_proposal(node), snapshot, live)
    assert [(w.verb, w.value) for w in made.writes] == [(Verb.TAINT, 1), (Verb.DRAIN, 1)]
    steps = Planner(snapshot, live).carry_on(node, to_sleep=False)
    here = np.flatnonzero(snapshot.pods.node == 1)
    protected = here[snapshot.pods.workload[here] == 3]
    assert len(protected)
    moved = {write.target for write in steps.writes}
    assert moved
    assert not moved & {snapshot.pod_ref(int(row)) for row in protected}


def test_a_lost_node_is_neither_tainted_nor_drained_but_its_pods_are_replaced() -> None:
    snapshot = with_node(open_snapshot(), 0, ready=0)
    assert {verb for verb, _ in writes(snapshot, ActionKind.MIGRATE, NODE)} == {"evict"}


def test_a_cordon_of_somebody_else_is_not_ours_to_remove() -> None:
    made = plan(a_proposal(NODE), with_node(open_snapshot(), 0, tainted=1), Settings())
    assert [w.verb for w in made.writes] == [Verb.DRAIN]
    assert [w.verb for w in made.inverse] == [Verb.DRAIN]


def test_sleep_drains_first_and_its_inverse_knows_how_far_it_came() -> None:
    proposal = a_proposal(NODE, kind=ActionKind.POWER_STATE, payload={"state": "asleep"})
    made = plan(proposal, open_snapshot(), Settings())
    assert [(w.verb, w.value) for w in made.writes] == [(Verb.TAINT, 1), (Verb.DRAIN, 2)]
    assert [(w.verb, w.value, w.expect) for w in made.inverse] == [
        (Verb.DRAIN, 0, 2),
        (Verb.POWER, 1, 0),
        (Verb.TAINT, 0, 1),
    ]


def test_waking_takes_our_taint_away_and_needs_no_inverse() -> None:
    snapshot = with_node(a_snapshot(), 0, power=Power.ASLEEP, ready=0, tainted=1)
    proposal = a_proposal(NODE, kind=ActionKind.POWER_STATE, payload={"state": "awake"})
    made = plan(proposal, snapshot, Settings())
    assert [(w.verb, w.value) for w in made.writes] == [(Verb.POWER, 1), (Verb.TAINT, 0)]
    assert made.inverse == ()


def test_replicating_a_node_adds_one_replica_to_each_exposed_service_off_that_node() -> None:
    proposal = a_proposal(NODE, kind=ActionKind.REPLICATE)
    snapshot = a_snapshot(nodes=5, pods=48)
    made = plan(proposal, snapshot, Settings())
    assert len(made.writes) > 1
    for write in made.writes:
        assert write.verb is Verb.SCALE
        assert write.value == write.original + 1
        assert write.avoid == "node-0"


def test_replicating_a_node_leaves_out_workloads_without_budget() -> None:
    proposal = a_proposal(NODE, kind=ActionKind.REPLICATE)
    snapshot = a_snapshot(nodes=5, pods=48)
    first = Planner(snapshot, Settings()).plan(proposal).writes[0].target
    again = Planner(snapshot, Settings(), frozenset({str(first)})).plan(proposal)
    assert first not in [write.target for write in again.writes]


def test_the_inverse_of_a_replica_on_an_autoscaled_workload_is_the_owners_floor() -> None:
    snapshot = with_workload(a_snapshot(), 0, autoscaled=1, replicas_floor=2, replicas_desired=5)
    proposal = a_proposal(snapshot.workload_ref(0), kind=ActionKind.REPLICATE)
    made = plan(proposal, snapshot, Settings())
    assert [(w.value, w.expect) for w in made.inverse] == [(2, 6)]


def test_throttling_a_node_touches_the_largest_batch_users_with_a_limit_only() -> None:
    snapshot = a_snapshot(nodes=1, pods=12, workloads=2)
    snapshot = with_workload(snapshot, 0, kind=WorkloadKind.BATCH)
    snapshot = with_pod(snapshot, 0, cpu_limit_millicores=0, cpu_used_millicores=9_000)
    snapshot = with_pod(snapshot, 4, cpu_used_millicores=3_000, cpu_limit_millicores=4_000)
    made = plan(
        a_proposal(NODE, kind=ActionKind.THROTTLE, payload={"factor": 0.9}), snapshot, Settings()
    )
    assert len(made.writes) == Settings().safety.pods_per_action
    assert (made.writes[0].uid, made.writes[0].value) == (int(snapshot.pods.uid[4]), 3_600)
    batch = {int(uid) for uid in snapshot.pods.uid[snapshot.pods.workload == 0]}
    assert {write.uid for write in made.writes} <= batch - {int(snapshot.pods.uid[0])}


def test_a_balloon_never_goes_below_the_floor_over_the_peak() -> None:
    snapshot = open_snapshot()
    made = plan(
        a_proposal(NODE, kind=ActionKind.MEMORY_BALLOON, payload={"factor": 0.1}),
        snapshot,
        Settings(),
    )
    for write in made.writes:
        row = int(np.flatnonzero(snapshot.pods.uid == write.uid)[0])
        assert write.value >= 1.2 * snapshot.pods.memory_peak_mib[row]
        assert write.value < write.original


def test_a_gate_is_closed_with_an_inverse_and_opened_without_one() -> None:
    target = Ref("sim", "namespace", "", "media")
    close = a_proposal(target, kind=ActionKind.ADMISSION, payload={"decision": "queue"})
    made = plan(close, a_snapshot(), Settings())
    assert [(w.verb, w.value, w.original) for w in made.writes] == [(Verb.GATE, 1, 0)]
    assert [(w.value, w.expect) for w in made.inverse] == [(0, 1)]
    gated = with_namespace(a_snapshot(), "media", gate=1)
    admit = replace(close, payload={"decision": "admit"})
    assert plan(admit, gated, Settings()).inverse == ()


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (ActionKind.DVFS, {}),
        (ActionKind.DVFS, {"frequency_permille": float("nan")}),
        (ActionKind.DVFS, {"frequency_permille": -5}),
        (ActionKind.DVFS, {"frequency_permille": 10**30}),
        (ActionKind.DVFS, {"frequency_permille": "650"}),
        (ActionKind.DVFS, {"frequency_permille": True}),
        (ActionKind.THROTTLE, {"factor": float("inf")}),
        (ActionKind.POWER_STATE, {"state": "hibernate"}),
        (ActionKind.REPLICATE, {}),  # aimed at a pod below
        (ActionKind.NOOP, {}),
        (ActionKind.RESTORE, {"restores": "x.0"}),
    ],
)
def test_nonsense_ends_in_a_sentence_and_not_in_writes(
    kind: ActionKind, payload: dict[str, Any]
) -> None:
    snapshot = a_snapshot()
    target = snapshot.pod_ref(0) if kind is ActionKind.REPLICATE else NODE
    made = plan(a_proposal(target, kind=kind, payload=payload), snapshot, Settings())
    assert made.writes == ()
    assert made.impossible


def test_unknown_objects_are_named_in_the_answer() -> None:
    made = plan(a_proposal(Ref("sim", "node", "", "node-99")), a_snapshot(), Settings())
    assert "node-99" in made.impossible
    other = plan(a_proposal(Ref("elsewhere", "node", "", "node-0")), a_snapshot(), Settings())
    assert other.impossible


def test_a_restore_leaves_out_objects_that_are_gone() -> None:
    snapshot = a_snapshot()
    made = plan(
        a_proposal(NODE, kind=ActionKind.DVFS, payload={"frequency_permille": 650}),
        snapshot,
        Settings(),
    )
    gone = replace(made.inverse[0], uid=999)
    planner = Planner(snapshot, Settings())
    assert planner.restore(made.inverse).writes == made.inverse
    assert planner.restore((gone,)).impossible


values = st.one_of(st.none(), st.text(), st.integers(), st.floats(), st.booleans())


@given(
    kind=st.sampled_from(ActionKind),
    name=st.sampled_from(["node-0", "node-5", "app-0", "shop", "", "x"]),
    about=st.sampled_from(["cluster", "namespace", "node", "workload", "pod"]),
    space=st.sampled_from(["", "shop", "kube-system"]),
    payload=st.dictionaries(
        st.sampled_from(["factor", "state", "decision", "avoid", "frequency_permille", "x"]), values
    ),
)
def test_any_proposal_gives_a_plan(
    kind: ActionKind, name: str, about: Any, space: str, payload: dict[str, Any]
) -> None:
    snapshot = with_pod(a_snapshot(), 1, phase=Phase.PENDING, node=-1)
    proposal = a_proposal(Ref("sim", about, space, name), kind=kind, payload=payload)
    made = plan(proposal, snapshot, Settings())
    assert bool(made.writes) != bool(made.impossible)
    assert made == plan(proposal, snapshot, Settings())
