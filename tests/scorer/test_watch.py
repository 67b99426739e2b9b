# SPDX-License-Identifier: Apache-2.0
"""The scorer asks the nodes' probes, and leaves those alone that never answer."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from pilothouse.cli import probe, scorer
from pilothouse.scorer.board import Board
from pilothouse.scorer.watch import (
    ASKED_WITHIN_SECONDS,
    LONGEST_SILENCE_SECONDS,
    MOST_PROBED,
    PROBE_SECONDS,
    Probes,
)
from tests.scorer.test_scorer import Clock, FixedView, a_machine

ANSWER = b'{"latency_ms": 12.5, "spread_ms": 1.0}'


@asynccontextmanager
async def a_probe(asked: Counter[str], says: Callable[[], bytes]) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked[(await reader.readline()).split()[1].decode()] += 1
        body = says()
        writer.write(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        writer.write(body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


def a_board(*addresses: str) -> tuple[Board, Clock]:
    clock = Clock()
    nodes = [a_machine(f"node-{i}", address=address) for i, address in enumerate(addresses)]
    return Board(view=FixedView(*nodes), clock=clock), clock


def test_every_probe_is_asked_for_every_user() -> None:
    async def check() -> None:
        board, _ = a_board("127.0.0.1", "")
        asked: Counter[str] = Counter()
        async with a_probe(asked, lambda: ANSWER) as port:
            probes = Probes(board, port)
            await probes.ask(["", "10.1.1.1:80"])
            await probes.close()
        assert asked == {"/v1/latency": 1, "/v1/latency?user=10.1.1.1%3A80": 1}
        assert board.latencies()["node-0"].milliseconds == 12.5
        assert board.latencies("10.1.1.1:80")["node-0"].milliseconds == 12.5

    asyncio.run(check())


def test_a_node_without_a_probe_is_asked_less_and_less_and_one_that_answers_at_once() -> None:
    async def check() -> None:
        board, clock = a_board("127.0.0.1")
        asked: Counter[str] = Counter()
        answers = [b"not a probe"]
        async with a_probe(asked, lambda: answers[-1]) as port:
            probes = Probes(board, port)

            async def rounds(count: int) -> int:
                before = asked.total()
                for _ in range(count):
                    await probes.ask([""])
                    clock.now += PROBE_SECONDS
                return asked.total() - before

            assert await rounds(60) < 8
            answers.append(ANSWER)
            clock.now += LONGEST_SILENCE_SECONDS
            assert await rounds(5) == 5
            await probes.close()

    asyncio.run(check())


def test_a_large_cluster_is_asked_in_several_rounds_before_what_it_said_grows_old() -> None:
    nodes = 400

    async def check() -> None:
        board, clock = a_board(*["127.0.0.1"] * nodes)
        asked: Counter[str] = Counter()
        async with a_probe(asked, lambda: ANSWER) as port:
            probes = Probes(board, port)
            for number in range(1, 1 + round(ASKED_WITHIN_SECONDS / PROBE_SECONDS)):
                await probes.ask([""])
                assert asked.total() == MOST_PROBED * number
                clock.now += PROBE_SECONDS
            assert len(board.latencies()) == nodes
            await probes.close()

    asyncio.run(check())


def test_nodes_that_answer_come_before_those_that_never_did() -> None:
    async def check() -> None:
        there, clock = a_board(*["127.0.0.1"] * MOST_PROBED)
        strangers = [a_machine(f"a{i}", address="127.0.0.2") for i in range(MOST_PROBED)]
        board = Board(view=FixedView(*strangers, *there.machines()), clock=clock)
        asked: Counter[str] = Counter()
        async with a_probe(asked, lambda: ANSWER) as port:
            probes = Probes(board, port)
            counts = []
            for _ in range(4):
                await probes.ask([""])
                counts.append(asked.total())
                clock.now += PROBE_SECONDS
            await probes.close()
        assert counts == [0, MOST_PROBED, 2 * MOST_PROBED, 3 * MOST_PROBED]

    asyncio.run(check())


def test_the_scorer_asks_probes_where_they_listen_unless_told_otherwise() -> None:
    assert inspect.signature(scorer.scorer).parameters["probe_port"].default == probe.PORT


def test_a_user_or_an_address_that_is_none_costs_nobody_else_a_measurement() -> None:
    async def check() -> None:
        board, _ = a_board("127.0.0.1", "10.0.0.256")
        async with a_probe(Counter(), lambda: ANSWER) as port:
            probes = Probes(board, port)
            await probes.ask(["", "!" * 70_000, "a\x00b"])
            await probes.close()
        assert board.latencies()["node-0"].milliseconds == 12.5
        assert board.latencies("!" * 70_000) == {}

    asyncio.run(check())
