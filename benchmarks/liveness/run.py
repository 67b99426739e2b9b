# SPDX-License-Identifier: Apache-2.0
"""The default run under twenty seeds, as ``pilothouse up --cycles 300 --interval 0`` runs it.

Run from the repository root: ``python -m benchmarks.liveness.run``. Uses the same runner and a real
journal, so that what is counted is what a person would see. Exits non-zero below 18 living runs.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import sys
import tempfile
from pathlib import Path

from benchmarks.liveness.liveness import Liveness
from pilothouse.journal import Journal
from pilothouse.run import Runner
from pilothouse.settings import RunSettings, Settings

NEEDED = 18
HERE = Path(__file__).parent


def live(seed: int, cycles: int = 300) -> Liveness:
    """One default run."""
    settings = Settings(run=RunSettings(seed=seed))
    with (
        tempfile.TemporaryDirectory() as folder,
        Journal.open(Path(folder) / "run.db", settings=settings.journal) as journal,
    ):
        runner = Runner(settings=settings, journal=journal)
        return Liveness(seed=seed).take_in(report.turn for report in runner.cycles(cycles))


def main() -> None:
    """Print one line per seed; write ``results.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    found = []
    with multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
        for result in pool.imap(live, range(arguments.seeds)):
            found.append(result)
            says = f"lacks {', '.join(result.missing)}" if result.missing else "alive"
            print(f"seed {result.seed}: {says}; {dict(sorted(result.executed.items()))}")
    alive = sum(not result.missing for result in found)
    print(f"{alive} of {len(found)} runs are alive (needs {NEEDED} of 20).")
    _write(found, alive)
    sys.exit(0 if alive * 20 >= NEEDED * len(found) else 1)


def _write(found: list[Liveness], alive: int) -> None:
    result = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "command": "python -m benchmarks.liveness.run",
        "alive": alive,
        "seeds": len(found),
        "runs": [
            {
                "seed": r.seed,
                "missing": r.missing,
                "executed": dict(sorted(r.executed.items())),
                "overridden_cycles": r.overridden_cycles,
                "refused_cycles": r.refused_cycles,
                "quiet_cycles": r.quiet_cycles,
            }
            for r in found
        ],
    }
    (HERE / "results.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
