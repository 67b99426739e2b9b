# SPDX-License-Identifier: Apache-2.0
"""Follows one node's annotation, and gives the clock back when nobody renews it.

The annotation says how far and until when. Once that moment passed, or the API server has been
silent for too long, the clock goes back to its default without anybody's help.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pilothouse.clients.keys import FREQUENCY_KEY, FREQUENCY_STATUS_KEY, permille
from pilothouse.clients.requests import Requests
from pilothouse.errors import BackendError
from pilothouse.nodeagent.clock import Clock, Unavailable

SILENCE_SECONDS = 30.0


class NodeAgent:
    """One node's; ``look`` is one round."""

    def __init__(
        self,
        requests: Requests,
        node: str,
        clock: Clock,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests, self._clock = requests, clock
        self._path = f"/api/v1/nodes/{node}"
        self._wall, self._monotonic = wall, monotonic
        self._heard = monotonic()

    def look(self) -> str:
        """Follow the annotation once; says how the clock is."""
        try:
            node = self._requests.get(self._path)
        except BackendError as error:
            if self._monotonic() - self._heard > SILENCE_SECONDS and self._clock.is_lowered:
                return f"{self._clock.restore()}: nobody could be asked ({error})"
            return f"waiting: {error}"
        self._heard = self._monotonic()
        notes: dict[str, str] = node["metadata"].get("annotations") or {}
        state = self._follow(notes.get(FREQUENCY_KEY, ""))
        self._report(node, notes.get(FREQUENCY_STATUS_KEY, ""), state)
        return state

    def _follow(self, asked: str) -> str:
        try:
            if not asked or _until(asked) <= self._wall():
                return self._clock.restore()
            return self._clock.set(permille(asked))
        except Unavailable as missing:
            return str(missing)

    def _report(self, node: dict[str, Any], before: str, state: str) -> None:
        if state == before:
            return
        meta = node["metadata"]
        body = {"metadata": {"uid": meta["uid"], "annotations": {FREQUENCY_STATUS_KEY: state}}}
        try:
            self._requests.patch(
                self._path,
                body,
                author="pilothouse-node-agent",
                audit_id=f"node-agent.{meta['name']}.{int(self._wall())}"[:64],
            )
        except BackendError:
            return  # told again in the next round, when it differs still

    def close(self) -> None:
        """Whoever stops us gets the default clock back."""
        if self._clock.is_lowered:
            self._clock.restore()


def _until(asked: str) -> float:
    _, _, moment = asked.partition(" until ")
    return float(moment) if moment.isdigit() else 0.0
