# SPDX-License-Identifier: Apache-2.0
"""``make bench`` runs every benchmark and tells which held, whatever becomes of the others."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from pathlib import Path

import pytest

from benchmarks.__main__ import HERE, full_form, main, names, run_all, runs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five benchmarks: two hold, one misses, one cannot run, one is ended by a signal."""
    ends = {
        "a_holds": "raise SystemExit(0)",
        "b_misses": "raise SystemExit(1)",
        "c_cannot": "raise SystemExit(2)",
        "d_dies": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
        "e_holds": "pass",
    }
    made = tmp_path / "made"
    for name, text in ends.items():
        (made / name).mkdir(parents=True)
        (made / name / "run.py").write_text(text)
    (made / "peers").mkdir()  # nothing to run in it
    return made


def test_one_that_fails_does_not_keep_the_others_from_running(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([], folder) == 1
    said = capfd.readouterr().out
    assert [line.removeprefix("== ") for line in said.splitlines() if "==" in line] == names(folder)
    told = re.sub(r"\| \d+\.\d \|", "| M |", said)  # minutes: a busy machine takes its time
    assert "| b_misses | M | 1 | missed a bound, or broke |" in told
    assert "| c_cannot | M | 2 | could not run |" in told
    assert "| d_dies | M | -9 | broke |" in told
    assert "2 of 5 held; not: b_misses, c_cannot, d_dies" in said


def test_it_ends_with_0_only_when_all_held(folder: Path) -> None:
    assert main(["a_holds", "e_holds"], folder) == 0
    assert main(["a_holds", "c_cannot"], folder) == 1
    with pytest.raises(SystemExit):
        main(["a_hold"], folder)


def test_every_run_of_the_full_form_is_made_and_told_by_itself(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two runs by their arguments, of which one misses; nothing of it is imported to know them."""
    text = 'FULL_FORM = ("", "--size 3 --name \'a b\'")\nimport sys\nprint(sys.argv[1:])\n'
    (folder / "a_holds" / "run.py").write_text(text + "raise SystemExit(len(sys.argv) > 1)")
    assert main(["a_holds", "e_holds"], folder) == 1
    said = capfd.readouterr().out

    assert "['--size', '3', '--name', 'a b']" in said
    assert "== a_holds\n[]" in said
    assert "2 of 3 held; not: a_holds --size 3 --name 'a b'" in said
    assert main(["--list", "a_holds", "d_dies"], folder) == 0
    assert capfd.readouterr().out.splitlines() == [
        "python -m made.a_holds.run",
        "python -m made.a_holds.run --size 3 --name 'a b'",
        "python -m made.d_dies.run",
    ]


class Understood(Exception):
    """Stops a benchmark once its words were read."""


@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name, line in runs(names()) if line], ids=str
)
def test_every_argument_of_the_full_form_is_understood(
    name: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = argparse.ArgumentParser.parse_args

    def parse(self: argparse.ArgumentParser) -> None:
        read(self, shlex.split(line))
        raise Understood

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    with pytest.raises(Understood):
        importlib.import_module(f"benchmarks.{name}.run").main()


def test_the_full_form_has_what_one_run_leaves_out() -> None:
    said = {name: " | ".join(full_form(name)) for name in names()}

    assert "--train" in said["placement"]  # five seeds
    assert "openb" in said["placement"]
    assert "extender" in said["scheduling"]
    assert "--nodes 5000" in said["scheduling"]
    assert "--simulated" in said["thesis"]


def test_the_readme_says_every_run() -> None:
    text = (HERE / "README.md").read_text(encoding="utf-8")
    rows = [row for row in text.splitlines() if row.startswith("| [")]

    assert [re.findall(r"\[(\w+)\]\((\w+)/README.md\)", row)[0] for row in rows] == [
        (name, name) for name in names()
    ]
    for name, row in zip(names(), rows, strict=True):
        cell = row.split("|")[2]
        more = [line for line in full_form(name) if line]
        assert re.findall("`([^`]+)`", cell) == more, f"{name}: {more}"


def test_every_benchmark_of_the_project_is_among_them() -> None:
    assert {"scheduling", "simulator", "thesis", "training_speed", "tuning"} <= set(names())
    assert run_all([]) == []
