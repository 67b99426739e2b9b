# SPDX-License-Identifier: Apache-2.0
"""The scheduler's own tests of the network, as far as they need no Kubernetes packages.

The plugin's tests compile much of Kubernetes: ``make test-scheduler`` runs them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCHEDULER = Path(__file__).parents[2] / "scheduler"
FLAGS = {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly -trimpath"}


@pytest.fixture
def go() -> str:
    found = shutil.which("go")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("This machine must have Go to test the scheduler.")
        pytest.skip("There is no go command, so the scheduler's tests cannot run.")
    return found


@pytest.mark.slow
def test_the_network_in_go_passes_its_own_tests(go: str) -> None:
    done = subprocess.run(
        [go, "test", "./policy/..."],
        cwd=SCHEDULER,
        env=os.environ | FLAGS,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_go_files_are_formatted(go: str) -> None:
    done = subprocess.run(
        ["gofmt", "-l", str(SCHEDULER)], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
