# SPDX-License-Identifier: Apache-2.0
"""What the page is told equals what was decided."""

from __future__ import annotations

import dataclasses
import math
import time

import msgspec
import numpy as np

from pilothouse.domain import ActionKind, Evidence, Mode, Power, Ruling, Shift
from pilothouse.server import Control, cycle_view
from pilothouse.server.shapes import STEPS, CycleView
from pilothouse.server.views import PROPOSALS_SHOWN, Turn, clip, decision_view, result_view, whole
from pilothouse.testing.builders import (
    a_decision,
    a_forecast,
    a_proposal,
    a_receipt,
    a_result,
    a_snapshot,
    a_verdict,
    an_action,
    with_node,
    with_risk,
)
from tests.server.parade import RUN, CheckNow, StageNow, turns


def a_turn(**changes) -> Turn:
    snapshot = changes.pop("snapshot", a_snapshot())
    values = {
        "run": RUN,
        "decision": a_decision(),
        "snapshot": snapshot,
        "forecast": a_forecast(snapshot),
        "receipts": (),
        "results": (),
        "timings": dict.fromkeys(STEPS, 1.5),
        "wall_ms": 0,
    }
    return Turn(**{**values, **changes})


def test_loser_names_who_beat_it_and_the_rule():
    winner = a_proposal(score=0.78)
    loser = a_proposal(agent="efficiency", label="AgentB:power_state", score=0.91)
    decision = a_decision(
        headline=0,
        proposals=(winner, loser),
        verdicts=(
            a_verdict(),
            a_verdict(
                ruling=Ruling.OVERRIDDEN,
                rule="safety-preempts",
                sentence="safety preempts efficiency while anything is at risk",
                by=0,
            ),
        ),
    )
    view = decision_view(decision, ())
    lost = view.proposals[1]
    assert lost.ruling == "overridden"
    assert lost.rule == "safety-preempts"
    assert lost.beaten_by is not None
    assert (lost.beaten_by.label, lost.beaten_by.score) == ("AgentA:migrate", 0.78)
    assert view.title == "AgentA:migrate node-0"


def test_hostile_numbers_and_text_become_harmless():
    wild = a_proposal(
        score=math.nan,
        priority=math.inf,
        label="x" * 5000,
        reason="\ud800 <script>",
        payload={"a": math.nan},
        evidence=(Evidence("risk", -math.inf, needs=math.nan),),
    )
    view = cycle_view(a_turn(decision=a_decision(proposals=(wild,), verdicts=(a_verdict(),))))
    back = msgspec.json.decode(msgspec.json.encode(view), type=CycleView)
    seen = back.decision.proposals[0]
    assert seen.score is None
    assert seen.evidence[0].value is None
    assert len(seen.label) <= 400
    assert "<script>" in seen.reason


def test_flood_of_proposals_is_cut_but_counted():
    count = 5000
    refused = a_verdict(ruling=Ruling.REFUSED, rule="proposals-per-agent")
    decision = a_decision(
        headline=count - 1,
        proposals=(a_proposal(),) * count,
        verdicts=(refused,) * (count - 1) + (a_verdict(),),
    )
    view = decision_view(decision, ())
    assert view.proposals_total == count
    assert view.rulings.refused == count - 1
    assert len(view.proposals) == PROPOSALS_SHOWN
    assert view.proposals[0].index == count - 1


def test_receipts_stand_with_their_action():
    decision = a_decision(actions=(an_action("d0"),), headline=0)
    view = decision_view(decision, [a_receipt("d0.0.0", detail="tainted")])
    receipt = view.actions[0].receipts[0]
    assert receipt.status == "done"
    assert receipt.write == "taint node-0: 0 → 1"
    assert receipt.reservation == ""
    assert view.kind == "act"


def test_receipt_of_a_resize_that_is_not_in_force_comes_first_and_says_why():
    action = an_action("d0")
    second = dataclasses.replace(action.writes[0], intent="d0.0.1")
    action = dataclasses.replace(action, writes=(action.writes[0], second))
    answers = [
        a_receipt("d0.0.0", detail="cpu_limit 200 to 100, done by the kubelet"),
        a_receipt("d0.0.1", detail="cpu_limit 200 to 100, not in force: deferred: no room"),
    ]
    view = decision_view(a_decision(actions=(action,), headline=0), answers)
    told = [(r.intent, r.reservation) for r in view.actions[0].receipts]
    assert told == [("d0.0.1", "deferred: no room"), ("d0.0.0", "")]


def test_steps_age_when_they_have_nothing_to_do():
    acting = a_turn(
        decision=a_decision(1, actions=(an_action("00000001"),), headline=0),
        receipts=[a_receipt("00000001.0.0")],
    )
    first = cycle_view(acting)
    later = a_turn(decision=a_decision(2), snapshot=a_snapshot(taken_seconds=3_615))
    second = cycle_view(later, first)
    steps = {step.name: step for step in second.steps}
    assert [step.name for step in second.steps] == list(STEPS)
    assert steps["observe"].age_seconds == 0
    assert steps["act"].age_seconds == 15
    assert steps["act"].summary == "1 of 1 write done"
    assert steps["score"].done_seconds is None


def test_step_that_was_not_timed_is_fresh_all_the_same():
    view = cycle_view(a_turn(timings={"observe": 2.0, "journal": 3.0, "fork": 40.0}))
    guard = next(step for step in view.steps if step.name == "guard")
    assert (guard.age_seconds, guard.duration_ms) == (0, None)
    assert view.cycle_ms == 5.0


def test_decision_says_why_it_was_halted():
    drill = dataclasses.replace(a_decision(), halted=True, halted_because="drill")
    view = cycle_view(a_turn(decision=drill)).decision
    assert (view.halted, view.halted_because) == (True, "drill")
    assert cycle_view(a_turn()).decision.halted_because == ""


def test_outcome_names_the_action_it_belongs_to():
    acting = a_turn(decision=a_decision(1, actions=(an_action("00000001"),), headline=0))
    first = cycle_view(acting)
    assert [one.action for one in first.settling] == ["00000001.0"]
    settled = a_turn(decision=a_decision(2), results=[a_result("00000001.0")])
    second = cycle_view(settled, first)
    assert second.settling == []
    outcome = next(event for event in second.events if event.kind == "outcome")
    assert outcome.text == "AgentA:migrate node-0: 120 pod seconds of failure avoided"
    assert (outcome.agent, outcome.decision) == ("safety", "00000001")


def test_whoever_wants_nothing_is_listed_after_who_lost():
    quiet = a_proposal(kind=ActionKind.NOOP)
    refused = a_verdict(ruling=Ruling.REFUSED, rule="dwell")
    decision = a_decision(proposals=(quiet, a_proposal()), verdicts=(a_verdict(), refused))
    assert [p.index for p in decision_view(decision, ()).proposals] == [1, 0]


def test_rewards_add_up_over_cycles():
    first = cycle_view(a_turn(results=[a_result()]))
    second = cycle_view(a_turn(decision=a_decision(1)), first)
    third = cycle_view(a_turn(decision=a_decision(2), results=[a_result("d1.0")]), second)
    assert third.rewards.last.safety == 7.2
    assert third.rewards.total.safety == 14.4
    assert second.rewards.total.safety == 7.2


def test_raw_and_interpreted_numbers_stand_side_by_side():
    turn = list(turns(9))[-1]
    cluster = cycle_view(turn).cluster
    raw, seen = cluster.raw, cluster.interpreted
    assert raw.pending == seen.queue_length + seen.unschedulable
    assert raw.pending == raw.pending_resources + raw.pending_selector
    assert seen.unschedulable == raw.pending_selector > 0


def test_nodes_are_listed_worst_first():
    snapshot = a_snapshot(nodes=5)
    snapshot = with_node(snapshot, 4, ready=0, power=Power.DEAD)
    snapshot = with_node(snapshot, 0, ready=0, power=Power.ASLEEP)
    forecast = with_risk(a_forecast(snapshot), "node_risk", 3, 900)
    nodes = cycle_view(a_turn(snapshot=snapshot, forecast=forecast)).cluster.nodes
    assert [node.name for node in nodes][:2] == ["node-4", "node-3"]
    assert nodes[-1].name == "node-0"
    assert nodes[1].risk_permille == 900
    assert nodes[1].driver == "20 errors/min"


def test_forecast_that_abstains_shows_no_number():
    snapshot = a_snapshot()
    forecast = a_forecast(snapshot)
    silent = dataclasses.replace(
        forecast.node_risk, abstains=np.ones(len(snapshot.nodes), dtype=np.int32)
    )
    turn = a_turn(snapshot=snapshot, forecast=dataclasses.replace(forecast, node_risk=silent))
    view = cycle_view(turn)
    assert view.forecast.risk_permille is None
    assert {node.risk_permille for node in view.cluster.nodes} == {None}


def test_forecast_tells_which_features_drifted():
    forecast = a_forecast(a_snapshot())
    shift = Shift(scope="nodes", feature="errors", index_thousandths=310)
    view = cycle_view(a_turn(forecast=dataclasses.replace(forecast, drift=(shift,))))
    assert [(s.scope, s.feature, s.index) for s in view.forecast.drift] == [
        ("nodes", "errors", 0.31)
    ]
    assert cycle_view(a_turn()).forecast.drift == []


def test_empty_cluster_has_a_view():
    snapshot = a_snapshot(nodes=0, pods=0, workloads=0)
    view = cycle_view(a_turn(snapshot=snapshot))
    assert view.cluster.nodes == []
    assert view.forecast.riskiest == ""


def test_events_tell_news_only_once():
    refused = a_decision(
        verdicts=(a_verdict(ruling=Ruling.REFUSED, rule="dwell", sentence="rests"),)
    )
    warning = CheckNow(name="flat", ok=False, sentence="the queue stayed at 0")
    stage = StageNow(name="loop", state="running")
    first = cycle_view(
        a_turn(decision=refused, checks=[warning], stages=[stage], controls=[Control(text="halt")])
    )
    assert [event.kind for event in first.events] == ["refusal", "check", "control", "stage"]
    again = cycle_view(a_turn(decision=refused, checks=[warning], stages=[stage]), first)
    assert again.events == []
    assert again.checks[0].since_seconds == first.at_seconds


def test_check_that_was_not_looked_at_again_still_stands():
    warning = CheckNow(name="flat", ok=False, sentence="the queue stayed at 0")
    first = cycle_view(a_turn(checks=[warning]))
    second = cycle_view(a_turn(), first)
    assert second.checks == first.checks


def test_action_that_only_advises_is_an_event_with_its_mode():
    decision = a_decision(headline=0, verdicts=(a_verdict(mode=Mode.SHADOW),))
    view = cycle_view(a_turn(decision=decision))
    assert view.decision.kind == "advise"
    assert view.events[0].text == "AgentA:migrate node-0: chosen, not done (mode shadow)"


def test_noop_makes_no_event():
    quiet = a_proposal(kind=ActionKind.NOOP, label="AgentA:noop")
    view = cycle_view(a_turn(decision=a_decision(proposals=(quiet,), verdicts=(a_verdict(),))))
    assert view.events == []


def test_result_quotes_its_sentence_and_effect():
    view = result_view(a_result())
    assert view.sentence == "120 pod seconds of failure avoided"
    assert view.effect is not None
    assert view.effect.failed_pod_seconds == -120.0


def test_clip_and_whole_accept_anything():
    assert clip("a" * 401).endswith("…")
    assert whole(math.nan) == whole(1e300) == 0


def test_view_of_a_large_cluster_is_cheap():
    snapshot = a_snapshot(nodes=5_000, pods=50_000)
    turn = a_turn(snapshot=snapshot, forecast=a_forecast(snapshot))
    assert snapshot.interpreted is not None  # counted by whoever decided
    began = time.thread_time()  # what others do on the machine is not its cost
    body = msgspec.json.encode(cycle_view(turn))
    assert time.thread_time() - began < 0.25
    assert len(body) < 100_000
