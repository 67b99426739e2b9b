# SPDX-License-Identifier: Apache-2.0
"""What keeps the board current: the cluster's caches, the probes, and the policy's file."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import httpx2
import msgspec

from pilothouse.clients import Store, from_kubeconfig
from pilothouse.clients.prometheus import Prometheus
from pilothouse.clients.resources import KINDS
from pilothouse.policy.machines import USER_ANNOTATION, Machine, Rows
from pilothouse.scorer.app import Parts
from pilothouse.scorer.board import LATENCY_SECONDS, Board, Latency, PolicySource
from pilothouse.scorer.metrics import Metrics

CHORE_SECONDS = 1.0
PROBE_SECONDS = 2.0
PROBE_TIMEOUT_SECONDS = 3.0
LONGEST_SILENCE_SECONDS = 120.0  # until a node that never answered is asked again
SILENCE_GROWS = 4
MOST_PROBED_AT_ONCE = 64
# Of a round; a large cluster takes several. More only where measurements would grow too old.
MOST_PROBED = 100
ASKED_WITHIN_SECONDS = LATENCY_SECONDS / 2
MOST_USERS = 16
LONGEST_USER = 253  # a name; a pod's annotation may be a quarter of a megabyte
VIEW_SECONDS = 0.25  # one look serves all requests within so short a time


class Watching:
    """The cluster through list-and-watch caches of its nodes and pods."""

    def __init__(self, kubeconfig: Path) -> None:
        kinds = [kind for kind in KINDS if kind.name in ("nodes", "pods")]
        self._store = Store(from_kubeconfig(kubeconfig), kinds=kinds)
        self._rows = Rows()
        self._seen: tuple[float, list[Machine]] = (float("-inf"), [])

    def open(self) -> None:
        try:
            self._store.open()
        except BaseException:
            self._store.close()
            raise

    def close(self) -> None:
        self._store.close()

    def machines(self) -> Sequence[Machine]:
        at, machines = self._seen
        if time.monotonic() - at > VIEW_SECONDS:
            machines = self._rows.of(self._store.nodes(), self._store.pods())
            self._seen = (time.monotonic(), machines)
        return machines

    def age_seconds(self) -> float:
        return max(health.age_seconds for health in self._store.health())

    def users(self) -> list[str]:
        """Users that pods name; the default one comes first."""
        named = {p.metadata.annotations.get(USER_ANNOTATION, "") for p in self._store.pods()}
        usable = sorted(user for user in named if 0 < len(user) <= LONGEST_USER)
        return ["", *usable[: MOST_USERS - 1]]


class _Measured(msgspec.Struct):
    latency_ms: float | None = None
    spread_ms: float = 0.0


class Probes:
    """The nodes' probes: each is asked for every user, those that answer more often."""

    def __init__(self, board: Board, port: int) -> None:
        self._board, self._port = board, port
        self._client = httpx2.AsyncClient(timeout=PROBE_TIMEOUT_SECONDS, trust_env=False)
        self._limit = asyncio.Semaphore(MOST_PROBED_AT_ONCE)
        # Node to when it may be asked again and how long the pause was: not every node has a probe.
        self._silent: dict[str, tuple[float, float]] = {}
        self._asked: dict[str, float] = {}  # node to when

    async def ask(self, users: Sequence[str]) -> None:
        """Whoever is due, once; what does not answer leaves no measurement."""
        machines = [m for m in self._board.machines() if m.address]
        known = {machine.name for machine in machines}
        self._silent = {node: when for node, when in self._silent.items() if node in known}
        self._asked = {node: when for node, when in self._asked.items() if node in known}
        now = self._board.clock()
        due = [m for m in machines if self._silent.get(m.name, (now, 0.0))[0] <= now]
        # Those that answer first, and of them those that have waited longest.
        due.sort(key=lambda m: (m.name in self._silent, self._asked.get(m.name, float("-inf"))))
        most = max(MOST_PROBED, math.ceil(len(machines) * PROBE_SECONDS / ASKED_WITHIN_SECONDS))
        self._asked |= {machine.name: now for machine in due[:most]}
        await asyncio.gather(*(self._ask_one(machine, users) for machine in due[:most]))

    async def _ask_one(self, machine: Machine, users: Sequence[str]) -> None:
        answers = await asyncio.gather(*(self._measured(machine, user) for user in users))
        for user, found in zip(users, answers, strict=True):
            if found is not None and found.latency_ms is not None:
                made = Latency(
                    milliseconds=found.latency_ms, spread_ms=found.spread_ms, at=self._board.clock()
                )
                self._board.measured(user, machine.name, made)
        if any(found is not None for found in answers):
            self._silent.pop(machine.name, None)
            return
        _, before = self._silent.get(machine.name, (0.0, PROBE_SECONDS / 2))
        pause = min(SILENCE_GROWS * before, LONGEST_SILENCE_SECONDS)
        self._silent[machine.name] = (self._board.clock() + pause, pause)

    async def _measured(self, machine: Machine, user: str) -> _Measured | None:
        """A probe's answer; None when there is no probe, or nothing that could be one."""
        address = f"[{machine.address}]" if ":" in machine.address else machine.address
        url = f"http://{address}:{self._port}/v1/latency"
        try:
            async with self._limit:
                answer = await self._client.get(url, params={"user": user} if user else {})
            found = msgspec.json.decode(answer.content, type=_Measured)
        except (
            httpx2.HTTPError,
            httpx2.InvalidURL,
            msgspec.MsgspecError,
            UnicodeError,
            RecursionError,
        ):
            return None  # the age of the measurement before says it
        return found if answer.status_code == 200 else _Measured()

    async def close(self) -> None:
        await self._client.aclose()


class Chores:
    """What has to be done every second or two, on one thread, until stopped."""

    def __init__(
        self,
        parts: Parts,
        metrics: Metrics,
        *,
        source: PolicySource | None,
        watching: Watching | None,
        probe_port: int,
        prometheus: str = "",
    ) -> None:
        self._parts, self._metrics = parts, metrics
        self._source, self._watching, self._probe_port = source, watching, probe_port
        # Made here, so that an address that is none ends the start and not this thread.
        self._prometheus = Prometheus(prometheus) if prometheus else None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="scorer-chores", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def _work(self) -> None:
        asyncio.run(self._everything())

    async def _everything(self) -> None:
        tasks = [asyncio.create_task(self._look())]
        if self._watching is not None and self._probe_port:
            tasks.append(asyncio.create_task(self._probe()))
        if self._prometheus is not None:
            follow = self._parts.metrics_of_nodes.follow(self._prometheus, self._parts.board.clock)
            tasks.append(asyncio.create_task(follow))
        while not self._stop.is_set() and not any(task.done() for task in tasks):
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=not any(t.done() for t in tasks))

    async def _look(self) -> None:
        while True:
            self.reload()
            self._parts.history.sample(self._parts.board)
            await asyncio.sleep(CHORE_SECONDS)

    def reload(self) -> None:
        """Load the policy when its files changed."""
        if self._source is not None and self._source.changed():
            outcome = self._parts.board.load(self._source)
            self._metrics.reloads.labels("loaded" if outcome.ok else "refused").inc()

    async def _probe(self) -> None:
        assert self._watching is not None
        probes = Probes(self._parts.board, self._probe_port)
        try:
            while True:
                await probes.ask(self._watching.users())
                await asyncio.sleep(PROBE_SECONDS)
        finally:
            await probes.close()
