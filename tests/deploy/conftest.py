# SPDX-License-Identifier: Apache-2.0
"""The helm that renders the chart."""

from __future__ import annotations

import os

import pytest

from deploy.render import found_helm


@pytest.fixture(scope="session")
def helm() -> str:
    found = found_helm()
    why = "There is no helm. Build it: pilothouse lab build --helm."
    if found is None and os.environ.get("CI"):
        pytest.fail(why)
    if found is None:
        pytest.skip(why)
    return found
