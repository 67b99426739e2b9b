# SPDX-License-Identifier: Apache-2.0
"""Latency probes asked one after the other, for whoever looks at a cluster step by step."""

from __future__ import annotations

import httpx2
import msgspec

TIMEOUT_SECONDS = 3.0


class _Measured(msgspec.Struct):
    latency_ms: float | None = None


class Probes:
    """The nodes' probes on one port. Safe for one thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._client = httpx2.Client(timeout=TIMEOUT_SECONDS, trust_env=False)

    def latency_ms(self, address: str) -> float:
        """How far a node is from its user; NaN where its probe has no answer."""
        host = f"[{address}]" if ":" in address else address
        try:
            answer = self._client.get(f"http://{host}:{self._port}/v1/latency")
            found = msgspec.json.decode(answer.content, type=_Measured)
        except (httpx2.HTTPError, httpx2.InvalidURL, msgspec.MsgspecError):
            return float("nan")  # unknown is a value that policies know
        known = answer.status_code == 200 and found.latency_ms is not None
        return float(found.latency_ms or 0.0) if known else float("nan")

    def close(self) -> None:
        self._client.close()
