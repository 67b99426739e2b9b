# SPDX-License-Identifier: Apache-2.0
"""A home of its own and a small made-up trace for every test of the training side."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PILOTHOUSE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from pilothouse.learn.traces.synthetic import Recipe, write

    folder = tmp_path_factory.mktemp("synthetic")
    write(folder, Recipe(jobs=30, machines=8, hours=8, seed=3))
    return folder
