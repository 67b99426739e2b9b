# SPDX-License-Identifier: Apache-2.0
"""The hash chain: every row is bound to all rows before it.

The *link* covers every stored value of a row together with its SQLite type, so that no byte can
change unnoticed. The *digest* covers only what the same seed repeats, uncompressed; frames are in
it through the digests that decisions carry, wall times are not.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from pilothouse.journal.records import DIGESTED, expand

GENESIS = hashlib.sha256(b"pilothouse journal, schema 1: the link before the first").digest()
NO_DIGEST = hashlib.sha256(b"pilothouse journal, schema 1: the digest of nothing").digest()

Stored = int | float | str | bytes | bytearray | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row as it is stored, in column order."""

    seq: int
    kind: str
    cycle: int
    key: str
    wall: float
    body: bytes
    frame: bytes | None
    digest: bytes
    link: bytes

    @property
    def values(self) -> tuple[Stored, ...]:
        """Everything but the link, in column order."""
        return (
            self.seq,
            self.kind,
            self.cycle,
            self.key,
            self.wall,
            self.body,
            self.frame,
            self.digest,
        )


def link_of(previous: bytes, values: tuple[Stored, ...]) -> bytes:
    """The link of a row with these stored values after the row with ``previous``."""
    total = hashlib.sha256(previous)
    for value in values:
        tag, data = _canonical(value)
        total.update(tag + len(data).to_bytes(8, "big"))
        total.update(data)
    return total.digest()


def digest_of(previous: bytes, kind: str, cycle: int, key: str, body: bytes) -> bytes:
    """The digest after a row; unchanged by kinds that tell about a process or a file."""
    if kind not in DIGESTED:
        return previous
    return link_of(previous, (kind, cycle, key, expand(body)))


def _canonical(value: Stored) -> tuple[bytes, bytes]:
    """The SQLite type and the value's bytes. Text read as it lies in the file is a bytearray."""
    match value:
        case None:
            return b"n", b""
        case int():
            return b"i", value.to_bytes(8, "big", signed=True)
        case float():
            return b"r", struct.pack(">d", value)
        case str():
            return b"t", value.encode()
        case bytearray():
            return b"t", bytes(value)
        case bytes():
            return b"b", value
