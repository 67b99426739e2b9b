# SPDX-License-Identifier: Apache-2.0
"""What the scorer keeps is bounded, so that the scheduler always accepts its table."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from pilothouse.scorer.board import LATENCY_SECONDS, MOST_SUGGESTIONS, Board, Latency
from pilothouse.scorer.watch import MOST_USERS, PROBE_SECONDS
from tests.scorer.test_scorer import TOKEN, Clock, FixedView, Scorer

PLUGIN = Path(__file__).parents[2] / "scheduler" / "placement" / "table.go"
NODES = [f"ip-10-20-{i // 256}-{i % 256}.eu-central-1.compute.internal" for i in range(5000)]


def the_plugins(limit: str) -> int:
    found = re.search(rf"\b{limit} += ([0-9_]+)(?: << ([0-9]+))?", PLUGIN.read_text())
    assert found, limit
    return int(found[1]) << int(found[2] or 0)


def a_board() -> tuple[Board, Clock]:
    clock = Clock()
    return Board(view=FixedView(), clock=clock), clock


def test_users_whom_nobody_measures_any_more_are_forgotten() -> None:
    board, clock = a_board()
    for i in range(3 * the_plugins("mostUsers")):
        board.measured(f"10.0.0.1:{i}", "n", Latency(milliseconds=1.0, spread_ms=0, at=clock()))
        clock.now += PROBE_SECONDS / (MOST_USERS - 1)  # as fast as the probes are asked

    table = msgspec.json.decode(board.table())
    assert 0 < len(table["latency"]) < the_plugins("mostUsers")
    assert all(table["latency"].values())

    clock.now += LATENCY_SECONDS + 1
    assert msgspec.json.decode(board.table())["latency"] == {}


def test_a_table_full_of_suggestions_is_one_that_the_plugin_reads() -> None:
    board, clock = a_board()
    for user in range(MOST_USERS):
        for node in NODES:
            latency = Latency(milliseconds=123.456, spread_ms=0, at=clock())
            board.measured(f"user-{user}" if user else "", node, latency)
    published = 0
    while board.publish(f"uid-{published}", dict.fromkeys(NODES, 12.5), 60, "a test"):
        published += 1
    assert published > 10
    assert board.publish("uid-0", dict.fromkeys(NODES, 50.0), 60, "a test"), "it replaces its own"

    assert the_plugins("mostSuggestions") >= MOST_SUGGESTIONS
    assert len(board.table()) < the_plugins("mostTableBytes")


def test_who_publishes_too_much_is_told_and_room_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pilothouse.scorer.board.MOST_SUGGESTED_BYTES", 30)
    scorer = Scorer(tmp_path)

    def publish(uid: str) -> int:
        return scorer.call(
            "PUT",
            f"/v1/suggestions/{uid}",
            json={"scores": {"near": 10, "far": 90}, "ttl_seconds": 5},
            headers={"Authorization": f"Bearer {TOKEN}"},
        ).status_code

    assert [publish("a"), publish("b"), publish("a")] == [204, 503, 204]
    scorer.clock.now += 6
    assert publish("b") == 204
