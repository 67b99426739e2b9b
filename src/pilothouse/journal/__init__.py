# SPDX-License-Identifier: Apache-2.0
"""The append-only, hash-chained record of every cycle.

``Journal`` writes, ``JournalReader`` reads, ``verify`` trusts nothing. A journal is one SQLite file
and, once it has been rotated, its closed predecessors beside it.
"""

from pilothouse.journal.frames import Frame, digest_of
from pilothouse.journal.journal import Journal
from pilothouse.journal.reader import Entry, JournalReader, RecordedCycle
from pilothouse.journal.records import (
    Check,
    Checkpoint,
    Control,
    Cycle,
    Ingested,
    Outcome,
    Receipts,
    Record,
    Resumed,
    Rotated,
    Run,
    SettingsChange,
    Stage,
)
from pilothouse.journal.resume import Resume
from pilothouse.journal.verify import VerifyReport, verify

__all__ = [
    "Check",
    "Checkpoint",
    "Control",
    "Cycle",
    "Entry",
    "Frame",
    "Ingested",
    "Journal",
    "JournalReader",
    "Outcome",
    "Receipts",
    "Record",
    "RecordedCycle",
    "Resume",
    "Resumed",
    "Rotated",
    "Run",
    "SettingsChange",
    "Stage",
    "VerifyReport",
    "digest_of",
    "verify",
]
