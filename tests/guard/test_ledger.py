# SPDX-License-Identifier: Apache-2.0
"""What the ledger remembers, forgets, and gives back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from pilothouse.act import plans
from pilothouse.domain import (
    Action,
    ActionKind,
    Decision,
    Plan,
    Receipt,
    Ref,
    Snapshot,
    Status,
    Verb,
    Write,
)
from pilothouse.guard import Charge, Ledger
from pilothouse.guard.ledger import FIELDS, field_of
from pilothouse.guard.tally import Tally
from pilothouse.settings import GuardSettings
from pilothouse.testing.builders import a_snapshot

SETTINGS = GuardSettings()
SNAPSHOT = a_snapshot()
NODE = Ref("sim", "node", "", "node-0")
POD = SNAPSHOT.pod_ref(0)


def a_decision(*actions: Action, at: int = 0) -> Decision:
    return Decision(
        id=actions[0].id.partition(".")[0] if actions else "d",
        cycle=at // 15,
        made_seconds=at,
        snapshot_digest="",
        forecast_digest="",
        proposals=(),
        verdicts=(),
        actions=actions,
        headline=None,
        rationale="",
        margin="",
    )


def an_action(
    ident: str, verb: Verb, target: Ref, value: int, original: int, *, expires: int, **more: Any
) -> Action:
    write = Write(
        verb=verb, target=target, uid=1, value=value, original=original, intent=f"{ident}.0"
    )
    undo = replace(write, value=original, original=value, expect=value, intent="")
    values: dict[str, Any] = {
        "id": ident,
        "proposal": 0,
        "agent": "safety",
        "kind": ActionKind.THROTTLE,
        "target": target,
        "writes": (write,),
        "inverse": (undo,),
        "expires_seconds": expires,
    }
    return Action(**{**values, **more})


def charged(*actions: Action, at: int = 0, snapshot: Snapshot = SNAPSHOT) -> Ledger:
    ledger = Ledger(SETTINGS)
    ledger.charge(a_decision(*actions, at=at), snapshot)
    return ledger


def limit(ident: str, value: int, original: int, *, expires: int = 900) -> Action:
    return an_action(ident, Verb.CPU_LIMIT, POD, value, original, expires=expires)


def test_an_action_is_due_when_it_expires_and_at_once_when_halted() -> None:
    ledger = charged(limit("a.0", 900, 1000))
    assert ledger.due(899, halted=False) == []
    assert [held.action for held in ledger.due(900, halted=False)] == ["a.0"]
    assert [held.action for held in ledger.due(1, halted=True)] == ["a.0"]


def test_a_pods_action_is_charged_to_its_workload_and_namespace() -> None:
    (charge,) = charged(limit("a.0", 900, 1000)).charges
    assert charge.workloads == (str(SNAPSHOT.workload_ref(0)),)
    assert charge.namespaces == (POD.namespace,)
    assert charge.nodes == ()


def test_a_second_step_takes_over_the_inverse_and_goes_back_to_the_owners_value() -> None:
    ledger = charged(limit("a.0", 900, 1000))
    step = limit("b.0", 810, 900, expires=1_500)
    inverse = ledger.inverse_for(step.inverse[0])
    assert (inverse.value, inverse.expect) == (1000, 810)
    ledger.charge(a_decision(replace(step, inverse=(inverse,)), at=300), SNAPSHOT)
    assert [held.action for held in ledger.active] == ["b.0"]
    assert ledger.owners_value(limit("c.0", 700, 810).writes[0]) == 1000


def test_what_the_backend_refused_needs_no_inverse() -> None:
    ledger = charged(limit("a.0", 900, 1000))
    ledger.settle([Receipt(intent="a.0.0", status=Status.REFUSED, detail="", at_seconds=0)])
    assert ledger.active == ()


def a_restore(ledger: Ledger, at: int) -> Decision:
    (held,) = ledger.due(at, halted=False)
    writes = tuple(replace(w, intent=f"r.0.{n}") for n, w in enumerate(held.inverse))
    action = limit("r.0", 1000, 900)
    return a_decision(
        replace(
            action,
            agent="janitor",
            kind=ActionKind.RESTORE,
            writes=writes,
            inverse=(),
            expires_seconds=None,
            restores=held.action,
        ),
        at=at,
    )


def test_a_restore_is_not_charged_to_any_budget() -> None:
    ledger = charged(limit("a.0", 900, 1000))
    ledger.charge(a_restore(ledger, 900), SNAPSHOT)
    assert ledger.charges == ()
    assert ledger.active == ()


def test_a_restore_the_backend_could_not_run_is_tried_again() -> None:
    ledger = charged(limit("a.0", 900, 1000))
    ledger.charge(a_restore(ledger, 900), SNAPSHOT)
    ledger.settle([Receipt(intent="r.0.0", status=Status.FAILED, detail="", at_seconds=900)])
    assert [held.action for held in ledger.due(960, halted=False)] == ["a.0"]


def test_a_restore_refused_because_the_value_is_not_ours_is_not_tried_again() -> None:
    ledger = charged(limit("a.0", 900, 1000))
    ledger.charge(a_restore(ledger, 900), SNAPSHOT)
    ledger.settle([Receipt(intent="r.0.0", status=Status.REFUSED, detail="", at_seconds=900)])
    assert ledger.active == ()


def test_charges_slide_out_of_the_window() -> None:
    ledger = charged(limit("a.0", 900, 1000))
    ledger.prune(SETTINGS.window_seconds - 1)
    assert len(ledger.charges) == 1
    ledger.prune(SETTINGS.window_seconds)
    assert ledger.charges == ()


def test_turning_a_field_round_is_a_reversal_and_going_on_is_none() -> None:
    ledger = charged(limit("a.0", 900, 1000))
    assert not ledger.is_reversal(limit("b.0", 810, 900).writes[0], 200)
    assert ledger.is_reversal(limit("b.0", 1000, 900).writes[0], 200)


def test_doing_again_what_somebody_undid_is_a_reversal() -> None:
    ledger = charged(an_action("a.0", Verb.TAINT, NODE, 1, 0, expires=1_800))
    again = an_action("b.0", Verb.TAINT, NODE, 1, 0, expires=2_000).writes[0]
    assert ledger.is_reversal(again, 300)


def test_doing_again_what_somebody_undid_is_remembered_as_a_turn() -> None:
    """Or nobody would ever be quarantined: the older inverse is taken over by the newer action."""
    first = an_action("a.0", Verb.TAINT, NODE, 1, 0, expires=1_800)
    again = an_action("b.0", Verb.TAINT, NODE, 1, 0, expires=2_000)
    ledger = charged(first)
    ledger.charge(a_decision(again, at=300), SNAPSHOT)
    rest = ledger.rest(field_of(again.writes[0]))
    assert rest is not None
    assert rest.reversals == (300,)


def test_going_on_after_a_restore_is_no_reversal() -> None:
    ledger = charged(limit("a.0", 900, 1000))
    ledger.charge(a_restore(ledger, 900), SNAPSHOT)
    assert not ledger.is_reversal(limit("b.0", 900, 1000).writes[0], 1_200)


def test_a_ledger_survives_json() -> None:
    ledger = charged(limit("a.0", 900, 1000), an_action("a.1", Verb.TAINT, NODE, 1, 0, expires=9))
    state = json.loads(json.dumps(ledger.to_dict()))
    again = Ledger.from_dict(state, SETTINGS)
    assert again.to_dict() == ledger.to_dict()
    assert again.due(900, halted=False) == ledger.due(900, halted=False)


def test_the_same_record_gives_the_same_ledger() -> None:
    first, second = charged(limit("a.0", 900, 1000)), charged(limit("a.0", 900, 1000))
    for ledger in (first, second):
        ledger.charge(a_restore(ledger, 900), SNAPSHOT)
    assert first.to_dict() == second.to_dict()


def test_what_is_charged_is_what_was_granted() -> None:
    """Both count through one function: the tally of a cycle and that of its ledger agree."""
    targets = (NODE, POD, SNAPSHOT.workload_ref(0), SNAPSHOT.namespace_ref(0))
    writes = tuple(
        Write(verb=verb, target=target, uid=1, value=1, original=0, intent=f"d.0.{n}")
        for n, (verb, target) in enumerate(
            zip((Verb.DRAIN, Verb.EVICT, Verb.SCALE, Verb.GATE), targets, strict=True)
        )
    )
    action = replace(an_action("d.0", Verb.DRAIN, NODE, 1, 0, expires=900), writes=writes)
    ledger = Ledger(SETTINGS)
    granted = Tally(ledger, SNAPSHOT, now=0, window=600, ranks={})
    nothing: dict[str, Any] = dict.fromkeys(("inverse", "touches", "workloads", "nodes"), ())
    plan = Plan(writes=writes, **nothing, disturbs=0, effects=())
    granted.grant(plan, action.agent, 0)
    ledger.charge(a_decision(action), SNAPSHOT)
    charged = Tally(ledger, SNAPSHOT, now=0, window=600, ranks={})
    keys = [("agent", "safety"), ("disturbed", ""), ("node", str(NODE))]
    keys += [("workload", str(SNAPSHOT.workload_ref(0))), ("namespace", targets[3].name)]
    for key in keys:
        assert granted.uses(*key) == charged.uses(*key) != []


def test_order_of_what_is_active_survives_a_store_that_sorts_its_keys() -> None:
    ledger = Ledger(SETTINGS)
    for ident, expires in (("b.0", 300), ("a.0", 400)):
        action = an_action(ident, Verb.DRAIN, NODE, 1, 0, expires=expires)
        taint = an_action(ident, Verb.TAINT, NODE, 1, 0, expires=expires)
        ledger.charge(a_decision(action if ident == "b.0" else taint), SNAPSHOT)
    stored = json.loads(json.dumps(ledger.to_dict(), sort_keys=True))
    again = Ledger.from_dict(stored, SETTINGS)
    assert [a.action for a in ledger.active] == [a.action for a in again.active] == ["b.0", "a.0"]


def test_planner_and_guard_agree_which_verbs_write_one_field() -> None:
    """Both keep the table, because siblings do not import each other; a conflict and a budget must
    mean the same field."""
    assert plans.FIELDS == FIELDS
    assert set(FIELDS) == set(Verb)


def a_charge(action: Action, at: int) -> Charge:
    return Charge(
        action=action.id,
        agent=action.agent,
        at=at,
        nodes=(str(NODE),),
        workloads=(),
        namespaces=(),
        disturbs=0,
    )


def adopting(*, made: int, now: int, in_force: bool = True, lasts: int = 900) -> Ledger:
    """A ledger whose node was changed at 100 and given another leader's action to take over."""
    ledger = Ledger(SETTINGS)
    mine = an_action("mine.0", Verb.FREQUENCY, NODE, 700, 1000, expires=5_000)
    ledger.charge(a_decision(mine, at=100), SNAPSHOT)
    theirs = an_action("theirs.0", Verb.FREQUENCY, NODE, 800, 1000, expires=made + lasts)
    ledger.adopt(theirs, a_charge(theirs, made), in_force=in_force, now=now)
    return ledger


def test_what_another_leader_did_counts_and_is_taken_back_by_the_new_one() -> None:
    ledger = adopting(made=200, now=300)
    assert {c.action for c in ledger.charges} == {"mine.0", "theirs.0"}
    assert {a.action for a in ledger.active} == {"mine.0", "theirs.0"}


def test_what_expired_under_another_leader_is_left_to_the_janitor() -> None:
    ledger = adopting(made=200, now=300, lasts=50)
    assert {a.action for a in ledger.active} == {"mine.0"}
    assert {c.action for c in ledger.charges} == {"mine.0", "theirs.0"}


def test_what_is_older_than_every_window_and_over_is_not_taken_over() -> None:
    now = 200 + SETTINGS.window_seconds
    ledger = adopting(made=200, now=now, in_force=False)
    assert {c.action for c in ledger.charges} == {"mine.0"}


def test_change_that_came_later_stays_the_last_one_of_its_field() -> None:
    before = adopting(made=90, now=300).rest(f"{NODE}#frequency")
    assert before is not None
    assert (before.at, before.value) == (100, 700)
    after = adopting(made=110, now=300).rest(f"{NODE}#frequency")
    assert after is not None
    assert (after.at, after.value) == (110, 800)
