# SPDX-License-Identifier: Apache-2.0
"""The controls file: nothing that happens to it may make the kill switch go silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilothouse.domain import Mode, Ref
from pilothouse.guard.switch import ControlFile, Controls, objection
from pilothouse.settings import ModeSettings

POD = Ref("sim", "pod", "shop", "web-0")
NODE = Ref("sim", "node", "", "n1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db.controls"


def taken(file: ControlFile, controls: Controls | None = None) -> Controls:
    controls = controls or Controls()
    for command in file.after(controls):
        controls = controls.after(command, now=0)
    return controls


def three_lines(path: Path) -> Controls:
    file = ControlFile(path)
    file.append("mode", {"agent": "safety", "mode": "off"})
    file.append("mode", {"agent": "safety", "mode": "enforce"})
    file.append("approve", {"id": "a:b:c"})
    return taken(file)


def test_shorter_file_halts_and_says_what_is_lost(path):
    before = three_lines(path)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    after = taken(ControlFile(path), before)
    assert after.halted
    assert after.halted_because == "the controls file lost lines: 3 were taken, 1 is there"
    assert after.modes == before.modes


def test_deleted_file_halts_once(path):
    before = three_lines(path)
    path.unlink()
    after = taken(ControlFile(path), before)
    assert (after.halted, after.line) == (True, 0)
    assert "3 were taken, 0 are there" in after.halted_because
    assert ControlFile(path).after(after) == []


def test_what_is_appended_after_a_loss_is_obeyed(path):
    before = three_lines(path)
    path.unlink()
    after = taken(ControlFile(path), before)
    ControlFile(path).append("resume", {})
    assert not taken(ControlFile(path), after).halted


def test_rewritten_file_of_the_same_length_halts(path):
    """Deleted, and a halt appended before anybody looked: as many lines, another meaning."""
    ControlFile(path).append("resume", {})
    before = taken(ControlFile(path))
    path.unlink()
    ControlFile(path).append("halt", {})
    after = taken(ControlFile(path), before)
    assert after.halted
    assert "rewritten" in after.halted_because


def test_file_that_cannot_be_read_halts_and_says_so_once(path):
    path.mkdir()
    after = taken(ControlFile(path), Controls())
    assert after.halted
    assert after.halted_because == "the controls file cannot be read: Is a directory"
    assert ControlFile(path).after(after) == []


@pytest.mark.parametrize(
    "line",
    [b'{"command": "\\ud800"}', b"[" * 100_000, b"\xff", b"7"],
    ids=["surrogate", "deep", "bytes", "number"],
)
def test_hostile_line_halts(path, line):
    path.write_bytes(line + b"\n")
    (command,) = ControlFile(path).after(Controls())
    command.command.encode()
    assert Controls().after(command, now=0).halted


def test_half_a_character_in_a_reason_can_be_recorded(path):
    path.write_bytes(b'{"command": "halt", "reason": "\\ud800"}\n')
    assert taken(ControlFile(path)).halted_because == "?"


def test_end_takes_all_that_is_there_and_obeys_none_of_it(path):
    ControlFile(path).append("halt", {})
    end = ControlFile(path).end()
    assert (end.halted, end.line) == (False, 1)
    assert ControlFile(path).after(end) == []
    assert ControlFile(path).end() == end


@pytest.mark.parametrize(
    ("key", "target", "stops"),
    [
        ("safety", POD, True),
        ("safety", NODE, True),
        ("safety/shop", POD, True),
        ("safety/shop", NODE, True),
        ("safety/shop", Ref("sim", "namespace", "", "shop"), True),
        ("safety/bank", POD, False),
        ("efficiency", POD, False),
    ],
)
@pytest.mark.parametrize("mode", [Mode.OFF, Mode.SHADOW, Mode.ADVISE])
def test_mode_changed_since_the_decision_stops_the_writes_it_is_about(key, target, stops, mode):
    why = objection(
        "safety",
        target,
        decided=Controls(),
        now=Controls(modes={key: mode}),
        settings=ModeSettings(),
    )
    assert bool(why) == stops
    assert not why or why.startswith("mode changed before this write was sent")


def test_approved_write_of_an_advising_agent_is_sent():
    same = Controls(modes={"safety": Mode.ADVISE})
    assert objection("safety", POD, decided=same, now=same, settings=ModeSettings()) == ""
