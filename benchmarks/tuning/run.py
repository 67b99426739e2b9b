# SPDX-License-Identifier: Apache-2.0
"""Trials here and on a Ray cluster: the same parameters, the same scores.

Starts a cluster of one node on this machine, on a port of its own, and stops that cluster again.
Needs ``pip install "pilothouse[learn,distributed]"``. Works in a home of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results.json")


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """One Ray head in the foreground of a process of ours; ending that process ends the cluster."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(Path(sys.executable).with_name("ray")),
        *("start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={port}"),
        *("--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats"),
        *("--object-store-memory=100000000", f"--temp-dir={folder}"),
    ]
    with (folder / "ray.log").open("wb") as log:
        head = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_for(port, head)
            yield f"127.0.0.1:{port}"
        finally:
            head.terminate()
            head.wait(60)


def _wait_for(port: int, head: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and head.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    raise SystemExit("Ray did not start within 120 s. Its log is in the working folder: ray.log")


def compare(dataset: str, *, trials: int, folder: Path) -> dict[str, Any]:
    """The same study twice with the random sampler: here, and on a cluster."""
    import optuna
    import ray

    from pilothouse.learn.train.tuning import tune

    out: dict[str, Any] = {}
    # Sockets of Ray have long names, and a path of one may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="ray-") as short, cluster(Path(short)) as address:
        for where, told in (("here", None), ("ray", address)):
            storage = folder / f"{where}.db"
            began = time.monotonic()
            result = tune(
                "risk",
                trials=trials,
                dataset=dataset,
                sampler="random",
                seed=5,
                ray=told,
                storage=storage,
            )
            study = optuna.load_study(study_name=None, storage=f"sqlite:///{storage}")
            out[where] = {
                "parameters": [trial.params for trial in study.trials],
                "scores": result["scores"],
                "seconds": round(time.monotonic() - began, 1),
            }
        ray.shutdown()
    out["same_parameters"] = out["here"]["parameters"] == out["ray"]["parameters"]
    out["same_scores"] = out["here"]["scores"] == out["ray"]["scores"]
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--write", action="store_true", help="renew results.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PILOTHOUSE_HOME"] = str(folder / "home")
        from pilothouse.cli import main as pilothouse
        from pilothouse.learn.traces.synthetic import Recipe, write

        write(folder / "raw", Recipe(jobs=60, machines=8, hours=8, seed=3, leaky_share=0.3))
        pilothouse(["traces", "import", "google-2019", str(folder / "raw")])
        pilothouse(["traces", "features", "google-2019"])
        table = compare("google-2019-features", trials=given.trials, folder=folder)
    for where in ("here", "ray"):
        scores = " ".join(f"{score:.6f}" for score in table[where]["scores"])
        print(f"{where:<5} {table[where]['seconds']:>6.1f} s  {scores}")
    print(f"same parameters {table['same_parameters']}, same scores {table['same_scores']}")
    if given.write:
        RESULTS.write_text(json.dumps(table, indent=1) + "\n")
    return 0 if table["same_parameters"] and table["same_scores"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
