# SPDX-License-Identifier: Apache-2.0
"""Where Pilothouse keeps what it makes: one home folder, outside any repository.

``PILOTHOUSE_HOME`` names it; ``~/.pilothouse`` otherwise. Journals live in its ``runtime`` folder,
one per scenario and seed, so that trying another scenario never collides with an older run.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pilothouse.errors import MissingFile, UserError

CLOSED = re.compile(r"\.[0-9]{6,}$")  # what a rotation adds to the name of a closed file


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


def created(folder: Path) -> Path:
    """This folder, made where it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The folder {folder} cannot be made: {error.strerror or error}. Make it writable, or "
            "set PILOTHOUSE_HOME to a folder of yours."
        ) from None
    return folder


def journals() -> list[Path]:
    """The journals of the runtime folder, without files that a rotation closed."""
    found = (home() / "runtime").glob("*.db")
    return sorted(path for path in found if not CLOSED.search(path.stem))


def latest_journal() -> Path:
    """The journal that was written to last."""
    found = journals()
    if not found:
        raise MissingFile(
            f"There is no journal in {home() / 'runtime'}. Start a run with: pilothouse up, "
            "or name a journal with --journal FILE."
        )
    return max(found, key=_written)


def _written(journal: Path) -> int:
    """When it was last written to; the newest records are in the log beside the file."""
    log = journal.with_name(journal.name + "-wal")
    return max(path.stat().st_mtime_ns for path in (journal, log) if path.exists())
