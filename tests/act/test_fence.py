# SPDX-License-Identifier: Apache-2.0
"""The fence is moved before anything else, and that the API server judges by it is tried out."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from pilothouse.act.fence import AGAIN_SECONDS, FOLLOW_SECONDS, MOST_DIGITS, Fence
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
        notes = {EPOCH_KEY: self.stands, HOLDER_KEY: self.holder} if self.stands else {}
        return {"metadata": {"resourceVersion": "3", "annotations": notes}}

    def patch(
        self, path: str, body: Any, *, author: str, audit_id: str, dry_run: bool = False
    ) -> dict[str, Any]:
        self.asked.append((author, dry_run))
        _, epoch, holder, _ = author.split(":")
        if path == account_path(FENCE):
            assert not dry_run
            assert body["metadata"]["resourceVersion"] == "3"
            assert body["metadata"]["annotations"] == {EPOCH_KEY: epoch, HOLDER_KEY: holder}
            self.stands, self.holder = epoch, holder
            return {}
        assert (path, body, dry_run) == (account_path(GATES), {}, True)
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
    assert fence.objection(leader) == ""
    assert (server.stands, server.holder) == ("7", "us")
    assert server.asked[0] == ("pilothouse:7:us:fence", False), "nothing comes before it"
    tried = [("pilothouse:6:us:fence", True), ("pilothouse:7:nobody:fence", True)]
    assert server.asked[-2:] == tried
    asked = len(server.asked)
    assert fence.objection(leader) == ""
    assert len(server.asked) == asked
    leader.epoch = 8
    assert fence.objection(leader) == ""
    assert server.stands == "8"


def test_server_that_does_not_judge_is_found_out_and_asked_again_later() -> None:
    server, leader = Server(judges=False), Leader()
    fence = server.fence()
    assert "let a write of epoch 6 of us pass" in fence.objection(leader)
    asked = len(server.asked)
    assert fence.objection(leader)
    assert len(server.asked) == asked, "not with every write"
    server.judges = True
    server.now += AGAIN_SECONDS
    assert fence.objection(leader) == ""


def test_server_that_judges_by_the_epoch_alone_is_found_out() -> None:
    class Nameless(Server):
        def patch(self, path: str, body: Any, *, author: str, **more: Any) -> dict[str, Any]:
            return super().patch(path, body, author=author.replace("nobody", "us"), **more)

    assert "let a write of epoch 7 of nobody pass" in Nameless().fence().objection(Leader())


def test_server_that_stopped_following_the_fence_is_found_out() -> None:
    server = Server(stands="6", lag=None)
    why = server.fence().objection(Leader())
    assert "refuses our own epoch 7" in why
    assert "acting-policies.yaml" in why
    assert FOLLOW_SECONDS <= server.now < FOLLOW_SECONDS + 1


def test_refusal_by_something_else_proves_nothing() -> None:
    class Closed(Server):
        def patch(self, path: str, body: Any, *, author: str, **more: Any) -> dict[str, Any]:
            if ":6:" in author:
                raise Refusal(403, "ValidatingAdmissionPolicy 'theirs' denied: not today")
            return super().patch(path, body, author=author, **more)

    assert "not today" in Closed().fence().objection(Leader())


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
    assert fence.objection(leader) == ""
    assert (server.stands, server.holder) == (then, "us")


def test_fence_of_a_later_leader_is_left_alone() -> None:
    server, leader = Server(stands="8"), Leader()
    fence = server.fence()
    assert "another leader came after us" in fence.objection(leader)
    assert server.asked == []
    waited = server.now
    assert fence.objection(leader)
    assert server.now == waited, "not with every write"
    leader.is_held = False
    server.now += AGAIN_SECONDS
    assert "we lead no more" in fence.objection(leader)
    assert server.asked == []
    leader.is_held = True  # again, and now with an epoch of its own
    leader.epoch = 9
    assert fence.objection(leader) == "", "an epoch that was not tried yet is tried at once"


@pytest.mark.parametrize("stands", ["x", "-1", "²", "9" * (MOST_DIGITS + 1)])
def test_fence_that_is_no_epoch_says_what_to_do(stands: str) -> None:
    server = Server(stands=stands)
    why = server.fence().objection(Leader())
    command = f"kubectl annotate serviceaccount {FENCE} -n pilothouse-system"
    assert f"{command} {EPOCH_KEY}- {HOLDER_KEY}-" in why
    assert server.asked == []


def test_server_that_does_not_answer_is_an_objection_and_no_error() -> None:
    server = Server()
    server.reachable = False
    fence = server.fence()
    assert "no answer" in fence.objection(Leader())
    server.reachable = True
    assert "no answer" in fence.objection(Leader()), "not with every write"
    server.now += AGAIN_SECONDS
    assert fence.objection(Leader()) == ""


def test_longest_signature_is_one_that_the_server_takes() -> None:
    longest = f"{'h' * 64}_4194304_abcdef"  # what a host may be called, its last process, our token
    intent = f"{'d' * 12}.99.ticket"
    signed = sign(10**MOST_DIGITS - 1, longest, intent)
    assert len(signed) <= MANAGER_LENGTH
    thing = {"metadata": {"managedFields": [{"manager": signed, "fieldsV1": {"f:spec": {}}}]}}
    assert our_intent(thing, [("f:spec",)]) == intent


def a_standing(server: Server, *, acting: str, awake: bool = True) -> LiveStanding:
    store: Any = SimpleNamespace(notes=lambda _name: {"pilothouse.dev/acting": acting})
    heartbeat: Any = SimpleNamespace(objection=lambda: "" if awake else "no janitor is awake")
    return LiveStanding(Leader(), store, server.fence(), heartbeat)


def test_leader_without_a_proven_fence_may_not_even_take_back() -> None:
    standing = a_standing(Server(judges=False), acting="enabled")
    assert "does not judge by our fence" in standing.objection(restoring=True)
    assert a_standing(Server(), acting="enabled").objection(restoring=True) == ""


def test_fence_is_left_alone_while_switched_off() -> None:
    server = Server()
    assert "switched off" in a_standing(server, acting="disabled").objection()
    assert server.asked == []


def test_janitor_must_be_awake_for_what_is_new_and_not_for_taking_back() -> None:
    standing = a_standing(Server(), acting="enabled", awake=False)
    assert standing.objection() == "no janitor is awake"
    assert standing.objection(restoring=True) == ""
