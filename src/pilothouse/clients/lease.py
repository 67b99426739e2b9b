# SPDX-License-Identifier: Apache-2.0
"""One Pilothouse per cluster: whoever holds our Lease is the one that counts.

The usual protocol of Kubernetes' own controllers: a lease of 15 s, renewed every 2 s. Another
holder's lease is over when *we* have seen it unchanged for its whole duration, so nobody's wall
clock matters. A lease elects, it does not fence: a process that slept may believe in a lease that
somebody else took since. Therefore ``is_held`` ends by itself 10 s after the last renewal, five
before anybody else may take over, and every write still needs its own precondition.

While the API server does not answer nobody can take over, and nobody may write.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from pilothouse.clients.api import ConflictError, NotFoundError
from pilothouse.clients.resources import Lease, LeaseSpec
from pilothouse.errors import PilothouseError

NAMESPACE = "pilothouse-system"
NAME = "pilothouse"
DURATION_SECONDS = 15
RENEW_DEADLINE_SECONDS = 10.0
RETRY_SECONDS = 2.0
RELEASE_SECONDS = 2.0


class Server(Protocol):
    """What a lease needs of an API server."""

    async def get(self, path: str) -> bytes: ...

    async def post(self, path: str, body: bytes, *, audit_id: str) -> bytes: ...

    async def put(self, path: str, body: bytes, *, audit_id: str) -> bytes: ...


def own_identity() -> str:
    """Who we are, readable in ``kubectl get lease`` and never the same twice."""
    return f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(3)}"


class Leadership:
    """Holds the lease, or waits for it; ``run`` keeps at it until cancelled.

    Everything but ``run`` may be called from any thread.
    """

    def __init__(
        self,
        identity: str = "",
        *,
        namespace: str = NAMESPACE,
        name: str = NAME,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.identity = identity or own_identity()
        self.namespace = namespace
        self.name = name
        self.problem = "not asked yet"
        self._clock = clock
        self._sleep = sleep
        self._seen: Lease | None = None
        self._seen_at = float("-inf")  # when the record last changed, by our clock
        self._renewed = float("-inf")
        self._least = -1  # no number below this one is given to anybody any more
        self._answered = clock()
        self._asked = threading.Event()

    @property
    def is_held(self) -> bool:
        """True while we may act: renewed lately enough that nobody can have taken over."""
        return self._is_ours and self._clock() - self._renewed < RENEW_DEADLINE_SECONDS

    @property
    def rival(self) -> str:
        """Who else holds the lease now; empty when nobody does or nobody could say."""
        spec = self._spec
        return spec.holder_identity if not self._is_ours and not self._is_over(spec) else ""

    @property
    def silence_seconds(self) -> float:
        """Since the API server last answered from its own store. A server that lost its store goes
        on serving watches from memory, and only this tells that they have gone stale."""
        return self._clock() - self._answered

    @property
    def epoch(self) -> int:
        """How often the lease has changed hands: decisions of two holders never share one."""
        return self._spec.lease_transitions

    def count_beyond(self, number: int) -> None:
        """Somebody has had this number: from the next renewal on ours is a greater one."""
        self._least = max(self._least, number + 1)

    @property
    def sentence(self) -> str:
        """How things stand, for a person."""
        where = f"{self.namespace}/{self.name}"
        if self.rival:
            quiet = self._clock() - self._seen_at
            return f"{self.rival} holds the lease {where} (renewed {quiet:.0f} s ago)."
        if self.is_held:
            return f"The lease {where} is ours ({self.identity})."
        return f"Nobody is known to hold the lease {where}: {self.problem or 'it is free'}"

    def wait(self, seconds: float) -> bool:
        """Until the first answer, or so long; False: nobody has answered."""
        return self._asked.wait(seconds)

    async def run(self, api: Server) -> None:
        """Take the lease when it is free, renew it while it is ours, give it back at the end."""
        try:
            while True:
                await self.attempt(api)
                self._asked.set()
                await self._sleep(RETRY_SECONDS)
        finally:
            await self._release(api)

    async def attempt(self, api: Server) -> None:
        """One try; a failure is kept in ``problem`` and the next try comes soon."""
        began = self._clock()
        try:
            if not self._is_ours:
                await self._look(api)
            if self._is_ours or self._is_over(self._spec):
                await self._take(api)
            self.problem, self._answered = "", began
        except ConflictError:
            self._forget()  # somebody was quicker; look again
            self._answered = began
        except NotFoundError:
            self._forget()
            self._answered = began
            self.problem = (
                f"there is no namespace {self.namespace}. Make it with: "
                "kubectl apply -f deploy/manifests/observer-rbac.yaml"
            )
        except PilothouseError as error:
            self.problem = str(error)

    @property
    def _spec(self) -> LeaseSpec:
        return self._seen.spec if self._seen else LeaseSpec()

    @property
    def _is_ours(self) -> bool:
        return self._spec.holder_identity == self.identity

    def _is_over(self, spec: LeaseSpec) -> bool:
        quiet = self._clock() - self._seen_at
        return not spec.holder_identity or quiet > spec.lease_duration_seconds

    @property
    def _path(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    async def _look(self, api: Server) -> None:
        try:
            self._note(await api.get(f"{self._path}/{self.name}"))
        except NotFoundError:
            self._seen = None

    async def _take(self, api: Server) -> None:
        began = self._clock()  # a slow answer shortens what we may believe
        body = msgspec.json.encode(self._record(self.identity))
        if self._seen is None:
            answer = await api.post(self._path, body, audit_id=self._audit_id())
        else:
            answer = await api.put(f"{self._path}/{self.name}", body, audit_id=self._audit_id())
        self._note(answer)
        self._renewed = began

    async def _release(self, api: Server) -> None:
        """A courtesy to the next: without it they wait until our lease is over."""
        if not self.is_held:
            return
        body = msgspec.json.encode(self._record(""))
        self._renewed = float("-inf")
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await api.put(f"{self._path}/{self.name}", body, audit_id=self._audit_id())
        except (PilothouseError, TimeoutError) as error:
            self.problem = f"the lease was not given back: {error}"

    def _note(self, content: bytes) -> None:
        found = msgspec.json.decode(content, type=Lease)
        known = self._seen.metadata.resource_version if self._seen else ""
        if found.metadata.resource_version != known:
            self._seen_at = self._clock()
        self._seen = found
        self._least = max(self._least, found.spec.lease_transitions)

    def _forget(self) -> None:
        self._seen = None
        self._renewed = float("-inf")

    def _record(self, holder: str) -> dict[str, Any]:
        before = self._spec
        now = datetime.now(UTC)
        changes = holder not in ("", before.holder_identity)
        number = max(before.lease_transitions + int(changes), self._least)
        if self._seen is None:  # a Lease that somebody deleted does not count from 0 again
            number = self._least + 1
        acquired = now if changes or before.acquire_time is None else before.acquire_time
        meta = {"name": self.name, "namespace": self.namespace}
        if self._seen is not None:
            meta["resourceVersion"] = self._seen.metadata.resource_version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": meta,
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": DURATION_SECONDS,
                "acquireTime": _micro(acquired),
                "renewTime": _micro(now),
                "leaseTransitions": number,
            },
        }

    def _audit_id(self) -> str:
        return f"lease.{secrets.token_hex(8)}"


def _micro(moment: datetime) -> str:
    """Kubernetes' MicroTime, which insists on all six digits."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
