# SPDX-License-Identifier: Apache-2.0
"""Where usage comes from: Prometheus, metrics.k8s.io or the kubelets.

A source is polled on the cache's thread and keeps its last answer with the times of its samples;
it never blocks a cycle. What it cannot know is absent, not zero.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from pilothouse.clients import metrics
from pilothouse.clients.api import Api
from pilothouse.clients.metrics import Sample, Usage
from pilothouse.clients.prometheus import Answer, Prometheus
from pilothouse.errors import BackendError, PilothouseError
from pilothouse.settings import ObserveSettings

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


class PrometheusUsage:
    """Prometheus' own view, for clusters that have one."""

    name = "prometheus"

    def __init__(self, prometheus: Prometheus, settings: ObserveSettings | None = None) -> None:
        self._prometheus = prometheus
        self._settings = settings or ObserveSettings()

    async def fetch(self, api: Api) -> Usage:
        s, ask = self._settings, self._prometheus.query
        pod_cpu, pod_memory, node_cpu, node_memory = await asyncio.gather(
            ask(s.pod_cpu_query),
            ask(s.pod_memory_query),
            ask(s.node_cpu_query),
            ask(s.node_memory_query),
        )
        nodes = join(node_cpu, node_memory, node_of)
        if not nodes:
            raise BackendError(
                f"Prometheus at {self._prometheus.url} knows the use of no node. The queries: "
                f"{s.node_cpu_query} and {s.node_memory_query}"
            )
        return Usage(source=self.name, nodes=nodes, pods=join(pod_cpu, pod_memory, pod_of))

    async def close(self) -> None:
        await self._prometheus.close()


def node_of(labels: Mapping[str, str]) -> str:
    return labels.get("node", "")


def pod_of(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("namespace", ""), labels.get("pod", "")


def join(cpu: Answer, memory: Answer, key: Callable[[Mapping[str, str]], K]) -> dict[K, Sample]:
    """Only what both answers know, at the older of the two times; absurd values are left out."""
    held = {key(row.labels): row for row in memory.rows}
    joined: dict[K, Sample] = {}
    for row in cpu.rows:
        other = held.get(key(row.labels))
        if other is not None and (found := sample(row.points[-1], other.points[-1])):
            joined[key(row.labels)] = found
    return joined


def sample(cores: tuple[float, float], held: tuple[float, float]) -> Sample | None:
    """Two points (Unix seconds, value) as one sample; None where somebody's unit is wrong."""
    millicores, mib = round(cores[1] * 1000), round(held[1] / 2**20)
    if not (0 <= millicores <= LARGEST_MILLICORES and 0 <= mib <= LARGEST_MIB):
        return None
    return Sample(cpu_millicores=millicores, memory_mib=mib, at=min(cores[0], held[0]))


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
