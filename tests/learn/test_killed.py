# SPDX-License-Identifier: Apache-2.0
"""Killed with signal 9 at any step, making an artefact can be done again and half is never loaded.

A child process counts what it does to files (open for writing, rename, remove, make a folder) and
kills itself in the middle of the n-th, so every gap between two steps can be hit on purpose.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

pytest.importorskip("polars")
pytest.importorskip("xgboost")

from pilothouse.errors import MissingFile
from pilothouse.learn import artifacts

NEVER = 10**9
STEPS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "open")


def importing(source: Path) -> None:
    from pilothouse.learn.traces.importing import import_trace

    import_trace("google-2019", source)


def featuring(source: Path) -> None:
    from pilothouse.learn.dataset.windows import DatasetSettings, build

    build(artifacts.find("google-2019", "processed"), DatasetSettings(bucket_rows=1_500))


def training(source: Path) -> None:
    from pilothouse.learn.train.forecaster import train_risk

    train_risk(
        "mine",
        dataset="google-2019-features",
        journals=(),
        seeds=0,
        cycles=0,
        progress=lambda done, total: None,
    )


def child(work: Callable[[Path], None], source: Path, home: Path, step: int, told: Path) -> None:
    """Do the work in this home and die in the n-th step; say how many steps there were."""
    os.environ["PILOTHOUSE_HOME"] = str(home)
    count = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal count
        if event not in STEPS or not str(arguments[0]).startswith(str(home)):
            return
        if event == "open" and not set(str(arguments[1])) & set("wxa+"):
            return
        count += 1
        if count == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    work(source)
    told.write_text(str(count))


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    # Children are forked from a process that has the imports and no threads yet.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["pilothouse.learn.train.forecaster", "pilothouse.learn.traces.importing"]
    )
    return context


class Victim:
    """Runs one kind of work in one home, again and again."""

    def __init__(self, context: ForkServerContext, source: Path, home: Path) -> None:
        self._context, self._source, self.home = context, source, home

    def run(self, work: Callable[[Path], None], step: int = NEVER) -> tuple[int | None, int]:
        """Exit code and, when it lived, how many steps it took."""
        told = self.home.with_suffix(".steps")
        process = self._context.Process(
            target=child, args=(work, self._source, self.home, step, told)
        )
        process.start()
        process.join(120)
        return process.exitcode, int(told.read_text()) if process.exitcode == 0 else 0


@pytest.fixture
def victim(context: ForkServerContext, synthetic: Path, tmp_path: Path) -> Victim:
    return Victim(context, synthetic, tmp_path / "home")


WORK = {
    "import": (importing, "processed/google-2019", ()),
    "features": (featuring, "processed/google-2019-features", (importing,)),
    "training": (training, "models/mine", (importing, featuring)),
}


@pytest.mark.parametrize("which", list(WORK))
def test_killed_at_any_step_it_starts_again_and_half_is_never_loaded(
    victim: Victim, which: str
) -> None:
    work, place, before = WORK[which]
    for earlier in before:
        assert victim.run(earlier)[0] == 0
    code, steps = victim.run(work)
    assert code == 0
    assert steps > 3
    whole = artifacts.load(victim.home / place, check=True)
    # A second time over a finished artefact, then onwards from whatever the last kill left.
    for step in sorted({1, steps // 2, steps - 1, steps}):
        code, _ = victim.run(work, step)
        assert code in (-signal.SIGKILL, 0)
        # Not there, or there as a whole: a broken one would raise another error.
        with contextlib.suppress(MissingFile):
            assert artifacts.load(victim.home / place, check=True).files == whole.files
    assert victim.run(work)[0] == 0
    assert artifacts.load(victim.home / place, check=True).files == whole.files


def test_import_of_a_changed_source_never_mixes_old_and_new(victim: Victim, tmp_path: Path) -> None:
    from pilothouse.learn.traces.synthetic import Recipe, write

    assert victim.run(importing)[0] == 0
    changed = tmp_path / "changed"
    write(changed, Recipe(jobs=12, machines=8, hours=8, seed=4))
    other = Victim(victim._context, changed, victim.home)
    _, steps = Victim(victim._context, changed, tmp_path / "clean").run(importing)
    for step in (steps // 3, 2 * steps // 3):
        assert other.run(importing, step)[0] == -signal.SIGKILL
        with pytest.raises(MissingFile, match="interrupted"):
            artifacts.load(victim.home / "processed" / "google-2019")
    assert other.run(importing)[0] == 0
    clean = artifacts.load(tmp_path / "clean" / "processed" / "google-2019")
    assert artifacts.load(victim.home / "processed" / "google-2019").files == clean.files
