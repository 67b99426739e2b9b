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

from pilothouse.clients.keys import GATE_NAME
from pilothouse.clients.resources import Condition, Event, Pod, Workload
from pilothouse.domain import Cause, PendingCause

OUR_GATE = GATE_NAME
_REASON = re.compile(r"(?:^|[ ,])(\d+) ((?:node\(s\) )?[^,.]+)")
_SCARCE = ("insufficient ", "too many pods", "free ports", "max volume count")
_QUOTA = "exceeded quota"
_SCALING = frozenset({"TriggeredScaleUp", "Nominated"})  # Cluster Autoscaler, Karpenter
_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})


_CAUSES = {
    Cause.RESOURCES: PendingCause.RESOURCES,
    Cause.SELECTOR: PendingCause.SELECTOR,
    Cause.GATE: PendingCause.GATED,
    Cause.FOREIGN_GATE: PendingCause.FOREIGN_GATE,
    Cause.IMAGE: PendingCause.IMAGE,
    Cause.AUTOSCALER: PendingCause.AUTOSCALER,
    # Not judged by the scheduler yet: a second old, or it has nobody to judge it.
    Cause.UNKNOWN: PendingCause.NONE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One pod that waits, and why; or a workload whose pods are not even created."""

    namespace: str
    name: str  # of the pod, or of the workload whose pods are not even created
    cause: Cause
    sentence: str  # the cluster's own words


def classify(pod: Pod, scaling: frozenset[str]) -> Wait | None:
    """Why this pod waits; None when it does not. ``scaling`` are uids an autoscaler works for."""
    if not pod.spec.node_name:
        cause, sentence = _unbound(pod, scaling)
    else:
        images = [
            status.state.waiting
            for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
            if status.state.waiting and status.state.waiting.reason in _IMAGE
        ]
        if not images:
            return None
        cause, sentence = Cause.IMAGE, f"{images[0].reason}: {images[0].message}"
    meta = pod.metadata
    return Wait(namespace=meta.namespace, name=meta.name, cause=cause, sentence=sentence)


def cause_of(wait: Wait | None) -> PendingCause:
    return PendingCause.NONE if wait is None else _CAUSES.get(wait.cause, PendingCause.NONE)


def _unbound(pod: Pod, scaling: frozenset[str]) -> tuple[Cause, str]:
    if pod.spec.scheduling_gates:
        gates = [gate.name for gate in pod.spec.scheduling_gates]
        ours = all(gate == OUR_GATE for gate in gates)
        return (Cause.GATE if ours else Cause.FOREIGN_GATE), f"gated by {', '.join(gates)}"
    judged = _condition(pod.status.conditions, "PodScheduled")
    if judged is None or judged.status != "False" or judged.reason != "Unschedulable":
        return Cause.UNKNOWN, judged.message if judged else "not judged by a scheduler yet"
    if pod.metadata.uid in scaling:
        return Cause.AUTOSCALER, judged.message
    return cause_of_message(judged.message), judged.message


def cause_of_message(message: str) -> Cause:
    """Read ``0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint ...``."""
    _, found, rest = message.partition("nodes are available: ")
    if not found:
        return Cause.UNKNOWN
    rest = rest.partition(" preemption:")[0]
    reasons = [text.strip().lower() for _, text in _REASON.findall(re.sub(r"\{[^}]*\}", "", rest))]
    if any(scarce in reason for reason in reasons for scarce in _SCARCE):
        return Cause.RESOURCES
    return Cause.SELECTOR if reasons else Cause.UNKNOWN


def _condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    return next((c for c in conditions if c.type == kind), None)


def scaling_for(events: Iterable[Event]) -> frozenset[str]:
    """Uids of pods for which an autoscaler says it is bringing a node."""
    return frozenset(
        e.involved_object.uid
        for e in events
        if e.reason in _SCALING and e.involved_object.kind == "Pod"
    )


def quota_waits(
    events: Iterable[Event], workloads: Iterable[Workload], now: float, within_seconds: float
) -> list[Wait]:
    """Workloads whose pods are not created because a quota is used up.

    ReplicaSets keep that as a condition for as long as it is so; what has no such condition (a Job)
    says it in events, which count for a while.
    """
    waits = {}
    for event in events:
        said = event.last_timestamp or event.event_time or event.metadata.creation_timestamp
        recent = said is not None and now - said.timestamp() <= within_seconds
        target = event.involved_object
        refused = event.reason == "FailedCreate" and _QUOTA in event.message
        if recent and refused and target.kind != "ReplicaSet":
            waits[target.uid] = _quota_wait(target.namespace, target.name, event.message)
    for one in workloads:
        failed = _condition(one.status.conditions, "ReplicaFailure")
        if failed is not None and failed.status == "True" and _QUOTA in failed.message:
            meta = one.metadata
            waits[meta.uid] = _quota_wait(meta.namespace, meta.name, failed.message)
    return list(waits.values())


def _quota_wait(namespace: str, name: str, sentence: str) -> Wait:
    return Wait(namespace=namespace, name=name, cause=Cause.QUOTA, sentence=sentence)
