# SPDX-License-Identifier: Apache-2.0
"""The probe really measures: a delay put in the way must be seen."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import statistics
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pilothouse.lab.delay import Way, set_delays
from pilothouse.probe import Probe, Users, measure
from pilothouse.probe.measure import split
from pilothouse.probe.serve import MOST_KEPT

ANSWER = b"HTTP/1.0 204 No Content\r\n\r\n"


Check = Callable[[AsyncExitStack], Awaitable[None]]


def run(check: Check) -> None:
    """Servers a check opens are closed after it."""

    async def whole() -> None:
        async with AsyncExitStack() as stack:
            await check(stack)

    asyncio.run(whole())


async def opened(stack: AsyncExitStack, server: asyncio.Server) -> int:
    await stack.enter_async_context(server)
    return server.sockets[0].getsockname()[1]


async def a_user(stack: AsyncExitStack, answer: bytes = ANSWER) -> int:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answer:
            await reader.readline()
            writer.write(answer)
            await writer.drain()
        writer.close()

    return await opened(stack, await asyncio.start_server(serve, "127.0.0.1", 0))


async def a_way(stack: AsyncExitStack, folder: Path, user_port: int) -> int:
    way = Way("worker-1", folder / "delays.json", ("127.0.0.1", user_port))
    return await opened(stack, await asyncio.start_server(way.serve, "127.0.0.1", 0))


async def ask(port: int, path: str) -> tuple[int, dict]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body) if body.startswith(b"{") else {"text": body}


@pytest.mark.parametrize("delay_ms", [0.0, 40.0, 120.0])
def test_a_delay_in_the_way_is_seen(tmp_path: Path, delay_ms: float) -> None:
    async def check(stack: AsyncExitStack) -> None:
        set_delays(tmp_path / "delays.json", {"worker-1": delay_ms})
        user = await a_user(stack)
        way = await a_way(stack, tmp_path, user)
        beyond = []
        for _ in range(9):
            found = await measure(f"127.0.0.1:{way}")
            assert found.http is not None
            assert found.http.count == 5
            assert found.latency_ms is not None
            assert found.latency_ms >= delay_ms
            beyond.append(found.latency_ms - found.spread_ms - delay_ms)
            if statistics.median(beyond) <= 30:
                break
        # The machine may be busy for a while, but a delay that is not there is not seen either.
        assert statistics.median(beyond) <= 30, beyond

    run(check)


def test_a_changed_delay_is_seen_at_the_next_measurement(tmp_path: Path) -> None:
    async def check(stack: AsyncExitStack) -> None:
        user = await a_user(stack)
        way = await a_way(stack, tmp_path, user)
        before = await measure(f"127.0.0.1:{way}")
        set_delays(tmp_path / "delays.json", {"worker-1": 80})
        after = await measure(f"127.0.0.1:{way}")
        assert before.latency_ms is not None
        assert after.latency_ms is not None
        assert after.latency_ms >= 80
        assert after.latency_ms > before.latency_ms

    run(check)


def test_a_user_without_http_is_measured_by_connecting() -> None:
    async def check(stack: AsyncExitStack) -> None:
        port = await a_user(stack, b"")
        found = await measure(f"127.0.0.1:{port}")
        assert found.http is None
        assert found.tcp is not None
        assert found.latency_ms == found.tcp.median_ms

    run(check)


def test_a_user_that_is_away_gives_no_latency_and_the_reason() -> None:
    found = asyncio.run(measure("127.0.0.1:1"))

    assert found.latency_ms is None
    assert found.problem


def test_the_probe_serves_and_exports_what_it_measured() -> None:
    async def check(stack: AsyncExitStack) -> None:
        user = await a_user(stack)
        name = f"127.0.0.1:{user}"
        port = await opened(stack, await Probe(users=Users(named=(name,))).start("127.0.0.1", 0))
        status, body = await ask(port, "/v1/latency")
        assert status == 200
        assert body["user"] == name
        assert body["latency_ms"] > 0
        _, metrics = await ask(port, "/metrics")
        for what in ("latency", "spread"):
            line = f'pilothouse_probe_{what}_milliseconds{{user="{name}",kind="http"}}'
            assert line in metrics["text"].decode()
        assert (await ask(port, "/nonesuch"))[0] == 404

    run(check)


def test_the_probe_measures_nobody_it_was_not_allowed_to() -> None:
    users = Users(named=("10.0.0.9:80",), networks=(ipaddress.ip_network("127.0.0.0/8"),))

    assert users.find("") == "10.0.0.9:80"
    assert users.find("127.0.0.1:22") == "127.0.0.1:22"
    assert users.find("169.254.169.254:80") is None
    assert users.find("metadata.internal") is None

    async def check(stack: AsyncExitStack) -> None:
        port = await opened(stack, await Probe(users=users).start("127.0.0.1", 0))
        status, _ = await ask(port, "/v1/latency?user=169.254.169.254")
        assert status == 403

    run(check)


def test_garbage_does_not_end_the_probe() -> None:
    async def check(stack: AsyncExitStack) -> None:
        probe = Probe(users=Users(named=("127.0.0.1:1",)))
        port = await opened(stack, await probe.start("127.0.0.1", 0))
        for garbage in (b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"A" * 20_000, b""):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(garbage)
            writer.close()
        assert (await ask(port, "/healthz"))[0] == 200
        assert (await ask(port, "/v1/latency"))[0] == 503

    run(check)


LOOPBACK = Users(named=("127.0.0.1:1",), networks=(ipaddress.ip_network("127.0.0.0/8"),))


async def status_of(port: int, request: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head = (await reader.read()).split()
    writer.close()
    return int(head[1])


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("POST /v1/latency HTTP/1.1", 400),
        ("GET /v1/latency", 400),
        ("", 400),
        ("\x00\xff \x01 \x02", 400),
        ("GET http://[ HTTP/1.1", 400),
        ("GET //[::1 HTTP/1.1", 400),
        ("GET /v1/latency/../../etc/passwd HTTP/1.1", 404),
        ("GET /V1/LATENCY HTTP/1.1", 404),
        ("GET * HTTP/1.1", 404),
        ("GET /v1/latency?user=shop.example:80 HTTP/1.1", 403),
        ("GET /v1/latency?user=169.254.169.254 HTTP/1.1", 403),
        ("GET /v1/latency?user=%5B127.0.0.1%5D:1 HTTP/1.1", 503),  # allowed; nobody is there
        ("GET /v1/latency?user=127.0.0.1%0A:80 HTTP/1.1", 403),
        ("GET /v1/latency?user=127.0.0.1%00:80 HTTP/1.1", 403),
        ("GET /v1/latency?user=127.0.0.1:%C2%B2 HTTP/1.1", 403),  # a superscript two is a digit
        ("GET /v1/latency?user=:::::: HTTP/1.1", 403),
        ("GET /v1/latency?user=%FF%FE HTTP/1.1", 403),
        ("GET /v1/latency?user=2130706433 HTTP/1.1", 403),
        ("GET /v1/latency?user=" + 4000 * "1" + " HTTP/1.1", 403),
        ("GET /v1/latency?" + 500 * "user=x&" + " HTTP/1.1", 403),
    ],
)
def test_bad_input_is_refused_and_nobody_is_measured_for_it(line: str, status: int) -> None:
    async def check(stack: AsyncExitStack) -> None:
        probe = Probe(users=LOOPBACK)
        port = await opened(stack, await probe.start("127.0.0.1", 0))
        assert await status_of(port, line.encode("latin-1") + b"\r\n\r\n") == status
        _, metrics = await ask(port, "/metrics")
        assert metrics["text"].decode().count("age_seconds{") == (status == 503)

    run(check)


def test_asking_for_ever_more_users_does_not_fill_the_memory() -> None:
    async def check(stack: AsyncExitStack) -> None:
        probe = Probe(users=LOOPBACK)
        for i in range(MOST_KEPT + 20):
            await probe.look(f"127.0.{i // 250}.{i % 250 + 1}:1")
        assert len(probe._found) <= MOST_KEPT
        assert len(probe._busy) <= MOST_KEPT
        assert f"127.0.{i // 250}.{i % 250 + 1}:1" in probe._found, "the newest is kept"
        assert "127.0.0.1:1" not in probe._found

    run(check)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("a:81", "a", 81), ("a", "a", 80), ("[::1]:9", "::1", 9), ("::1", "::1", 80)],
)
def test_users_are_hosts_and_ports(text: str, host: str, port: int) -> None:
    assert split(text) == (host, port)
