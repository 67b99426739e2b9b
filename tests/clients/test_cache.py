# SPDX-License-Identifier: Apache-2.0
"""A cache against a scripted server: every awkward answer, without a network or a wait."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from pilothouse.clients.api import ExpiredError, NotFoundError
from pilothouse.clients.cache import RELIST_SECONDS, Cache
from pilothouse.clients.resources import KINDS, Pod
from pilothouse.errors import ClusterUnreachable

PODS = next(kind for kind in KINDS if kind.name == "pods")


class TheEndError(Exception):
    """The script is over."""


def a_pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}}


def change(kind: str, thing: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode()


def a_list(version: int, *names: str, more: str = "") -> bytes:
    meta = {"resourceVersion": str(version), "continue": more}
    return json.dumps({"metadata": meta, "items": [a_pod(n, version) for n in names]}).encode()


class Script:
    """Answers in order: bytes to a list, a list of lines to a watch, an error to either."""

    def __init__(self, *answers: bytes | list[bytes] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, str | int], float]] = []
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def _next(self, what: str, parameters: Mapping[str, str | int]) -> Any:
        if not self.answers:
            raise TheEndError
        self.asked.append((what, dict(parameters), self.now))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def get(self, path: str, parameters: Mapping[str, str | int] | None = None) -> bytes:
        answer: bytes = self._next("list", parameters or {})
        return answer

    @asynccontextmanager
    async def lines(
        self, path: str, parameters: Mapping[str, str | int], *, silence_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        answer = self._next("watch", parameters)

        async def each() -> AsyncIterator[bytes]:
            for line in answer:
                yield line

        yield each()


def play(*answers: bytes | list[bytes] | Exception) -> tuple[Script, Cache[Pod]]:
    script = Script(*answers)
    cache: Cache[Pod] = Cache(script, PODS, clock=script.clock, sleep=script.sleep)
    with suppress(TheEndError):
        asyncio.run(cache.run())
    return script, cache


def names(cache: Cache[Pod]) -> list[str]:
    return sorted(pod.metadata.name for pod in cache.values())


def test_list_then_watch_applies_every_kind_of_change() -> None:
    _, cache = play(
        a_list(5, "a", "b"),
        [
            change("ADDED", a_pod("c", 6)),
            change("DELETED", a_pod("a", 7)),
            change("MODIFIED", a_pod("b", 8)),
        ],
    )
    assert names(cache) == ["b", "c"]


def test_watch_goes_on_from_the_last_version_without_listing_again() -> None:
    script, _ = play(a_list(5, "a"), [change("ADDED", a_pod("b", 9))], [])
    assert [what for what, _, _ in script.asked] == ["list", "watch", "watch"]
    assert [p["resourceVersion"] for what, p, _ in script.asked if what == "watch"] == ["5", "9"]


def test_bookmark_moves_the_version_of_a_quiet_resource() -> None:
    mark = {"metadata": {"resourceVersion": "77"}}
    script, _ = play(a_list(5, "a"), [change("BOOKMARK", mark)], [])
    assert script.asked[-1][1]["resourceVersion"] == "77"


def test_gone_version_inside_a_stream_makes_it_list_again_and_drop_what_vanished() -> None:
    gone = change("ERROR", {"code": 410, "message": "too old"})
    script, cache = play(a_list(5, "a", "b"), [gone], a_list(90, "b"), [])
    assert [what for what, _, _ in script.asked] == ["list", "watch", "list", "watch"]
    assert names(cache) == ["b"]


def test_gone_version_at_the_door_makes_it_list_again() -> None:
    script, _ = play(a_list(5, "a"), ExpiredError("too old"), a_list(6, "a"), [])
    assert [what for what, _, _ in script.asked] == ["list", "watch", "list", "watch"]


def test_lists_are_never_closer_than_the_limit() -> None:
    gone = [change("ERROR", {"code": 410, "message": "too old"})]
    script, _ = play(a_list(1), gone, a_list(2), gone, a_list(3), gone)
    times = [at for what, _, at in script.asked if what == "list"]
    assert all(b - a >= RELIST_SECONDS for a, b in itertools.pairwise(times))


def test_broken_connection_pauses_longer_each_time_and_keeps_the_copy() -> None:
    lost = ClusterUnreachable("no answer")
    script, cache = play(a_list(5, "a"), lost, lost, lost, [])
    times = [at for _, _, at in script.asked[1:]]
    pauses = [b - a for a, b in itertools.pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[-1] > pauses[0]
    assert names(cache) == ["a"]
    assert cache.health().lists == 1


def test_age_counts_from_the_last_proof() -> None:
    lost = ClusterUnreachable("no answer")
    _script, cache = play(a_list(5, "a"), [], *[lost] * 6)
    health = cache.health()
    assert health.age_seconds > 3
    assert "no answer" in health.problem


def test_pages_are_one_list_and_a_token_that_expired_starts_over() -> None:
    script, cache = play(
        a_list(5, "a", more="next"),
        ExpiredError("the continue token is too old"),
        a_list(9, "b", more="next"),
        a_list(9, "c"),
        [],
    )
    assert names(cache) == ["b", "c"]
    assert script.asked[3][1]["continue"] == "next"


def test_server_that_ends_every_watch_at_once_is_not_asked_in_a_hot_loop() -> None:
    script, _ = play(a_list(5), *[[] for _ in range(20)])
    assert script.now >= 20 * 0.1 - 1e-9


def test_answer_that_cannot_be_read_makes_it_list_again() -> None:
    _script, cache = play(a_list(5, "a"), [b'{"type": "ADDED", "obj'], a_list(6, "a", "b"), [])
    assert names(cache) == ["a", "b"]


def test_hostile_names_are_only_names() -> None:
    hostile = '<img src=x onerror=alert(1)>\x1b[31m"}'
    _, cache = play(a_list(5, hostile), [])
    assert names(cache) == [hostile]


def test_resource_that_a_cluster_does_not_have_is_empty_and_no_fault() -> None:
    claims = next(kind for kind in KINDS if kind.name == "nodeclaims")
    missing = NotFoundError("404")
    script = Script(missing, missing, b"{}", a_list(5, "claim"), [])
    cache: Cache[Pod] = Cache(script, claims, clock=script.clock, sleep=script.sleep)  # type: ignore[arg-type]
    with suppress(TheEndError):
        asyncio.run(cache.run())
    health = cache.health()
    assert health.synced
    assert not health.problem
    assert [v.metadata.name for v in cache.values()] == ["claim"]
    assert script.now >= 60  # asked again now and then, not in a hurry


def test_lists_keep_their_distance_from_the_end_of_the_one_before() -> None:
    """A list that hung for seconds reaches the server late; the next may not follow at once."""

    class Slow(Script):
        async def get(self, path: str, parameters: Any = None) -> bytes:
            self.now += 0 if self.asked else 4  # until the server is back
            return await super().get(path, parameters)

    script = Slow(ClusterUnreachable("gone"), a_list(1, "a"), [])
    cache: Cache[Pod] = Cache(script, PODS, clock=script.clock, sleep=script.sleep)
    with suppress(TheEndError):
        asyncio.run(cache.run())
    first, second = [at for what, _, at in script.asked if "watch" not in what][:2]
    assert second - first >= RELIST_SECONDS
