# SPDX-License-Identifier: Apache-2.0
"""Scalars in TensorBoard's file format, so that any TensorBoard can draw a training run.

The format is a list of framed records (length, checksum, protocol-buffer event, checksum); the few
fields a scalar needs are encoded here, which saves a dependency larger than the trainer.
"""

from __future__ import annotations

import struct
import time
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

_POLYNOMIAL = 0x82F63B78  # CRC-32C, reflected


def _table() -> tuple[int, ...]:
    rows = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        rows.append(byte)
    return tuple(rows)


_TABLE = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C, rotated and shifted as the record format wants it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


class Scalars:
    """Writes ``events.out.tfevents.*`` into a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"events.out.tfevents.{time.time_ns()}.pilothouse"
        self._file: BinaryIO = self.path.open("wb")
        self._record(_double(1, time.time()) + _bytes(3, b"brain.Event:2"))

    def __enter__(self) -> Scalars:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, step: int, values: dict[str, float]) -> None:
        """One point of each of these curves."""
        summary = b"".join(
            _bytes(1, _bytes(1, tag.encode()) + _float(2, value)) for tag, value in values.items()
        )
        self._record(_double(1, time.time()) + _integer(2, step) + _bytes(5, summary))
        self._file.flush()

    def _record(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        self._file.write(length + struct.pack("<I", masked_crc(length)))
        self._file.write(event + struct.pack("<I", masked_crc(event)))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _integer(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _float(number: int, value: float) -> bytes:
    return _varint(number << 3 | 5) + struct.pack("<f", value)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value
