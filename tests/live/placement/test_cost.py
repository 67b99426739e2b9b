# SPDX-License-Identifier: Apache-2.0
"""What the plugin costs the scheduler, on a real API server with fake nodes: the short form.

As many nodes as the bounds are about, for what the plugin adds is small beside what the scheduler
does with a thousand nodes and not beside what it does for a pod anyway; fewer pods and turns.
Throughput is printed only, and of the 99th percentile the best run counts: the others say more
about the machine. An arm that misses a bound gets more turns; a plugin that really costs more costs
it in every one. The full form, ``benchmarks/scheduling``, is held to all runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.scheduling import measure
from benchmarks.scheduling.arms import BROKEN
from benchmarks.scheduling.run import LEASE_SECONDS, in_turn
from benchmarks.scheduling.summary import cost, summarize, table
from pilothouse.home import home
from pilothouse.lab import Lab, Wish

ARMS = ("stock", "plugin", *BROKEN)
TURNS, MOST_TURNS = 2, 6
NODES, PODS = 1000, 1000
# Few short runs differ by some percent; the full form has more of them and no such room.
ROOM = 1.10


@pytest.fixture(scope="module")
def lab(machine_before: dict[str, list[str]]) -> Iterator[Lab]:
    lab = Lab(home() / "lab")
    wish = Wish(
        workers=0,
        fake_nodes=NODES,
        fake_lease_seconds=LEASE_SECONDS,
        scheduler="pilothouse",
        policy="el-rl",
    )
    lab.up(wish)
    yield lab
    lab.down(keep_logs=True)


@pytest.mark.timeout(1800)
def test_the_plugin_costs_little_with_a_good_and_with_a_broken_scorer(lab: Lab) -> None:
    measure.prepare(lab)
    measure.run(lab, "stock", 0, turn=0, pods=PODS, percentage=100)  # nobody's: a warm-up
    runs: list[dict[str, Any]] = []
    for turn in range(MOST_TURNS):
        arms = list(ARMS) if turn < TURNS else ["stock", *_unsure(runs)]
        if arms == ["stock"]:
            break
        for arm in in_turn(arms, turn):
            found = measure.run(lab, arm, 1 + len(runs), turn=turn, pods=PODS, percentage=100)
            runs.append(found | {"nodes": NODES})
    summary = {arm: summarize(arm, runs) for arm in ARMS}
    print(table(summary))

    assert summary["plugin"]["paths"].get("scored", 0) > 0.9 * PODS, summary["plugin"]["paths"]
    for arm in ("killed", "hung"):
        assert "scored" not in summary[arm]["paths"], "the scorer was not broken at all"
    said = [text for arm in ARMS[1:] for text in _missed(arm, runs)]
    assert said == [], table(summary)
    for arm in ARMS:
        assert summary[arm]["errors"] == summary[arm]["panics"] == 0
    met = summary["garbage"]["garbage"]
    assert {"huge", "not-a-number", "nan-weights", "extreme"} <= met.keys()
    assert all(met.values()), f"a kind of garbage that nobody was given: {met}"


def _unsure(runs: list[dict[str, Any]]) -> list[str]:
    return [arm for arm in ARMS[1:] if _missed(arm, runs)]


def _missed(arm: str, runs: list[dict[str, Any]]) -> list[str]:
    checks = cost(arm, summarize(arm, runs), room=ROOM)
    return [text for text, holds in checks.items() if not holds]
