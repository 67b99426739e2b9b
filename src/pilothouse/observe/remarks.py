# SPDX-License-Identifier: Apache-2.0
"""Decisions as remarks about the objects concerned: what we would do, and why."""

from __future__ import annotations

from collections.abc import Iterator

from pilothouse.clients.events import Remark
from pilothouse.clients.store import Store
from pilothouse.domain import Decision, Ref, Ruling

_WORKLOADS = {
    "deployments": "Deployment",
    "statefulsets": "StatefulSet",
    "daemonsets": "DaemonSet",
    "jobs": "Job",
}


def remarks(decision: Decision, store: Store) -> Iterator[Remark]:
    """One per chosen proposal that asks for something and whose object still exists."""
    for proposal, verdict in decision.with_ruling(Ruling.CHOSEN):
        if proposal.is_noop:
            continue
        found = _find(proposal.target, store)
        if found is None:
            continue
        kind, uid = found
        words = str(proposal.kind).replace("_", " ").title().replace(" ", "")
        done = any(
            a.agent == proposal.agent and a.target == proposal.target for a in decision.actions
        )
        yield Remark(
            kind=kind,
            namespace=proposal.target.namespace,
            name=proposal.target.name,
            uid=uid,
            reason=words if done else f"Would{words}",
            message=f"{proposal.label}: {proposal.reason} ({verdict.mode}, decision {decision.id})",
            decision=decision.id,
        )


def _find(target: Ref, store: Store) -> tuple[str, str] | None:
    """Kubernetes' kind and uid of what a reference names."""
    key = (target.namespace, target.name)
    match target.kind:
        case "node":
            return _first(
                "Node", ((n.metadata.name, n.metadata.uid) for n in store.nodes()), target
            )
        case "pod":
            for pod in store.pods():
                if (pod.metadata.namespace, pod.metadata.name) == key:
                    return "Pod", pod.metadata.uid
        case "workload":
            for resource, kind in _WORKLOADS.items():
                for one in store.workloads(resource):
                    if (one.metadata.namespace, one.metadata.name) == key:
                        return kind, one.metadata.uid
        case "namespace":
            spaces = ((n.metadata.name, n.metadata.uid) for n in store.namespaces())
            return _first("Namespace", spaces, target)
    return None


def _first(kind: str, named: Iterator[tuple[str, str]], target: Ref) -> tuple[str, str] | None:
    return next(((kind, uid) for name, uid in named if name == target.name), None)
