# SPDX-License-Identifier: Apache-2.0
"""The scheduler's Go files are formatted; ``make test-scheduler`` vets and tests them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCHEDULER = Path(__file__).parents[2] / "scheduler"


def test_go_files_are_formatted() -> None:
    if shutil.which("gofmt") is None:
        if os.environ.get("CI"):
            pytest.fail("This machine must have Go to check the scheduler.")
        pytest.skip("There is no gofmt command, so Go files cannot be checked.")
    done = subprocess.run(
        ["gofmt", "-l", str(SCHEDULER)], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
