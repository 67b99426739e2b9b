# SPDX-License-Identifier: Apache-2.0
"""Whatever is sent to any endpoint, the scorer answers without an error of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error

from pilothouse.scorer.app import create_app
from tests.scorer.test_scorer import AUTHORIZED, Scorer

FORBIDDEN = range(500, 600)
SCORER = Scorer(Path(), loopback=False)  # the fence would refuse the name of the test client
schema = schemathesis.openapi.from_asgi("/v1/openapi.json", SCORER.app)


@schema.parametrize()
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_no_endpoint_fails_on_bad_input(case: schemathesis.Case) -> None:
    headers = AUTHORIZED if case.method in ("PUT", "POST") else {}
    response = case.call(headers=headers)
    case.validate_response(response, checks=[not_a_server_error])


def test_the_check_would_notice_a_failing_endpoint() -> None:
    broken = Scorer(Path())
    broken.view.machines = lambda: [None]  # type: ignore[method-assign, list-item]
    broken.app = create_app(broken.parts)

    assert broken.call("GET", "/v1/nodes").status_code in FORBIDDEN


@pytest.mark.parametrize("path", ["/v1/suggestions", "/extender/filter", "/extender/prioritize"])
@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b"\xff\xfe", b'{"pod": 1}', b"NaN", b"[" * 5000, b'{"nodenames": [null]}'],
)
def test_bodies_that_no_schema_describes_are_refused(path: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    assert 200 <= SCORER.call("POST", path, content=body, headers=headers).status_code < 500
