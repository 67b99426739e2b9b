# SPDX-License-Identifier: Apache-2.0
"""An explanation quotes the record: who won, who lost and why, what was done, what came of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pilothouse.domain import ActionKind, Mode, Ref, Ruling, Status, Verdict
from pilothouse.errors import UserError
from pilothouse.explain import Account, headline, text
from pilothouse.explain.lookup import account_of
from pilothouse.journal import Cycle, Journal, JournalReader, Outcome, Receipts, Run
from pilothouse.testing.builders import (
    a_decision,
    a_forecast,
    a_proposal,
    a_receipt,
    a_result,
    a_snapshot,
    an_action,
)

NODE = Ref("sim", "node", "", "worker-2")
OTHER = Ref("sim", "node", "", "worker-3")


def the_decision(**changes):
    proposals = (
        a_proposal(NODE, agent="safety", kind=ActionKind.MIGRATE, score=0.78),
        a_proposal(OTHER, agent="efficiency", kind=ActionKind.POWER_STATE, score=0.91),
        a_proposal(NODE, agent="admission", kind=ActionKind.NOOP, reason="queue 0 (needs 8)"),
    )
    verdicts = (
        Verdict(ruling=Ruling.CHOSEN, rule="highest-score", sentence="", **changes),
        Verdict(
            ruling=Ruling.OVERRIDDEN,
            rule="safety-preempts",
            sentence="safety preempts efficiency while anything is at risk",
            by=0,
        ),
        Verdict(ruling=Ruling.CHOSEN, rule="no-op", sentence=""),
    )
    action = an_action(decision="c0ffee", kind=ActionKind.MIGRATE, target=NODE)
    return a_decision(
        id="c0ffee",
        cycle=412,
        made_seconds=3723,
        proposals=proposals,
        verdicts=verdicts,
        actions=(action,),
        headline=0,
        rationale="worker-2 fails within 15 min with probability 0.78 (needs 0.70)",
        margin="below 0.70 the choice would have been: throttle worker-2",
    )


def test_explanation_names_winner_loser_reason_margin_and_idle_agent():
    told = text(Account(decision=the_decision()))
    assert told.splitlines()[0] == "Decision c0ffee, cycle 412, 01:02:03, simulated"
    assert "Chosen    safety migrate worker-2 (0.78)" in told
    assert "Because   worker-2 fails within 15 min with probability 0.78 (needs 0.70)" in told
    assert "Lost      efficiency power_state worker-3 (0.91): safety preempts" in told
    assert "Idle      admission: queue 0 (needs 8)" in told
    assert "Margin    below 0.70" in told


def test_shadow_choice_says_that_it_was_not_executed():
    told = text(Account(decision=the_decision(mode=Mode.SHADOW)))
    assert "Chosen    safety migrate worker-2 (0.78) [shadow: not executed]" in told


def test_doing_nothing_is_explained():
    decision = a_decision(actions=(), headline=None, proposals=(), verdicts=(), rationale="calm")
    assert headline(decision) == "do nothing"
    assert "Chosen    do nothing\nBecause   calm" in text(Account(decision=decision))


def test_halt_is_told_with_its_reason():
    decision = replace(the_decision(), halted=True, halted_because="drill")
    assert text(Account(decision=decision)).splitlines()[0].endswith(", halted: drill")


def test_unanswered_and_refused_writes_are_told():
    decision = the_decision()
    intents = [w.intent for w in decision.actions[0].writes]
    told = text(Account(decision=decision))
    assert f"0 of {len(intents)} writes done ({len(intents)} without an answer yet)" in told
    refused = [a_receipt(intents[0], status=Status.REFUSED, detail="ready 2, min 2")]
    assert "refused: ready 2, min 2" in text(Account(decision=decision, receipts=refused))


def test_resize_that_is_done_and_not_in_force_is_told_with_its_reason():
    decision = the_decision()
    first, *others = [w.intent for w in decision.actions[0].writes]
    detail = "cpu_limit 100 to 200, not in force: infeasible: Node didn't have enough capacity"
    answers = [a_receipt(first, detail=detail), *map(a_receipt, others)]
    told = text(Account(decision=decision, receipts=answers))
    count = 1 + len(others)
    assert (
        f"{count} of {count} writes done "
        "(not in force: infeasible: Node didn't have enough capacity)" in told
    )
    taken = [a_receipt(first, detail="cpu_limit 100 to 200, done by the kubelet")]
    assert "not in force" not in text(Account(decision=decision, receipts=taken))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    snapshot = a_snapshot(nodes=3, pods=9)
    decision = the_decision()
    with Journal.open(path) as journal:
        journal.begin(Run(run_id="r", cluster="sim", scenario="harbor", seed=0, version="0"))
        journal.append_cycle(Cycle(decision=decision), snapshot, a_forecast(snapshot))
        receipts = tuple(a_receipt(w.intent) for w in decision.actions[0].writes)
        journal.append(Receipts(decision=decision.id, receipts=receipts))
        journal.append(Outcome(result=a_result(decision.actions[0].id)))
    return path


@pytest.mark.parametrize("which", ["last", "c0ff", "c0ffee", "node/worker-2"])
def test_decision_is_found_by_id_prefix_object_or_as_the_last(journal, which):
    account = account_of(JournalReader(journal), which)
    assert account.decision.id == "c0ffee"
    assert account.receipts
    assert account.results
    told = text(account)
    assert "writes done" in told
    assert "Reward" in told


def test_unknown_object_is_one_clear_line(journal):
    with pytest.raises(UserError, match=r"No decision in .* about pod/shop/none"):
        account_of(JournalReader(journal), "pod/shop/none")
