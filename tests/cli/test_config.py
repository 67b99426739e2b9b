# SPDX-License-Identifier: Apache-2.0
"""``pilothouse config`` from the outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pilothouse.cli import main
from pilothouse.settings import Settings, file


def test_init_writes_a_file_that_checks_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pilothouse.yaml"

    assert main(["config", "init", str(path)]) == 0
    assert main(["config", "check", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{path} is fine."
    assert file.load(path) == Settings()


def test_init_never_overwrites_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("precious", encoding="utf-8")

    assert main(["config", "init", str(path)]) == 2
    assert path.read_text(encoding="utf-8") == "precious"
    assert "already exists" in capsys.readouterr().err
    assert main(["config", "init", str(path), "--force"]) == 0
    assert file.load(path) == Settings()


def test_init_into_a_missing_folder_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "init", str(tmp_path / "no" / "c.yaml")]) == 2
    assert "cannot be written: No such file or directory. " in capsys.readouterr().err


def test_check_prints_every_problem_on_its_own_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.yaml"
    head = "apiVersion: pilothouse.dev/v1alpha1\nkind: Configuration\n"
    path.write_text(head + "run: {seed: -1}\nextra: 1\n", encoding="utf-8")

    assert main(["config", "check", str(path)]) == 2

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("pilothouse: ") and f"({path}:" in line for line in lines)


def test_check_tells_a_script_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("kind: Configuration\n", encoding="utf-8")

    assert main(["config", "check", str(path), "--json"]) == 2

    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert len(answer["problems"]) == 1


def test_show_prints_what_is_in_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    head = "apiVersion: pilothouse.dev/v1alpha1\nkind: Configuration\n"
    path.write_text(head + "run: {seed: 9}\n", encoding="utf-8")

    assert main(["config", "show", str(path)]) == 0
    shown = file.parse(capsys.readouterr().out, name="shown")
    assert main(["config", "show", str(path), "--json"]) == 0

    assert shown == file.load(path)
    assert json.loads(capsys.readouterr().out) == file.to_tree(shown)


def test_a_missing_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", str(tmp_path / "nowhere.yaml")]) == 2

    message = capsys.readouterr().err
    assert "nowhere.yaml does not exist" in message
    assert message.count("\n") == 1
