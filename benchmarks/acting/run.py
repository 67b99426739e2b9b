# SPDX-License-Identifier: Apache-2.0
"""The whole campaigns on the real lab: kills, takeovers, hostile agents, fit cases and others.

The live tests run their short forms; this sets the full counts, runs what is wanted on one lab and
keeps what each test measured. Writes ``figures.json`` beside this file and prints its table. Exit
status 1: a campaign failed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FIGURES = HERE / "figures.json"
LIVE = "tests/live/act"
# Each: the file, the tests in it by a part of their name, and the full counts. They run in this
# order: uninstalling takes away what the others need.
CAMPAIGNS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "fit": ("test_fit.py", "", {"PILOTHOUSE_CASES": "200"}),
    "kills": ("test_crashes.py", "", {"PILOTHOUSE_KILLS": "50"}),
    "namesakes": ("test_leaders.py", "came_back", {"PILOTHOUSE_NAMESAKES": "200"}),
    "takeovers": ("test_leaders.py", "takeover", {"PILOTHOUSE_TAKEOVERS": "20"}),
    "switch": ("test_switch.py", "", {}),
    "hostile": ("test_hostile.py", "", {"PILOTHOUSE_DECISIONS": "10000"}),
    "actions": ("test_actions.py", "", {}),
    "rights": ("test_rights.py", "", {}),
    "flapping": ("test_flapping.py", "", {}),
    "uninstall": ("test_uninstall.py", "", {}),
}


def run(wanted: Iterable[str], folder: Path) -> dict[str, Any]:
    """One session of pytest on one lab; gives what each campaign came to."""
    chosen = [CAMPAIGNS[name] for name in wanted]
    counts = {key: value for _, _, more in chosen for key, value in more.items()}
    told, report = folder / "figures", folder / "report.xml"
    files = dict.fromkeys(f"{LIVE}/{file}" for file, _, _ in chosen)
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-m", "live", *files]
    parts = [part for _, part, _ in chosen]
    if all(parts):
        command += ["-k", " or ".join(parts)]
    command += [f"--junitxml={report}", "-p", "no:cacheprovider"]
    subprocess.run(
        command, cwd=ROOT, env=os.environ | counts | {"PILOTHOUSE_FIGURES": str(told)}, check=False
    )
    lines = told.read_text().splitlines() if told.exists() else []
    return {
        name: _result(CAMPAIGNS[name], report, [json.loads(line) for line in lines])
        for name in wanted
    }


def _result(
    campaign: tuple[str, str, Mapping[str, str]], report: Path, figures: list[dict[str, Any]]
) -> dict[str, Any]:
    file, part, counts = campaign
    module = f"{LIVE}/{file}".removesuffix(".py").replace("/", ".")
    cases = [
        case
        for case in ElementTree.parse(report).iter("testcase")
        if case.get("classname") == module and part in str(case.get("name"))
    ]
    bad = [str(c.get("name")) for c in cases if c.find("failure") is not None or _broke(c)]
    names = {str(case.get("name")) for case in cases}
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "date": now,
        "load": round(os.getloadavg()[2], 1),  # of the last quarter of an hour, two cores
        "counts": dict(counts),
        "tests": len(cases),
        "failed": bad,
        "seconds": round(sum(float(case.get("time", 0)) for case in cases)),
        "measured": [line for line in figures if line["test"] in names],
    }


def _broke(case: ElementTree.Element) -> bool:
    return case.find("error") is not None or case.find("skipped") is not None


def table(known: Mapping[str, Any]) -> str:
    rows = ["| campaign | measured | date | load |", "|---|---|---|---|"]
    for name, result in sorted(known.items()):
        said = [
            f"{key.replace('_', ' ')}: {value}"
            for line in result["measured"]
            for key, value in line.items()
            if key != "test"
        ]
        good = result["tests"] - len(result["failed"])
        said = said or [f"{good} of {result['tests']} tests passed"]
        rows.append(f"| {name} | {'; '.join(said)} | {result['date'][:10]} | {result['load']} |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("campaign", nargs="*", help=f"of: {', '.join(CAMPAIGNS)}; all if none")
    parser.add_argument("--table", action="store_true", help="Print the figures that are kept.")
    given = parser.parse_args()
    named = set(given.campaign or CAMPAIGNS)
    wanted = [name for name in CAMPAIGNS if name in named]
    unknown = sorted(named - set(CAMPAIGNS))
    if unknown:
        parser.error(f"unknown campaign {unknown[0]}; known: {', '.join(CAMPAIGNS)}")
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    if not given.table:
        with tempfile.TemporaryDirectory() as folder:
            known |= run(wanted, Path(folder))
        FIGURES.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
    print(table(known))
    done = [known[name] for name in wanted if name in known]
    return 0 if done and all(r["tests"] and not r["failed"] for r in done) else 1


if __name__ == "__main__":
    sys.exit(main())
