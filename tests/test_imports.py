# SPDX-License-Identifier: Apache-2.0
"""What importing Pilothouse costs, seen from a fresh interpreter."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

TRAINING = {
    "gymnasium",
    "jax",
    "matplotlib",
    "numba",
    "polars",
    "ray",
    "scipy",
    "sklearn",
    "torch",
    "xgboost",
}
MODULES = ["pilothouse", "pilothouse.cli", "pilothouse.server", "pilothouse.loop"]


def loaded_by(module: str) -> set[str]:
    """Top-level packages in a fresh interpreter after one import."""
    program = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", MODULES)
def test_importing_loads_no_training_library(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not part of this build")

    assert loaded_by(module) & TRAINING == set()


def test_help_needs_neither_arrays_nor_a_server() -> None:
    assert loaded_by("pilothouse.cli") & {"numpy", "fastapi", "rich", "yaml", "sqlite3"} == set()
