# SPDX-License-Identifier: Apache-2.0
"""Where Pilothouse keeps what it makes: one home folder, outside any repository.

``PILOTHOUSE_HOME`` names it; ``~/.pilothouse`` otherwise. Journals live in its ``runtime`` folder,
one per scenario and seed, so that trying another scenario never collides with an older run.
"""

from __future__ import annotations

import os
from pathlib import Path

from pilothouse.errors import MissingFile


def home() -> Path:
    """The home folder; nothing is created by asking."""
    return Path(os.environ.get("PILOTHOUSE_HOME") or Path.home() / ".pilothouse")


def folder(kind: str) -> Path:
    """One of the home's folders: raw, processed, models, reports, runtime or config.

    Raw and processed traces are large; ``PILOTHOUSE_RAW`` and ``PILOTHOUSE_PROCESSED`` move them.
    """
    moved = os.environ.get(f"PILOTHOUSE_{kind.upper()}") if kind in ("raw", "processed") else None
    return Path(moved) if moved else home() / kind


def default_journal(scenario: str, seed: int) -> Path:
    """The journal of a run that names none."""
    return home() / "runtime" / f"{Path(scenario).stem}-{seed}.db"


def latest_journal() -> Path:
    """The journal that was written to last."""
    folder = home() / "runtime"
    found = [p for p in folder.glob("*.db") if p.stem.count(".") == 0]
    if not found:
        raise MissingFile(
            f"There is no journal in {folder}. Start a run with: pilothouse up, "
            "or name a journal with --journal FILE."
        )
    return max(found, key=lambda path: path.stat().st_mtime_ns)
