# SPDX-License-Identifier: Apache-2.0
"""The one check of fuzzed endpoints: whatever was sent, the answer is no error of ours."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response

FUZZED = settings(
    max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


def answered(case: schemathesis.Case, **arguments: Any) -> Response:
    """Send a case; a server error fails the test that sent it."""
    response = case.call(**arguments)
    case.validate_response(response, checks=[not_a_server_error])
    return response
