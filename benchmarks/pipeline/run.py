# SPDX-License-Identifier: Apache-2.0
"""Usage windows to feature rows: ours against two pandas peers, each in its own process.

``python -m benchmarks.pipeline.run`` checks on a small trace that all three give the same rows,
features and labels, then alternates the arms on 2 million windows and runs ours alone on 20
million. It prints a table, writes ``results.json`` beside this file and ends with 1 when a line
does not hold. ``--rows`` and ``--large`` make it shorter; ``--large 0`` leaves the long run out.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.pipeline.trace import WINDOWS, make

ARMS = ("ours", "vectorized", "idiomatic")
AGREED_ROWS = 100_000
RESULTS = Path(__file__).with_name("results.json")


def run_arm(name: str, dataset: Path) -> dict[str, float]:
    """One arm here and now: seconds, CPU seconds and the process's peak memory.

    Every arm starts from the imported tables and ends with Parquet on disk.
    """
    began = time.perf_counter()
    if name == "ours":
        from pilothouse.learn.dataset import windows

        windows.build(dataset)
    else:
        from benchmarks.peers import pandas_windows

        getattr(pandas_windows, name)(dataset).to_parquet(dataset.with_name(f"{name}.parquet"))
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_gib": used.ru_maxrss / 2**20,
    }


def arm(name: str, dataset: Path) -> dict[str, float]:
    """One arm in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.pipeline.run", "--arm", name]
    done = subprocess.run(
        [*command, "--dataset", str(dataset)], stdout=subprocess.PIPE, text=True, check=True
    )
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def same_output(dataset: Path) -> int:
    """All three agree, row by row and column by column; how many rows were compared."""
    import numpy as np
    import polars as pl

    from benchmarks.peers import pandas_windows
    from pilothouse.features.core import CORE
    from pilothouse.learn.dataset import windows

    assert tuple(pandas_windows.FEATURES) == CORE
    keys = ["job", "instance", "end_us"]
    windows.build(dataset, windows.DatasetSettings(bucket_rows=30_000))
    made = windows.load(dataset.with_name(f"{dataset.name}-features")).sort(keys)
    for name in ("idiomatic", "vectorized"):
        peer = pl.from_pandas(getattr(pandas_windows, name)(dataset)).sort(keys)
        assert made.select(keys).equals(peer.select(keys).cast(made.select(keys).schema)), name
        for column in CORE:
            left = made[column].to_numpy()
            right = peer[column].cast(pl.Float32).fill_null(float("nan")).to_numpy()
            np.testing.assert_allclose(
                left, right, rtol=2e-3, atol=2e-3, err_msg=f"{name} {column}"
            )
        for column in pandas_windows.LABELS:
            assert (made[column] == peer[column]).all(), f"{name} {column}"
    return len(made)


def measure(folder: Path, rows: int, large: int, repeats: int) -> dict[str, Any]:
    small = folder / "small"
    make(small, AGREED_ROWS)
    print(f"outputs agree on {same_output(small):,} rows", flush=True)
    dataset = folder / "trace"
    make(dataset, rows)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in ARMS}
    for _ in range(repeats):
        for name in ARMS:
            runs[name].append(arm(name, dataset))
            print(f"{name:<12} {_line(runs[name][-1])}", flush=True)
    figures: dict[str, Any] = {
        name: {key: median(run[key] for run in done) for key in done[0]}
        for name, done in runs.items()
    }
    if large:
        big = folder / "large"
        make(big, large)
        figures["large"] = arm("ours", big)
        print(f"{'ours, large':<12} {_line(figures['large'])}", flush=True)
    return {"rows": rows // WINDOWS * WINDOWS, "large_rows": large // WINDOWS * WINDOWS, **figures}


def _line(run: dict[str, float]) -> str:
    wall, cpu, peak = run["seconds"], run["cpu_seconds"], run["peak_gib"]
    return f"{wall:8.1f} s wall {cpu:8.1f} s CPU {peak:6.2f} GiB"


def claims(figures: dict[str, Any]) -> list[tuple[str, float, float, bool]]:
    """Each line with its figure, its limit and whether it holds.

    Speeds are compared by CPU seconds as well as by the clock; both must hold.
    """
    ours, out = figures["ours"], []
    for peer, least in (("idiomatic", 3.0), ("vectorized", 1.0)):
        for unit, word in (("seconds", "wall"), ("cpu_seconds", "CPU")):
            ratio = figures[peer][unit] / ours[unit]
            out.append((f"times as fast as {peer} pandas, {word}", ratio, least, ratio >= least))
    if "large" in figures:
        large, grown = figures["large"], figures["large_rows"] / figures["rows"]
        for text, value, most in (
            ("GiB at the large size", large["peak_gib"], 3.0),
            (
                f"times the CPU time for {grown:.0f} times the rows",
                large["cpu_seconds"] / ours["cpu_seconds"],
                1.1 * grown,
            ),
            (
                f"times the wall time for {grown:.0f} times the rows",
                large["seconds"] / ours["seconds"],
                1.1 * grown,
            ),
            (
                f"times the memory for {grown:.0f} times the rows",
                large["peak_gib"] / ours["peak_gib"],
                1.5,
            ),
        ):
            out.append((text, value, most, value <= most))
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--large", type=int, default=20_000_000, help="0 leaves it out.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="Where the trace is made; temporary if absent.")
    parser.add_argument("--arm", help=argparse.SUPPRESS)
    parser.add_argument("--dataset", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.arm:
        print(json.dumps(run_arm(given.arm, given.dataset)))
        return 0
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        figures = measure(Path(folder), given.rows, given.large, given.repeats)
    judged = claims(figures)
    figures["claims"] = [
        {"claim": text, "value": round(value, 3), "limit": limit, "holds": holds}
        for text, value, limit, holds in judged
    ]
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    for text, value, limit, holds in judged:
        print(f"{'holds' if holds else 'FAILS':<6} {value:8.2f} {text} (limit {limit:g})")
    return 0 if all(holds for *_, holds in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
