# SPDX-License-Identifier: Apache-2.0
"""What hostile campaigns found once, pinned one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pytest

from pilothouse.domain import (
    Action,
    ActionKind,
    Decision,
    Evidence,
    Phase,
    Plan,
    Proposal,
    Receipt,
    Ref,
    Snapshot,
    Status,
    Verb,
    Write,
)
from pilothouse.guard import Guard, Ledger, Sent
from pilothouse.guard.rails.budgets import at_least_one
from pilothouse.propose.registry import Registration
from pilothouse.settings import GuardSettings, Settings
from pilothouse.testing.builders import a_proposal, a_snapshot
from pilothouse.testing.campaign import Campaign
from pilothouse.testing.hostile import NUMBERS, Hostile, Loud, Lying, Wordless

NOW = 3_600
SNAPSHOT = a_snapshot(nodes=10, pods=80, taken_seconds=NOW)
NODE = SNAPSHOT.node_ref(0)


@dataclass(frozen=True)
class Agent:
    name: str
    rank: int
    title: str


SAFETY, OURS, STRANGER = (
    Agent("safety", 10, "AgentA"),
    Agent("efficiency", 30, "AgentB"),
    Agent("stranger", 100, "Stranger"),
)
FINE = a_proposal(
    NODE,
    agent="stranger",
    label="Stranger:migrate",
    kind=ActionKind.MIGRATE,
    expires_seconds=NOW + 60,
)


class Text(str):
    """A text with code of its own."""


BROKEN: list[Any] = [
    replace(FINE, reason="\ud800"),
    replace(FINE, reason=Text("hello")),
    replace(FINE, score=np.float64(0.5)),
    replace(FINE, target=Ref("sim", "galaxy", "", "x")),  # type: ignore[arg-type]
    replace(FINE, target=Ref("sim", "node", "", "\udfff")),
    replace(FINE, payload={"factor": Phase.RUNNING}),
    replace(FINE, payload={Text("factor"): 1}),
    replace(FINE, evidence=(Evidence("\ud800", 1.0),)),
    Lying(**{name: getattr(FINE, name) for name in Proposal.__slots__}),
    Loud(),
    None,
    *(replace(FINE, payload={"factor": number}) for number in NUMBERS),
]


def validate(proposal: Any) -> str:
    sent = [Sent(STRANGER, proposal)]
    (verdict,) = Guard(Settings(), (SAFETY, OURS, STRANGER)).validate(sent, NOW)
    return verdict.rule if verdict else ""


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_value_the_journal_could_not_hold_is_malformed_and_breaks_nothing(number: int):
    given = BROKEN[number]
    if type(given) is Proposal and not validate(given):
        # What gets through must survive the journal.
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(given), type=Proposal) == given
    else:
        assert validate(given) == "malformed"


@pytest.mark.parametrize("name", ["score", "priority", "expires_seconds", "kind", "target"])
@pytest.mark.parametrize(
    "value",
    [10**5000, -(10**5000), math.nan, Loud(), None, "\ud800"],
    ids=["huge", "hugely negative", "nan", "loud", "none", "surrogate"],
)
def test_field_of_the_wrong_kind_is_malformed(name: str, value: Any):
    assert validate(replace(FINE, **{name: value})) == "malformed"


@pytest.mark.parametrize(
    "error",
    [Wordless(), SystemExit(3), ValueError("\ud800"), RecursionError(), KeyError(Loud())],
    ids=lambda error: type(error).__name__,
)
def test_agent_that_breaks_is_a_line_in_the_record(error: BaseException):
    class Broken(Hostile):
        def attack(self, snapshot: Snapshot, forecast: object) -> Any:
            raise error

    broken = Registration(Broken("broken"), 100, "Broken")
    campaign = Campaign(scenario="light", seed=1, settings=Settings(), strangers=[broken])
    verdicts = campaign.turn().verdicts  # the campaign checks that it can be recorded
    assert verdicts[-1].rule == "agent-failed"
    assert verdicts[-1].sentence.startswith(f"broken failed: {type(error).__name__}")


@pytest.mark.parametrize(("total", "share", "most"), [(70, 0.1, 7), (71, 0.1, 8), (3, 0.05, 1)])
def test_share_rounds_up_and_not_beyond(total: int, share: float, most: int):
    assert at_least_one(total, share) == most


# The ledger and the rails.


def a_write(verb: Verb, target: Ref, value: int, original: int, intent: str = "") -> Write:
    return Write(verb=verb, target=target, uid=1, value=value, original=original, intent=intent)


def an_action(ident: str, agent: str, *writes: Write, expires: int | None = 9_999) -> Action:
    sent = tuple(replace(w, intent=f"{ident}.{n}") for n, w in enumerate(writes))
    undo = tuple(replace(w, value=w.original, original=w.value, expect=w.value) for w in writes)
    return Action(
        id=ident,
        proposal=0,
        agent=agent,
        kind=ActionKind.DVFS,
        target=writes[0].target,
        writes=sent,
        inverse=undo if expires is not None else (),
        expires_seconds=expires,
    )


def take(ledger: Ledger, action: Action, at: int, status: Status = Status.DONE) -> None:
    """A decision with this action, and its receipts."""
    decision = Decision(
        id=action.id.partition(".")[0],
        cycle=0,
        made_seconds=at,
        snapshot_digest="",
        forecast_digest="",
        proposals=(),
        verdicts=(),
        actions=(action,),
        headline=None,
        rationale="",
        margin="",
    )
    ledger.charge(decision, SNAPSHOT)
    ledger.settle(
        [Receipt(intent=w.intent, status=status, detail="", at_seconds=at) for w in action.writes]
    )


def judged(
    agent: Agent, write: Write, ledger: Ledger, now: int, settings: Settings | None = None
) -> str:
    plan = Plan(
        writes=(write,),
        inverse=(),
        touches=(write.target,),
        workloads=(),
        nodes=(),
        disturbs=0,
        effects=(),
    )
    settings = settings or Settings()
    guard = Guard(settings, (SAFETY, OURS, STRANGER))
    check = guard.check(ledger=ledger, snapshot=SNAPSHOT, halted=False, now=now)
    verdict = check.judge(Sent(agent, replace(FINE, agent=agent.name)), plan)
    return verdict.rule if verdict else ""


def clock(value: int, original: int) -> Write:
    return a_write(Verb.FREQUENCY, NODE, value, original)


def test_third_party_cannot_end_a_quarantine_that_binds_us():
    ledger = Ledger(GuardSettings())
    take(ledger, an_action("a.0", "stranger", clock(600, 1000)), 30)
    take(ledger, an_action("b.0", "efficiency", clock(1000, 600), expires=None), 150)
    for agent in (OURS, STRANGER):
        assert judged(agent, clock(600, 1000), ledger, 150 + 3_599) == "reversals"
        assert judged(agent, clock(600, 1000), ledger, 150 + 3_600) == ""


def test_quarantine_remembers_the_turns_that_began_it():
    limits = GuardSettings(reversals=3, window_seconds=600, quarantine_seconds=900, dwell_seconds=1)
    ledger, value = Ledger(limits), 1000
    for number, at in enumerate((0, 1_530, 1_560, 1_755)):
        before, value = value, 1600 - value
        take(ledger, an_action(f"{number}.0", "efficiency", clock(value, before)), at)
    turn, settings = clock(1600 - value, value), Settings(guard=limits)
    ledger.prune(2_460)
    assert judged(OURS, turn, ledger, 2_460, settings) == "reversals"
    assert judged(OURS, turn, ledger, 1_755 + 900, settings) == ""


@pytest.mark.parametrize("status", [Status.SKIPPED, Status.REFUSED])
def test_write_that_never_happened_takes_no_inverse_over(status: Status):
    """Halted between decision and write, the older action must still be taken back."""
    ledger = Ledger(GuardSettings())
    take(ledger, an_action("a.0", "efficiency", clock(700, 1000), expires=630), 30)
    take(ledger, an_action("b.0", "efficiency", clock(600, 700), expires=900), 300, status)
    (held,) = ledger.due(630, halted=False)
    assert (held.action, held.inverse[0].value) == ("a.0", 1000)


def test_drain_of_a_node_we_tainted_leaves_the_taint_to_whoever_put_it_there():
    ledger = Ledger(GuardSettings())
    taint = a_write(Verb.TAINT, NODE, 1, 0)
    take(ledger, an_action("a.0", "safety", taint, expires=1_800), 30)
    drain = a_write(Verb.DRAIN, NODE, 2, 0)
    take(ledger, an_action("b.0", "efficiency", drain, expires=2_400), 600)
    (held,) = ledger.due(1_800, halted=False)
    assert [(w.verb, w.value) for w in held.inverse] == [(Verb.TAINT, 0)]


def test_write_that_was_never_sent_leaves_no_trace_on_its_field():
    ledger = Ledger(GuardSettings())
    take(ledger, an_action("a.0", "stranger", clock(700, 1000)), 30)
    before = ledger.to_dict()
    take(
        ledger, an_action("b.0", "efficiency", clock(1000, 700), expires=None), 200, Status.SKIPPED
    )
    after = ledger.to_dict()
    assert {**after, "charges": []} == {**before, "charges": []}


def test_refused_write_rests_but_turns_nothing_round():
    ledger = Ledger(GuardSettings())
    take(ledger, an_action("a.0", "stranger", clock(700, 1000)), 30)
    take(
        ledger, an_action("b.0", "efficiency", clock(1000, 700), expires=None), 200, Status.REFUSED
    )
    assert judged(OURS, clock(1000, 700), ledger, 319) == "dwell"
    rest = ledger.rest(f"{NODE}#frequency")
    assert rest is not None
    assert (rest.direction, rest.reversals) == (-1, ())


def test_third_parties_cannot_move_pods_beyond_what_everybody_may():
    """Their half is a part of the whole, not an addition to it."""
    settings = Settings(guard=GuardSettings(disturbed_share=0.05))  # 4 of 80
    ledger = Ledger(settings.guard)
    pods = [SNAPSHOT.pod_ref(row) for row in _movable()]
    evictions = [a_write(Verb.EVICT, pod, 1, 0) for pod in pods]
    take(ledger, an_action("a.0", "efficiency", *evictions[:4], expires=None), NOW - 30)
    found = judged(STRANGER, evictions[4], ledger, NOW, settings)
    assert found in ("disturbed-share", "per-workload")
    roomy = replace(settings, guard=replace(settings.guard, per_workload=99, per_namespace=99))
    assert judged(STRANGER, evictions[4], ledger, NOW, roomy) == "disturbed-share"


def _movable() -> list[int]:
    s = SNAPSHOT
    space = s.workloads.namespace[s.pods.workload]
    fine = (s.pods.evictable == 1) & (s.pods.phase == Phase.RUNNING)
    fine &= (s.namespaces.protected[space] == 0) & (s.namespaces.managed[space] == 1)
    fine &= s.workloads.priority[s.pods.workload] < GuardSettings().protected_priority
    return [int(row) for row in np.flatnonzero(fine)]
