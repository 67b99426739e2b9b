# SPDX-License-Identifier: Apache-2.0
"""Usage as metrics.k8s.io tells it: one number per node and container, with its own timestamp."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from pilothouse.clients.api import Api
from pilothouse.clients.quantity import mebibytes, millicores
from pilothouse.clients.resources import Meta, Trimmed

NODES = "/apis/metrics.k8s.io/v1beta1/nodes"
PODS = "/apis/metrics.k8s.io/v1beta1/pods"


class _Usage(Trimmed, frozen=True, kw_only=True):
    cpu: str = "0"
    memory: str = "0"


class _NodeMetrics(Trimmed, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    timestamp: datetime | None = None
    usage: _Usage = _Usage()


class _ContainerMetrics(Trimmed, frozen=True, kw_only=True):
    name: str = ""
    usage: _Usage = _Usage()


class _PodMetrics(Trimmed, frozen=True, kw_only=True):
    metadata: Meta = Meta()
    timestamp: datetime | None = None
    containers: tuple[_ContainerMetrics, ...] = ()


class _NodeList(Trimmed, frozen=True, kw_only=True):
    items: tuple[_NodeMetrics, ...] = ()


class _PodList(Trimmed, frozen=True, kw_only=True):
    items: tuple[_PodMetrics, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one object used, and when that was measured (Unix seconds)."""

    cpu_millicores: int
    memory_mib: int
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Everything one source said in one round."""

    source: str  # "metrics.k8s.io"
    nodes: dict[str, Sample]
    pods: dict[tuple[str, str], Sample]  # by namespace and name


async def fetch(api: Api) -> Usage:
    nodes = msgspec.json.decode(await api.get(NODES), type=_NodeList)
    pods = msgspec.json.decode(await api.get(PODS), type=_PodList)
    return Usage(
        source="metrics.k8s.io",
        nodes={
            n.metadata.name: Sample(
                cpu_millicores=millicores(n.usage.cpu),
                memory_mib=mebibytes(n.usage.memory),
                at=_unix(n.timestamp),
            )
            for n in nodes.items
        },
        pods={
            (p.metadata.namespace, p.metadata.name): Sample(
                cpu_millicores=sum(millicores(c.usage.cpu) for c in p.containers),
                memory_mib=sum(mebibytes(c.usage.memory) for c in p.containers),
                at=_unix(p.timestamp),
            )
            for p in pods.items
        },
    )


def _unix(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0
