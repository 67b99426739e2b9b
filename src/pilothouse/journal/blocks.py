# SPDX-License-Identifier: Apache-2.0
"""Integer arrays and texts as a row of small blocks, each in the narrowest type that holds it.

A block stores ``values - base`` in one, two, four or eight unsigned bytes, byte planes apart (all
low bytes first), because the high bytes of differences are nearly always the same and then cost
nothing once compressed. A block whose values are all equal stores no bytes. Arithmetic wraps in
the array's own type on both sides, so every value comes back exactly.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pilothouse.errors import InternalError, JournalCorrupt

Array = NDArray[Any]
_WIDTHS = ((0xFF, 1), (0xFFFF, 2), (0xFFFF_FFFF, 4))
_SEPARATOR = "\0"


class Head(msgspec.Struct, array_like=True, frozen=True):
    """Everything that is not a block's bytes."""

    facts: list[Any]
    notes: list[list[int]]  # one per table, see tables.py
    blocks: list[tuple[int, int, int]]  # (bytes per value, base, values)


_HEAD = msgspec.msgpack.Decoder(Head)  # made before any two threads could both make it


class BlockWriter:
    """Collects blocks in the order in which they will be taken."""

    def __init__(self) -> None:
        self.notes: list[list[int]] = []
        self._blocks: list[tuple[int, int, int]] = []
        self._parts: list[bytes] = []

    def put(self, values: Array) -> None:
        """One integer array; two-dimensional ones are stored column after column."""
        flat = values.T.ravel() if values.ndim > 1 else values
        if not len(flat):
            self._blocks.append((0, 0, 0))
            return
        low, high = int(flat.min()), int(flat.max())
        width = _width(high - low)
        self._blocks.append((width, low, len(flat)))
        if width:
            self._parts.append(_planes(flat, low, width))

    def put_texts(self, values: Array) -> None:
        """Names, as one block of bytes."""
        text = joined(values).encode()
        self._blocks.append((-1, len(values), len(text)))
        self._parts.append(text)

    def pack(self, facts: list[Any]) -> bytes:
        """Everything as one compressed value."""
        head = msgspec.msgpack.encode(
            Head(facts=facts, notes=self.notes, blocks=self._blocks), order="deterministic"
        )
        return deflate(b"".join((len(head).to_bytes(4, "little"), head, *self._parts)))


class BlockReader:
    """Gives blocks back in the order in which they were put."""

    def __init__(self, packed: bytes) -> None:
        try:
            data = zlib.decompress(packed)
            size = int.from_bytes(data[:4], "little")
            self.head = _HEAD.decode(data[4 : 4 + size])
        except (zlib.error, msgspec.MsgspecError) as error:
            raise JournalCorrupt(f"A frame cannot be read: {error}.") from error
        self._data = data
        self._at = 4 + size
        self._next = 0

    def take(self, dtype: type[np.integer[Any]], columns: int = 0) -> Array:
        """The next integer array; ``columns`` is its second dimension, 0 for one dimension."""
        width, low, count = self._block()
        wide = np.dtype(dtype)
        if width <= 0:
            flat = np.full(count, low, dtype=wide)
        else:
            raw = np.frombuffer(self._bytes(width * count), dtype=np.uint8)
            narrow = np.ascontiguousarray(raw.reshape(width, count).T).view(f"<u{width}")[:, 0]
            unsigned = np.dtype(f"u{wide.itemsize}")
            flat = narrow.astype(unsigned)
            flat += unsigned.type(low % (1 << (8 * wide.itemsize)))
            flat = flat.view(wide)
        if not columns:
            return flat
        return np.ascontiguousarray(flat.reshape(columns, -1).T)

    def take_texts(self) -> Array:
        _, count, size = self._block()
        return parted(self._bytes(size).decode(), count)

    def _block(self) -> tuple[int, int, int]:
        if self._next >= len(self.head.blocks):
            raise JournalCorrupt("A frame ends early.")
        block = self.head.blocks[self._next]
        self._next += 1
        return block

    def _bytes(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) != size:
            raise JournalCorrupt("A frame ends early.")
        self._at += size
        return part


def joined(values: Array) -> str:
    """Names in one text; a separator inside a name would let two lists look the same."""
    text = _SEPARATOR.join(values.tolist())
    if len(values) and text.count(_SEPARATOR) != len(values) - 1:
        raise InternalError("An object name holds a zero character and cannot be recorded.")
    return text


def parted(text: str, count: int) -> Array:
    names = np.empty(count, dtype=object)
    if count:
        names[:] = text.split(_SEPARATOR)
    return names


def _width(span: int) -> int:
    if span == 0:
        return 0
    return next((width for limit, width in _WIDTHS if span <= limit), 8)


def _planes(flat: Array, low: int, width: int) -> bytes:
    unsigned = np.dtype(f"u{flat.dtype.itemsize}")
    shifted = flat.view(unsigned) - unsigned.type(low % (1 << (8 * unsigned.itemsize)))
    narrow = shifted.astype(f"<u{width}")
    planes: bytes = narrow.view(np.uint8).reshape(-1, width).T.tobytes()
    return planes


def deflate(data: bytes) -> bytes:
    """Level 1: level 3 saves two percent and costs a third more time on differences."""
    return zlib.compress(data, 1)
