# SPDX-License-Identifier: Apache-2.0
"""What the kubelet says about a resize reaches the receipt in words."""

from __future__ import annotations

from typing import Any

import pytest

from pilothouse.act import hand
from pilothouse.act.fields import Mark
from pilothouse.act.hand import Hand, Signature, resize_state
from pilothouse.act.tickets import Step
from pilothouse.clients.requests import Refusal
from pilothouse.domain import Receipt, Status, Verb

SHORT_OF = "Node didn't have enough capacity: cpu, requested: 9000, capacity: 2000"
BEFORE = {"limits": {"cpu": "200m"}}
AFTER = {"limits": {"cpu": "100m"}}
SIGNATURE = Signature(author="a", audit_id="d.0.0", mark=Mark(action="d.0", expires_unix=1))


def a_condition(kind: str, reason: str = "", message: str = "", status: str = "True") -> Any:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def a_pod(*conditions: Any, wanted: Any = AFTER, given: Any = AFTER) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "shop", "uid": "u", "resourceVersion": "7"},
        "spec": {"containers": [{"name": "c", "resources": wanted}]},
        "status": {
            "conditions": list(conditions),
            "containerStatuses": [{"name": "c", "resources": given}],
        },
    }


DEFERRED = a_condition("PodResizePending", "Deferred", "no room now")
INFEASIBLE = a_condition("PodResizePending", "Infeasible", SHORT_OF)


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        (a_pod(DEFERRED), "deferred: no room now"),
        (a_pod(INFEASIBLE, given=BEFORE), f"infeasible: {SHORT_OF}"),
        (a_pod(a_condition("PodResizePending", "Deferred")), "deferred"),
        (a_pod(a_condition("PodResizeInProgress")), "in progress"),
        (a_pod(given=BEFORE), "in progress"),  # the kubelet has not looked yet
        (a_pod(a_condition("Ready")), "done by the kubelet"),
        (a_pod(a_condition("PodResizePending", "Deferred", status="False")), "done by the kubelet"),
        ({"spec": {}}, "done by the kubelet"),  # nothing runs, nothing is told
    ],
)
def test_state_of_a_resize_is_told_in_a_word(pod: dict[str, Any], word: str) -> None:
    assert resize_state(pod) == word


class Server:
    """Answers the first read with the pod as it was, each later one with the next of these."""

    def __init__(self, *later: dict[str, Any] | Refusal) -> None:
        self.later = list(later)
        self.patched: list[str] = []
        self.first = a_pod(wanted=BEFORE, given=BEFORE)

    def get(self, path: str) -> dict[str, Any]:
        if not self.patched:
            return self.first
        answer = self.later.pop(0) if len(self.later) > 1 else self.later[0]
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def patch(self, path: str, body: Any, **_: Any) -> None:
        self.patched.append(path)


def resized(server: Server) -> Receipt:
    step = Step(
        verb=Verb.CPU_LIMIT,
        kind="Pod",
        namespace="shop",
        name="p",
        uid="u",
        value=100,
        original=200,
    )
    writer = Hand(server, sleep=lambda _: None)  # type: ignore[arg-type]
    answer = writer.carry_out(
        step, SIGNATURE, may_touch=lambda _: "", is_ours=lambda _thing, _step: ""
    )
    assert server.patched == ["/api/v1/namespaces/shop/pods/p/resize"]
    return Receipt(intent="d.0.0", status=answer.status, detail=answer.detail, at_seconds=1)


def test_resize_that_the_kubelet_took_has_no_reservation() -> None:
    receipt = resized(Server(a_pod(given=BEFORE), a_pod()))
    assert receipt.status is Status.DONE
    assert receipt.detail == "cpu_limit 200 to 100, done by the kubelet"
    assert receipt.reservation == ""


@pytest.mark.parametrize(
    ("condition", "word"),
    [(DEFERRED, "deferred: no room now"), (INFEASIBLE, f"infeasible: {SHORT_OF}")],
)
def test_resize_that_the_kubelet_put_off_says_so(condition: Any, word: str) -> None:
    receipt = resized(Server(a_pod(given=BEFORE), a_pod(condition, given=BEFORE)))
    assert receipt.status is Status.DONE  # the API server has it; what is written is in force there
    assert receipt.detail == f"cpu_limit 200 to 100, not in force: {word}"
    assert receipt.reservation == word


def test_resize_under_way_is_not_waited_for_longer_than_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hand, "RESIZE_SECONDS", 0.05)
    assert resized(Server(a_pod(given=BEFORE))).reservation == "in progress"


def test_resize_nobody_can_tell_of_claims_nothing_about_the_kubelet() -> None:
    receipt = resized(Server(Refusal(500, "broken")))
    assert receipt.detail == "cpu_limit 200 to 100, accepted by the API server"
    assert receipt.reservation == ""


def test_only_a_done_write_has_a_reservation() -> None:
    detail = "x, not in force: deferred"
    refused = Receipt(intent="d.0.0", status=Status.REFUSED, detail=detail, at_seconds=1)
    assert refused.reservation == ""
