# SPDX-License-Identifier: Apache-2.0
"""Each rail refuses what it must, with the numbers, and lets the rest through."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from pilothouse.act.planner import plan
from pilothouse.domain import (
    ActionKind,
    Mode,
    Plan,
    Power,
    Proposal,
    Ref,
    Snapshot,
    Source,
    Verdict,
    Write,
)
from pilothouse.domain.action import Action
from pilothouse.errors import InvalidSetting
from pilothouse.guard import Guard, Ledger, Sent
from pilothouse.settings import ActSettings, GuardSettings, ModeSettings, Settings
from pilothouse.testing.builders import (
    a_decision,
    a_proposal,
    a_receipt,
    a_snapshot,
    with_namespace,
    with_node,
    with_pod,
    with_workload,
)

NOW = 3_600
NODE = Ref("sim", "node", "", "node-0")
MEDIA = Ref("sim", "namespace", "", "media")


@dataclass(frozen=True)
class Agent:
    name: str
    rank: int
    title: str


SAFETY, EFFICIENCY = Agent("safety", 10, "AgentA"), Agent("efficiency", 30, "AgentB")
ADMISSION, STRANGER = Agent("admission", 20, "AgentC"), Agent("stranger", 100, "Stranger")
AGENTS = (Agent("janitor", 0, "Janitor"), SAFETY, ADMISSION, EFFICIENCY, STRANGER)


def calm(**more: Any) -> Snapshot:
    """Ten nodes, eighty pods, nobody protected, everybody old."""
    snapshot = a_snapshot(nodes=10, pods=80, taken_seconds=NOW, **more)
    return with_namespace(snapshot, "kube-system", protected=0, managed=1)


def wish(kind: ActionKind, target: Ref = NODE, agent: Agent = SAFETY, **payload: Any) -> Sent:
    return Sent(
        agent,
        a_proposal(
            target,
            agent=agent.name,
            label=f"{agent.title}:{kind.value}",
            kind=kind,
            payload=payload,
            expires_seconds=NOW + 30,
        ),
    )


def judge(
    sent: Sent,
    snapshot: Snapshot,
    ledger: Ledger | None = None,
    settings: Settings | None = None,
    *,
    halted: bool = False,
    now: int = NOW,
) -> Verdict | None:
    settings = settings or Settings()
    guard = Guard(settings, AGENTS)
    check = guard.check(
        ledger=ledger or Ledger(settings.guard), snapshot=snapshot, halted=halted, now=now
    )
    return check.grant(sent, plan(sent.proposal, snapshot, settings))


def rule(verdict: Verdict | None) -> str:
    return "" if verdict is None else verdict.rule


def done(
    ledger: Ledger, sent: Sent, snapshot: Snapshot, ident: str, at: int, lasts: int = 1_800
) -> None:
    """Charge a proposal as if it had been chosen."""
    made = plan(sent.proposal, snapshot, Settings())
    assert made.writes, made.impossible
    writes: tuple[Write, ...] = tuple(
        replace(w, intent=f"{ident}.{n}") for n, w in enumerate(made.writes)
    )
    action = Action(
        id=ident,
        proposal=0,
        agent=sent.sender.name,
        kind=sent.proposal.kind,
        target=sent.proposal.target,
        writes=writes,
        inverse=made.inverse,
        expires_seconds=at + lasts,
    )
    ledger.charge(a_decision(made_seconds=at, actions=(action,)), snapshot)


def taken_back(ledger: Ledger, snapshot: Snapshot, at: int) -> None:
    """Restore what is due, as the janitor's turn in a cycle does."""
    for held in ledger.due(at, halted=False):
        action = Action(
            id=f"{held.action}.back",
            proposal=0,
            agent="janitor",
            kind=ActionKind.RESTORE,
            target=held.target,
            writes=tuple(replace(w, intent=f"{held.action}.back.0") for w in held.inverse),
            inverse=(),
            expires_seconds=None,
            restores=held.action,
        )
        ledger.charge(a_decision(made_seconds=at, actions=(action,)), snapshot)
        ledger.settle([a_receipt(write.intent, at_seconds=at) for write in action.writes])


def node(row: int) -> Ref:
    return Ref("sim", "node", "", f"node-{row}")


MIGRATE = wish(ActionKind.MIGRATE)
SLOW = wish(ActionKind.DVFS, agent=EFFICIENCY, frequency_permille=650)


def test_a_plain_migration_is_granted() -> None:
    assert judge(MIGRATE, calm()) is None


def test_halting_refuses_everything() -> None:
    assert rule(judge(SLOW, calm(), halted=True)) == "halted"


def test_protected_and_unmanaged_namespaces_are_closed() -> None:
    for change in ({"protected": 1}, {"managed": 0}):
        snapshot = with_namespace(calm(), "media", **change)
        sent = wish(ActionKind.ADMISSION, MEDIA, ADMISSION, decision="queue")
        assert rule(judge(sent, snapshot)) == "protected"


def test_a_priority_at_the_limit_is_never_disturbed() -> None:
    snapshot = with_workload(calm(), 0, priority=1_000_000)
    sent = wish(ActionKind.REPLICATE, snapshot.workload_ref(0))
    verdict = judge(sent, snapshot)
    assert rule(verdict) == "protected"
    assert verdict is not None
    assert "1000000" in verdict.sentence


def test_a_pod_that_must_stay_is_not_evicted() -> None:
    snapshot = with_pod(calm(), 0, evictable=0)
    assert rule(judge(wish(ActionKind.MIGRATE, snapshot.pod_ref(0)), snapshot)) == "protected"


def test_a_step_by_step_drain_may_begin_beside_protected_pods_and_a_sleep_may_not() -> None:
    snapshot = with_namespace(calm(), "kube-system", protected=1)
    live = replace(Settings(), act=ActSettings(stepwise=True))
    shared = Ref("sim", "node", "", "node-9")
    assert judge(wish(ActionKind.MIGRATE, shared), snapshot, settings=live) is None
    sleep = wish(ActionKind.POWER_STATE, shared, EFFICIENCY, state="asleep")
    assert rule(judge(sleep, snapshot, settings=live)) == "protected"


def test_a_node_with_a_pod_that_must_stay_can_be_emptied_but_not_put_to_sleep() -> None:
    snapshot = with_pod(calm(), 0, evictable=0)
    assert judge(MIGRATE, snapshot) is None
    sleep = wish(ActionKind.POWER_STATE, NODE, EFFICIENCY, state="asleep")
    assert rule(judge(sleep, snapshot)) == "sleep-needs-drain"


def test_stale_or_thin_data_stops_what_disrupts_and_nothing_else() -> None:
    old = replace(calm(), sources=(Source(name="api", age_seconds=90, completeness_permille=1000),))
    thin = replace(calm(), sources=(Source(name="api", age_seconds=0, completeness_permille=900),))
    assert rule(judge(MIGRATE, old)) == "stale-data"
    assert rule(judge(MIGRATE, thin)) == "thin-data"
    replicate = wish(ActionKind.REPLICATE, old.workload_ref(0))
    assert judge(replicate, old) is None


def test_one_silent_node_does_not_freeze_the_others() -> None:
    snapshot = with_node(calm(), 7, age_seconds=600, ready=0)
    sources = (Source(name="metrics", age_seconds=600, completeness_permille=1000),)
    snapshot = replace(snapshot, sources=sources)
    assert judge(MIGRATE, snapshot) is None
    stale = with_node(snapshot, 0, age_seconds=600)
    assert rule(judge(MIGRATE, stale)) == "stale-data"


def test_many_unready_nodes_freeze_what_disrupts() -> None:
    snapshot = calm()
    for row in range(5, 9):
        snapshot = with_node(snapshot, row, ready=0)
    verdict = judge(MIGRATE, snapshot)
    assert rule(verdict) == "too-many-unready"
    assert verdict is not None
    assert (verdict.used, verdict.allowed) == (4, 3)


def test_a_field_rests_after_a_change() -> None:
    ledger = Ledger(GuardSettings())
    done(ledger, SLOW, calm(), "a.0", NOW - 60)
    back = wish(ActionKind.DVFS, agent=EFFICIENCY, frequency_permille=1000)
    slowed = with_node(calm(), 0, frequency_permille=650)
    verdict = judge(back, slowed, ledger)
    assert rule(verdict) == "dwell"
    assert verdict is not None
    assert verdict.free_at_seconds == NOW + 60
    assert verdict.sentence.endswith("free at 01:01:00")


def test_a_field_turned_round_too_often_is_quarantined() -> None:
    ledger = Ledger(GuardSettings())
    slowed = with_node(calm(), 0, frequency_permille=650)
    back = wish(ActionKind.DVFS, agent=EFFICIENCY, frequency_permille=1000)
    done(ledger, SLOW, calm(), "a.0", NOW - 500)
    done(ledger, back, slowed, "b.0", NOW - 300)
    verdict = judge(SLOW, calm(), ledger, Settings(guard=GuardSettings(per_node=9)))
    assert rule(verdict) == "reversals"
    assert verdict is not None
    assert verdict.free_at_seconds == NOW - 300 + 3_600


def test_limits_never_fall_below_the_floor_of_what_the_owner_set() -> None:
    snapshot = calm()
    target = snapshot.pod_ref(0)
    assert rule(judge(wish(ActionKind.THROTTLE, target, factor=0.4), snapshot)) == "cpu-floor"
    ledger = Ledger(GuardSettings())
    first = wish(ActionKind.THROTTLE, target, factor=0.6)
    done(ledger, first, snapshot, "a.0", NOW - 200)
    lower = int(snapshot.pods.cpu_limit_millicores[0] * 0.6)
    later = with_pod(snapshot, 0, cpu_limit_millicores=lower)
    again = wish(ActionKind.THROTTLE, target, factor=0.7)  # 0.42 of what the owner set
    assert rule(judge(again, later, ledger)) == "cpu-floor"


def test_clocks_and_replicas_stay_inside_their_bounds() -> None:
    slow = wish(ActionKind.DVFS, agent=EFFICIENCY, frequency_permille=300)
    assert rule(judge(slow, calm())) == "frequency-floor"
    many = with_workload(calm(), 0, replicas_baseline=3, replicas_desired=6)
    assert rule(judge(wish(ActionKind.REPLICATE, many.workload_ref(0)), many)) == "replica-factor"


def test_workload_that_its_autoscaler_took_below_what_was_declared_may_grow_again() -> None:
    shrunk = with_workload(calm(), 0, replicas_baseline=4, replicas_desired=2)
    assert judge(wish(ActionKind.REPLICATE, shrunk.workload_ref(0)), shrunk) is None


def test_moved_pods_must_fit_elsewhere() -> None:
    snapshot = calm()
    full = replace(
        snapshot.nodes,
        cpu_requested_millicores=(snapshot.nodes.cpu_capacity_millicores - 100).astype(np.int32),
    )
    assert rule(judge(MIGRATE, replace(snapshot, nodes=full))) == "fit"


def test_a_zone_keeps_its_last_node() -> None:
    snapshot = calm()
    for row in (2, 4, 6, 8):
        snapshot = with_node(snapshot, row, tainted=1)
    assert rule(judge(MIGRATE, snapshot)) == "last-in-zone"


def test_a_single_eviction_keeps_the_disruption_budget() -> None:
    snapshot = calm()
    snapshot = with_workload(snapshot, 0, min_available=int(snapshot.workloads.replicas_ready[0]))
    sent = wish(ActionKind.MIGRATE, snapshot.pod_ref(0))
    assert rule(judge(sent, snapshot)) == "disruption-budget"


def test_a_young_pod_is_not_moved_again() -> None:
    snapshot = with_pod(calm(), 0, created_seconds=NOW - 30)
    verdict = judge(wish(ActionKind.MIGRATE, snapshot.pod_ref(0)), snapshot)
    assert rule(verdict) == "pod-age"
    assert verdict is not None
    assert verdict.free_at_seconds == NOW + 90


def test_shipped_budgets_let_a_leaking_service_have_a_replica_and_one_pod_started_anew() -> None:
    ledger, snapshot = Ledger(GuardSettings()), calm()
    service, first = snapshot.workload_ref(0), wish(ActionKind.MIGRATE, snapshot.pod_ref(0))
    second = int(np.flatnonzero(snapshot.pods.workload == 0)[1])
    done(ledger, wish(ActionKind.REPLICATE, service), snapshot, "a.0", NOW - 30, lasts=720)
    assert judge(first, snapshot, ledger) is None
    done(ledger, first, snapshot, "a.1", NOW)
    verdict = judge(wish(ActionKind.MIGRATE, snapshot.pod_ref(second)), snapshot, ledger)
    assert verdict is not None
    assert (verdict.rule, verdict.free_at_seconds) == ("per-workload", NOW - 30 + 600)
    again = wish(ActionKind.MIGRATE, snapshot.pod_ref(second))
    assert judge(again, snapshot, ledger, now=NOW + 570) is None  # the replica is there for 120 s
    done(ledger, again, snapshot, "a.2", NOW + 570)
    taken_back(ledger, snapshot, NOW + 690)
    assert not ledger.active
    # Taking it back wrote the field, so the next replica waits until that has rested.
    rests = judge(wish(ActionKind.REPLICATE, service), snapshot, ledger, now=NOW + 720)
    assert rests is not None
    assert (rests.rule, rests.free_at_seconds) == ("dwell", NOW + 690 + 120)
    assert judge(wish(ActionKind.REPLICATE, service), snapshot, ledger, now=NOW + 810) is None


@pytest.mark.parametrize("least", [0, 1])
def test_a_pod_is_not_evicted_while_the_extra_replica_is_taken_back(least: int) -> None:
    ledger, counts = Ledger(GuardSettings()), {"replicas_baseline": 1, "min_available": least}
    alone = with_workload(calm(), 0, replicas_desired=1, replicas_ready=1, **counts)
    done(ledger, wish(ActionKind.REPLICATE, alone.workload_ref(0)), alone, "a.0", NOW, lasts=300)
    both = with_workload(alone, 0, replicas_desired=2, replicas_ready=2)
    evict = wish(ActionKind.MIGRATE, both.pod_ref(0))
    assert judge(evict, both, ledger, now=NOW + 239) is None
    for now in (NOW + 240, NOW + 300, NOW + 315):  # soon, now, and not yet although it is due
        assert rule(judge(evict, both, ledger, now=now)) == "disruption-budget"
    taken_back(ledger, both, NOW + 300)
    going = with_workload(both, 0, replicas_desired=1)
    verdict = judge(evict, going, ledger, now=NOW + 315)
    assert verdict is not None
    assert verdict.sentence == "shop/app-0 has 2 ready, of which 1 may leave, and needs 1"


def test_evictions_of_one_cycle_count_together_whoever_asks() -> None:
    ready = int(calm().workloads.replicas_ready[0])
    snapshot = with_workload(calm(), 0, min_available=ready - 1)
    first, second = (snapshot.pod_ref(r) for r in np.flatnonzero(snapshot.pods.workload == 0)[:2])
    steward = Agent("steward", 5, "Steward")
    for sender in (SAFETY, steward):
        check = Guard(Settings(), (*AGENTS, steward)).check(
            ledger=Ledger(GuardSettings()), snapshot=snapshot, halted=False, now=NOW
        )
        one = wish(ActionKind.MIGRATE, first, sender)
        other = wish(ActionKind.MIGRATE, second, ADMISSION)
        assert check.judge(other, plan(other.proposal, snapshot, Settings())) is None
        assert check.grant(one, plan(one.proposal, snapshot, Settings())) is None
        verdict = check.grant(other, plan(other.proposal, snapshot, Settings()))
        assert rule(verdict) == "disruption-budget"


def test_pods_of_a_drain_count_against_evictions_in_the_same_cycle() -> None:
    snapshot = with_pod(calm(), 1, node=0)  # the others of its workload live on node-1
    ready = int(snapshot.workloads.replicas_ready[1])
    evict = wish(ActionKind.MIGRATE, snapshot.pod_ref(11))
    for least, refused in ((ready - 2, ""), (ready - 1, "disruption-budget")):
        tight = with_workload(snapshot, 1, min_available=least)
        check = Guard(Settings(guard=GuardSettings(disturbed_share=1)), AGENTS).check(
            ledger=Ledger(GuardSettings()), snapshot=tight, halted=False, now=NOW
        )
        assert check.grant(MIGRATE, plan(MIGRATE.proposal, tight, Settings())) is None
        assert rule(check.grant(evict, plan(evict.proposal, tight, Settings()))) == refused


def test_only_one_node_with_pods_drains_at_a_time() -> None:
    ledger, snapshot = Ledger(GuardSettings()), calm()
    done(ledger, wish(ActionKind.MIGRATE, node(3)), snapshot, "a.0", NOW - 200)
    settings = Settings(guard=GuardSettings(node_share=0.5))
    assert rule(judge(MIGRATE, snapshot, ledger, settings)) == "drains-at-once"


def test_a_tenth_of_the_nodes_may_be_out_of_service() -> None:
    ledger, snapshot = Ledger(GuardSettings()), calm()
    done(ledger, wish(ActionKind.MIGRATE, node(3)), snapshot, "a.0", NOW - 200)
    settings = Settings(guard=GuardSettings(drains_at_once=5))
    verdict = judge(MIGRATE, snapshot, ledger, settings)
    assert rule(verdict) == "node-share"
    assert verdict is not None
    assert (verdict.used, verdict.allowed) == (1, 1)


def test_one_place_out_of_service_is_kept_for_safety() -> None:
    settings = Settings(guard=GuardSettings(node_share=0.2, drains_at_once=5, disturbed_share=1))
    ledger, snapshot = Ledger(settings.guard), calm()
    sleep = wish(ActionKind.POWER_STATE, node(2), EFFICIENCY, state="asleep")
    done(ledger, sleep, snapshot, "a.0", NOW - 200)
    again = wish(ActionKind.POWER_STATE, node(4), EFFICIENCY, state="asleep")
    assert rule(judge(again, snapshot, ledger, settings)) == "node-share"
    assert judge(MIGRATE, snapshot, ledger, settings) is None


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ({"per_agent": 1}, "per-agent"),
        ({"per_node": 1}, "per-node"),
    ],
)
def test_budgets_are_spent_and_say_when_they_are_free(limit: dict[str, int], expected: str) -> None:
    settings = Settings(guard=GuardSettings(**limit))
    ledger = Ledger(settings.guard)
    done(ledger, SLOW, calm(), "a.0", NOW - 200)
    slowed = with_node(calm(), 0, frequency_permille=650)
    lower = wish(ActionKind.DVFS, agent=EFFICIENCY, frequency_permille=600)
    verdict = judge(lower, slowed, ledger, settings)
    assert rule(verdict) == expected
    assert verdict is not None
    assert verdict.free_at_seconds == NOW + 400
    assert "1 of 1" in verdict.sentence


def test_a_workload_has_a_budget_and_one_action_of_it_is_kept_for_safety() -> None:
    snapshot = calm()
    ledger = Ledger(GuardSettings())
    cap = wish(ActionKind.RESOURCE_CAP, snapshot.pod_ref(0), ADMISSION, factor=0.9)
    done(ledger, cap, snapshot, "a.0", NOW - 200)
    other = int(np.flatnonzero(snapshot.pods.workload == 0)[1])
    again = wish(ActionKind.RESOURCE_CAP, snapshot.pod_ref(other), ADMISSION, factor=0.9)
    assert rule(judge(again, snapshot, ledger)) == "per-workload"
    replicate = wish(ActionKind.REPLICATE, snapshot.workload_ref(0))
    assert judge(replicate, snapshot, ledger) is None


def test_strangers_get_half_of_what_is_shared_and_no_budget_of_one() -> None:
    assert rule(judge(wish(ActionKind.MIGRATE, NODE, STRANGER), calm())) in (
        "node-share",
        "drains-at-once",
    )
    slow = wish(ActionKind.DVFS, NODE, STRANGER, frequency_permille=650)
    ledger = Ledger(GuardSettings())
    assert judge(slow, calm(), ledger) is None
    done(ledger, slow, calm(), "a.0", NOW - 300)
    slower = wish(ActionKind.DVFS, NODE, STRANGER, frequency_permille=600)
    slowed = with_node(calm(), 0, frequency_permille=650)
    assert rule(judge(slower, slowed, ledger)) == "per-node"
    ours = wish(ActionKind.DVFS, NODE, EFFICIENCY, frequency_permille=600)
    assert judge(ours, slowed, ledger) is None


def test_only_so_many_namespaces_are_gated() -> None:
    snapshot = calm()
    for name in ("shop", "reports"):
        snapshot = with_namespace(snapshot, name, gate=1)
    sent = wish(ActionKind.ADMISSION, MEDIA, ADMISSION, decision="queue")
    assert rule(judge(sent, snapshot)) == "gated-namespaces"


def test_rejecting_work_needs_a_person() -> None:
    sent = wish(ActionKind.ADMISSION, MEDIA, ADMISSION, decision="reject")
    assert rule(judge(sent, calm())) == "reject-is-off"


def test_sleeping_needs_capacity_for_what_is_requested() -> None:
    snapshot = calm()
    busy = (snapshot.nodes.cpu_capacity_millicores * 0.95).astype(np.int32)
    snapshot = replace(snapshot, nodes=replace(snapshot.nodes, cpu_requested_millicores=busy))
    sleep = wish(ActionKind.POWER_STATE, NODE, EFFICIENCY, state="asleep")
    assert rule(judge(sleep, snapshot)) == "awake-capacity"


def test_actions_of_one_cycle_together_stay_inside_the_budget() -> None:
    settings = Settings(guard=GuardSettings(per_agent=2))
    guard, snapshot = Guard(settings, AGENTS), calm()
    check = guard.check(ledger=Ledger(settings.guard), snapshot=snapshot, halted=False, now=NOW)
    answers = []
    for row in range(3):
        sent = wish(ActionKind.DVFS, node(row), EFFICIENCY, frequency_permille=650)
        answers.append(rule(check.grant(sent, plan(sent.proposal, snapshot, settings))))
    assert answers == ["", "", "per-agent"]


def test_waking_a_node_is_not_disruptive_even_on_stale_data() -> None:
    snapshot = with_node(calm(), 0, power=Power.ASLEEP, ready=0, tainted=1, age_seconds=900)
    assert judge(wish(ActionKind.POWER_STATE, NODE, SAFETY, state="awake"), snapshot) is None


# Modes.


def mode_of(modes: dict[str, Mode], sent: Sent, snapshot: Snapshot) -> Mode:
    settings = Settings(modes=ModeSettings(agents={}))
    made: Plan = plan(sent.proposal, snapshot, settings)
    return Guard(settings, AGENTS).mode(sent.proposal, made, modes)


def test_a_namespaces_mode_beats_the_agents() -> None:
    sent = wish(ActionKind.ADMISSION, MEDIA, ADMISSION, decision="queue")
    modes = {"admission": Mode.SHADOW, "admission/media": Mode.ENFORCE}
    assert mode_of(modes, sent, calm()) is Mode.ENFORCE


def test_a_node_gets_the_strictest_mode_of_whoever_lives_there() -> None:
    assert mode_of({"safety/shop": Mode.SHADOW}, MIGRATE, calm()) is Mode.SHADOW
    assert mode_of({"safety": Mode.ADVISE}, MIGRATE, calm()) is Mode.ADVISE
    assert mode_of({}, MIGRATE, calm()) is Mode.ENFORCE


def test_two_agents_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="distinct names"):
        Guard(Settings(), (SAFETY, Agent("safety", 100, "Impostor")))


def test_an_approval_names_agent_kind_and_object() -> None:

    proposal: Proposal = MIGRATE.proposal
    assert proposal.approval_id == "safety:migrate:sim/node/node-0"
