# SPDX-License-Identifier: Apache-2.0
"""Long work here and on a Ray cluster: the same files, the same forecasters, the same trials.

    python -m benchmarks.tuning.run [--trials N] [--write]

Starts a cluster of one node on this machine, on a port of its own, and stops that cluster again.
Needs ``pip install "pilothouse[learn,distributed]"``. Works in a home of its own and ends with 1
where anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import optuna

from pilothouse.learn import artifacts
from pilothouse.learn.artifacts import Manifest
from pilothouse.learn.crew import HERE, Crew, crew_at
from pilothouse.learn.dataset.windows import DatasetSettings, build
from pilothouse.learn.traces.importing import import_trace
from pilothouse.learn.traces.synthetic import Recipe, write
from pilothouse.learn.train import demand, simulated
from pilothouse.learn.train.tuning import tune

RESULTS = Path(__file__).with_name("results.json")


@contextmanager
def cluster() -> Iterator[str]:
    """One Ray head in the foreground of a process of ours; ending that process ends the cluster."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Sockets of Ray have long names, and a path of one may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as short:
        command = [
            str(Path(sys.executable).with_name("ray")),
            *("start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={port}"),
            *("--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"),
            *("--object-store-memory=100000000", f"--temp-dir={short}"),
        ]
        with (Path(short) / "ray.log").open("wb") as log:
            # Ray makes its workers yield to everybody else; here they are what is measured.
            environment = {**os.environ, "RAY_worker_niceness": "0"}
            head = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            try:
                _wait_for(Path(log.name), head)
                yield f"127.0.0.1:{port}"
            finally:
                head.terminate()
                head.wait(60)


def _wait_for(log: Path, head: subprocess.Popen[bytes]) -> None:
    """Until the head says so: its port answers long before work is taken."""
    until = time.monotonic() + 120
    while time.monotonic() < until and head.poll() is None:
        if b"Ray runtime started" in log.read_bytes():
            return
        time.sleep(0.2)
    told = log.read_text(errors="replace")[-2000:]
    raise SystemExit(f"Ray did not start within 120 s. It said:\n{told}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much there is to do."""

    trace: Recipe
    runs: simulated.Recipe
    bucket_rows: int
    trials: int


FULL = Sizes(
    trace=Recipe(jobs=120, machines=8, hours=24, seed=3, leaky_share=0.3),
    runs=simulated.Recipe(seeds=(1000, 1001), cycles=160),
    bucket_rows=4_000,
    trials=4,
)


def jobs(sizes: Sizes, source: Path) -> dict[str, Callable[[Crew, str], Any]]:
    """Every kind of work that is spread, in the order in which one needs the other.

    Each leaves its artefacts under a name of its own and gives what must be equal.
    """
    return {
        "trace files": lambda crew, name: _hashes(
            import_trace("google-2019", source, name=name, crew=crew)
        ),
        "feature buckets": lambda crew, name: _hashes(
            build(
                artifacts.find(name, "processed"),
                DatasetSettings(bucket_rows=sizes.bucket_rows),
                crew=crew,
            )
        ),
        "risk: runs and fits": lambda crew, name: _hash(
            simulated.train(sizes.runs, crew=crew).dump()
        ),
        "demand: fits": lambda crew, name: _hash(
            demand.on_trace(artifacts.find("here", "processed"), name="d/1", crew=crew).dump()
        ),
        "trials": lambda crew, name: _trials(sizes.trials, crew, name),
    }


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _hashes(manifest: Manifest) -> dict[str, str]:
    return {part.path: part.sha256 for part in manifest.files}


def _trials(count: int, crew: Crew, name: str) -> dict[str, Any]:
    """One study with the random sampler: parameters and scores."""
    dataset = f"{name}-features"
    result = tune("risk", trials=count, dataset=dataset, sampler="random", seed=5, crew=crew)
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{result['study']}")
    return {"parameters": [t.params for t in study.trials], "scores": result["scores"]}


def compare(sizes: Sizes, folder: Path, address: str) -> dict[str, dict[str, Any]]:
    """Each kind of work here and on the cluster: seconds, and whether the same came out."""
    source = folder / "raw"
    write(source, sizes.trace)
    table: dict[str, dict[str, Any]] = {}
    with crew_at(address) as spread:
        for what, work in jobs(sizes, source).items():
            found, seconds = [], []
            for crew, name in ((HERE, "here"), (spread, "ray")):
                began = time.monotonic()
                found.append(work(crew, name))
                seconds.append(round(time.monotonic() - began, 1))
            same = found[0] == found[1]
            table[what] = {"here": seconds[0], "ray": seconds[1], "same": same, "result": found[0]}
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help="renew results.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, cluster() as address:
        os.environ["PILOTHOUSE_HOME"] = str(Path(name) / "home")
        table = compare(FULL, Path(name), address)
    print(f"{'':<22}{'here, s':>9}{'Ray, s':>9}  same")
    for what, row in table.items():
        print(f"{what:<22}{row['here']:>9.1f}{row['ray']:>9.1f}  {row['same']}")
    print("scores  " + " ".join(f"{score:.6f}" for score in table["trials"]["result"]["scores"]))
    if given.write:
        document = {"date": date.today().isoformat(), "load": os.getloadavg()[0], "work": table}
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(row["same"] for row in table.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
