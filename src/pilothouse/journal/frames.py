# SPDX-License-Identifier: Apache-2.0
"""Snapshot and forecast as bytes: a keyframe stands alone, a delta needs the frame before it.

Both decode to exactly the arrays that were recorded, so a replay decides from the very values.
``digest_of`` names a snapshot or forecast by its content; decisions carry these names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, get_type_hints

import msgspec

from pilothouse.domain import Forecast, Snapshot
from pilothouse.domain.snapshot import IF_ANY
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
    extras = _extras(frame.snapshot) | _extras(frame.forecast)
    if extras:
        facts.append(extras)
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
                values[name] = msgspec.convert(next(facts), hint)
        sides[side] = values
    extras: dict[str, Any] = next(facts, {})  # older records, and most others, have none
    for side, kind in (("snapshot", Snapshot), ("forecast", Forecast)):
        for name, hint in _IF_ANY[kind].items():
            if name in extras:
                sides[side][name] = msgspec.convert(extras[name], hint)
    return Frame(snapshot=Snapshot(**sides["snapshot"]), forecast=Forecast(**sides["forecast"]))


def _extras(value: Snapshot | Forecast) -> dict[str, Any]:
    """What is recorded only where there is any; no two of these fields share a name."""
    return {name: part for name in _IF_ANY[type(value)] if (part := getattr(value, name))}


def is_keyframe(data: bytes) -> bool:
    return data[:1] == _KEY


def digest_of(value: Snapshot | Forecast) -> str:
    """SHA-256 over every value in field order; equal content gives equal names."""
    total = hashlib.sha256(type(value).__name__.encode())
    for name, _, is_table in _PARTS[type(value)]:
        part = getattr(value, name)
        if is_table:
            _add_table(total, part)
        else:
            _add(total, msgspec.msgpack.encode(part, order="deterministic"))
    if extras := _extras(value):
        _add(total, msgspec.msgpack.encode(extras, order="deterministic"))
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


def _split(kind: type[Any]) -> tuple[tuple[str, Any, bool], ...]:
    hints = get_type_hints(kind)
    return tuple(
        (f.name, hints[f.name], hasattr(hints[f.name], "uid"))
        for f in fields(kind)
        if f.metadata != IF_ANY
    )


_PARTS = {kind: _split(kind) for kind in (Snapshot, Forecast)}
"""Field names, types and whether the field is a table."""
_IF_ANY = {
    kind: {f.name: get_type_hints(kind)[f.name] for f in fields(kind) if f.metadata == IF_ANY}
    for kind in (Snapshot, Forecast)
}


def _facts() -> Iterator[Any]:
    """The types of all that is in no table."""
    for parts in _PARTS.values():
        yield from (hint for _, hint, is_table in parts if not is_table)
    for extras in _IF_ANY.values():
        yield from extras.values()


# Now and not at first use: msgspec must not learn about one class in two threads at a time.
_LEARNED = [msgspec.msgpack.Decoder(hint) for hint in _facts()]
