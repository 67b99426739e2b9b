# SPDX-License-Identifier: Apache-2.0
"""The probe's small HTTP server: ``/v1/latency``, ``/metrics`` and ``/healthz``."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from urllib.parse import parse_qs, urlsplit

import msgspec

from pilothouse.probe.measure import Measurement, measure, split

KEPT_SECONDS = 1.0  # one measurement answers everybody who asks within so short a time
MOST_KEPT = 256  # users; whoever may ask for a network's addresses must not fill our memory
MOST_REQUEST_BYTES = 8 << 10
REQUEST_SECONDS = 5.0
REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 503: "Unavailable"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """Who may be measured: the named users, and any address within the allowed networks."""

    named: tuple[str, ...]  # HOST:PORT; the first is the default one
    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()

    def find(self, asked: str) -> str | None:
        """The user to measure, or None when it may not be."""
        if not asked:
            return self.named[0] if self.named else None
        if asked in self.named:
            return asked
        try:
            address = ipaddress.ip_address(split(asked)[0])
        except ValueError:
            return None
        return asked if any(address in network for network in self.networks) else None


@dataclass(slots=True, kw_only=True, eq=False)
class Probe:
    """One probe: whom it may measure and what it found last."""

    users: Users
    clock: Callable[[], float] = time.monotonic
    _found: dict[str, tuple[float, Measurement]] = field(default_factory=dict)
    _busy: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def look(self, user: str) -> Measurement:
        """A fresh measurement; callers at the same time share one."""
        async with self._busy.setdefault(user, asyncio.Lock()):
            at, before = self._found.get(user, (float("-inf"), None))
            if before is not None and self.clock() - at < KEPT_SECONDS:
                return before
            found = await measure(user)
            self._found.pop(user, None)  # so that the first of all is the one measured longest ago
            self._found[user] = (self.clock(), found)
        self._forget()
        return found

    def _forget(self) -> None:
        for user in list(self._found)[:-MOST_KEPT]:
            del self._found[user]
        for user in [u for u, busy in self._busy.items() if not busy.locked()][:-MOST_KEPT]:
            del self._busy[user]

    async def start(self, host: str, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._serve, host, port, limit=MOST_REQUEST_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            try:
                answer = await asyncio.wait_for(self._answer(reader), REQUEST_SECONDS * 3)
            except ValueError:  # a line too long, an address that is none
                answer = _problem(400, "This is no request.")
            status, kind, body = answer
            head = f"HTTP/1.1 {status} {REASONS[status]}\r\nContent-Type: {kind}\r\n"
            head += f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
        except (OSError, TimeoutError):
            pass  # the caller hung up or never finished its request; others are served on
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, str, bytes]:
        line = await asyncio.wait_for(reader.readline(), REQUEST_SECONDS)
        while (await asyncio.wait_for(reader.readline(), REQUEST_SECONDS)).strip():
            pass  # headers say nothing we need
        words = line.decode("latin-1").split()
        if len(words) != 3 or words[0] not in ("GET", "HEAD"):
            return _problem(400, "Only GET is served.")
        target = urlsplit(words[1])
        if target.path == "/healthz":
            return 200, "application/json", b'{"ok":true}'
        if target.path == "/metrics":
            return 200, "text/plain; version=0.0.4", self._metrics()
        if target.path != "/v1/latency":
            return _problem(404, "Only /v1/latency, /metrics and /healthz are served.")
        return await self._latency(parse_qs(target.query).get("user", [""])[0])

    async def _latency(self, asked: str) -> tuple[int, str, bytes]:
        user = self.users.find(asked)
        if user is None:
            named = ", ".join(self.users.named) or "none"
            return _problem(
                403, f"This user may not be measured. Named: {named}. Others need --allow NETWORK."
            )
        found = await self.look(user)
        body = asdict(found) | {"latency_ms": found.latency_ms, "spread_ms": found.spread_ms}
        status = 200 if found.latency_ms is not None else 503
        return status, "application/json", msgspec.json.encode(body)

    def _metrics(self) -> bytes:
        lines = [
            "# HELP pilothouse_probe_latency_milliseconds Median latency to a user, by kind.",
            "# TYPE pilothouse_probe_latency_milliseconds gauge",
        ]
        spreads = [
            "# HELP pilothouse_probe_spread_milliseconds How far its samples lie apart, by kind.",
            "# TYPE pilothouse_probe_spread_milliseconds gauge",
        ]
        ages = ["# TYPE pilothouse_probe_age_seconds gauge"]
        for user, (at, found) in sorted(self._found.items()):
            label = user.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "")
            for kind, samples in (("tcp", found.tcp), ("http", found.http)):
                if samples is not None:
                    of = f'_milliseconds{{user="{label}",kind="{kind}"}}'
                    lines.append(f"pilothouse_probe_latency{of} {samples.median_ms:.3f}")
                    spreads.append(f"pilothouse_probe_spread{of} {samples.spread_ms:.3f}")
            ages.append(f'pilothouse_probe_age_seconds{{user="{label}"}} {self.clock() - at:.3f}')
        return ("\n".join(lines + spreads + ages) + "\n").encode()


def _problem(status: int, message: str) -> tuple[int, str, bytes]:
    return status, "application/json", msgspec.json.encode({"error": {"message": message}})
