# SPDX-License-Identifier: Apache-2.0
"""One table of a snapshot or forecast: whole, or as the difference to the same table before.

Works on any dataclass of integer columns with an ascending ``uid``, so a new column or table needs
nothing here. A difference names the rows that left, the differences of those that stayed and the
rows that came; where rows did not stay in order the table is stored whole.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from pilothouse.errors import InternalError, JournalCorrupt
from pilothouse.journal.blocks import Array, BlockReader, BlockWriter

_WHOLE, _DIFFERENCE = 0, 1


_COLUMNS: dict[type[Any], tuple[str, ...]] = {}


def column_names(table: type[Any]) -> tuple[str, ...]:
    """The numeric columns in order, ``uid`` aside."""
    if table not in _COLUMNS:
        named = (f.name for f in fields(table))
        _COLUMNS[table] = tuple(name for name in named if name not in ("uid", "names"))
    return _COLUMNS[table]


def has_names(table: type[Any]) -> bool:
    return "names" in table.__dataclass_fields__


def put_table(writer: BlockWriter, table: Any, before: Any | None, shared: list[Array]) -> None:
    """Append one table; ``shared`` collects uids, so that tables over the same rows share them."""
    _check(table)
    kept = None if before is None else _survivors(before.uid, table.uid)
    note = [_WHOLE if kept is None else _DIFFERENCE, len(table.uid)]
    note += [_columns_of(getattr(table, name)) for name in column_names(type(table))]
    note.append(_shared_with(table.uid, shared))
    if note[-1] < 0:
        shared.append(table.uid)
    writer.notes.append(note)
    if kept is None or before is None:
        _put_whole(writer, table, 0, note[-1] < 0)
    else:
        _put_difference(writer, table, before, kept, note[-1] < 0)


def take_table(
    reader: BlockReader, kind: type[Any], number: int, before: Any | None, shared: list[Array]
) -> Any:
    """The table that ``put_table`` was given."""
    mode, rows, *widths, same = reader.head.notes[number]
    uid = shared[same] if same >= 0 else None
    if mode == _WHOLE:
        table = _take_whole(reader, kind, widths, uid)
    elif before is None:
        raise JournalCorrupt("A frame refers to an earlier one that is not there.")
    else:
        table = _take_difference(reader, kind, widths, before, uid)
    if len(table.uid) != rows:
        raise JournalCorrupt(f"A frame holds {len(table.uid)} rows where {rows} were recorded.")
    if same < 0:
        shared.append(table.uid)
    return table


def _check(table: Any) -> None:
    name = type(table).__name__
    if table.uid.dtype != np.int64:
        raise InternalError(f"{name}.uid must be int64, but is {table.uid.dtype}.")
    for column in column_names(type(table)):
        values = getattr(table, column)
        if values.dtype != np.int32:
            raise InternalError(f"{name}.{column} must be int32, but is {values.dtype}.")
        if len(values) != len(table.uid):
            raise InternalError(
                f"{name}.{column} has {len(values)} rows, but uid has {len(table.uid)}."
            )


def _columns_of(values: Array) -> int:
    return int(values.shape[1]) if values.ndim == 2 else 0


def _shared_with(uid: Array, shared: list[Array]) -> int:
    for number, other in enumerate(shared):
        if uid is other or np.array_equal(uid, other):
            return number
    return -1


def _survivors(before: Array, now: Array) -> Array | None:
    """Which earlier rows are still there; None where those rows are not simply the first ones."""
    if len(before) and (np.diff(before) <= 0).any():
        return None
    if np.array_equal(before, now):
        return np.ones(len(before), dtype=np.bool_)
    positions = np.searchsorted(now, before)
    kept: Array = positions < len(now)
    kept[kept] = now[positions[kept]] == before[kept]
    count = int(kept.sum())
    came = now[count:]
    in_order = np.array_equal(now[:count], before[kept])
    return kept if in_order and not np.isin(came, before).any() else None


def _put_whole(writer: BlockWriter, table: Any, start: int, with_uid: bool) -> None:
    if with_uid:
        uid = table.uid[start:]
        writer.put(uid[:1])
        writer.put(np.diff(uid))
    if has_names(type(table)):
        writer.put_texts(table.names[start:])
    for name in column_names(type(table)):
        writer.put(getattr(table, name)[start:])


def _put_difference(
    writer: BlockWriter, table: Any, before: Any, kept: Array, with_uid: bool
) -> None:
    gone = np.flatnonzero(~kept)
    writer.put(np.diff(gone, prepend=0))
    count = len(kept) - len(gone)
    everyone = not len(gone)
    for name in column_names(type(table)):
        was, now = getattr(before, name), getattr(table, name)
        writer.put(now[:count] - (was if everyone else was[kept]))
    if has_names(type(table)):
        renamed = [
            row
            for row, (was, now) in enumerate(
                zip(before.names[kept].tolist(), table.names[:count].tolist(), strict=True)
            )
            if was is not now and was != now
        ]
        writer.put(np.asarray(renamed, dtype=np.int64))
        writer.put_texts(table.names[np.asarray(renamed, dtype=np.int64)])
    _put_whole(writer, table, count, with_uid)


def _take_whole(reader: BlockReader, kind: type[Any], widths: list[int], uid: Array | None) -> Any:
    values: dict[str, Array] = {"uid": _take_uid(reader) if uid is None else uid}
    if has_names(kind):
        values["names"] = reader.take_texts()
    for name, width in zip(column_names(kind), widths, strict=True):
        values[name] = reader.take(np.int32, width)
    return kind(**values)


def _take_uid(reader: BlockReader) -> Array:
    first = reader.take(np.int64)
    steps = reader.take(np.int64)
    return np.cumsum(np.concatenate((first, steps)), dtype=np.int64)


def _take_difference(
    reader: BlockReader, kind: type[Any], widths: list[int], before: Any, uid: Array | None
) -> Any:
    gone = np.cumsum(reader.take(np.int64))
    kept = np.ones(len(before.uid), dtype=np.bool_)
    kept[gone] = False
    stayed = {
        name: getattr(before, name)[kept] + reader.take(np.int32, width)
        for name, width in zip(column_names(kind), widths, strict=True)
    }
    if has_names(kind):
        names = before.names[kept]
        renamed = reader.take(np.int64)
        names[renamed] = reader.take_texts()
        stayed["names"] = names
    came = _take_whole(reader, kind, widths, None if uid is None else uid[int(kept.sum()) :])
    values = {name: np.concatenate((was, getattr(came, name))) for name, was in stayed.items()}
    values["uid"] = np.concatenate((before.uid[kept], came.uid)) if uid is None else uid
    return kind(**values)
