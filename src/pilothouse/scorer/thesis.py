# SPDX-License-Identifier: Apache-2.0
"""Node metrics by the queries of the thesis this grew out of, from Prometheus.

Each asks for all nodes at once, where the thesis asks node by node, and pods count in every
namespace. They are shown with their ages at ``/v1/nodes``; no policy that ships reads them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from pilothouse.clients.prometheus import Prometheus
from pilothouse.errors import PilothouseError

QUERIES = {
    "cpu_busy_percent": (
        '100 - avg by (node, instance) (irate(node_cpu_seconds_total{mode="idle"}[1m])) * 100'
    ),
    "memory_available_bytes": "node_memory_MemAvailable_bytes",
    "disk_used_percent": (
        '100 - node_filesystem_free_bytes{mountpoint="/run"} '
        '/ node_filesystem_size_bytes{mountpoint="/run"} * 100'
    ),
    "received_bytes_per_second": (
        'sum by (node, instance) (rate(node_network_receive_bytes_total{device="eth0"}[5m]))'
    ),
    "established_connections": "node_netstat_Tcp_CurrEstab",
    "pods": "count by (node) (kube_pod_info)",
}
EVERY_SECONDS = 10.0


class NodeMetrics:
    """The latest answers, by node."""

    def __init__(self) -> None:
        self._values: dict[str, dict[str, float]] = {}
        self._at = float("nan")
        self._lock = threading.Lock()

    def of(self, node: str, address: str, now: float) -> tuple[dict[str, float], float | None]:
        """Values and their age; none when Prometheus never answered."""
        with self._lock:
            age = now - self._at
            values = self._values.get(address, {}) | self._values.get(node, {})
            return values, (age if age == age else None)

    def take(self, values: dict[str, dict[str, float]], now: float) -> None:
        with self._lock:
            self._values, self._at = values, now

    async def follow(self, prometheus: Prometheus, clock: Callable[[], float]) -> None:
        """Ask every few seconds until cancelled; a Prometheus that is away leaves old values."""
        try:
            while True:
                with suppress(PilothouseError):  # the age shown beside the values says it
                    self.take(await ask(prometheus), clock())
                await asyncio.sleep(EVERY_SECONDS)
        finally:
            await prometheus.close()


async def ask(prometheus: Prometheus) -> dict[str, dict[str, float]]:
    """Every query once; by node name, or by the instance's host where there is no such label."""
    found: dict[str, dict[str, float]] = {}
    for name, query in QUERIES.items():
        answer = await prometheus.query(query)
        for row in answer.rows:
            node = row.labels.get("node") or _host(row.labels.get("instance", ""))
            if node:
                found.setdefault(node, {})[name] = row.value
    return found


def _host(instance: str) -> str:
    """Of HOST:PORT, as machines have it: without the brackets of IPv6."""
    return (instance.rpartition(":")[0] or instance).strip("[]")
