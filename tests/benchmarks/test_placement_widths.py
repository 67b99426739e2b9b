# SPDX-License-Identifier: Apache-2.0
"""The sweep of widths: what it compares, and when a width keeps its policy's lines."""

from __future__ import annotations

from typing import Any

from benchmarks.placement import widths
from pilothouse.learn.placement.training import WIDTHS


def rows(*values: float, at_least: bool = False, nodes: str = "500") -> list[dict[str, Any]]:
    """One line, a value per seed."""
    line = {"what": "a line", "nodes": nodes, "bound": 1.0, "at_least": at_least}
    return [line | {"seed": seed, "value": value} for seed, value in enumerate(values, start=1)]


def test_the_shipped_width_and_smaller_ones_are_compared() -> None:
    assert widths.SHIPPED == WIDTHS
    assert widths.arms("lb", rewards=False) == ["4", "8"]
    assert widths.arms("el-rl", rewards=False) == ["4", "8", "16", "24"]
    assert widths.arms("el-rl", rewards=True) == ["thesis-el-rl"]


def test_a_width_keeps_its_lines_when_the_median_seed_does_at_every_size() -> None:
    assert widths.keeps(rows(0.9, 0.9, 1.1))
    assert not widths.keeps(rows(0.9, 1.1, 1.1))
    assert not widths.keeps(rows(0.9, 0.9, 0.9, nodes="3") + rows(0.9, 1.1, 1.1))
    assert widths.keeps(rows(1.1, 1.1, 0.9, at_least=True))
    assert not widths.keeps(rows(1.1, 0.9, 0.9, at_least=True))


def test_table_marks_what_fails() -> None:
    told = {"date": "2026-11-16", "reward": "packing"}
    found = {
        "ee": {
            "4": told | {"width": 4, "lines": rows(0.9, 1.1, 1.2)},
            "8": told | {"width": 8, "lines": rows(0.9, 0.8, 1.2)},
        }
    }
    said = widths.table(found)

    assert "| ee: a line | 1.0 | 4, packing |  |  | 1.100 (1.200) FAILS |" in said
    assert "| ee: a line | 1.0 | 8, packing |  |  | 0.900 (1.200) |" in said
    assert "ee, 4 wide on packing (2026-11-16): does not keep its lines" in said
    assert "ee, 8 wide on packing (2026-11-16): keeps its lines" in said
