# SPDX-License-Identifier: Apache-2.0
"""Our own Lease against a small API server in memory: who holds it, and for how long."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from pilothouse.clients.api import ConflictError, NotFoundError
from pilothouse.clients.lease import DURATION_SECONDS, RENEW_DEADLINE_SECONDS, Leadership
from pilothouse.errors import ClusterUnreachable, PilothouseError


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Server:
    """One Lease with versions, as an API server keeps it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.failure: PilothouseError | None = None
        self.writes: list[str] = []

    def _store(self, body: bytes) -> bytes:
        self.version += 1
        self.lease = json.loads(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        self.writes.append(self.lease["spec"]["holderIdentity"])
        return json.dumps(self.lease).encode()

    async def get(self, path: str) -> bytes:
        if self.failure:
            raise self.failure
        if self.lease is None:
            raise NotFoundError("no lease")
        return json.dumps(self.lease).encode()

    async def post(self, path: str, body: bytes, *, audit_id: str) -> bytes:
        if self.failure:
            raise self.failure
        if self.lease is not None:
            raise ConflictError("already there")
        return self._store(body)

    async def put(self, path: str, body: bytes, *, audit_id: str) -> bytes:
        if self.failure:
            raise self.failure
        given = json.loads(body)["metadata"]["resourceVersion"]
        if self.lease is None or given != self.lease["metadata"]["resourceVersion"]:
            raise ConflictError("it has changed")
        return self._store(body)


def two(clock: Clock) -> tuple[Leadership, Leadership]:
    return Leadership("first", clock=clock), Leadership("second", clock=clock)


def attempt(server: Server, *who: Leadership) -> None:
    for one in who:
        asyncio.run(one.attempt(server))


def test_first_takes_the_lease_and_second_is_told_by_whom_it_is_held() -> None:
    clock, server = Clock(), Server()
    first, second = two(clock)
    attempt(server, first, second)
    assert first.is_held
    assert not second.is_held
    assert second.rival == "first"
    assert "first holds the lease pilothouse-system/pilothouse" in second.sentence
    assert not first.rival


def test_second_takes_over_when_the_first_has_been_silent_for_the_whole_duration() -> None:
    clock, server = Clock(), Server()
    first, second = two(clock)
    attempt(server, first, second)
    clock.now += DURATION_SECONDS - 1
    attempt(server, second)
    assert second.rival == "first"  # the control: not before
    clock.now += 2
    attempt(server, second)
    assert second.is_held
    assert second.epoch == first.epoch + 1


def test_lease_that_was_deleted_counts_on_for_whoever_knew_it() -> None:
    clock, server = Clock(), Server()
    first, second = two(clock)
    attempt(server, first)
    epoch = first.epoch
    server.lease = None
    attempt(server, first, first)
    assert first.is_held
    assert first.epoch == epoch + 1
    server.lease = None
    attempt(server, second)  # the control: who never saw it counts from 0
    assert (second.is_held, second.epoch) == (True, 0)


def test_lease_counts_beyond_what_its_holder_is_told_and_keeps_to_that() -> None:
    clock, server = Clock(), Server()
    first, second = two(clock)
    attempt(server, first)
    first.count_beyond(10)
    assert first.epoch == 0, "not before it is renewed"
    attempt(server, first)
    attempt(server, first)
    assert first.epoch == 11
    clock.now += 1
    attempt(server, second)
    clock.now += DURATION_SECONDS + 1
    attempt(server, second)
    assert (second.is_held, second.epoch) == (True, 12)
    first.count_beyond(12)  # who was replaced gains nothing by it
    attempt(server, first, first)
    assert not first.is_held
    assert json.loads(asyncio.run(server.get("")))["spec"]["leaseTransitions"] == 12


def test_holder_stops_believing_before_anybody_else_may_take_over() -> None:
    clock, server = Clock(), Server()
    first, _ = two(clock)
    attempt(server, first)
    clock.now += RENEW_DEADLINE_SECONDS + 0.1
    assert not first.is_held
    assert RENEW_DEADLINE_SECONDS < DURATION_SECONDS


def test_holder_that_slept_learns_that_the_lease_was_taken() -> None:
    clock, server = Clock(), Server()
    first, second = two(clock)
    attempt(server, first, second)
    clock.now += DURATION_SECONDS + 1
    attempt(server, second, first, first)
    assert second.is_held
    assert not first.is_held
    assert first.rival == "second"


def test_lease_is_not_held_while_the_server_is_silent_and_comes_back_with_it() -> None:
    clock, server = Clock(), Server()
    first, _ = two(clock)
    attempt(server, first)
    server.failure = ClusterUnreachable("no answer")
    clock.now += RENEW_DEADLINE_SECONDS + 1
    attempt(server, first)
    assert not first.is_held
    assert not first.rival  # nobody else has it either: looking on is fine, writing is not
    assert first.problem == "no answer"
    server.failure = None
    attempt(server, first)
    assert first.is_held


def test_missing_namespace_is_named_with_what_to_do() -> None:
    server = Server()
    server.failure = NotFoundError("namespaces not found")
    first, _ = two(Clock())
    attempt(server, first)
    assert "no namespace pilothouse-system" in first.problem
    assert "kubectl apply" in first.problem


def test_lease_is_given_back_at_the_end() -> None:
    server = Server()

    async def brief() -> None:
        first = Leadership("first")
        task = asyncio.create_task(first.run(server))
        while not first.is_held:
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(brief())
    assert server.writes == ["first", ""]
    second = Leadership("second")
    attempt(server, second)
    assert second.is_held


def test_silence_grows_while_the_server_cannot_look_anything_up() -> None:
    clock, server = Clock(), Server()
    first, second = two(clock)
    attempt(server, first, second)
    clock.now += 5
    server.failure = ClusterUnreachable("no answer")
    attempt(server, first)
    assert first.silence_seconds == 5
    server.failure = None
    attempt(server, first, second)  # an answer is one whether the lease is ours or not
    assert first.silence_seconds == 0
    assert second.silence_seconds == 0
