# SPDX-License-Identifier: Apache-2.0
"""A pod's placement, told from its record alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pilothouse.explain import placements
from pilothouse.journal import Ingested, Journal, Run


def a_placement(**changes: Any) -> dict[str, Any]:
    features = [0.0] * 18
    features[6], features[7] = 12.0, 1.0
    return {
        "namespace": "shop",
        "pod": "cart",
        "node": "worker-1",
        "path": "scored",
        "mode": "enforce",
        "profile": "default-scheduler",
        "at": "2026-11-15T14:03:07.1234Z",
        "policy": "el-rl-0123456789ab",
        "nodes": 3,
        "candidates": 3,
        "table_age_seconds": 0.4,
        "soft_limit_ms": 20,
        "best": True,
        "chosen": {"node": "worker-1", "q": 1.25, "score": 100, "features": features},
        "alternatives": [{"node": "worker-2", "q": 0.5, "score": 40, "features": [0.0] * 18}],
        "reasons": {
            "contributions": {"worker-1": {"latency": 0.4, "load": -0.1}},
            "flip": "at a latency of 30 ms on worker-1 (now 12 ms) worker-2 would have been chosen",
        },
    } | changes


def a_journal(path: Path, *batches: list[Any]) -> Path:
    with Journal.open(path) as journal:
        journal.begin(Run(run_id="r", cluster="c", scenario="placements", seed=0, version="0"))
        for batch in batches:
            content = {"kind": "placements", "placements": batch}
            journal.append(Ingested(source="scheduler", content=content))
    return path


def test_the_newest_record_of_the_pod_is_found(tmp_path: Path) -> None:
    older, newer = a_placement(node="worker-3"), a_placement()
    path = a_journal(tmp_path / "j.db", [older, a_placement(pod="other")], [newer])

    found = placements.find([path], "pod/shop/cart")
    assert found is not None
    assert found["node"] == "worker-1"
    assert placements.find([path], "pod/shop/nonesuch") is None


def test_later_journals_are_searched_when_the_first_has_none(tmp_path: Path) -> None:
    empty = a_journal(tmp_path / "a.db")
    full = a_journal(tmp_path / "b.db", [a_placement()])

    assert placements.find([empty, full], "pod/shop/cart") is not None


def test_the_text_quotes_the_recorded_numbers() -> None:
    said = placements.text(a_placement())

    assert "Placement shop/cart on worker-1, 2026-11-15T14:03:07, enforce" in said
    assert "3 candidates of 3 nodes, table 0.4 s old" in said
    assert "Limits    soft 20 ms" in said
    assert "Chosen    worker-1 (Q 1.250, score 100, latency 12.0 ms, latency +0.40" in said
    assert "Lost      worker-2 (Q 0.500, score 40)" in said
    assert "Margin    at a latency of 30 ms on worker-1" in said


def test_a_skipped_placement_says_why() -> None:
    bare = {
        "namespace": "shop",
        "pod": "cart",
        "node": "n",
        "path": "skipped",
        "why": "stale table",
    }

    assert "the default plugins decided (stale table)" in placements.text(bare)


def test_records_of_other_shapes_are_passed_over(tmp_path: Path) -> None:
    path = a_journal(tmp_path / "j.db", [None, 7, {"pod": "cart"}])

    assert placements.find([path], "pod/shop/cart") is None
