# SPDX-License-Identifier: Apache-2.0
"""What Prometheus knows beside usage: how slow services are, what nodes really have, and the
figures that people asked for by queries of their own.

Asked beside the loop; a query that fails keeps its last answer, which grows old, and says why.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pilothouse.clients.api import Api
from pilothouse.clients.prometheus import Answer, Prometheus, Row, fill
from pilothouse.clients.resources import Node
from pilothouse.errors import PilothouseError
from pilothouse.settings import ObserveSettings

POLL_SECONDS = 5.0
NODE_POLLS = 3  # node by node is dear: every third time
LARGEST_MS = 3_600_000
LARGEST_ERRORS = 1_000_000
AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The last answers; times are Unix seconds."""

    latency_ms: dict[tuple[str, str], int] = field(default_factory=dict)  # by namespace, workload
    stolen_permille: dict[str, int] = field(default_factory=dict)  # by node
    errors_per_minute: dict[str, int] = field(default_factory=dict)  # by node
    readings: dict[tuple[str, str], tuple[float, float]] = field(
        default_factory=dict
    )  # by node and name: when, value
    at: float = 0.0  # when Prometheus last answered


class FiguresPoll:
    """Asks again and again; ``latest`` may be read from any thread."""

    def __init__(
        self,
        prometheus: Prometheus,
        settings: ObserveSettings,
        nodes: Callable[[], Iterable[Node]],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.latest = Figures()
        self.problem = "not asked yet"
        self._prometheus = prometheus
        self._settings = settings
        self._nodes = nodes
        self._now = now
        self._round = 0

    async def run(self, _api: Api) -> None:
        try:
            while True:
                began = time.monotonic()
                await self.ask()
                await asyncio.sleep(max(began + POLL_SECONDS - time.monotonic(), 0.1))
        finally:
            await self._prometheus.close()

    async def ask(self) -> None:
        """One round; a failure is kept in ``problem`` and the last answer stays."""
        s, before = self._settings, self.latest
        try:
            latency = await self._query(s.latency_query)
            stolen = await self._query(s.stolen_query)
            errors = await self._query(s.errors_query)
            due = self._round % NODE_POLLS == 0 or not before.readings
            readings = await self._node_by_node() if due else before.readings
        except PilothouseError as error:
            self.problem = str(error)
            return
        self._round += 1
        self.problem = ""
        self.latest = Figures(
            latency_ms=_latencies(latency),
            stolen_permille={
                row.labels.get("node", ""): round(1000 * row.value)
                for row in stolen
                if 0 <= row.value <= 1
            },
            errors_per_minute={
                row.labels.get("node", ""): round(row.value)
                for row in errors
                if 0 <= row.value <= LARGEST_ERRORS
            },
            readings=readings,
            at=self._now(),
        )

    async def _query(self, query: str) -> tuple[Row, ...]:
        return (await self._prometheus.query(query)).rows if query else ()

    async def _node_by_node(self) -> dict[tuple[str, str], tuple[float, float]]:
        nodes = list(self._nodes())
        if len(nodes) > self._settings.node_queries_limit:
            return {}
        gate = asyncio.Semaphore(AT_ONCE)
        asked = [
            (node.metadata.name, name, query)
            for node in nodes
            for name, template in self._settings.node_queries.items()
            if template and (query := _filled(template, node))
        ]

        async def one(query: str) -> Answer:
            async with gate:
                return await self._prometheus.query(query)

        answers = await asyncio.gather(*(one(query) for _, _, query in asked))
        return {
            (node, name): (answer.rows[0].at, answer.rows[0].value)
            for (node, name, _), answer in zip(asked, answers, strict=True)
            if answer.rows
        }


def _filled(template: str, node: Node) -> str:
    """The query for one node; empty for a node that has no address to ask about."""
    address = next((a.address for a in node.status.addresses if a.type == "InternalIP"), "")
    values = {"node": node.metadata.name, "address": address}
    used = {name: value for name, value in values.items() if f"${name}" in template}
    return fill(template, used) if all(used.values()) else ""


def _latencies(rows: Iterable[Row]) -> dict[tuple[str, str], int]:
    found = {}
    for row in rows:
        name = row.labels.get("deployment") or row.labels.get("workload", "")
        milliseconds = round(1000 * row.value)
        if name and 0 <= milliseconds <= LARGEST_MS:
            found[row.labels.get("namespace", ""), name] = milliseconds
    return found
