# SPDX-License-Identifier: Apache-2.0
"""Whatever is sent to any endpoint, the scorer answers without an error of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import schemathesis
from hypothesis import given
from schemathesis.core.failures import FailureGroup

from pilothouse.scorer.app import create_app
from pilothouse.scorer.board import Board, Suggestion
from pilothouse.server.failures import Refused
from tests.fuzzing import FUZZED, answered
from tests.scorer.test_scorer import AUTHORIZED, Scorer

SCORER = Scorer(Path(), loopback=False)  # the fence would refuse the name of the test client
schema = schemathesis.openapi.from_asgi("/v1/openapi.json", SCORER.app)


@schema.parametrize()
@FUZZED
def test_no_endpoint_fails_on_bad_input(case: schemathesis.Case) -> None:
    answered(case, headers=AUTHORIZED if case.method in ("PUT", "POST") else {})


class Stumbling(Board):
    """Fails on pods that have a UID."""

    def suggestion(self, uid: str) -> Suggestion | None:
        raise Refused(500, f"Stumbled over {uid!r}.", "This is what the check has to find.")


def test_the_check_finds_an_endpoint_that_fails_on_some_input() -> None:
    board = Stumbling(view=SCORER.view, policy=SCORER.board.policy)
    broken = create_app(replace(SCORER.parts, board=board))
    whole = schemathesis.openapi.from_asgi("/v1/openapi.json", broken)

    @FUZZED
    @given(case=whole["/v1/suggestions"]["POST"].as_strategy())
    def fuzz(case: schemathesis.Case) -> None:
        answered(case, headers=AUTHORIZED)

    with pytest.raises(FailureGroup, match="Server error"):
        fuzz()


@pytest.mark.parametrize("path", ["/v1/suggestions", "/extender/filter", "/extender/prioritize"])
@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b"\xff\xfe", b'{"pod": 1}', b"NaN", b"[" * 5000, b'{"nodenames": [null]}'],
)
def test_bodies_that_no_schema_describes_are_refused(path: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    assert 200 <= SCORER.call("POST", path, content=body, headers=headers).status_code < 500
