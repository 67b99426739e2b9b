# SPDX-License-Identifier: Apache-2.0
"""Reads the files, prints one line per violation, and ends with 1 when there was any."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pilothouse.testing.livecheck.audit import read_log
from pilothouse.testing.livecheck.books import read_books
from pilothouse.testing.livecheck.rules import Evidence, check, known_tickets


def main() -> int:
    parser = argparse.ArgumentParser(prog="livecheck", description=__doc__)
    parser.add_argument("--audit", type=Path, action="append", required=True)
    parser.add_argument("--journal", type=Path, action="append", required=True)
    parser.add_argument("--tickets", type=Path, required=True)
    parser.add_argument("--since", type=float, default=0.0, help="Unix time to begin at.")
    parser.add_argument("--now", type=float, required=True, help="Unix time of the look.")
    parser.add_argument("--no-replay", action="store_true", help="Leave I8 out.")
    given = parser.parse_args()
    # What comes after the last line end is being written just now.
    texts = (path.read_text() for path in given.audit)
    lines = (line for text in texts for line in text.split("\n")[:-1] if line)
    deeds, scene = read_log(lines)
    evidence = Evidence(
        deeds=[deed for deed in deeds if deed.at >= given.since],
        scene=scene,
        books=read_books(given.journal, again=not given.no_replay),
        tickets=known_tickets(scene, json.loads(given.tickets.read_text())["items"], given.since),
        now=given.now,
    )
    violations = check(evidence)
    for line in violations:
        print(line)
    done, books = evidence.deeds, evidence.books
    print(
        f"{books.cycles} decisions, {len(books.intents)} intents, {len(done)} writes of ours "
        f"({sum(d.succeeded for d in done)} done), {len(evidence.tickets)} tickets: "
        f"{len(violations)} violations",
        file=sys.stderr,
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
