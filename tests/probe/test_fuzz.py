# SPDX-License-Identifier: Apache-2.0
"""Whatever is asked of the probe, it answers as its document says, without an error of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import pytest
import schemathesis
from hypothesis import given
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from pilothouse.probe import Probe, Users
from pilothouse.probe.serve import REASONS
from tests.fuzzing import FUZZED, answered
from tests.probe.test_probe import a_user, opened

DOCUMENT = Path(__file__).parents[2] / "api" / "probe.json"
AS_DOCUMENTED = [status_code_conformance, content_type_conformance, response_schema_conformance]
schema = schemathesis.openapi.from_dict(json.loads(DOCUMENT.read_text()))


@contextmanager
def serving(probe_class: type[Probe] = Probe) -> Iterator[str]:
    """The address of a probe that may measure one user, who is there, and nobody else."""
    ports: list[int] = []
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            users = Users(named=(f"127.0.0.1:{await a_user(stack)}",))
            probe = probe_class(users=users)
            ports.append(await opened(stack, await probe.start("127.0.0.1", 0)))
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(30)
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        done.set()
        thread.join(30)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving() as found:
        yield found


@schema.parametrize()
@FUZZED
def test_no_endpoint_fails_on_bad_input(address: str, case: schemathesis.Case) -> None:
    response = answered(case, base_url=address)
    if case.method == "GET":  # others are refused, which the document need not say of each
        case.validate_response(response, checks=AS_DOCUMENTED)


class Stumbling(Probe):
    """Answers 500 to a user who may not be measured."""

    async def _latency(self, asked: str) -> tuple[int, str, bytes]:
        if self.users.find(asked) is None:
            return 500, "application/json", b"{}"
        return await Probe._latency(self, asked)


def test_the_check_finds_a_probe_that_fails_on_some_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REASONS, 500, "Internal Server Error")
    with serving(Stumbling) as found:

        @FUZZED
        @given(case=schema["/v1/latency"]["GET"].as_strategy())
        def fuzz(case: schemathesis.Case) -> None:
            answered(case, base_url=found)

        with pytest.raises(FailureGroup, match="Server error"):
            fuzz()
