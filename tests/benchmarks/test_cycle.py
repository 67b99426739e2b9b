# SPDX-License-Identifier: Apache-2.0
"""The short form of benchmarks/cycle: CPU time gates, wall time is printed."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.cycle.measure import LARGE, SMALL, growth, measure


def test_cycle_and_journal_stay_within_their_limits_at_both_sizes(tmp_path, capsys):
    small = measure(replace(SMALL, cycles=60), tmp_path / "small.db")
    large = measure(replace(LARGE, cycles=8), tmp_path / "large.db")
    with capsys.disabled():
        for cost in (small, large):
            print(
                f"\n{cost.nodes} nodes: p99 {cost.p99_ms:.0f} ms wall, {cost.cpu_ms:.0f} ms CPU, "
                f"{cost.bytes_per_cycle / 1000:.0f} kB a cycle",
                end="",
            )
    for size, cost in ((SMALL, small), (LARGE, large)):
        assert cost.cpu_ms <= size.limit_ms
        assert cost.bytes_per_cycle <= size.limit_bytes
    assert growth(small, large) <= 1.0
