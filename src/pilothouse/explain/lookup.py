# SPDX-License-Identifier: Apache-2.0
"""Finding the decision somebody asks about."""

from __future__ import annotations

from pilothouse.domain import Receipt, Result
from pilothouse.errors import UserError
from pilothouse.explain.sentences import Account
from pilothouse.journal import Cycle, Entry, JournalReader, Receipts


def account_of(reader: JournalReader, which: str) -> Account:
    """The decision named ``last``, by an id or its beginning, or the last about an object.

    An object is written ``node/NAME``, ``workload/NAMESPACE/NAME`` or ``pod/NAMESPACE/NAME``.
    """
    entry = _entry(reader, which)
    record = entry.record
    if not isinstance(record, Cycle):
        raise UserError(f"Record {entry.seq} is not a decision.")
    receipts: list[Receipt] = []
    results: list[Result] = []
    for found in reader.outcomes_of(record.decision.id):
        if isinstance(found, Receipts):
            receipts += found.receipts
        else:
            results.append(found.result)
    return Account(decision=record.decision, receipts=receipts, results=results)


def _entry(reader: JournalReader, which: str) -> Entry:
    if which == "last":
        found = reader.last_cycle()
        if found is None:
            raise UserError(f"{reader.path} has no decision yet. Let the loop run a cycle.")
        return found
    return _last_about(reader, which) if "/" in which else reader.find(which)


def _last_about(reader: JournalReader, which: str) -> Entry:
    found: Entry | None = None
    for entry in reader.entries():
        if isinstance(entry.record, Cycle) and _concerns(entry.record, which):
            found = entry
    if found is None:
        raise UserError(
            f"No decision in {reader.path} proposed or did anything about {which}. "
            "Write node/NAME, workload/NAMESPACE/NAME or pod/NAMESPACE/NAME."
        )
    return found


def _concerns(record: Cycle, which: str) -> bool:
    named = [p.target for p in record.decision.proposals]
    named += [w.target for a in record.decision.actions for w in a.writes]
    return any(str(ref).partition("/")[2] == which for ref in named)
