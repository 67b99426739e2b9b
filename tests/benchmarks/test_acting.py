# SPDX-License-Identifier: Apache-2.0
"""The campaigns on the lab name tests that are there, and the page names every campaign."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.acting.run import CAMPAIGNS, HERE, LIVE, ROOT


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_campaign_finds_its_tests(name: str) -> None:
    file, part, counts = CAMPAIGNS[name]
    text = (ROOT / LIVE / file).read_text()
    tests = [n.name for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    assert [test for test in tests if test.startswith("test_") and part in test]
    assert all(f'"{key}"' in text for key in counts), "a count that nobody reads is no count"


def test_page_names_every_campaign_and_uninstalling_comes_last() -> None:
    page = Path(HERE / "README.md").read_text()
    assert [name for name in CAMPAIGNS if f"| {name} |" not in page] == []
    assert list(CAMPAIGNS)[-1] == "uninstall"
