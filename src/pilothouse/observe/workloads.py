# SPDX-License-Identifier: Apache-2.0
"""What owns pods: the row a pod belongs to, however many owners lie between.

A pod of a Deployment belongs to the Deployment, not to the ReplicaSet in between. A pod that
nobody owns is a workload of its own, which is never evicted: nobody would bring it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pilothouse.clients.resources import Meta, Owner, Pod, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """One workload before it becomes a row."""

    kind: str  # "Deployment"
    meta: Meta
    desired: int
    ready: int
    labels: Mapping[str, str]  # of its pods


def owners(
    deployments: Iterable[Workload],
    statefulsets: Iterable[Workload],
    daemonsets: Iterable[Workload],
    jobs: Iterable[Workload],
    replicasets: Iterable[Workload],
) -> tuple[dict[str, Owned], dict[str, str]]:
    """Workloads by uid, and for each ReplicaSet the uid of the Deployment above it."""
    found: dict[str, Owned] = {}
    above: dict[str, str] = {}
    for kind, group in (("Deployment", deployments), ("StatefulSet", statefulsets)):
        for one in group:
            found[one.metadata.uid] = _owned(
                kind, one, one.spec.replicas, one.status.ready_replicas
            )
    for one in daemonsets:
        found[one.metadata.uid] = _owned("DaemonSet", one, 0, 0)
    for one in jobs:
        finished = any(
            c.type in ("Complete", "Failed") and c.status == "True" for c in one.status.conditions
        )
        if not finished:
            wanted = 0 if one.spec.suspend else one.spec.parallelism
            found[one.metadata.uid] = _owned("Job", one, wanted, one.status.ready)
    for one in replicasets:
        owner = controller(one.metadata)
        if owner is None:
            found[one.metadata.uid] = _owned(
                "ReplicaSet", one, one.spec.replicas, one.status.ready_replicas
            )
        else:
            above[one.metadata.uid] = owner.uid
    return found, above


def _owned(kind: str, one: Workload, desired: int, ready: int) -> Owned:
    return Owned(
        kind=kind,
        meta=one.metadata,
        desired=desired,
        ready=ready,
        labels=one.spec.template.metadata.labels,
    )


def controller(meta: Meta) -> Owner | None:
    return next((owner for owner in meta.owner_references if owner.controller), None)


def owner_uid(pod: Pod, above: Mapping[str, str]) -> str:
    """The uid of the workload a pod belongs to; its own where nobody owns it."""
    owner = controller(pod.metadata)
    if owner is None:
        return pod.metadata.uid
    return above.get(owner.uid, owner.uid)


def alone(pod: Pod) -> Owned:
    """A workload made of one pod, for a pod whose owner is nobody we know."""
    return Owned(kind="Pod", meta=pod.metadata, desired=1, ready=0, labels=pod.metadata.labels)
