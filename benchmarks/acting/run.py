# SPDX-License-Identifier: Apache-2.0
"""The whole campaigns on the real lab: kills, takeovers, namesakes, hostile agents, fit cases.

The live tests run their short forms; this sets the full counts, runs them one after the other and
keeps what each of them measured. Writes ``figures.json`` beside this file. Exit status 1: a
campaign failed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LIVE = "tests/live/act"
CAMPAIGNS = {
    "fit": ("test_fit.py", {"PILOTHOUSE_CASES": "200"}),
    "kills": ("test_crashes.py", {"PILOTHOUSE_KILLS": "50"}),
    "takeovers": ("test_leaders.py", {"PILOTHOUSE_TAKEOVERS": "20", "PILOTHOUSE_NAMESAKES": "200"}),
    "switch": ("test_switch.py", {}),
    "hostile": ("test_hostile.py", {"PILOTHOUSE_DECISIONS": "10000"}),
    "actions": ("test_actions.py", {}),
    "rights": ("test_rights.py", {}),
}
MEASURED = re.compile(r"^\.*([^.\n].*(?:measured|kills|takeovers|decisions).*)$", re.M)


def run(name: str) -> dict[str, object]:
    file, counts = CAMPAIGNS[name]
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "live", f"{LIVE}/{file}"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        cwd=ROOT,
        env=os.environ | counts,
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    return {
        "counts": counts,
        "passed": done.returncode == 0,
        "summary": lines[-1] if lines else done.stderr.strip()[-300:],
        "said": MEASURED.findall(done.stdout),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("campaign", nargs="*", help=f"of: {', '.join(CAMPAIGNS)}; all if none")
    wanted = parser.parse_args().campaign or list(CAMPAIGNS)
    unknown = sorted(set(wanted) - set(CAMPAIGNS))
    if unknown:
        parser.error(f"unknown campaign {unknown[0]}; known: {', '.join(CAMPAIGNS)}")
    figures = HERE / "figures.json"
    known = json.loads(figures.read_text()) if figures.exists() else {}
    for name in wanted:
        print(f"{name} ...", flush=True)
        result = run(name)
        moment = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        known[name] = result | {"date": moment, "machine": platform.machine()}
        figures.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
        print(f"{name:10} {result['summary']}")
        for line in result["said"] if isinstance(result["said"], list) else ():
            print(f"{'':10} {line}")
    return 0 if all(known[name]["passed"] for name in wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
