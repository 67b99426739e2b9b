# SPDX-License-Identifier: Apache-2.0
"""Every benchmark, one after the other: ``python -m benchmarks`` (``make bench``).

One that misses a bound, breaks or cannot run does not keep the others from running. Prints at the
end which held; ends with 1 when any did not. Names as arguments run those alone.
"""

from __future__ import annotations

import argparse
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


def run_all(chosen: Sequence[str], folder: Path = HERE) -> list[tuple[str, int, float]]:
    """Name, exit status and seconds of each."""
    done = []
    for name in chosen:
        print(f"== {name}", flush=True)
        began = time.monotonic()
        command = [sys.executable, "-m", f"{folder.name}.{name}.run"]
        status = subprocess.run(command, cwd=folder.parent, check=False).returncode
        done.append((name, status, time.monotonic() - began))
    return done


def table(done: Sequence[tuple[str, int, float]]) -> str:
    """What became of each."""
    lines = ["| benchmark | minutes | status | |", "|---|--:|--:|---|"]
    for name, status, seconds in done:
        said = MEANING.get(status, "broke")
        lines.append(f"| {name} | {seconds / 60:.1f} | {status} | {said} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, folder: Path = HERE) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    known = names(folder)
    parser.add_argument("name", nargs="*", help=f"of: {', '.join(known)}; all if none")
    chosen = parser.parse_args(arguments).name
    if unknown := sorted(set(chosen) - set(known)):
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(known)}")
    done = run_all(chosen or known, folder)
    print(table(done))
    bad = [name for name, status, _ in done if status != 0]
    print(
        f"{len(done) - len(bad)} of {len(done)} held" + (f"; not: {', '.join(bad)}" if bad else "")
    )
    return 1 if bad or not done else 0


if __name__ == "__main__":
    sys.exit(main())
