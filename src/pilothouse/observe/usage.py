# SPDX-License-Identifier: Apache-2.0
"""Where usage comes from: Prometheus, metrics.k8s.io or the kubelets.

A source is polled on the cache's thread and keeps its last answer with the times of its samples;
it never blocks a cycle. What it cannot know is absent, not zero.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pilothouse.clients import metrics
from pilothouse.clients.api import Api
from pilothouse.clients.metrics import Sample, Usage
from pilothouse.clients.prometheus import Answer, Prometheus
from pilothouse.errors import BackendError, PilothouseError

POLL_SECONDS = 5.0
LARGEST_MILLICORES = 2_000_000  # two thousand cores in one node: somebody's unit is wrong
LARGEST_MIB = 64 * 1024 * 1024  # 64 TiB
K = TypeVar("K")


class UsageSource(Protocol):
    """Anything that can say what is used now."""

    name: str

    async def fetch(self, api: Api) -> Usage: ...

    async def close(self) -> None: ...


class MetricsApi:
    """metrics-server, through the API server."""

    name = "metrics.k8s.io"

    async def fetch(self, api: Api) -> Usage:
        return await metrics.fetch(api)

    async def close(self) -> None:
        """Nothing of its own: it asks through the API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """What is asked of Prometheus. Every answer carries the labels it is summed by.

    The inner maximum is for kubelets that are scraped at two paths: the same container counts once.
    """

    pod_cpu: str = (
        "sum by (namespace, pod) (max by (namespace, pod, container) "
        '(rate(container_cpu_usage_seconds_total{container!="",container!="POD"}[1m])))'
    )
    pod_memory: str = (
        "sum by (namespace, pod) (max by (namespace, pod, container) "
        '(container_memory_working_set_bytes{container!="",container!="POD"}))'
    )
    node_cpu: str = "sum by (node) (rate(node_cpu_usage_seconds_total[1m]))"
    node_memory: str = "max by (node) (node_memory_working_set_bytes)"


class PrometheusUsage:
    """Prometheus' own view, for clusters that have one."""

    name = "prometheus"

    def __init__(self, prometheus: Prometheus, queries: Queries | None = None) -> None:
        self._prometheus = prometheus
        self._queries = queries or Queries()

    async def fetch(self, api: Api) -> Usage:
        q, ask = self._queries, self._prometheus.query
        pod_cpu, pod_memory, node_cpu, node_memory = await asyncio.gather(
            ask(q.pod_cpu), ask(q.pod_memory), ask(q.node_cpu), ask(q.node_memory)
        )
        return Usage(
            source=self.name,
            nodes=_join(node_cpu, node_memory, _node_of),
            pods=_join(pod_cpu, pod_memory, _pod_of),
        )

    async def close(self) -> None:
        await self._prometheus.close()


def _node_of(labels: Mapping[str, str]) -> str:
    return labels.get("node", "")


def _pod_of(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("namespace", ""), labels.get("pod", "")


def _join(cpu: Answer, memory: Answer, key: Callable[[Mapping[str, str]], K]) -> dict[K, Sample]:
    """Only what both answers know, at the older of the two times; absurd values are left out."""
    held = {key(row.labels): row for row in memory.rows}
    joined: dict[K, Sample] = {}
    for row in cpu.rows:
        other = held.get(key(row.labels))
        if other is None:
            continue
        millicores, mib = round(row.value * 1000), round(other.value / 2**20)
        if 0 <= millicores <= LARGEST_MILLICORES and 0 <= mib <= LARGEST_MIB:
            joined[key(row.labels)] = Sample(
                cpu_millicores=millicores, memory_mib=mib, at=min(row.at, other.at)
            )
    return joined


class FirstThatAnswers:
    """Sources in order of preference; asked anew each time, so a better one may come back."""

    def __init__(self, *sources: UsageSource) -> None:
        self._sources = sources
        self.name = " or ".join(source.name for source in sources)

    async def fetch(self, api: Api) -> Usage:
        problems = []
        for source in self._sources:
            try:
                return await source.fetch(api)
            except PilothouseError as error:
                problems.append(str(error))
        raise BackendError(" ".join(problems))

    async def close(self) -> None:
        for source in self._sources:
            await source.close()


class UsagePoll:
    """Asks one source again and again; ``latest`` may be read from any thread."""

    def __init__(self, source: UsageSource, *, poll_seconds: float = POLL_SECONDS) -> None:
        self.source = source
        self.latest = Usage(source=source.name, nodes={}, pods={})
        self.problem = "not asked yet"
        self._poll_seconds = poll_seconds

    async def run(self, api: Api) -> None:
        try:
            while True:
                began = time.monotonic()
                await self._ask(api)
                await asyncio.sleep(max(began + self._poll_seconds - time.monotonic(), 0.1))
        finally:
            await self.source.close()

    async def _ask(self, api: Api) -> None:
        try:
            self.latest = await self.source.fetch(api)
            self.problem = ""
        except PilothouseError as error:
            # The last answer stays; its samples grow old and everybody can see that.
            self.problem = str(error)
