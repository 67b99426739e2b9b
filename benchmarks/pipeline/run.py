# SPDX-License-Identifier: Apache-2.0
"""Usage windows to feature rows: ours against two pandas peers, each in its own process.

``python benchmarks/pipeline/run.py --rows 2000000`` makes the trace once, checks that all three
give the same numbers, and alternates the arms. Ours computes more (30 features, four horizons,
requests and histories as of each window), the peers six features and one label.
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

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

WINDOWS = 24  # per instance
STEP = 300_000_000
SHARD_ROWS = 500_000


def make(dataset: Path, rows: int) -> None:
    """Write the imported layout directly: shards of windows, and the events that go with them."""
    import polars as pl

    from pilothouse.learn import artifacts
    from pilothouse.learn.traces.schema import TABLES

    dice = np.random.default_rng(0)
    instances = rows // WINDOWS
    for table in ("usage", "events"):
        (dataset / table).mkdir(parents=True, exist_ok=True)
    per_shard = SHARD_ROWS // WINDOWS
    for shard, first in enumerate(range(0, instances, per_shard)):
        ids = np.arange(first, min(first + per_shard, instances))
        job, instance = ids // 8 + 1, ids % 8
        start = dice.integers(1, 500, len(ids)) * STEP
        request = dice.uniform(0.01, 0.1, len(ids)).astype(np.float32)
        k = np.tile(np.arange(WINDOWS), len(ids))
        begin = np.repeat(start, WINDOWS) + k * STEP
        wide = {
            "cell": ["a"] * len(begin),
            "job": np.repeat(job, WINDOWS),
            "instance": np.repeat(instance, WINDOWS),
            "machine": np.repeat(ids % 997 + 1, WINDOWS),
            "start_us": begin,
            "end_us": begin + STEP,
            "cpu_mean": np.repeat(request, WINDOWS) * dice.random(len(begin), np.float32),
            "cpu_max": np.repeat(request, WINDOWS),
            "memory_mean": np.repeat(request, WINDOWS) * dice.random(len(begin), np.float32),
            "memory_max": np.repeat(request, WINDOWS),
        }
        _write(pl.DataFrame(wide), dataset / "usage" / f"{shard:05d}.parquet", TABLES["usage"])
        fails = dice.random(len(ids)) < 0.1
        times = [start - 5, start - 1, start + WINDOWS * STEP + np.where(fails, 60_000_000, 10**12)]
        names = [["SUBMIT"] * len(ids), ["SCHEDULE"] * len(ids), np.where(fails, "FAIL", "FINISH")]
        for number, (at, name) in enumerate(zip(times, names, strict=True)):
            events = pl.DataFrame(
                {
                    "cell": ["a"] * len(ids),
                    "job": job,
                    "instance": instance,
                    "time_us": at,
                    "event": name,
                    "machine": ids % 997 + 1,
                    "user": [f"u{j % 50}" for j in job.tolist()],
                    "tier": [1] * len(ids),
                    "cpu_request": request,
                    "memory_request": request,
                }
            )
            path = dataset / "events" / f"{shard:05d}-{number}.parquet"
            _write(events, path, TABLES["events"])
    facts = {"rows": {"usage": instances * WINDOWS}, "complete": True}
    artifacts.seal(dataset, kind="dataset", track="benchmark", inputs=(), settings={}, facts=facts)


def _write(frame, path: Path, schema) -> None:
    import polars as pl

    missing = [pl.lit(None, dtype=kind).alias(n) for n, kind in schema.items() if n not in frame]
    frame = frame.with_columns(missing).select(pl.col(n).cast(kind) for n, kind in schema.items())
    frame.write_parquet(path, row_group_size=131_072, compression="lz4")


def ours(dataset: Path):
    from pilothouse.learn.dataset import windows

    windows.build(dataset)
    return dataset.with_name(f"{dataset.name}-features")


def arm(name: str, dataset: Path) -> dict[str, float]:
    """One arm in a fresh process: seconds and its peak memory."""
    code = f"import runpy,sys; sys.argv=['run.py','--arm','{name}','--dataset','{dataset}']; " \
        f"runpy.run_path('{__file__}', run_name='__main__')"  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_arm(name: str, dataset: Path) -> None:
    began = time.perf_counter()
    if name == "ours":
        ours(dataset)
    else:
        from benchmarks.peers import pandas_windows

        getattr(pandas_windows, name)(dataset)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": seconds, "peak_gib": peak}))


def same_output(dataset: Path) -> None:
    """All three agree, row by row."""
    import polars as pl

    from benchmarks.peers import pandas_windows
    from pilothouse.learn.dataset import windows

    keys = ["job", "instance", "end_us"]
    made = windows.load(ours(dataset)).sort(keys)
    peers = {n: getattr(pandas_windows, n)(dataset) for n in ("idiomatic", "vectorized")}
    for name, peer in peers.items():
        other = pl.from_pandas(peer[[*keys, *pandas_windows.COLUMNS, "fails"]])
        both = made.join(other, on=keys, how="inner", suffix="_peer")
        assert len(both) == len(made) > 0
        for column in pandas_windows.COLUMNS:
            left, right = (
                both[column].to_numpy(),
                both[f"{column}_peer"].fill_null(np.nan).to_numpy(),
            )
            np.testing.assert_allclose(
                left, right, rtol=1e-3, atol=1e-3, err_msg=f"{name} {column}"
            )
        known = both.filter(pl.col("label_3600") >= 0)
        assert (known["label_3600"].cast(pl.Boolean) == known["fails"]).all(), name


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--large", type=int, default=0, help="Also ours alone on so many rows.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--arm")
    parser.add_argument("--dataset", type=Path)
    given = parser.parse_args()
    if given.arm:
        run_arm(given.arm, given.dataset)
        return
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small"
        make(small, 100_000)
        same_output(small)
        print("outputs agree", flush=True)
        dataset = Path(folder) / "trace"
        make(dataset, given.rows)
        results: dict[str, list[dict[str, float]]] = {"ours": [], "vectorized": [], "idiomatic": []}
        for _ in range(given.repeats):
            for name, runs in results.items():
                runs.append(arm(name, dataset))
                print(name, runs[-1], flush=True)
        figures = {
            name: {k: median(r[k] for r in runs) for k in ("seconds", "peak_gib")}
            for name, runs in results.items()
        }
        base = figures["ours"]
        for name in ("vectorized", "idiomatic"):
            figures[name]["times_ours"] = figures[name]["seconds"] / base["seconds"]
        if given.large:
            big = Path(folder) / "large"
            make(big, given.large)
            figures["large"] = arm("ours", big)
            figures["large"]["times_small"] = figures["large"]["seconds"] / base["seconds"]
            figures["large"]["memory_times_small"] = figures["large"]["peak_gib"] / base["peak_gib"]
        print(json.dumps({"rows": given.rows, "large": given.large, **figures}, indent=1))


if __name__ == "__main__":
    main()
