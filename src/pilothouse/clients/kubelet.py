# SPDX-License-Identifier: Apache-2.0
"""Usage straight from the kubelets, where a cluster has neither Prometheus nor metrics-server.

Needs the role rule ``nodes/metrics: get`` and a way to the nodes' addresses. Kubelets count
processor seconds; what is used now is the difference of two readings over the time between them,
by the kubelet's own timestamps.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import httpx2

from pilothouse.clients.access import Access
from pilothouse.clients.metrics import Sample, Usage
from pilothouse.clients.resources import Node
from pilothouse.errors import ClusterUnreachable

PATH_ANNOTATION = "metrics.k8s.io/resource-metrics-path"
AT_ONCE = 16
ANSWER_SECONDS = 4.0
_LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)(?: (\d+))?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_WANTED = frozenset(
    {
        "node_cpu_usage_seconds_total",
        "node_memory_working_set_bytes",
        "pod_cpu_usage_seconds_total",
        "pod_memory_working_set_bytes",
    }
)

Key = tuple[str, str]  # namespace and name; a node has no namespace


@dataclass(frozen=True, slots=True)
class Reading:
    """A counter of processor seconds and a working set, at one moment (Unix seconds)."""

    seconds: float
    bytes: float
    at: float


def parse(text: str, node: str, now: float) -> dict[Key, Reading]:
    """The readings of one kubelet's ``/metrics/resource``; broken lines are left out."""
    seconds: dict[Key, tuple[float, float]] = {}
    held: dict[Key, float] = {}
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None or found[1] not in _WANTED:
            continue
        value = _number(found[3])
        if value is None:
            continue
        labels = dict(_LABEL.findall(found[2] or ""))
        of_node = found[1].startswith("node_")
        key = ("", node) if of_node else (labels.get("namespace", ""), labels.get("pod", ""))
        if found[1].endswith("seconds_total"):
            seconds[key] = (value, int(found[4]) / 1000 if found[4] else now)
        else:
            held[key] = value
    return {
        key: Reading(value, held[key], at) for key, (value, at) in seconds.items() if key in held
    }


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


class Kubelets:
    """Every kubelet of a cluster. ``nodes`` gives the nodes as the cache knows them."""

    name = "kubelets"

    def __init__(
        self, access: Access, nodes: Callable[[], Iterable[Node]], now: Callable[[], float]
    ) -> None:
        self._access = access
        self._nodes = nodes
        self._now = now
        self._before: dict[Key, Reading] = {}
        self._samples: dict[Key, Sample] = {}
        self._client = httpx2.AsyncClient(
            verify=access.tls(), timeout=ANSWER_SECONDS, trust_env=False
        )

    async def fetch(self, _api: object) -> Usage:
        gate = asyncio.Semaphore(AT_ONCE)
        nodes = list(self._nodes())
        answers = await asyncio.gather(*(self._read(node, gate) for node in nodes))
        failures = [a for a in answers if isinstance(a, ClusterUnreachable)]
        if nodes and len(failures) == len(nodes):
            raise failures[0]
        readings: dict[Key, Reading] = {}
        for answer in answers:
            if isinstance(answer, dict):
                readings |= answer
        samples = {key: s for key, r in readings.items() if (s := self._sample(key, r))}
        self._before, self._samples = readings, samples
        return Usage(
            source=self.name,
            nodes={name: s for (space, name), s in samples.items() if not space},
            pods={key: s for key, s in samples.items() if key[0]},
        )

    async def close(self) -> None:
        await self._client.aclose()

    def _sample(self, key: Key, now: Reading) -> Sample | None:
        before = self._before.get(key)
        if before is None or now.seconds < before.seconds:
            return None  # the first reading, or a container that began anew
        if now.at <= before.at:
            return self._samples.get(key)  # kubelets measure less often than we ask
        used = (now.seconds - before.seconds) / (now.at - before.at)
        return Sample(
            cpu_millicores=round(1000 * used), memory_mib=round(now.bytes / 2**20), at=now.at
        )

    async def _read(
        self, node: Node, gate: asyncio.Semaphore
    ) -> dict[Key, Reading] | ClusterUnreachable:
        address = next((a.address for a in node.status.addresses if a.type == "InternalIP"), "")
        port = node.status.daemon_endpoints.kubelet_endpoint.port or 10250
        path = node.metadata.annotations.get(PATH_ANNOTATION, "/metrics/resource")
        name = node.metadata.name
        if not address:
            return ClusterUnreachable(f"Node {name} has no internal address.")
        host = f"[{address}]" if ":" in address else address
        try:
            async with gate:
                answer = await self._client.get(
                    f"https://{host}:{port}{path}", headers=self._access.headers()
                )
        except httpx2.HTTPError as error:
            return ClusterUnreachable(f"The kubelet of {name} did not answer: {error}.")
        if answer.status_code in (401, 403):
            return ClusterUnreachable(
                f"The kubelet of {name} answered {answer.status_code}. Add to the role: "
                'apiGroups: [""], resources: ["nodes/metrics"], verbs: ["get"].'
            )
        if answer.status_code != 200:
            return ClusterUnreachable(f"The kubelet of {name} answered {answer.status_code}.")
        return parse(answer.text, name, self._now())
