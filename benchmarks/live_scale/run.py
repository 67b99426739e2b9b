# SPDX-License-Identifier: Apache-2.0
"""The loop in shadow on a large lab: ``python -m benchmarks.live_scale.run``.

Brings up a lab of fake nodes, puts the pods on it, runs ``pilothouse up --kubeconfig`` under the
shipped observer's own account while pods change, and prints what it cost. Needs root on Linux, as
the lab does. Exits non-zero when a limit that must hold at this size is not kept.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.live_scale.measure import Figures, measure
from benchmarks.live_scale.population import Crowd
from pilothouse.cli.output import progress
from pilothouse.home import home
from pilothouse.lab import Lab, Wish

HERE = Path(__file__).parent
ROLES = HERE.parents[1] / "deploy" / "manifests" / "observer-rbac.yaml"
MUST_HOLD_NODES = 1000  # beyond, the same limits are an aim
FULL_FORM = ("", "--nodes 5000 --pods 50000 --minutes 5 --interval 3")


def observer_kubeconfig(lab: Lab, folder: Path) -> Path:
    """The shipped account's token in a kubeconfig."""
    lab.apply(ROLES.read_text())
    words = ("create", "token", "pilothouse-observer", "-n", "pilothouse-system")
    document = json.loads(lab.layout.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": lab.kubectl(*words, "--duration=8h").strip()}
    path = folder / "observer.kubeconfig"
    path.write_text(json.dumps(document))
    return path


def run(nodes: int, pods: int, minutes: float, interval: float) -> Figures:
    lab = Lab(home() / "lab")
    lab.up(Wish(workers=0, fake_nodes=nodes), say=lambda text: print(f"lab: {text}"))
    crowd = Crowd(lab=lab, nodes=nodes, pods=pods)
    try:
        with progress(f"{pods:,} pods", total=pods) as advance:
            crowd.settle(lambda _: advance())
        with tempfile.TemporaryDirectory() as folder:
            account = observer_kubeconfig(lab, Path(folder))
            return measure(crowd, account, Path(folder), seconds=60 * minutes, interval=interval)
    finally:
        crowd.close()
        lab.down()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between cycles")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    found = run(arguments.nodes, arguments.pods, arguments.minutes, arguments.interval)
    _keep(found)
    print(json.dumps(found.to_dict(), indent=2) if arguments.json else table(found))
    misses = found.misses()
    for miss in misses:
        print(f"not kept: {miss}", file=sys.stderr)
    return 1 if misses and arguments.nodes <= MUST_HOLD_NODES else 0


def _keep(found: Figures) -> None:
    """One entry per size in results.json, the latest run of each."""
    path = HERE / "results.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    known[f"{found.nodes}/{found.pods}"] = {"date": today, **found.to_dict()}
    path.write_text(json.dumps(known, indent=1) + "\n")


def table(f: Figures) -> str:
    steps = ", ".join(f"{step} {ms:g}" for step, ms in f.steps_median_ms.items() if ms)
    return f"""{f.nodes:,} nodes / {f.pods:,} pods, {f.seconds:g} s, {f.changes_per_second} pod changes/s, load average {f.load_average}
  cycle      median {f.cycle_median_ms:g} ms, p99 {f.cycle_p99_ms:g} ms (limit 1000), worst {f.cycle_worst_ms:g} ms, {f.cycles} cycles
  steps      {steps} (median ms)
  memory     {f.memory_peak_mib:g} MiB at most (limit 512)
  processor  {f.cpu_cores:g} cores (limit 1)
  cache lag  median {f.lag_median_seconds:g} s, p99 {f.lag_p99_seconds:g} s (limit 2), worst {f.lag_worst_seconds:g} s; {f.marks} marks, {f.marks_lost} lost
  first      {f.sync_seconds:g} s until everything was listed, first cycle {f.first_cycle_ms:g} ms"""  # noqa: E501


if __name__ == "__main__":
    sys.exit(main())
