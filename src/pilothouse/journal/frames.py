# SPDX-License-Identifier: Apache-2.0
"""Snapshot and forecast as bytes: a keyframe stands alone, a delta needs the frame before it.

Both decode to exactly the arrays that were recorded, so a replay decides from the very values.
``digest_of`` names a snapshot or forecast by its content; decisions carry these names.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

import msgspec

from pilothouse.domain import Forecast, Snapshot
from pilothouse.domain.forecast import ABSENT_WHEN_EMPTY
from pilothouse.errors import JournalCorrupt
from pilothouse.journal.blocks import Array, BlockReader, BlockWriter, joined
from pilothouse.journal.tables import column_names, has_names, put_table, take_table

_KEY, _DELTA = b"K", b"D"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Frame:
    """What one decision was made from."""

    snapshot: Snapshot
    forecast: Forecast


def encode(frame: Frame, before: Frame | None = None) -> bytes:
    """A keyframe, or with ``before`` the difference to it."""
    writer = BlockWriter()
    facts: list[Any] = []
    shared: list[Array] = []
    for side in ("snapshot", "forecast"):
        value = getattr(frame, side)
        earlier = None if before is None else getattr(before, side)
        for name, _, is_table in _PARTS[type(value)]:
            part = getattr(value, name)
            if is_table:
                put_table(writer, part, getattr(earlier, name, None), shared)
            else:
                facts.append(part)
    for _ in range(_LATE):  # the newest fields, where they are empty
        if facts[-1]:
            break
        facts.pop()
    return (_KEY if before is None else _DELTA) + writer.pack(facts)


def decode(data: bytes, before: Frame | None = None) -> Frame:
    """The recorded frame; ``before`` must be the one it was encoded against."""
    if data[:1] not in (_KEY, _DELTA):
        raise JournalCorrupt("A frame does not begin with a known mark.")
    earlier = None if is_keyframe(data) else before
    reader = BlockReader(data[1:])
    facts = iter(reader.head.facts)
    shared: list[Array] = []
    sides: dict[str, Any] = {}
    tables = 0
    for side, kind in (("snapshot", Snapshot), ("forecast", Forecast)):
        past = None if earlier is None else getattr(earlier, side)
        values: dict[str, Any] = {}
        for name, hint, is_table in _PARTS[kind]:
            if is_table:
                was = getattr(past, name, None)
                values[name] = take_table(reader, hint, tables, was, shared)
                tables += 1
            else:
                fact = next(facts, _ABSENT)
                if fact is not _ABSENT:
                    values[name] = msgspec.convert(fact, hint)
                elif not _may_be_absent(kind, name):
                    raise JournalCorrupt(f"A frame does not tell {side}.{name}.")
        sides[side] = kind(**values)
    return Frame(**sides)


def is_keyframe(data: bytes) -> bool:
    return data[:1] == _KEY


def digest_of(value: Snapshot | Forecast) -> str:
    """SHA-256 over every value in field order; equal content gives equal names."""
    total = hashlib.sha256(type(value).__name__.encode())
    for name, _, is_table in _PARTS[type(value)]:
        part = getattr(value, name)
        if is_table:
            _add_table(total, part)
        elif not _may_be_absent(type(value), name):
            _add(total, msgspec.msgpack.encode(part, order="deterministic"))
        elif part:  # named, because the one before it may be absent
            _add(total, name.encode() + msgspec.msgpack.encode(part, order="deterministic"))
    return total.hexdigest()


def _add_table(total: Any, table: Any) -> None:
    _add(total, table.uid.astype("<i8", copy=False).tobytes())
    if has_names(type(table)):
        _add(total, joined(table.names).encode())
    for name in column_names(type(table)):
        _add(total, getattr(table, name).astype("<i4", copy=False).tobytes())


def _add(total: Any, data: bytes) -> None:
    """Length first, so that values cannot slide into their neighbors."""
    total.update(len(data).to_bytes(8, "little"))
    total.update(data)


def _may_be_absent(kind: type[Any], name: str) -> bool:
    """Fields that came later are the last ones, and left out where they are empty."""
    return ABSENT_WHEN_EMPTY in kind.__dataclass_fields__[name].metadata


def _split(kind: type[Any]) -> tuple[tuple[str, Any, bool], ...]:
    hints = get_type_hints(kind)
    return tuple((f.name, hints[f.name], hasattr(hints[f.name], "uid")) for f in fields(kind))


_ABSENT = object()
_LATE = sum(_may_be_absent(Forecast, f.name) for f in fields(Forecast))
_PARTS = {kind: _split(kind) for kind in (Snapshot, Forecast)}
"""Field names, types and whether the field is a table."""
