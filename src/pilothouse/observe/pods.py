# SPDX-License-Identifier: Apache-2.0
"""A pod object as the numbers of one row.

A row depends on the object alone, so it is computed once per version of the object and kept; with
ten thousand pods and twenty changes a second that is the difference between a busy core and an
idle one.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from pilothouse.clients.asked import asked
from pilothouse.clients.protection import why_kept
from pilothouse.clients.quantity import mebibytes, millicores, to_mebibytes, to_millicores
from pilothouse.clients.resources import Container, Pod
from pilothouse.domain import Phase

NOTHING = Decimal(0)
_BROKEN = frozenset(
    {
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)


class PodFacts(NamedTuple):
    """What one pod object says, in the snapshot's units; times are Unix seconds."""

    version: str
    phase: int
    created: float
    since: float
    cpu_request: int
    cpu_limit: int  # 0: none
    memory_request: int
    memory_limit: int
    restarts: int
    last_oom: bool  # the last container to end was killed for memory
    evictable: int
    priority: int


def facts(pod: Pod) -> PodFacts:
    containers = (
        *pod.spec.containers,
        *(c for c in pod.spec.init_containers if c.restart_policy == "Always"),
    )
    requests = asked(pod)
    statuses = pod.status.container_statuses
    last = [s.last_state.terminated for s in statuses if s.last_state.terminated]
    last += [s.state.terminated for s in statuses if s.state.terminated]
    return PodFacts(
        version=pod.metadata.resource_version,
        phase=_phase(pod),
        created=_unix(pod.metadata.creation_timestamp),
        since=_since(pod),
        cpu_request=to_millicores(requests.get("cpu", NOTHING)),
        cpu_limit=_limited(containers, "cpu"),
        memory_request=to_mebibytes(requests.get("memory", NOTHING)),
        memory_limit=_limited(containers, "memory"),
        restarts=sum(s.restart_count for s in statuses),
        last_oom=any(t.reason == "OOMKilled" for t in last),
        evictable=int(not why_kept(pod)),
        priority=pod.spec.priority,
    )


def is_finished(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


def _phase(pod: Pod) -> Phase:
    if pod.metadata.deletion_timestamp is not None:
        return Phase.TERMINATING
    if not pod.spec.node_name:
        return Phase.PENDING
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    if any(s.state.waiting and s.state.waiting.reason in _BROKEN for s in statuses):
        return Phase.FAILED
    if pod.status.reason == "NodeLost":
        return Phase.FAILED
    ready = any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
    if pod.status.phase == "Running" and ready:
        return Phase.RUNNING
    ended = [s.state.terminated for s in pod.status.container_statuses if s.state.terminated]
    if any(t.exit_code != 0 for t in ended):
        return Phase.FAILED
    return Phase.STARTING


def _since(pod: Pod) -> float:
    changed = [c.last_transition_time for c in pod.status.conditions]
    moments = [m for m in (*changed, pod.metadata.creation_timestamp) if m is not None]
    if pod.metadata.deletion_timestamp is not None:
        moments.append(pod.metadata.deletion_timestamp)
    return max((m.timestamp() for m in moments), default=0.0)


def _limited(containers: tuple[Container, ...], resource: str) -> int:
    """The sum of limits; 0 as soon as one container has none."""
    unit = millicores if resource == "cpu" else mebibytes
    limits = [c.resources.limits.get(resource) for c in containers]
    return 0 if None in limits else sum(unit(limit) for limit in limits if limit is not None)


def _unix(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0
