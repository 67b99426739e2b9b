# SPDX-License-Identifier: Apache-2.0
"""Every benchmark in its full form, one after the other: ``python -m benchmarks`` (``make bench``).

A benchmark is a folder with a ``run.py``. Its full form is that without arguments, or, where it
takes more than one run, the argument lines in the tuple ``FULL_FORM`` of its ``run.py``. One that
misses a bound, breaks or cannot run does not keep the others from running. Prints at the end which
held; ends with 1 when any did not. Names as arguments run those alone; ``--list`` runs nothing.
"""

from __future__ import annotations

import argparse
import ast
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
MEANING = {0: "held", 1: "missed a bound, or broke", 2: "could not run"}


def names(folder: Path = HERE) -> list[str]:
    """Every folder with a ``run.py``."""
    return sorted(path.parent.name for path in folder.glob("*/run.py"))


def full_form(name: str, folder: Path = HERE) -> tuple[str, ...]:
    """The argument lines of a benchmark's runs, read without importing what it needs."""
    source = ast.parse((folder / name / "run.py").read_text(encoding="utf-8"))
    for statement in source.body:
        if isinstance(statement, ast.Assign):
            (target, *_) = statement.targets
            if isinstance(target, ast.Name) and target.id == "FULL_FORM":
                lines: tuple[str, ...] = ast.literal_eval(statement.value)
                return lines
    return ("",)


def runs(chosen: Sequence[str], folder: Path = HERE) -> list[tuple[str, str]]:
    """Name and argument line of everything that is to run."""
    return [(name, line) for name in chosen for line in full_form(name, folder)]


def run_all(chosen: Sequence[str], folder: Path = HERE) -> list[tuple[str, int, float]]:
    """What ran, exit status and seconds of each."""
    done = []
    for name, line in runs(chosen, folder):
        what = f"{name} {line}".strip()
        print(f"== {what}", flush=True)
        began = time.monotonic()
        command = [sys.executable, "-m", f"{folder.name}.{name}.run", *shlex.split(line)]
        status = subprocess.run(command, cwd=folder.parent, check=False).returncode
        done.append((what, status, time.monotonic() - began))
    return done


def table(done: Sequence[tuple[str, int, float]]) -> str:
    """What became of each."""
    lines = ["| benchmark | minutes | status | |", "|---|--:|--:|---|"]
    for what, status, seconds in done:
        said = MEANING.get(status, "broke")
        lines.append(f"| {what} | {seconds / 60:.1f} | {status} | {said} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, folder: Path = HERE) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    known = names(folder)
    parser.add_argument("name", nargs="*", help=f"of: {', '.join(known)}; all if none")
    parser.add_argument("--list", action="store_true", help="only say what would run")
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.name) - set(known)):
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = given.name or known
    if given.list:
        for name, line in runs(chosen, folder):
            print(f"python -m {folder.name}.{name}.run {line}".strip())
        return 0
    done = run_all(chosen, folder)
    print(table(done))
    bad = [what for what, status, _ in done if status != 0]
    print(
        f"{len(done) - len(bad)} of {len(done)} held" + (f"; not: {', '.join(bad)}" if bad else "")
    )
    return 1 if bad or not done else 0


if __name__ == "__main__":
    sys.exit(main())
