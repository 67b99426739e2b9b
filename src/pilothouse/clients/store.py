# SPDX-License-Identifier: Apache-2.0
"""All caches of one cluster, kept current by one thread of our own.

The loop is synchronous and reads whenever it likes; the thread runs until ``close``. What waiting
cannot mend (a wrong address, a wrong certificate, a missing permission) is told at once when the
store is opened; once it is open, nothing that a server does ends it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pilothouse.clients.access import Access
from pilothouse.clients.api import Api
from pilothouse.clients.cache import Cache, Health
from pilothouse.clients.keys import GATES, gates_in
from pilothouse.clients.resources import (
    KINDS,
    Account,
    Autoscaler,
    Budget,
    Event,
    Kind,
    Lease,
    Namespace,
    Node,
    NodeClaim,
    Pod,
    Quota,
    Ticket,
    Workload,
)
from pilothouse.errors import ClusterUnreachable, NotPermitted

FAREWELL_SECONDS = 0.25  # connections say goodbye in turns of the event loop after they are closed
Job = Callable[[Api], Coroutine[Any, Any, None]]


class Store:
    """The cluster as last known."""

    def __init__(self, access: Access, *, kinds: Sequence[Kind] = KINDS) -> None:
        self._access = access
        self._jobs: list[Job] = []
        self._loop = asyncio.new_event_loop()
        self._api = Api(access)
        self._caches: dict[str, Cache[Any]] = {k.name: Cache(self._api, k) for k in kinds}
        self._failure: BaseException | None = None
        self._main: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._work, name="cluster-cache", daemon=True)

    def add(self, job: Job) -> None:
        """Run something beside the caches, on the same thread; before ``open``."""
        self._jobs.append(job)

    def open(self, *, wait_seconds: float = 30.0) -> None:
        """Start, and wait until every cache has listed once; so long as pages come, we wait."""
        self._thread.start()
        deadline, pages = time.monotonic() + wait_seconds, 0
        while late := [h for h in self.health() if not h.synced]:
            if refused := [h.problem for h in late if h.refused]:
                raise NotPermitted(" ".join(refused))
            if (arrived := sum(cache.pages for cache in self._caches.values())) > pages:
                deadline, pages = time.monotonic() + wait_seconds, arrived
            if time.monotonic() > deadline:
                raise ClusterUnreachable(self._why_not_synced(wait_seconds))
            time.sleep(0.02)

    def _why_not_synced(self, seconds: float) -> str:
        late = [h for h in self.health() if not h.synced]
        reasons = "; ".join(dict.fromkeys(h.problem for h in late if h.problem))
        names = ", ".join(h.name for h in late)
        return reasons or f"{self._access.server} listed no {names} within {seconds:g} s."

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._main = self._loop.create_task(self._everything())
            self._loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # handed to the reader, who raises it
            self._failure = error
        finally:
            self._loop.run_until_complete(self._leave())
            self._loop.close()

    async def _leave(self) -> None:
        await self._api.close()
        await asyncio.sleep(FAREWELL_SECONDS)

    async def _everything(self) -> None:
        await self._api.get("/version")
        async with asyncio.TaskGroup() as group:
            for cache in self._caches.values():
                group.create_task(cache.run())
            for job in self._jobs:
                group.create_task(job(self._api))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        if self._main is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._main.cancel)
        if self._thread.is_alive():  # not where a stop came before it was started
            self._thread.join(timeout=10)

    def health(self) -> list[Health]:
        self._raise_failure()
        return [cache.health() for cache in self._caches.values()]

    def _of(self, name: str) -> list[Any]:
        return self._caches[name].values() if name in self._caches else []

    def nodes(self) -> list[Node]:
        return self._of("nodes")

    def pods(self) -> list[Pod]:
        return self._of("pods")

    def namespaces(self) -> list[Namespace]:
        return self._of("namespaces")

    def workloads(self, name: str) -> list[Workload]:
        return self._of(name)

    def autoscalers(self) -> list[Autoscaler]:
        return self._of("horizontalpodautoscalers")

    def budgets(self) -> list[Budget]:
        return self._of("poddisruptionbudgets")

    def quotas(self) -> list[Quota]:
        return self._of("resourcequotas")

    def events(self) -> list[Event]:
        return self._of("events")

    def leases(self) -> list[Lease]:
        return self._of("leases")

    def claims(self) -> list[NodeClaim]:
        return self._of("nodeclaims")

    def tickets(self) -> list[Ticket]:
        return self._of("tickets")

    def notes(self, name: str) -> dict[str, str]:
        """The annotations of one of our own accounts; empty where it is not there."""
        found: list[Account] = self._of("serviceaccounts")
        return next((a.metadata.annotations for a in found if a.metadata.name == name), {})

    def gates(self) -> dict[str, str]:
        """Namespaces whose new pods are held, deprioritized or rejected because of us."""
        return gates_in(self.notes(GATES))

    def declared_replicas(self) -> dict[str, int]:
        """What owners had declared, by uid, where an action of ours is in force."""
        return {
            step.uid: step.value
            for ticket in self.tickets()
            if not ticket.status.phase
            for step in ticket.spec.undo
            if step.verb == "scale"
        }
