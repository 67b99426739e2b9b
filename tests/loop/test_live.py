# SPDX-License-Identifier: Apache-2.0
"""Coming to lead a live cluster: nothing begins before it is known what others did."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

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


def a_cluster(epoch: int = 7) -> ActingCluster:
    leadership: Any = SimpleNamespace(epoch=epoch, is_held=True)
    nothing: Any = SimpleNamespace()
    cluster = ActingCluster(nothing, nothing, None, leadership)
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
