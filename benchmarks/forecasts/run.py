# SPDX-License-Identifier: Apache-2.0
"""Every figure of the README by one command: ``python -m benchmarks.forecasts.run``.

Reads the public traces under ``PILOTHOUSE_DATA``, works in a home of its own, prints the lines that
must hold, writes ``results.json`` beside this file and ends with 1 when one does not hold. Tracks
can be run one by one: ``--track demand --track live``; their results replace only their own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.forecasts import inference, simulator
from benchmarks.forecasts.claims import LINES

RESULTS = Path(__file__).with_name("results.json")
SAMPLE = "borg2019_sample_cells_1_6.parquet"
USAGE = "borg2019_machine_usage_78machines_5min.parquet"


def instances(data: Path) -> dict[str, Any]:
    """Google 2019 sample, one cell left out, FAIL or LOST within the hour."""
    return _cells(data, "sample", ("FAIL", "LOST"), leak_check=True)


def evictions(data: Path) -> dict[str, Any]:
    """The same rows with EVICT as the target; reported, nothing is claimed."""
    return _cells(data, "sample-evictions", ("EVICT",), leak_check=False)


def _cells(data: Path, name: str, failures: tuple[str, ...], *, leak_check: bool) -> dict[str, Any]:
    from pilothouse.learn.dataset.labels import LabelSettings
    from pilothouse.learn.dataset.windows import DatasetSettings, build
    from pilothouse.learn.evaluate import evaluating

    dataset = _imported("google-2019-sample", data / SAMPLE, name)
    build(dataset, DatasetSettings(labels=LabelSettings(failures=failures), extras=True))
    figures, _ = evaluating.risk(
        f"{name}-features", horizon_seconds=3600, leak_check=leak_check, progress=_dot
    )
    return figures


def jobs(data: Path) -> dict[str, Any]:
    """Google 2011, all job events, split by time."""
    from pilothouse.learn.evaluate import evaluating

    _imported("google-2011", data, "google-2011")
    return evaluating.risk(
        "google-2011", horizon_seconds=3600, leak_check=False, progress=_dot
    )[0]  # fmt: skip


def machines(data: Path) -> dict[str, Any]:
    """Google 2011 machine removals, and two ways to a node's risk in the simulator."""
    from pilothouse.learn.evaluate import noderisk
    from pilothouse.predict.learned import load_artifact

    dataset = _imported("google-2011", data, "google-2011")
    return {
        "removals": noderisk.removals(dataset),
        "simulated": noderisk.simulated(load_artifact(), progress=_told),
    }


def demand(data: Path) -> dict[str, Any]:
    return _demand(data, "cpu")


def memory(data: Path) -> dict[str, Any]:
    """Demand for memory; reported, nothing is claimed."""
    return _demand(data, "memory")


def _demand(data: Path, what: str) -> dict[str, Any]:
    from pilothouse.learn.evaluate import evaluating

    _imported("machine-usage", data / USAGE, "machine-usage")
    return evaluating.demand("machine-usage", what=what, progress=_dot)[0]


def simulated(data: Path) -> dict[str, Any]:
    """The shipped forecaster on simulator histories nobody trained on."""
    return simulator.judge(progress=lambda done, total: _dot())


def live(data: Path) -> dict[str, Any]:
    """Features and risk of one live cycle."""
    return {
        "full": inference.measure(5_000, 50_000, 8),
        "tenth": inference.measure(500, 5_000, 8),
    }


TRACKS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "instances": instances,
    "evictions": evictions,
    "jobs": jobs,
    "machines": machines,
    "demand": demand,
    "memory": memory,
    "simulator": simulated,
    "live": live,
}


def _imported(trace: str, source: Path, name: str) -> Path:
    from pilothouse.home import folder
    from pilothouse.learn.traces.importing import import_trace

    import_trace(trace, source, name=name)
    return folder("processed") / name


def _dot() -> None:
    print(".", end="", file=sys.stderr, flush=True)


def _told(what: str) -> None:
    _dot()


def _short(figures: Any) -> Any:
    """Without curves and the machines of each horizon: what a reader compares between two dates."""
    if isinstance(figures, dict):
        dropped = ("curves", "coverage_per_machine")
        return {k: _short(v) for k, v in figures.items() if k not in dropped}
    if isinstance(figures, (list, tuple)):
        return [_short(v) for v in figures]
    return round(figures, 5) if isinstance(figures, float) else figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--track", action="append", choices=list(TRACKS), help="All if absent.")
    parser.add_argument("--data", type=Path, default=os.environ.get("PILOTHOUSE_DATA"))
    parser.add_argument("--print-only", action="store_true", help="Leave results.json alone.")
    given = parser.parse_args()
    if given.data is None:
        parser.error("the traces are not here: set PILOTHOUSE_DATA or give --data FOLDER")
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    failed = 0
    with tempfile.TemporaryDirectory() as home:
        os.environ["PILOTHOUSE_HOME"] = home
        for track in given.track or TRACKS:
            figures = TRACKS[track](given.data)
            claims = LINES[track](figures) if track in LINES else []
            failed += sum(not claim.holds for claim in claims)
            results[track] = {
                "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
                "claims": [claim.sentence for claim in claims],
                "figures": _short(figures),
            }
            print(f"\n{track}")
            for claim in claims:
                print(f"  {claim.sentence}", flush=True)
            if not claims:
                print(f"  reported: {json.dumps(_short(figures))[:400]}", flush=True)
            if not given.print_only:
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
