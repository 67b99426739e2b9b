# SPDX-License-Identifier: Apache-2.0
"""Values as they travel between a simulated cluster and its client: msgpack, columns as bytes."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from pilothouse.domain import (
    NamespaceTable,
    NodeTable,
    PodTable,
    Receipt,
    Snapshot,
    Source,
    Toll,
    WorkloadTable,
    Write,
    ZoneTable,
    columns,
)
from pilothouse.errors import BackendError
from pilothouse.sim.command import ActiveStimulus, Command

_TABLES: dict[str, Any] = {
    "nodes": NodeTable,
    "pods": PodTable,
    "workloads": WorkloadTable,
    "namespaces": NamespaceTable,
    "zones": ZoneTable,
}


def pack(value: Any) -> bytes:
    """Plain values, lists and mappings as bytes."""
    return msgspec.msgpack.encode(value)


def unpack(data: bytes) -> Any:
    """What ``pack`` wrote; anything else is the other side's mistake."""
    try:
        return msgspec.msgpack.decode(data)
    except msgspec.DecodeError as error:
        raise BackendError(f"The simulator's message is not valid msgpack: {error}.") from error


def pack_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot with its columns as little-endian bytes."""
    out: dict[str, Any] = {
        "cluster": snapshot.cluster,
        "taken_seconds": snapshot.taken_seconds,
        "sources": [[s.name, s.age_seconds, s.completeness_permille] for s in snapshot.sources],
    }
    for name in _TABLES:
        table = getattr(snapshot, name)
        numbers = {k: v.astype("<i4", copy=False).tobytes() for k, v in columns(table).items()}
        out[name] = [table.uid.astype("<i8", copy=False).tobytes(), table.names.tolist(), numbers]
    return out


def unpack_snapshot(data: dict[str, Any]) -> Snapshot:
    """The snapshot that ``pack_snapshot`` packed."""
    tables: dict[str, Any] = {}
    for key, kind in _TABLES.items():
        uid, texts, numbers = data[key]
        names = np.empty(len(texts), dtype=object)
        names[:] = texts
        arrays = {k: np.frombuffer(v, dtype=np.int32) for k, v in numbers.items()}
        tables[key] = kind(uid=np.frombuffer(uid, dtype=np.int64), names=names, **arrays)
    sources = tuple(
        Source(name=name, age_seconds=age, completeness_permille=part)
        for name, age, part in data["sources"]
    )
    return Snapshot(
        cluster=data["cluster"], taken_seconds=data["taken_seconds"], sources=sources, **tables
    )


def plain(value: Write | Receipt | Toll | Command | ActiveStimulus) -> Any:
    """A small value as plain data."""
    return msgspec.to_builtins(value)


def read_write(data: Any) -> Write:
    """A write from plain data."""
    return msgspec.convert(data, Write)


def read_receipt(data: Any) -> Receipt:
    """A receipt from plain data."""
    return msgspec.convert(data, Receipt)


def read_toll(data: Any) -> Toll:
    """A toll from plain data."""
    return msgspec.convert(data, Toll)


def read_command(data: Any) -> Command:
    """A command from plain data."""
    return msgspec.convert(data, Command)


def read_stimulus(data: Any) -> ActiveStimulus:
    """An active stimulus from plain data."""
    return msgspec.convert(data, ActiveStimulus)
