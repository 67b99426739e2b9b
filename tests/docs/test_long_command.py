# SPDX-License-Identifier: Apache-2.0
"""Every option of the source system's long command has its line, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command

from pilothouse.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "live.md"
OPTIONS = (
    *("--config", "--event-dir", "--kubeconfig", "--interval-seconds", "--max-iterations"),
    *("--namespace-prefixes", "--trace-out", "--trials", "--prometheus-base-url", "--no-policy"),
    *("--no-tune", "--exercise-cluster", "--exercise-namespace", "--exercise-interval-iterations"),
    *("--exercise-randomize", "--exercise-seed"),
)


def rows() -> dict[str, str]:
    """The table: their option to our words."""
    text = PAGE.read_text().partition("## The long command")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(--[a-z-]+)[^|]*\| (.*) \|$", text, flags=re.M))


def test_every_option_has_its_line() -> None:
    assert list(rows()) == list(OPTIONS)


def test_every_option_of_ours_in_the_table_exists() -> None:
    known = {o for p in get_command(app).commands["up"].params for o in p.opts}  # type: ignore[attr-defined]
    named = {option for words in rows().values() for option in re.findall(r"--[a-z-]+", words)}
    assert named
    assert named <= known
