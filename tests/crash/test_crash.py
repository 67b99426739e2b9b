# SPDX-License-Identifier: Apache-2.0
"""Loops that die by SIGKILL, held against the command log of a cluster in another process.

The short form of ``benchmarks/crashes``. Recovery is bounded here in CPU time, because tests share
their cores; the benchmark bounds it on the wall.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from pilothouse.journal import JournalReader, Resumed
from pilothouse.replay import replay
from pilothouse.testing.failpoints import AT_RESTART, FAILPOINTS
from pilothouse.testing.supervisor import (
    Aim,
    Death,
    Site,
    Supervisor,
    a_cluster,
    kill_at_random,
)
from pilothouse.testing.witness import judge

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAIVE = str(Path(__file__).with_name("naive.py"))
RECOVERY_CPU_SECONDS = 3.0
SOON = """\
apiVersion: pilothouse.dev/v1alpha1
kind: Configuration
journal:
  keyframe_cycles: 10  # so that a checkpoint is never far
"""
OPENED_AT = {"after_intent", "before_write", "mid_write", "after_write", "between_writes"} | {
    "before_receipt"
}


def a_site(folder: Path) -> Site:
    config = folder / "config.yaml"
    config.write_text(SOON)
    return Site(folder=folder, config=config)


def resolutions(journal: Path) -> list[dict[str, str]]:
    """What each restart found by looking, oldest first."""
    records = (entry.record for entry in JournalReader(journal).entries())
    return [record.resolved for record in records if isinstance(record, Resumed)]


def assert_recovered_quickly(deaths: Iterable[Death]) -> None:
    spent = [d.recovery.cpu_seconds or 0 for d in deaths if d.recovery]
    assert max(spent) < RECOVERY_CPU_SECONDS


def test_nothing_is_lost_or_done_twice_when_the_loop_dies_at_any_failpoint(tmp_path):
    site = a_site(tmp_path)
    deaths: dict[str, Death] = {}
    with a_cluster(site) as url:
        supervisor = Supervisor(site, url)
        for name in FAILPOINTS:
            if name in AT_RESTART:
                supervisor.die_at("between_writes")
            deaths[name] = supervisor.die_at(name)
        supervisor.live(cycles=20)
    judgment = judge(site.journal, site.log)
    assert judgment.findings == ()
    assert {name for name, death in deaths.items() if death.in_window} == OPENED_AT
    found = {intent: status for r in resolutions(site.journal) for intent, status in r.items()}
    statuses = {name: [found[i] for i in death.opened] for name, death in deaths.items()}
    assert set(statuses["after_intent"] + statuses["before_write"]) == {"skipped"}
    assert statuses["after_write"][0] == statuses["between_writes"][0] == "done"
    assert set(statuses["before_receipt"]) == {"done"}
    assert replay(site.journal).ok
    assert_recovered_quickly(deaths.values())


def test_nothing_is_lost_or_done_twice_when_the_loop_is_killed_at_random(tmp_path):
    site = a_site(tmp_path)
    with a_cluster(site) as url:
        supervisor = Supervisor(site, url)
        deaths = list(kill_at_random(supervisor, 12, Aim(seed=5)))
        while len(deaths) < 60 and sum(d.in_window for d in deaths) < 4:  # busy machine
            deaths += kill_at_random(supervisor, 4, Aim(seed=5 + len(deaths)))
        supervisor.live(cycles=10)
    assert sum(d.in_window for d in deaths) >= 4, "too few between intent and receipt: void"
    judgment = judge(site.journal, site.log)
    assert judgment.findings == ()
    assert judgment.numbers["commands"] > 10
    assert replay(site.journal).ok
    assert_recovered_quickly(deaths)


@pytest.mark.parametrize(
    ("mistake", "failpoint", "rules"),
    [
        ("resends", "after_write", {"sent-twice", "done-twice"}),
        ("acts_first", "before_intent", {"no-intent", "intent-late", "receipt-lost"}),
    ],
    ids=["sends_open_intents_again", "acts_before_its_intent_is_durable"],
)
def test_witness_convicts_a_loop_that(tmp_path, mistake, failpoint, rules):
    site = a_site(tmp_path)
    with a_cluster(site) as url:
        supervisor = Supervisor(site, url, command=(NAIVE, mistake))
        supervisor.die_at(failpoint)
        supervisor.live(cycles=10)
    assert {f.rule for f in judge(site.journal, site.log).findings} == rules
