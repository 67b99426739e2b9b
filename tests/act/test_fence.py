# SPDX-License-Identifier: Apache-2.0
"""The fence is moved before anything else, and that the API server judges by it is tried out."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from pilothouse.act.fence import (
    AGAIN_SECONDS,
    CLEAR,
    FOLLOW_SECONDS,
    LAST_EPOCH,
    MOST_DIGITS,
    Fence,
)
from pilothouse.act.ownership import our_intent, sign
from pilothouse.act.standing import LiveStanding
from pilothouse.clients.keys import FENCE, GATES, account_path
from pilothouse.clients.requests import Refusal
from pilothouse.errors import ClusterUnreachable

EPOCH_KEY, HOLDER_KEY = "pilothouse.dev/epoch", "pilothouse.dev/holder"
MANAGER_LENGTH = 128  # what the API server takes


@dataclass
class Leader:
    """Holds a Lease, which counts on from what it is told when it is renewed."""

    epoch: int = 7
    identity: str = "us"
    is_held: bool = True
    sentence: str = "nobody does"
    least: int = 0

    def count_beyond(self, number: int) -> None:
        self.least = number + 1

    def renew(self) -> None:
        self.epoch = max(self.epoch, self.least)


class Server:
    """An API server whose policy follows the fence after so many questions; None: never."""

    def __init__(
        self, *, stands: str = "", holder: str = "them", lag: int | None = 0, judges: bool = True
    ) -> None:
        self.stands, self.holder, self.lag, self.judges = stands, holder, lag, judges
        self.seen = (stands, holder)
        self.reachable = True
        self.now = 0.0
        self.asked: list[tuple[str, bool]] = []

    def get(self, path: str) -> dict[str, Any]:
        assert path == account_path(FENCE)
        if not self.reachable:
            raise ClusterUnreachable("no answer")
        return {"metadata": {"resourceVersion": "3", "annotations": self.notes}}

    @property
    def notes(self) -> dict[str, str]:
        """What a watch that does not lag has of the fence."""
        return {EPOCH_KEY: self.stands, HOLDER_KEY: self.holder} if self.stands else {}

    def patch(self, path: str, body: Any, *, author: str, audit_id: str) -> dict[str, Any]:
        self.asked.append((author, False))
        _, epoch, holder, _ = author.split(":")
        assert path == account_path(FENCE)
        assert body["metadata"]["resourceVersion"] == "3"
        assert body["metadata"]["annotations"] == {EPOCH_KEY: epoch, HOLDER_KEY: holder}
        self.stands, self.holder = epoch, holder
        return {}

    def try_patch(self, path: str, body: Any, *, author: str, audit_id: str) -> dict[str, Any]:
        self.asked.append((author, True))
        _, epoch, holder, _ = author.split(":")
        assert (path, body) == (account_path(GATES), {})
        if self.lag == 0:
            self.seen = (self.stands, self.holder)
        elif self.lag is not None:
            self.lag -= 1
        if self.judges and (epoch, holder) != self.seen:
            raise Refusal(403, f"ValidatingAdmissionPolicy '{FENCE}' denied: time is over")
        return {}

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def fence(self) -> Fence:
        return Fence(self, clock=lambda: self.now, sleep=self.sleep)  # type: ignore[arg-type]


@pytest.mark.parametrize(("stands", "holder"), [("", ""), ("6", "them"), ("7", "us")])
@pytest.mark.parametrize("lag", [0, 5])
def test_fence_is_moved_and_tried_once_for_each_epoch(stands: str, holder: str, lag: int) -> None:
    server, leader = Server(stands=stands, holder=holder, lag=lag), Leader()
    fence = server.fence()
    assert fence.objection(leader, server.notes) == ""
    assert (server.stands, server.holder) == ("7", "us")
    assert server.asked[0] == ("pilothouse:7:us:fence", False), "nothing comes before it"
    tried = [("pilothouse:6:us:fence", True), ("pilothouse:7:nobody:fence", True)]
    assert server.asked[-2:] == tried
    asked = len(server.asked)
    assert fence.objection(leader, server.notes) == ""
    assert len(server.asked) == asked
    leader.epoch = 8
    assert fence.objection(leader, server.notes) == ""
    assert server.stands == "8"


def test_server_that_does_not_judge_is_found_out_and_asked_again_later() -> None:
    server, leader = Server(judges=False), Leader()
    fence = server.fence()
    assert "let a write of epoch 6 of us pass" in fence.objection(leader, server.notes)
    asked = len(server.asked)
    assert fence.objection(leader, server.notes)
    assert len(server.asked) == asked, "not with every write"
    server.judges = True
    server.now += AGAIN_SECONDS
    assert fence.objection(leader, server.notes) == ""


def test_server_that_judges_by_the_epoch_alone_is_found_out() -> None:
    class Nameless(Server):
        def try_patch(self, path: str, body: Any, *, author: str, **more: Any) -> dict[str, Any]:
            return super().try_patch(path, body, author=author.replace("nobody", "us"), **more)

    assert "let a write of epoch 7 of nobody pass" in Nameless().fence().objection(Leader(), {})


def test_server_that_stopped_following_the_fence_is_found_out() -> None:
    server = Server(stands="6", lag=None)
    why = server.fence().objection(Leader(), server.notes)
    assert "refuses our own epoch 7" in why
    assert "acting-policies.yaml" in why
    assert FOLLOW_SECONDS <= server.now < FOLLOW_SECONDS + 1


def test_refusal_by_something_else_proves_nothing() -> None:
    class Closed(Server):
        def try_patch(self, path: str, body: Any, *, author: str, **more: Any) -> dict[str, Any]:
            if ":6:" in author:
                raise Refusal(403, "ValidatingAdmissionPolicy 'theirs' denied: not today")
            return super().try_patch(path, body, author=author, **more)

    why = Closed().fence().objection(Leader(), {})
    assert "not today" in why
    assert "start the API server again" not in why, "that would cure nothing"


def test_writes_of_ours_that_something_else_refuses_are_given_its_reason_alone() -> None:
    class Closed(Server):
        def try_patch(self, path: str, body: Any, **more: Any) -> dict[str, Any]:
            raise Refusal(403, 'serviceaccounts "pilothouse-gates" is forbidden: no right')

    why = Closed().fence().objection(Leader(), {})
    assert "refuses our own epoch 7: 403" in why
    assert "no right" in why
    assert "start the API server again" not in why


@pytest.mark.parametrize(
    ("stands", "holder", "then"), [("8", "them", "9"), ("7", "them", "8"), ("8", "us", "9")]
)
def test_lease_that_was_made_anew_counts_on_from_the_fence(
    stands: str, holder: str, then: str
) -> None:
    server, leader = Server(stands=stands, holder=holder), Leader()
    fence = Fence(
        server,  # type: ignore[arg-type]
        clock=lambda: server.now,
        sleep=lambda seconds: (server.sleep(seconds), leader.renew())[0],
    )
    assert fence.objection(leader, server.notes) == ""
    assert (server.stands, server.holder) == (then, "us")


def test_fence_of_a_later_leader_is_left_alone() -> None:
    server, leader = Server(stands="8"), Leader()
    fence = server.fence()
    assert "another leader came after us" in fence.objection(leader, server.notes)
    assert server.asked == []
    waited = server.now
    assert fence.objection(leader, server.notes)
    assert server.now == waited, "not with every write"
    leader.is_held = False
    server.now += AGAIN_SECONDS
    assert "we lead no more" in fence.objection(leader, server.notes)
    assert server.asked == []
    leader.is_held = True  # again, and now with an epoch of its own
    leader.epoch = 9
    assert fence.objection(leader, server.notes) == "", (
        "an epoch that was not tried yet is tried at once"
    )


@pytest.mark.parametrize("stands", ["x", "-1", "²", "9" * (MOST_DIGITS + 1), str(LAST_EPOCH)])
def test_fence_that_is_no_epoch_says_what_to_do(stands: str) -> None:
    server, leader = Server(stands=stands), Leader()
    fence = server.fence()
    assert CLEAR in fence.objection(leader, server.notes)
    assert server.asked == []
    assert leader.least == 0, "a Lease that counted beyond it could never be brought back"
    server.stands = ""  # as we said
    server.now += AGAIN_SECONDS
    assert fence.objection(leader, server.notes) == ""
    assert server.stands == "7"


@pytest.mark.parametrize("epoch", [LAST_EPOCH, 2**31 - 1])
def test_lease_that_has_no_next_epoch_says_what_to_do_and_moves_nothing(epoch: int) -> None:
    server = Server(stands="6")
    why = server.fence().objection(Leader(epoch), server.notes)
    assert "Stop every loop" in why
    assert "kubectl delete lease pilothouse -n pilothouse-system" in why
    assert CLEAR in why
    assert server.asked == []
    assert server.fence().objection(Leader(LAST_EPOCH - 1), server.notes) == "", "the control"


def test_clearing_is_a_command_that_names_both_annotations() -> None:
    command = f"kubectl annotate serviceaccount {FENCE} -n pilothouse-system"
    assert f"{command} {EPOCH_KEY}- {HOLDER_KEY}-" == CLEAR


@pytest.mark.parametrize(("stands", "holder"), [("", ""), ("3", "us"), ("7", "them")])
def test_fence_that_somebody_moved_by_hand_is_moved_again(stands: str, holder: str) -> None:
    server, leader = Server(stands="6"), Leader()
    fence = Fence(
        server,  # type: ignore[arg-type]
        clock=lambda: server.now,
        sleep=lambda seconds: (server.sleep(seconds), leader.renew())[0],
    )
    assert fence.objection(leader, server.notes) == ""
    server.now += AGAIN_SECONDS
    server.stands, server.holder = stands, holder
    assert fence.objection(leader, server.notes) == ""
    assert (server.stands, server.holder) == (str(leader.epoch), "us")
    asked = len(server.asked)
    server.now += AGAIN_SECONDS
    assert fence.objection(leader, server.notes) == ""
    assert len(server.asked) == asked, "once is enough"


def test_watch_that_lags_behind_our_own_move_is_no_doubt() -> None:
    server, leader = Server(stands="6"), Leader()
    fence, before = server.fence(), server.notes
    assert fence.objection(leader, before) == ""
    asked = len(server.asked)
    server.now += AGAIN_SECONDS / 2
    assert fence.objection(leader, before) == ""
    assert len(server.asked) == asked


def test_proof_that_fails_when_it_is_made_again_counts_no_more() -> None:
    server, leader = Server(stands="6"), Leader()
    fence = server.fence()
    assert fence.objection(leader, server.notes) == ""
    server.now += AGAIN_SECONDS
    server.stands, server.judges = "", False
    assert "let a write of epoch 6 of us pass" in fence.objection(leader, server.notes)
    assert "let a write of epoch 6 of us pass" in fence.objection(leader, server.notes)


def test_proof_that_was_broken_off_is_none() -> None:
    class Halfway(Server):
        def try_patch(self, path: str, body: Any, **more: Any) -> dict[str, Any]:
            raise KeyboardInterrupt

    server, leader = Halfway(), Leader()
    fence = server.fence()
    for again in range(3):
        with pytest.raises(KeyboardInterrupt):
            fence.objection(leader, server.notes)
        assert server.stands == "7", "moved, and not tried"
        server.now += AGAIN_SECONDS * again


def test_leader_that_was_replaced_does_not_move_the_fence_back() -> None:
    server, leader = Server(stands="6"), Leader()
    fence = server.fence()
    assert fence.objection(leader, server.notes) == ""
    asked = len(server.asked)
    server.now += AGAIN_SECONDS
    server.stands, server.holder = "8", "them"  # and our Lease is not renewed
    assert "another leader came after us" in fence.objection(leader, server.notes)
    assert (server.stands, server.holder) == ("8", "them")
    assert len(server.asked) == asked


def test_server_that_does_not_answer_is_an_objection_and_no_error() -> None:
    server = Server()
    server.reachable = False
    fence = server.fence()
    assert "no answer" in fence.objection(Leader(), server.notes)
    server.reachable = True
    assert "no answer" in fence.objection(Leader(), server.notes), "not with every write"
    server.now += AGAIN_SECONDS
    assert fence.objection(Leader(), server.notes) == ""


def test_longest_signature_is_one_that_the_server_takes() -> None:
    longest = f"{'h' * 64}_4194304_abcdef"  # what a host may be called, its last process, our token
    intent = f"{'d' * 12}.99.ticket"
    signed = sign(10**MOST_DIGITS - 1, longest, intent)
    assert len(signed) <= MANAGER_LENGTH
    thing = {"metadata": {"managedFields": [{"manager": signed, "fieldsV1": {"f:spec": {}}}]}}
    assert our_intent(thing, [("f:spec",)]) == intent


def a_standing(server: Server, *, acting: str, awake: bool = True) -> LiveStanding:
    switch = {"pilothouse.dev/acting": acting}
    store: Any = SimpleNamespace(notes=lambda name: server.notes if name == FENCE else switch)
    heartbeat: Any = SimpleNamespace(objection=lambda: "" if awake else "no janitor is awake")
    return LiveStanding(Leader(), store, server.fence(), heartbeat)


def test_leader_without_a_proven_fence_may_not_even_take_back() -> None:
    standing = a_standing(Server(judges=False), acting="enabled")
    assert "does not judge by our fence" in standing.objection(restoring=True)
    assert a_standing(Server(), acting="enabled").objection(restoring=True) == ""


def test_standing_is_asked_by_the_fence_as_it_is_watched() -> None:
    server = Server()
    standing = a_standing(server, acting="enabled")
    assert standing.objection(restoring=True) == ""
    server.now += AGAIN_SECONDS
    server.stands = ""
    assert standing.objection(restoring=True) == ""
    assert server.stands == "7", "what was cleared is set again"
    asked = len(server.asked)
    server.now += AGAIN_SECONDS
    assert standing.objection(restoring=True) == ""
    assert len(server.asked) == asked, "and nothing is in doubt any more"


def test_fence_is_left_alone_while_switched_off() -> None:
    server = Server()
    assert "switched off" in a_standing(server, acting="disabled").objection()
    assert server.asked == []


def test_janitor_must_be_awake_for_what_is_new_and_not_for_taking_back() -> None:
    standing = a_standing(Server(), acting="enabled", awake=False)
    assert standing.objection() == "no janitor is awake"
    assert standing.objection(restoring=True) == ""
