# SPDX-License-Identifier: Apache-2.0
"""Remarks on objects: said once, in one clean line."""

from __future__ import annotations

from datetime import UTC, datetime

from pilothouse.clients.events import LONGEST_MESSAGE, EventWriter, Remark, clean, document


def a_remark(**changes: str) -> Remark:
    given = {
        "kind": "Node",
        "namespace": "",
        "name": "worker-1",
        "uid": "u",
        "reason": "WouldMigrate",
        "message": "risk 0.91",
        "decision": "0198f2c4",
    }
    return Remark(**(given | changes))


def test_same_remark_is_said_again_only_after_a_while() -> None:
    now = [0.0]
    writer = EventWriter("pilothouse", clock=lambda: now[0])
    assert writer.say(a_remark())
    assert not writer.say(a_remark())
    assert writer.say(a_remark(reason="WouldThrottle"))
    now[0] = 301.0
    assert writer.say(a_remark())


def test_hostile_text_becomes_one_short_printable_line() -> None:
    text = clean("\x1b[31mred\nline" + "é" * 2000)
    assert "\x1b" not in text
    assert "\n" not in text
    assert len(text.encode()) <= LONGEST_MESSAGE


def test_event_of_an_object_without_a_namespace_lives_in_default() -> None:
    event = document(a_remark(), "pilothouse", datetime(2026, 1, 1, tzinfo=UTC))
    assert event["metadata"]["namespace"] == "default"  # type: ignore[index]
    assert event["lastTimestamp"] == "2026-01-01T00:00:00Z"
