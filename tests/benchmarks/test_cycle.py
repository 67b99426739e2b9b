# SPDX-License-Identifier: Apache-2.0
"""The short form of benchmarks/cycle: CPU time gates, wall time is printed."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from benchmarks.cycle.measure import LARGE, SMALL, growth, measure
from pilothouse.domain import Snapshot
from pilothouse.journal import Journal
from pilothouse.journal.files import segments_of
from pilothouse.run import Runner
from pilothouse.scenarios import load
from pilothouse.settings import JournalSettings, RunSettings, ScoreSettings, Settings
from pilothouse.sim.cluster import SimCluster


def test_cycle_and_journal_stay_within_their_limits_at_both_sizes(tmp_path, capsys):
    small = measure(replace(SMALL, cycles=60), tmp_path / "small.db")
    large = measure(replace(LARGE, cycles=8), tmp_path / "large.db")
    # ``Journal.size`` is of the newest file alone: the figures hold while there is only one.
    assert not [*segments_of(tmp_path / "small.db"), *segments_of(tmp_path / "large.db")]
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


def usage(snapshot: Snapshot) -> dict[int, tuple[int, int]]:
    pods = snapshot.pods
    used = zip(pods.cpu_used_millicores.tolist(), pods.memory_used_mib.tolist(), strict=True)
    return dict(zip(pods.uid.tolist(), used, strict=True))


def test_what_is_measured_moves_as_much_as_a_busy_cluster():
    cluster = SimCluster(load("harbor").sized(SMALL.nodes, SMALL.pods), seed=1)
    cluster.advance(300)
    seen = []
    for _ in range(20):
        cluster.advance(15)
        seen.append(usage(cluster.observe()))
    replaced = [len(after.keys() - before.keys()) / len(before) for before, after in pairwise(seen)]
    assert sum(replaced) / len(replaced) >= 0.01
    for before, after in zip(seen, seen[2:], strict=False):  # 30 s: every node was scraped
        both = before.keys() & after.keys()
        assert sum(before[uid] != after[uid] for uid in both) > 0.9 * len(both)


def test_a_cycle_is_one_durable_commit_and_with_actions_two(tmp_path):
    settings = Settings(
        run=RunSettings(seed=1),
        score=ScoreSettings(forks=False),
        journal=JournalSettings(keyframe_cycles=1_000),  # a checkpoint is a commit of its own
    )
    seen = set()
    with Journal.open(tmp_path / "run.db", settings=settings.journal) as journal:
        commits: list[str] = []
        journal._connection.set_trace_callback(commits.append)
        runner = Runner(settings=settings, journal=journal)
        for report in runner.cycles(40):
            spent = sum(statement == "COMMIT" for statement in commits)
            commits.clear()
            if report.turn.decision.cycle == 1 or report.findings:
                continue  # the start and a finding of the self-check are recorded apart
            acted = bool(report.turn.receipts)
            assert spent == (2 if acted else 1)
            seen.add(acted)
        journal._connection.set_trace_callback(None)
    assert seen == {True, False}
