# SPDX-License-Identifier: Apache-2.0
"""Processes are known by pid and start time together."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilothouse.lab import process


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[tuple[int, int]]:
    pid, ticks = process.start(
        ["/bin/sleep", "60"],
        log=tmp_path / "log",
        group=tmp_path / "group",
        environment={"PATH": os.defpath},
    )
    yield pid, ticks
    process.send(pid, ticks, signal.SIGKILL)
    process.wait_until_dead([(pid, ticks)], 60)


def test_process_joins_its_group_before_it_becomes_the_program(
    sleeper: tuple[int, int], tmp_path: Path
) -> None:
    pid, ticks = sleeper
    while "sleep" not in Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]:
        assert process.is_alive(pid, ticks)
    assert (tmp_path / "group").read_text().strip() == str(pid)


def test_namesake_with_another_start_time_is_not_the_process(sleeper: tuple[int, int]) -> None:
    pid, ticks = sleeper
    assert process.is_alive(pid, ticks)
    assert not process.is_alive(pid, ticks + 1)
    assert not process.send(pid, ticks + 1, signal.SIGKILL)
    assert process.is_alive(pid, ticks)


def test_paused_process_says_so_and_dies_of_a_kill(sleeper: tuple[int, int]) -> None:
    pid, ticks = sleeper
    process.send(pid, ticks, signal.SIGSTOP)
    while process.state(pid, ticks) != "paused":
        assert process.is_alive(pid, ticks)
    process.kill_all([pid])
    assert process.wait_until_dead([(pid, ticks)], 60)
    assert process.state(pid, ticks) == "dead"
