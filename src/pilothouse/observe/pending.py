# SPDX-License-Identifier: Apache-2.0
"""Why a pod waits, read from what the scheduler, the kubelet and autoscalers wrote down.

The scheduler's sentence counts nodes by reason. As soon as one node failed for want of resources
alone, waiting can help; when all of them failed for taints or selectors, it cannot, and nothing
that an admission queue does will.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pilothouse.clients.resources import Condition, Event, Pod
from pilothouse.domain import PendingCause

OUR_GATE = "pilothouse.dev/queue"
_REASON = re.compile(r"(?:^|[ ,])(\d+) ((?:node\(s\) )?[^,.]+)")
_SCARCE = ("insufficient ", "too many pods", "free ports", "max volume count")
_SCALING = frozenset({"TriggeredScaleUp", "Nominated"})  # Cluster Autoscaler, Karpenter
_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


class Reason(StrEnum):
    """Finer than ``PendingCause``: what a person would want to be told."""

    RESOURCES = "resources"
    SELECTOR = "selector or taint"
    GATE = "our gate"
    FOREIGN_GATE = "somebody's gate"
    AUTOSCALER = "waiting for an autoscaler"
    IMAGE = "image"
    QUOTA = "quota"
    UNKNOWN = "unknown"


_CAUSES = {
    Reason.RESOURCES: PendingCause.RESOURCES,
    Reason.SELECTOR: PendingCause.SELECTOR,
    Reason.GATE: PendingCause.GATED,
    # Queueing cannot help against a gate that is not ours to open.
    Reason.FOREIGN_GATE: PendingCause.SELECTOR,
    Reason.AUTOSCALER: PendingCause.AUTOSCALER,
    # Not judged by the scheduler yet: a second old, or it has nobody to judge it.
    Reason.UNKNOWN: PendingCause.NONE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One object that waits, and why."""

    namespace: str
    name: str  # of the pod, or of the workload whose pods are not even created
    reason: Reason
    sentence: str  # the cluster's own words


def classify(pod: Pod, scaling: frozenset[str]) -> Wait | None:
    """Why this pod waits; None when it does not. ``scaling`` are uids an autoscaler works for."""
    if not pod.spec.node_name:
        reason, sentence = _unbound(pod, scaling)
    else:
        images = [
            status.state.waiting
            for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
            if status.state.waiting and status.state.waiting.reason in _IMAGE
        ]
        if not images:
            return None
        reason, sentence = Reason.IMAGE, f"{images[0].reason}: {images[0].message}"
    meta = pod.metadata
    return Wait(namespace=meta.namespace, name=meta.name, reason=reason, sentence=sentence)


def cause_of(wait: Wait | None) -> PendingCause:
    return PendingCause.NONE if wait is None else _CAUSES.get(wait.reason, PendingCause.NONE)


def _unbound(pod: Pod, scaling: frozenset[str]) -> tuple[Reason, str]:
    if pod.spec.scheduling_gates:
        gates = [gate.name for gate in pod.spec.scheduling_gates]
        ours = all(gate == OUR_GATE for gate in gates)
        return (Reason.GATE if ours else Reason.FOREIGN_GATE), f"gated by {', '.join(gates)}"
    judged = _condition(pod.status.conditions, "PodScheduled")
    if judged is None or judged.status != "False" or judged.reason != "Unschedulable":
        return Reason.UNKNOWN, judged.message if judged else "not judged by a scheduler yet"
    if pod.metadata.uid in scaling:
        return Reason.AUTOSCALER, judged.message
    return reason_of_message(judged.message), judged.message


def reason_of_message(message: str) -> Reason:
    """Read ``0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint ...``."""
    _, found, rest = message.partition("nodes are available: ")
    if not found:
        return Reason.UNKNOWN
    rest = rest.partition(" preemption:")[0]
    reasons = [text.strip().lower() for _, text in _REASON.findall(re.sub(r"\{[^}]*\}", "", rest))]
    if any(scarce in reason for reason in reasons for scarce in _SCARCE):
        return Reason.RESOURCES
    return Reason.SELECTOR if reasons else Reason.UNKNOWN


def _condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    return next((c for c in conditions if c.type == kind), None)


def scaling_for(events: Iterable[Event]) -> frozenset[str]:
    """Uids of pods for which an autoscaler says it is bringing a node."""
    return frozenset(
        e.involved_object.uid
        for e in events
        if e.reason in _SCALING and e.involved_object.kind == "Pod"
    )


def quota_waits(events: Iterable[Event], now: float, within_seconds: float) -> list[Wait]:
    """Workloads whose pods are not created because a quota is used up."""
    waits = {}
    for event in events:
        said = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
        recent = said is not None and now - said.timestamp() <= within_seconds
        if event.reason == "FailedCreate" and "exceeded quota" in event.message and recent:
            target = event.involved_object
            waits[target.uid] = Wait(
                namespace=target.namespace,
                name=target.name,
                reason=Reason.QUOTA,
                sentence=event.message,
            )
    return list(waits.values())
