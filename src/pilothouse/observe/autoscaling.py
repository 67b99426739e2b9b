# SPDX-License-Identifier: Apache-2.0
"""The cluster's own autoscalers, as far as a snapshot tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pilothouse.clients.resources import Autoscaler, Meta, NodeClaim
from pilothouse.domain import Claim, Scaler, WorkloadTable
from pilothouse.observe.reactions import Sight
from pilothouse.observe.workloads import Owned

TARGET_PERMILLE = 800  # what an autoscaler aims at when it does not say: most people's eighty
Scalers = Mapping[tuple[str, str, str], Autoscaler]


def by_target(autoscalers: Iterable[Autoscaler]) -> dict[tuple[str, str, str], Autoscaler]:
    """Autoscalers by namespace, kind and name of what they scale."""
    return {
        (a.metadata.namespace, a.spec.scale_target_ref.kind, a.spec.scale_target_ref.name): a
        for a in autoscalers
    }


def scaler_of(owned: Owned, scalers: Scalers) -> Autoscaler | None:
    return scalers.get((owned.meta.namespace, owned.kind, owned.meta.name))


def shown(scalers: Scalers, namespaces: Mapping[str, int]) -> tuple[Scaler, ...]:
    """As values of a snapshot, in the namespaces that are looked at."""
    return tuple(
        Scaler(
            namespace=namespace,
            name=name,
            current=a.status.current_replicas,
            desired=a.status.desired_replicas,
            minimum=a.spec.min_replicas,
            maximum=a.spec.max_replicas,
        )
        for (namespace, _, name), a in sorted(scalers.items())
        if namespace in namespaces
    )


def claims(found: Iterable[NodeClaim], start: float) -> tuple[Claim, ...]:
    """Nodes that were asked for, by name."""
    return tuple(
        Claim(
            name=c.metadata.name,
            node=c.status.node_name,
            ready=any(k.type == "Ready" and k.status == "True" for k in c.status.conditions),
            asked_seconds=since(c.metadata, start),
        )
        for c in sorted(found, key=lambda c: c.metadata.name)
    )


def sights(
    works: Sequence[tuple[str, Owned]], table: WorkloadTable, scalers: Scalers
) -> list[Sight]:
    """Every autoscaled workload at this instant."""
    found = []
    for row, (_, owned) in enumerate(works):
        scaler = scaler_of(owned, scalers)
        if scaler is not None:
            found.append(
                Sight(
                    uid=int(table.uid[row]),
                    namespace=owned.meta.namespace,
                    name=owned.meta.name,
                    load_permille=int(table.load_permille[row]),
                    target_permille=aim(scaler),
                    current=scaler.status.current_replicas,
                    desired=scaler.status.desired_replicas,
                    running=int(table.replicas_ready[row]),
                )
            )
    return found


def aim(scaler: Autoscaler) -> int:
    """The share of its requests that an autoscaler aims at, per mille."""
    for metric in scaler.spec.metrics:
        if metric.resource is not None and metric.resource.name == "cpu":
            percent = metric.resource.target.average_utilization
            if percent is not None:
                return 10 * percent
    return TARGET_PERMILLE


def since(meta: Meta, start: float) -> int:
    """When an object was made, by the cluster's clock."""
    made = meta.creation_timestamp
    return max(int(made.timestamp() - start), 0) if made else 0
