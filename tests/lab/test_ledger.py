# SPDX-License-Identifier: Apache-2.0
"""The record of what the lab put on the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilothouse.errors import LabUnavailable
from pilothouse.lab.ledger import Grouped, Ledger, Linked, Started, locked


def test_ledger_gives_back_what_was_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append(Linked(name="phlab1"))
    ledger.append(Started(name="etcd", command=["etcd"], pid=7, ticks=99))
    assert ledger.of(Linked) == [Linked(name="phlab1")]
    assert [entry.pid for entry in ledger.of(Started)] == [7]


def test_ledger_survives_a_line_that_was_cut_off(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append(Linked(name="phlab1"))
    with ledger.path.open("ab") as file:
        file.write(b'{"kind":"cgroup","pa')
    assert ledger.entries() == [Linked(name="phlab1")]


def test_ledger_names_the_line_that_is_broken_in_the_middle(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.path.write_bytes(b"nonsense\n")
    ledger.append(Grouped(path="/x"))
    with pytest.raises(LabUnavailable, match="line 1"):
        ledger.entries()


def test_ledger_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert Ledger(tmp_path / "none").entries() == []


def test_second_command_is_told_to_wait(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "lock"),
        pytest.raises(LabUnavailable, match="Another pilothouse lab"),
        locked(tmp_path / "lock"),
    ):
        pass
