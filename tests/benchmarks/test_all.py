# SPDX-License-Identifier: Apache-2.0
"""``make bench`` runs every benchmark and tells which held, whatever becomes of the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.__main__ import main, names, run_all


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


def test_every_benchmark_of_the_project_is_among_them() -> None:
    assert {"scheduling", "simulator", "thesis", "training_speed", "tuning"} <= set(names())
    assert run_all([]) == []
