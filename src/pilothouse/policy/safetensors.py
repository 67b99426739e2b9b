# SPDX-License-Identifier: Apache-2.0
"""Reading and writing the safetensors format, as far as a policy needs it: float32 only.

A file is eight bytes of header length, a JSON header (name, dtype, shape, offsets) and the raw
little-endian numbers. There is nothing to execute and nothing to expand, so what a file can do is
bounded by its size; everything the header claims is checked against that.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from pilothouse.errors import ArtifactBroken

Tensors = Mapping[str, NDArray[np.float32]]
MOST_BYTES = 8 << 20  # a policy is some tens of kilobytes
MOST_HEADER_BYTES = 64 << 10
MOST_DIMENSIONS = 2
METADATA = "__metadata__"
_MARKS = {b"PK": "a zip archive", b"\x80": "a pickle", b"\x1f\x8b": "a gzip file"}


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def encode(tensors: Tensors) -> bytes:
    """The file's bytes; the same tensors always give the same ones."""
    header, blocks, offset = {}, [], 0
    for name in sorted(tensors):
        block = np.ascontiguousarray(tensors[name], dtype="<f4").tobytes()
        shape = list(tensors[name].shape)
        ends = [offset, offset + len(block)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": ends}
        blocks.append(block)
        offset = ends[1]
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)  # so that the numbers are aligned
    return struct.pack("<Q", len(text)) + text + b"".join(blocks)


def decode(data: bytes, what: str) -> dict[str, NDArray[np.float32]]:
    """The tensors of a file, or an error that says what is wrong with ``what``."""
    if len(data) > MOST_BYTES:
        raise _broken(what, f"it is larger than {MOST_BYTES} bytes")
    for mark, kind in _MARKS.items():
        if data.startswith(mark) and not _has_header(data):
            raise _broken(what, f"it is {kind}; only safetensors files are read")
    if not _has_header(data):
        raise _broken(what, "its header is missing, cut off or too long")
    length = struct.unpack_from("<Q", data)[0]
    try:
        header = msgspec.json.decode(data[8 : 8 + length])
        if not isinstance(header, dict):
            raise _broken(what, "its header is not a JSON object")
        header.pop(METADATA, None)
        entries = msgspec.convert(header, dict[str, _Entry])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise _broken(what, f"its header cannot be read ({error})") from error
    return _tensors(entries, memoryview(data)[8 + length :], what)


def _has_header(data: bytes) -> bool:
    if len(data) < 8:
        return False
    length = struct.unpack_from("<Q", data)[0]
    return bool(2 <= length <= min(MOST_HEADER_BYTES, len(data) - 8))


def _tensors(
    entries: Mapping[str, _Entry], data: memoryview, what: str
) -> dict[str, NDArray[np.float32]]:
    tensors, expected = {}, 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        if entry.dtype != "F32":
            raise _broken(what, f'"{name}" holds {entry.dtype}, but only F32 is read')
        if len(entry.shape) > MOST_DIMENSIONS or any(size < 1 for size in entry.shape):
            raise _broken(what, f'"{name}" has the shape {entry.shape}')
        start, end = entry.data_offsets
        # Without gaps or overlaps: what is claimed and what is there must be the same bytes.
        if start != expected or end - start != 4 * math.prod(entry.shape) or end > len(data):
            raise _broken(what, f'the bytes of "{name}" are not where its header says (cut off?)')
        numbers = np.frombuffer(data[start:end], dtype="<f4").reshape(entry.shape)
        tensors[name] = numbers.astype(np.float32)
        expected = end
    if expected != len(data):
        raise _broken(what, f"{len(data) - expected} bytes follow its last tensor")
    return tensors


def _broken(what: str, reason: str) -> ArtifactBroken:
    return ArtifactBroken(f"{what} is refused: {reason}. Train the policy again, or restore it.")
