# SPDX-License-Identifier: Apache-2.0
"""Why pods wait, from the sentences the cluster writes."""

from __future__ import annotations

import pytest

from pilothouse.clients.resources import (
    Condition,
    ContainerState,
    ContainerStatus,
    Meta,
    Named,
    Pod,
    PodSpec,
    PodStatus,
    Waiting,
)
from pilothouse.domain import Cause, PendingCause
from pilothouse.observe.pending import OUR_GATE, cause_of, cause_of_message, classify

NOBODY: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "0/3 nodes are available: 3 Insufficient cpu. preemption: 0/3 nodes are available: "
            "3 No preemption victims found for incoming pod.",
            Cause.RESOURCES,
        ),
        (
            "0/3 nodes are available: 1 node(s) had untolerated taint {a: b, c}, 2 Insufficient "
            "memory. no new claims to deallocate",
            Cause.RESOURCES,
        ),
        (
            "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. "
            "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
            Cause.SELECTOR,
        ),
        (
            "0/4 nodes are available: 1 node(s) were unschedulable, 3 node(s) had untolerated "
            "taint {pilothouse.dev/fake: true}.",
            Cause.SELECTOR,
        ),
        ("0/2 nodes are available: 2 Too many pods.", Cause.RESOURCES),
        ("no nodes available to schedule pods", Cause.UNKNOWN),
        ("<script>1 Insufficient cpu</script>", Cause.UNKNOWN),
        ("", Cause.UNKNOWN),
    ],
)
def test_sentence_of_the_scheduler_is_read(message: str, expected: Cause) -> None:
    assert cause_of_message(message) is expected


def a_pod(*, gates: tuple[str, ...] = (), message: str = "", uid: str = "u") -> Pod:
    judged = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
    return Pod(
        metadata=Meta(name="p", namespace="n", uid=uid),
        spec=PodSpec(scheduling_gates=tuple(Named(name=g) for g in gates)),
        status=PodStatus(phase="Pending", conditions=(judged,) if message else ()),
    )


def test_our_gate_and_somebody_elses_are_told_apart() -> None:
    ours = classify(a_pod(gates=(OUR_GATE,)), NOBODY)
    theirs = classify(a_pod(gates=(OUR_GATE, "kueue.x-k8s.io/admission")), NOBODY)
    assert ours is not None
    assert theirs is not None
    assert (ours.cause, theirs.cause) == (Cause.GATE, Cause.FOREIGN_GATE)
    assert cause_of(ours) is PendingCause.GATED
    assert cause_of(theirs) is not PendingCause.RESOURCES


def test_pod_an_autoscaler_works_for_is_not_counted_as_short_of_resources() -> None:
    pod = a_pod(message="0/1 nodes are available: 1 Insufficient cpu.", uid="mine")
    wait = classify(pod, frozenset({"mine"}))
    assert cause_of(wait) is PendingCause.AUTOSCALER
    assert cause_of(classify(pod, NOBODY)) is PendingCause.RESOURCES


def test_pod_that_no_scheduler_judged_yet_has_no_cause() -> None:
    assert cause_of(classify(a_pod(), NOBODY)) is PendingCause.NONE


def test_image_that_cannot_be_pulled_is_named() -> None:
    waiting = ContainerState(waiting=Waiting(reason="ErrImagePull", message="no such image"))
    pod = Pod(
        metadata=Meta(name="p", namespace="n"),
        spec=PodSpec(node_name="worker-1"),
        status=PodStatus(container_statuses=(ContainerStatus(state=waiting),)),
    )
    wait = classify(pod, NOBODY)
    assert wait is not None
    assert wait.cause is Cause.IMAGE
    assert "no such image" in wait.sentence
