# SPDX-License-Identifier: Apache-2.0
"""Who wins, who loses, and that the sentence says by how much."""

from __future__ import annotations

from typing import Any

from pilothouse.act.planner import plan
from pilothouse.arbitrate import Candidate, Role, arbitrate
from pilothouse.domain import ActionKind, Mode, Ref, Ruling, Verdict
from pilothouse.settings import RefereeSettings, Settings
from pilothouse.testing.builders import a_proposal, a_snapshot, with_namespace, with_node

SNAPSHOT = with_node(
    with_namespace(a_snapshot(), "kube-system", managed=1, protected=0), 5, power=2
)
RANKS = {
    "janitor": 0,
    "safety": 10,
    "admission": 20,
    "efficiency": 30,
    "stranger": 100,
    "other": 100,
}


def grant(_: Candidate) -> Verdict | None:
    return None


def a_candidate(
    index: int,
    agent: str,
    kind: ActionKind,
    target: str = "node-0",
    *,
    mode: Mode = Mode.ENFORCE,
    about: Any = "node",
    **changes: Any,
) -> Candidate:
    proposal = a_proposal(Ref("sim", about, "", target), agent=agent, kind=kind, **changes)
    return Candidate(
        index=index,
        proposal=proposal,
        plan=plan(proposal, SNAPSHOT, Settings()),
        agent=agent,
        rank=RANKS[agent],
        mode=mode,
    )


def migrate(index: int, target: str = "node-0", **more: Any) -> Candidate:
    return a_candidate(index, "safety", ActionKind.MIGRATE, target, **more)


def slow(index: int, target: str = "node-1", agent: str = "efficiency", **more: Any) -> Candidate:
    payload = {"frequency_permille": more.pop("frequency", 650)}
    return a_candidate(index, agent, ActionKind.DVFS, target, payload=payload, **more)


def hold(index: int, decision: str = "queue", **more: Any) -> Candidate:
    return a_candidate(
        index,
        "admission",
        ActionKind.ADMISSION,
        "media",
        about="namespace",
        payload={"decision": decision},
        **more,
    )


def rulings(verdicts: dict[int, Verdict]) -> dict[int, str]:
    return {index: verdict.ruling.value for index, verdict in sorted(verdicts.items())}


def test_any_safety_action_blocks_all_saving_of_the_cycle() -> None:
    verdicts = arbitrate([slow(0, score=0.99), migrate(1)], RefereeSettings(), grant)
    assert rulings(verdicts) == {0: "overridden", 1: "chosen"}
    assert verdicts[0].rule == "safety-preempts"
    assert verdicts[0].by == 1
    assert "0.78" in verdicts[0].sentence
    assert "0.99" in verdicts[0].sentence


def test_with_overlap_only_saving_on_the_same_objects_is_blocked() -> None:
    settings = RefereeSettings(preemption="overlap")
    verdicts = arbitrate([slow(0, "node-1"), slow(1, "node-0"), migrate(2)], settings, grant)
    assert rulings(verdicts) == {0: "chosen", 1: "overridden", 2: "chosen"}


def test_protective_admission_preempts_saving_and_letting_in_does_not() -> None:
    held = arbitrate([slow(0), hold(1, "deprioritize")], RefereeSettings(), grant)
    assert held[0].rule == "admission-preempts"
    assert hold(1, "admit").role is Role.OTHER


def test_a_clock_given_back_does_not_step_aside_for_safety() -> None:
    snapshot = with_node(SNAPSHOT, 1, frequency_permille=650)
    back = slow(0, frequency=1000)
    fast = plan(back.proposal, snapshot, Settings())
    back = Candidate(
        index=0, proposal=back.proposal, plan=fast, agent="efficiency", rank=30, mode=Mode.ENFORCE
    )
    assert rulings(arbitrate([back, migrate(1)], RefereeSettings(), grant))[0] == "chosen"


def test_a_refused_candidate_blocks_nobody() -> None:
    def refuse_safety(candidate: Candidate) -> Verdict | None:
        if candidate.agent != "safety":
            return None
        return Verdict(ruling=Ruling.REFUSED, rule="fit", sentence="no room")

    verdicts = arbitrate([slow(0), migrate(1)], RefereeSettings(), refuse_safety)
    assert rulings(verdicts) == {0: "chosen", 1: "refused"}


def test_a_shadow_candidate_can_lose_to_an_enforcing_one_but_never_beat_it() -> None:
    verdicts = arbitrate([slow(0), migrate(1, mode=Mode.SHADOW)], RefereeSettings(), grant)
    assert verdicts[0].acts
    assert not verdicts[1].acts
    same = arbitrate(
        [slow(0, "node-0"), migrate(1, "node-0", mode=Mode.SHADOW)], RefereeSettings(), grant
    )
    assert same[0].acts


def test_a_stranger_never_counts_as_safety() -> None:
    stranger = a_candidate(0, "stranger", ActionKind.MIGRATE, "node-2", score=1.0, priority=-99)
    verdicts = arbitrate([stranger, slow(1)], RefereeSettings(), grant)
    assert rulings(verdicts) == {0: "chosen", 1: "chosen"}
    assert stranger.role is Role.OTHER


def test_rank_beats_priority_and_score() -> None:
    loud = slow(0, "node-0", agent="stranger", score=1.0, priority=-1000)
    quiet = slow(1, "node-0", score=0.1, priority=1000)
    verdicts = arbitrate([loud, quiet], RefereeSettings(), grant)
    assert rulings(verdicts) == {0: "overridden", 1: "chosen"}


def test_the_same_change_happens_once() -> None:
    verdicts = arbitrate([slow(0, "node-1"), slow(1, "node-1")], RefereeSettings(), grant)
    assert verdicts[1].rule == "duplicate"


def test_no_more_actions_than_a_cycle_has_room_for() -> None:
    many = [migrate(i, f"node-{i}") for i in range(5)]
    verdicts = arbitrate(many, RefereeSettings(actions_per_cycle=2), grant)
    assert list(rulings(verdicts).values()).count("chosen") == 2
    assert verdicts[4].rule == "actions-per-cycle"


def test_every_candidate_gets_exactly_one_verdict() -> None:
    mixed = [slow(0), migrate(1), hold(2), slow(3, agent="stranger"), migrate(4, mode=Mode.ADVISE)]
    assert sorted(arbitrate(mixed, RefereeSettings(), grant)) == [0, 1, 2, 3, 4]


def test_order_of_arrival_does_not_matter() -> None:
    mixed = [slow(0), migrate(1), hold(2), slow(3, agent="stranger")]
    there = arbitrate(mixed, RefereeSettings(), grant)
    assert there == arbitrate(mixed[::-1], RefereeSettings(), grant)


def test_among_equals_a_claimed_priority_or_score_does_not_go_first() -> None:
    """Equal strangers take turns; only an agent's own wishes are ordered by what it claims."""
    loud = [slow(i, f"node-{i}", "stranger", priority=-1_000, score=1.0) for i in range(3)]
    quiet = slow(3, "node-0", "other", frequency=1000, priority=9, score=0.1)
    room = RefereeSettings(actions_per_cycle=2)
    for cycle, first in ((0, "other"), (1, "stranger")):
        granted: list[str] = []

        def note(c: Candidate, granted: list[str] = granted) -> Verdict | None:
            granted.append(f"{c.agent}/{c.proposal.target.name}")
            return None

        verdicts = arbitrate([*loud, quiet], room, note, cycle)
        assert granted[0].startswith(first)
        assert set(verdicts) == {0, 1, 2, 3}
    own = [slow(0, "node-0", "stranger", priority=5), slow(1, "node-1", "stranger", priority=1)]
    chosen = arbitrate(own, RefereeSettings(actions_per_cycle=1), grant)
    assert rulings(chosen) == {0: "overridden", 1: "chosen"}


def test_second_wish_of_one_stranger_waits_for_the_first_of_another() -> None:
    many = [slow(i, f"node-{i}", "other", priority=-9) for i in range(1, 4)]
    single = slow(9, "node-4", "stranger", priority=9)
    room = RefereeSettings(actions_per_cycle=2)
    for cycle in range(4):
        assert rulings(arbitrate([*many, single], room, grant, cycle))[9] == "chosen"
