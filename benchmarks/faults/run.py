# SPDX-License-Identifier: Apache-2.0
"""Break a real API server in every way we know and time how long our cache is wrong.

Needs root on Debian and a lab that is not up yet: it brings one up and takes it away. Writes
``figures.json`` beside this file. Exit status 1: a line does not hold.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pilothouse.clients import from_kubeconfig
from pilothouse.errors import LabUnavailable
from pilothouse.home import home
from pilothouse.lab import Lab, Wish, machine
from pilothouse.lab.layout import API_ADDRESS, API_PORT
from pilothouse.testing.drill import Drill, Finding
from pilothouse.testing.faultproxy import FaultProxy

HERE = Path(__file__).parent
HEADING = (
    f"{'fault':<34} {'rounds':>6} {'slowest [s]':>13} {'stale':>6} {'re-lists':>8} "
    f"{'closest [s]':>12} {'alive':>10}"
)
OBSERVER = HERE.parents[1] / "deploy/manifests/observer-rbac.yaml"


def observer_kubeconfig(lab: Lab) -> Path:
    """The observer as it is shipped: its own account, its own roles."""
    lab.apply(OBSERVER.read_text())
    token = lab.kubectl(
        *("create", "token", "pilothouse-observer", "-n", "pilothouse-system", "--duration=2h")
    ).strip()
    document = json.loads(lab.layout.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    path = lab.layout.root / "observer.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(document))
    return path


def drills(lab: Lab, *, restarts: int, pause: float, blackhole: float) -> Iterator[Finding]:
    with FaultProxy(API_ADDRESS, API_PORT) as proxy:
        drill = Drill(lab, from_kubeconfig(observer_kubeconfig(lab)), proxy)
        try:
            yield drill.restarts(restarts)
            yield drill.pause(pause)
            yield drill.compaction()
            yield drill.blackhole(blackhole)
        finally:
            drill.close()


def line(found: Finding) -> str:
    slowest, gap = max(found.recovery_seconds), found.shortest_gap_seconds
    parts = [
        f"{found.name:<34}",
        f"{found.rounds:>6}",
        f"{slowest:>13.1f}",
        f"{'yes' if all(found.stale) else 'NO':>6}",
        f"{found.lists:>8}",
        f"{'none' if gap is None else f'{gap:.1f}':>12}",
        f"{', '.join(found.dead) or 'all':>10}",
        "" if found.holds else "  DOES NOT HOLD",
    ]
    return " ".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--pause", type=float, default=30.0, help="seconds etcd is stopped")
    parser.add_argument("--blackhole", type=float, default=30.0, help="seconds without a byte")
    given = parser.parse_args()
    try:
        machine.require(prometheus=False)
    except LabUnavailable as error:
        print(f"faults: not run, this machine cannot hold a lab: {error}")
        return 0
    lab = Lab(home() / "lab")
    lab.up(Wish(workers=1))
    print(HEADING)
    findings = []
    try:
        for found in drills(
            lab, restarts=given.restarts, pause=given.pause, blackhole=given.blackhole
        ):
            findings.append(found)
            print(line(found), flush=True)
    finally:
        lab.down()
    write(findings)
    return 0 if all(found.holds for found in findings) else 1


def write(findings: list[Finding]) -> None:
    figures: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{platform.machine()}, Linux {platform.release()}",
        "measured": [asdict(found) | {"holds": found.holds} for found in findings],
    }
    (HERE / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
