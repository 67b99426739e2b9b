# SPDX-License-Identifier: Apache-2.0
"""Coming to lead a live cluster: nothing begins before it is known what others did."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pilothouse.domain import Receipt, Status, Write
from pilothouse.errors import ClusterUnreachable
from pilothouse.live import ActingCluster
from pilothouse.testing.builders import an_action


class Actuator:
    """Whose tickets can be read the second time."""

    def __init__(self) -> None:
        self.asked = 0
        self.why = ""

    def objection(self) -> str:
        return self.why

    def tickets(self) -> list[Any]:
        self.asked += 1
        if self.asked == 1:
            raise ClusterUnreachable("no answer")
        return []

    def begin(self, action: object) -> str:
        return ""

    def execute(self, write: Write, agent: str) -> Receipt:
        return Receipt(intent=write.intent, status=Status.DONE, detail="", at_seconds=0)


def a_cluster(epoch: int = 7) -> ActingCluster:
    leadership: Any = SimpleNamespace(epoch=epoch, is_held=True)
    nothing: Any = SimpleNamespace()
    observer: Any = SimpleNamespace(clock_seconds=lambda: 30)
    cluster = ActingCluster(nothing, observer, None, leadership)
    cluster.equip(Actuator())  # type: ignore[arg-type]
    return cluster


def test_tickets_that_cannot_be_read_end_nothing_and_let_nothing_begin() -> None:
    cluster = a_cluster()
    assert cluster.handover() == ()
    assert "no answer" in cluster.begin(an_action())
    assert list(cluster.handover()) == []
    assert cluster.begin(an_action()) == ""


def test_tickets_are_not_read_before_older_leaders_are_shut_out() -> None:
    cluster = a_cluster()
    actuator: Any = cluster.actuator
    actuator.why = "the fence could not be moved"
    assert cluster.handover() == ()
    assert actuator.asked == 0
    assert cluster.begin(an_action()) == "the fence could not be moved"
    actuator.why = ""
    cluster.handover()
    assert actuator.asked == 1
    assert "no answer" in cluster.begin(an_action())


def test_epoch_that_grew_while_others_were_shut_out_is_the_one_that_counts() -> None:
    cluster = a_cluster()
    actuator, leadership = cast(Any, cluster.actuator), cast(Any, cluster.leadership)
    actuator.asked = 1

    def shut_out() -> str:
        leadership.epoch = 12
        return ""

    actuator.objection = shut_out
    assert list(cluster.handover()) == []
    assert cluster.begin(an_action()) == ""


def test_tickets_are_read_once_for_each_time_that_we_lead() -> None:
    cluster = a_cluster()
    for _ in range(4):
        cluster.handover()
    assert cluster.actuator.asked == 2  # type: ignore[attr-defined]
    cluster.leadership.epoch = 8
    assert cluster.begin(an_action())
    cluster.handover()
    assert cluster.begin(an_action()) == ""


def test_what_had_begun_under_an_older_epoch_is_not_carried_on() -> None:
    cluster, write = a_cluster(), an_action().writes[0]
    cast(Any, cluster.actuator).asked = 1
    cluster.handover()
    assert cluster.execute(write, "safety").status is Status.DONE
    cluster.leadership.epoch = 8
    receipt = cluster.execute(write, "safety")
    assert (receipt.status, receipt.intent) == (Status.SKIPPED, write.intent)
    assert "nobody has looked yet" in receipt.detail
    cluster.handover()
    assert cluster.execute(write, "safety").status is Status.DONE


def test_epoch_that_grows_right_before_a_write_keeps_that_back() -> None:
    cluster, write = a_cluster(), an_action().writes[0]
    actuator, leadership = cast(Any, cluster.actuator), cast(Any, cluster.leadership)
    actuator.asked = 1
    cluster.handover()

    def shut_out() -> str:
        leadership.epoch = 12
        return ""

    actuator.objection = shut_out
    assert cluster.execute(write, "safety").status is Status.SKIPPED
    cluster.handover()
    assert cluster.execute(write, "safety").status is Status.DONE


def test_reason_is_the_one_that_holds_now_and_no_older_one() -> None:
    cluster = a_cluster()
    actuator, leadership = cast(Any, cluster.actuator), cast(Any, cluster.leadership)
    cluster.handover()
    assert "no answer" in cluster.begin(an_action())
    actuator.why = "switched off in the cluster"
    assert cluster.begin(an_action()) == "switched off in the cluster"
    actuator.why = ""
    cluster.handover()
    leadership.epoch = 8
    assert "nobody has looked yet" in cluster.begin(an_action()), "that they were unread is over"
    actuator.why = "we do not lead"
    assert cluster.handover() == ()
    actuator.why = ""
    assert "we do not lead" not in cluster.begin(an_action())
