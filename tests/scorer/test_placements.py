# SPDX-License-Identifier: Apache-2.0
"""The journal of placements is closed when it is full, and nothing in it is lost or sent twice."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from pilothouse.explain import placements as explained
from pilothouse.journal import rotation, verify
from pilothouse.journal.files import segment_path, segments_of
from pilothouse.scorer.placements import Placements
from pilothouse.settings import JournalSettings

SMALL = JournalSettings(segment_mib=1, keep_segments=2)
WEIGHT = 200_000  # characters of a batch that no compression makes smaller than half of it


def a_batch(pod: str) -> dict[str, Any]:
    item = {"namespace": "shop", "pod": pod, "node": "worker-1", "path": "single"}
    return {"kind": "placements", "placements": [item], "weight": secrets.token_hex(WEIGHT // 2)}


def take(kept: Placements, count: int, *, first: int = 0) -> list[int]:
    return [kept.take("tests", a_batch(f"pod-{first + i}"), None) for i in range(count)]


def test_a_full_journal_is_closed_and_its_placements_are_still_found(tmp_path: Path) -> None:
    path = tmp_path / "placements.db"
    kept = Placements(path, cluster="test", settings=SMALL)
    numbers = take(kept, 15)
    kept.close()

    assert len(segments_of(path)) == 1
    assert numbers == sorted(set(numbers))
    for pod in ("pod-0", "pod-14"):
        assert explained.find([path], f"pod/shop/{pod}") is not None, pod
    assert verify(path).ok


def test_a_journal_that_is_not_full_stays_one_file(tmp_path: Path) -> None:
    path = tmp_path / "placements.db"
    kept = Placements(path, cluster="test", settings=SMALL)
    take(kept, 5)
    kept.close()
    assert segments_of(path) == []


def test_the_oldest_files_go_and_a_restart_carries_on(tmp_path: Path) -> None:
    path = tmp_path / "placements.db"
    for run in range(4):
        kept = Placements(path, cluster="test", settings=SMALL)
        take(kept, 12, first=100 * run)
        kept.close()

    assert len(segments_of(path)) == SMALL.keep_segments
    assert explained.find([path], "pod/shop/pod-0") is None
    assert explained.find([path], "pod/shop/pod-311") is not None
    assert verify(path).ok


def test_a_rotation_that_fails_costs_no_record_and_is_not_the_senders_business(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "placements.db"
    kept = Placements(path, cluster="test", settings=SMALL)
    segment_path(path, 1).write_text("somebody else's")
    take(kept, 15)
    kept.close()

    assert "is in the way" in caplog.text
    assert [item["pod"] for item in kept.latest] == [f"pod-{i}" for i in range(15)]
    segment_path(path, 1).unlink()
    assert all(explained.find([path], f"pod/shop/pod-{i}") for i in (0, 14))


def test_a_closed_file_that_cannot_be_read_costs_no_record_either(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "placements.db"
    kept = Placements(path, cluster="test", settings=SMALL)
    take(kept, 12)
    (closed,) = [file for _, file in segments_of(path)]
    closed.write_bytes(b"not a journal" * 1000)
    numbers = take(kept, 24, first=12)
    kept.close()

    assert len(numbers) == 24
    assert caplog.text.count("was not rotated") <= 3, "said, and not with every batch"
    assert kept.latest[-1]["pod"] == "pod-35"


def test_a_swap_of_files_that_fails_leaves_the_journal_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "placements.db"
    kept = Placements(path, cluster="test", settings=SMALL)

    def fails(*_: object) -> None:
        raise OSError("the disk is read-only for a moment")

    with monkeypatch.context() as broken:
        broken.setattr(rotation.os, "rename", fails)
        take(kept, 12)
    assert segments_of(path) == []
    take(kept, 2, first=12)
    kept.close()

    assert len(segments_of(path)) == 1
    assert all(explained.find([path], f"pod/shop/pod-{i}") for i in (0, 11, 13))
    assert verify(path).ok
