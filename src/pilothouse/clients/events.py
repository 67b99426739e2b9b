# SPDX-License-Identifier: Apache-2.0
"""Kubernetes Events about what we would do, so that ``kubectl describe`` shows it and why.

Events are a courtesy: they are written beside the loop, never in its way. A queue that is full
forgets the oldest, a refusal is counted, and the same sentence about the same object is said once
in a while only.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from pilothouse.clients.api import Api
from pilothouse.errors import PilothouseError

REPEAT_SECONDS = 300.0
WAITING = 256
PAUSE_SECONDS = 0.2
LONGEST_MESSAGE = 1000  # the API server accepts 1024 bytes
API_VERSIONS = {
    "Pod": "v1",
    "Node": "v1",
    "Namespace": "v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "Job": "batch/v1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One thing to say about one object."""

    kind: str  # "Node"
    namespace: str  # empty for what has none
    name: str
    uid: str
    reason: str  # CamelCase: "WouldMigrate"
    message: str
    decision: str  # sent as Audit-ID, which joins the server's log with our journal


class EventWriter:
    """Takes remarks from any thread and writes them from the cache's."""

    def __init__(self, component: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._component = component
        self._clock = clock
        self._queue: deque[Remark] = deque(maxlen=WAITING)
        self._said: dict[tuple[str, str, str], float] = {}
        self.written = 0
        self.problem = ""

    def say(self, remark: Remark) -> bool:
        """Queue a remark; False when the same was said a moment ago."""
        now = self._clock()
        key = (remark.uid, remark.reason, remark.name)
        if now - self._said.get(key, float("-inf")) < REPEAT_SECONDS:
            return False
        self._said = {k: at for k, at in self._said.items() if now - at < REPEAT_SECONDS}
        self._said[key] = now
        self._queue.append(remark)
        return True

    async def run(self, api: Api) -> None:
        while True:
            while self._queue:
                await self._write(api, self._queue.popleft())
            await asyncio.sleep(PAUSE_SECONDS)

    async def _write(self, api: Api, remark: Remark) -> None:
        body = document(remark, self._component, datetime.now(UTC))
        space = remark.namespace or "default"
        path = f"/api/v1/namespaces/{space}/events"
        try:
            await api.post(path, msgspec.json.encode(body), audit_id=remark.decision)
            self.written, self.problem = self.written + 1, ""
        except PilothouseError as error:
            self.problem = str(error)


def document(remark: Remark, component: str, now: datetime) -> dict[str, object]:
    """The Event object. Texts are cut and cleaned: names and reasons may come from anybody."""
    moment = now.isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "generateName": "pilothouse-",
            "namespace": remark.namespace or "default",
            "annotations": {"pilothouse.dev/decision": remark.decision},
        },
        "involvedObject": {
            "apiVersion": API_VERSIONS.get(remark.kind, "v1"),
            "kind": remark.kind,
            "namespace": remark.namespace,
            "name": remark.name,
            "uid": remark.uid,
        },
        "type": "Normal",
        "reason": remark.reason,
        "message": clean(remark.message),
        "source": {"component": component},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }


def clean(text: str) -> str:
    """One line of printable characters, short enough for the API server."""
    printable = "".join(c if c.isprintable() else " " for c in text)
    encoded = " ".join(printable.split()).encode()[:LONGEST_MESSAGE]
    return encoded.decode(errors="ignore")
