# SPDX-License-Identifier: Apache-2.0
"""Real measurements of the way to a user: connecting, and one request on an open connection."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass

SAMPLES = 5
TIMEOUT_SECONDS = 2.0
MOST_ANSWER_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Median and spread of one kind of measurement, in milliseconds."""

    median_ms: float
    spread_ms: float  # between the smallest and the largest
    count: int

    @classmethod
    def of(cls, milliseconds: list[float]) -> Samples | None:
        if not milliseconds:
            return None
        return cls(
            median_ms=statistics.median(milliseconds),
            spread_ms=max(milliseconds) - min(milliseconds),
            count=len(milliseconds),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was found about one user; parts that failed are None, with the reason."""

    user: str
    tcp: Samples | None
    http: Samples | None
    problem: str

    @property
    def latency_ms(self) -> float | None:
        """The answer to a request where the user speaks HTTP, else the time to connect."""
        best = self.http or self.tcp
        return best.median_ms if best else None

    @property
    def spread_ms(self) -> float:
        best = self.http or self.tcp
        return best.spread_ms if best else 0.0


async def measure(user: str, *, samples: int = SAMPLES) -> Measurement:
    """Measure a user given as HOST:PORT."""
    host, port = split(user)
    connects: list[float] = []
    answers: list[float] = []
    problem = ""
    for _ in range(samples):
        try:
            connected, answered = await _once(host, port, ask=len(answers) == len(connects))
        except (OSError, TimeoutError) as error:
            problem = str(error) or f"no connection within {TIMEOUT_SECONDS:g} s"
            break  # a user that is away is not asked five times
        connects.append(connected)
        if answered is not None:
            answers.append(answered)
    return Measurement(
        user=user, tcp=Samples.of(connects), http=Samples.of(answers), problem=problem
    )


def split(user: str) -> tuple[str, int]:
    """``HOST:PORT``, ``[v6]:PORT``; a host alone means port 80."""
    host, colon, port = user.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        return user.strip("[]"), 80
    return host.strip("[]"), int(port) if port.isdigit() and int(port) < 65536 else 80


async def _once(host: str, port: int, *, ask: bool) -> tuple[float, float | None]:
    """Milliseconds to connect, and to the first byte of an answer (None: no HTTP there)."""
    began = time.perf_counter()
    reader, writer = await asyncio.wait_for(
        asyncio.open_connection(host, port, limit=MOST_ANSWER_BYTES), TIMEOUT_SECONDS
    )
    connected = 1000 * (time.perf_counter() - began)
    try:
        if not ask:  # it did not answer before, so it does not speak HTTP
            return connected, None
        return connected, await asyncio.wait_for(_ask(host, reader, writer), TIMEOUT_SECONDS)
    except (OSError, TimeoutError, ValueError):
        return connected, None
    finally:
        writer.close()


async def _ask(
    host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> float | None:
    asked = time.perf_counter()
    writer.write(f"HEAD / HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    await writer.drain()
    first = await reader.readline()
    answered = 1000 * (time.perf_counter() - asked)
    return answered if first.startswith(b"HTTP/") else None
