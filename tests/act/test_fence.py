# SPDX-License-Identifier: Apache-2.0
"""The fence is moved before anything else, and that the API server judges by it is tried out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pilothouse.act.fence import AGAIN_SECONDS, FOLLOW_SECONDS, Fence
from pilothouse.act.standing import LiveStanding
from pilothouse.clients.keys import FENCE, GATES, account_path
from pilothouse.clients.requests import Refusal
from pilothouse.errors import ClusterUnreachable

EPOCH_KEY = "pilothouse.dev/epoch"


class Server:
    """An API server whose policy follows the fence after so many questions; None: never."""

    def __init__(self, *, stands: str = "", lag: int | None = 0, judges: bool = True) -> None:
        self.stands, self.lag, self.judges = stands, lag, judges
        self.seen = stands
        self.reachable = True
        self.now = 0.0
        self.asked: list[tuple[str, bool]] = []

    def get(self, path: str) -> dict[str, Any]:
        assert path == account_path(FENCE)
        if not self.reachable:
            raise ClusterUnreachable("no answer")
        return {"metadata": {"annotations": {EPOCH_KEY: self.stands} if self.stands else {}}}

    def patch(
        self, path: str, body: Any, *, author: str, audit_id: str, dry_run: bool = False
    ) -> dict[str, Any]:
        self.asked.append((author, dry_run))
        epoch = author.split(":")[1]
        if path == account_path(FENCE):
            assert not dry_run
            self.stands = body["metadata"]["annotations"][EPOCH_KEY]
            assert self.stands == epoch
            return {}
        assert (path, body, dry_run) == (account_path(GATES), {}, True)
        if self.lag == 0:
            self.seen = self.stands
        elif self.lag is not None:
            self.lag -= 1
        if self.judges and epoch != self.seen:
            raise Refusal(403, f"ValidatingAdmissionPolicy '{FENCE}' denied: time is over")
        return {}

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def fence(self) -> Fence:
        return Fence(self, clock=lambda: self.now, sleep=self.sleep)  # type: ignore[arg-type]


@pytest.mark.parametrize("stands", ["", "6", "7"])
@pytest.mark.parametrize("lag", [0, 5])
def test_fence_is_moved_and_tried_once_for_each_epoch(stands: str, lag: int) -> None:
    server = Server(stands=stands, lag=lag)
    fence = server.fence()
    assert fence.objection(7) == ""
    assert server.stands == "7"
    assert server.asked[0] == ("pilothouse:7:fence", False), "nothing comes before it"
    assert server.asked[-1] == ("pilothouse:6:fence", True)
    asked = len(server.asked)
    assert fence.objection(7) == ""
    assert len(server.asked) == asked
    assert fence.objection(8) == ""
    assert server.stands == "8"


def test_server_that_does_not_judge_is_found_out_and_asked_again_later() -> None:
    server = Server(judges=False)
    fence = server.fence()
    assert "let a write of epoch 6 pass" in fence.objection(7)
    asked = len(server.asked)
    assert fence.objection(7)
    assert len(server.asked) == asked, "not with every write"
    server.judges = True
    server.now += AGAIN_SECONDS
    assert fence.objection(7) == ""


def test_server_that_stopped_following_the_fence_is_found_out() -> None:
    server = Server(stands="6", lag=None)
    why = server.fence().objection(7)
    assert "refuses our own epoch 7" in why
    assert "acting-policies.yaml" in why
    assert FOLLOW_SECONDS <= server.now < FOLLOW_SECONDS + 1


def test_refusal_by_something_else_proves_nothing() -> None:
    class Closed(Server):
        def patch(self, path: str, body: Any, *, author: str, **more: Any) -> dict[str, Any]:
            if ":6:" in author:
                raise Refusal(403, "ValidatingAdmissionPolicy 'theirs' denied: not today")
            return super().patch(path, body, author=author, **more)

    assert "not today" in Closed().fence().objection(7)


@pytest.mark.parametrize("stands", ["8", "x"])
def test_fence_beyond_our_epoch_is_left_and_says_what_to_do(stands: str) -> None:
    server = Server(stands=stands)
    why = server.fence().objection(7)
    assert f"kubectl annotate serviceaccount {FENCE} -n pilothouse-system {EPOCH_KEY}-" in why
    assert server.asked == []


def test_server_that_does_not_answer_is_an_objection_and_no_error() -> None:
    server = Server()
    server.reachable = False
    fence = server.fence()
    assert "no answer" in fence.objection(7)
    server.reachable = True
    server.now += AGAIN_SECONDS
    assert fence.objection(7) == ""


def a_standing(server: Server, *, acting: str, awake: bool = True) -> LiveStanding:
    leader: Any = SimpleNamespace(is_held=True, epoch=7, identity="us")
    store: Any = SimpleNamespace(notes=lambda _name: {"pilothouse.dev/acting": acting})
    heartbeat: Any = SimpleNamespace(objection=lambda: "" if awake else "no janitor is awake")
    return LiveStanding(leader, store, server.fence(), heartbeat)


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
