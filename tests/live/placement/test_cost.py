# SPDX-License-Identifier: Apache-2.0
"""What the plugin costs the scheduler, on a real API server with fake nodes: the short form.

Throughput is printed only, and the 99th percentile of the best run counts: on a busy machine they
say more about the machine. The full form, ``benchmarks/scheduling``, is held to all runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.scheduling import measure
from benchmarks.scheduling.summary import cost, summarize, table
from pilothouse.home import home
from pilothouse.lab import Lab, Wish

ARMS = ("stock", "plugin", "hung", "garbage")
TURNS = 3
NODES, PODS = 300, 400
# Processor time of single runs differs by a tenth; the full form has more of them and no such room.
ROOM = 1.10


@pytest.fixture(scope="module")
def lab(machine_before: dict[str, list[str]]) -> Iterator[Lab]:
    lab = Lab(home() / "lab")
    wish = Wish(workers=0, fake_nodes=NODES, scheduler="pilothouse", policy="el-rl")
    lab.up(wish)
    yield lab
    lab.down(keep_logs=True)


@pytest.mark.timeout(900)
def test_the_plugin_costs_little_with_a_good_and_with_a_broken_scorer(lab: Lab) -> None:
    measure.prepare(lab)
    runs = []
    for turn in range(TURNS):
        for arm in ARMS if turn % 2 == 0 else ARMS[::-1]:
            found = measure.run(lab, arm, pods=PODS, percentage=100)
            runs.append(found | {"arm": arm, "turn": turn})
    summary = {arm: summarize(arm, runs) for arm in ARMS}
    print(table(summary))

    assert summary["plugin"]["paths"].get("scored", 0) > 0.9 * PODS, summary["plugin"]["paths"]
    assert "scored" not in summary["hung"]["paths"], "the scorer was not broken at all"
    for arm in ARMS[1:]:
        missed = [said for said, holds in cost(arm, summary[arm], room=ROOM).items() if not holds]
        assert missed == [], table(summary)
        assert summary[arm]["errors"] == summary[arm]["panics"] == 0
