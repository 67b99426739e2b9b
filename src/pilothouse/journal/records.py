# SPDX-License-Identifier: Apache-2.0
"""What a journal can hold: one frozen type per kind of record, and the bytes they become.

The kind, the cycle and a key (what people search by) are columns of their own; the rest of a record
is its *body*: MessagePack with sorted keys, so equal values give equal bytes, compressed where that
pays. MessagePack and not JSON, because a hostile proposal may carry NaN or infinity and the record
has to show exactly that.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np

from pilothouse.domain import Decision, Receipt, Result
from pilothouse.errors import InternalError, JournalCorrupt, UserError

Scalars = dict[str, str | int | float | bool | None]
StageState = Literal["pending", "running", "done", "disabled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The first record: what the journal is about. Another seed, scenario or cluster is refused."""

    KIND: ClassVar[str] = "run"
    run_id: str
    cluster: str
    scenario: str
    seed: int
    version: str

    @property
    def key(self) -> str:
        return self.run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChange:
    """The settings every later decision was made under, until the next such record."""

    KIND: ClassVar[str] = "settings"
    settings: dict[str, Any]
    forecaster: str
    reason: str

    @property
    def key(self) -> str:
        return self.forecaster


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """One decision with everything beside the snapshot and forecast that it depended on."""

    KIND: ClassVar[str] = "cycle"
    decision: Decision
    interpreted: Scalars = field(default_factory=dict)  # the summary numbers of the snapshot
    modes: dict[str, str] = field(default_factory=dict)
    approvals: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.decision.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipts:
    """The backend's answers to intents of one decision."""

    KIND: ClassVar[str] = "receipts"
    decision: str
    receipts: tuple[Receipt, ...]

    @property
    def key(self) -> str:
        return self.decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What an action came to after its settle window."""

    KIND: ClassVar[str] = "outcome"
    result: Result

    @property
    def key(self) -> str:
        return self.result.action


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """What a person ordered: halt, resume, mode or approve."""

    KIND: ClassVar[str] = "control"
    line: str  # as a person reads it
    command: str
    arguments: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.command


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """How far one stage of the run is."""

    KIND: ClassVar[str] = "stage"
    name: str
    state: StageState
    done: int = 0
    total: int = 0
    reason: str = ""  # why it is disabled
    artifacts: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One self-check of the run: passed, or a warning with its numbers."""

    KIND: ClassVar[str] = "check"
    name: str
    ok: bool
    sentence: str
    numbers: Scalars = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """A record of another process: the scheduler, the scorer, the janitor."""

    KIND: ClassVar[str] = "ingested"
    source: str
    content: dict[str, Any]

    @property
    def key(self) -> str:
        return self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where a restart may begin: the loop's state here, the simulator's bytes in the frame."""

    KIND: ClassVar[str] = "checkpoint"
    state: dict[str, Any] = field(default_factory=dict)  # the guard's ledger and the like
    simulator: bytes = b""  # travels in the frame column

    @property
    def key(self) -> str:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """A process took the journal up again, and how it resolved what was open."""

    KIND: ClassVar[str] = "resumed"
    reason: str
    resolved: dict[str, str] = field(default_factory=dict)  # intent: what was found by looking

    @property
    def key(self) -> str:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    """The first record of a later file: all that is needed when the earlier ones are gone."""

    KIND: ClassVar[str] = "rotated"
    segment: int  # number of the file that was closed
    previous_head: str
    run: Run
    settings: SettingsChange | None
    state: dict[str, Any] = field(default_factory=dict)  # as in a checkpoint
    simulator: bytes = b""  # travels in the frame column

    @property
    def key(self) -> str:
        return str(self.segment)


Record = (
    Run
    | SettingsChange
    | Cycle
    | Receipts
    | Outcome
    | Control
    | Stage
    | Check
    | Ingested
    | Checkpoint
    | Resumed
    | Rotated
)

TYPES: dict[str, type[Any]] = {
    kind.KIND: kind
    for kind in (
        Run,
        SettingsChange,
        Cycle,
        Receipts,
        Outcome,
        Control,
        Stage,
        Check,
        Ingested,
        Checkpoint,
        Resumed,
        Rotated,
    )
}

DIGESTED = frozenset({"run", "settings", "cycle", "receipts", "outcome", "control", "check"})
"""Kinds whose content the same seed repeats. The others tell about a process or a file: they are
chained, but a run that was interrupted, rotated or watched has the digest of one that was not."""


def _plain(value: Any) -> Any:
    """NumPy scalars and the like, as the number they are."""
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"a {type(value).__name__} cannot be recorded")


_ENCODER = msgspec.msgpack.Encoder(order="deterministic", enc_hook=_plain)
# Made here and not at first use: msgspec must not learn about one class in two threads at a time.
_DECODERS: dict[str, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(record) for kind, record in TYPES.items()
}
_WORTH_COMPRESSING = 256  # bytes; below this zlib's header eats the gain
_RAW, _DEFLATED = b"\x00", b"\x01"


def encode(record: Record) -> bytes:
    """The body of a record, uncompressed. Fails on a value that could not be read back."""
    plain = _without_frame(record)
    try:
        body = _ENCODER.encode(plain)
        # A record nobody can read is worse than a loop that stops: look before it is durable.
        _DECODERS[record.KIND].decode(body)
    except (
        msgspec.MsgspecError,
        NotImplementedError,
        OverflowError,
        RecursionError,
        UnicodeError,
    ) as error:
        what = f"A {record.KIND} record holds a value that cannot be recorded: {error}."
        if isinstance(record, Ingested):
            raise UserError(f"{what} Hand in numbers of up to 64 bits and plain text.") from error
        raise InternalError(f"{what} This is a bug in pilothouse; nothing was written.") from error
    return body


def decode(kind: str, body: bytes, frame: bytes | None) -> Record:
    """The record a row holds; ``frame`` is used by the kinds that keep bytes there."""
    if kind not in TYPES:
        raise JournalCorrupt(f'A record has the unknown kind "{kind}".')
    try:
        record: Record = _DECODERS[kind].decode(body)
    except msgspec.MsgspecError as error:
        raise JournalCorrupt(f"A {kind} record cannot be read: {error}.") from error
    if isinstance(record, Checkpoint | Rotated):
        return replace(record, simulator=expand(frame) if frame else b"")
    return record


def _without_frame(record: Record) -> Record:
    if isinstance(record, Checkpoint | Rotated) and record.simulator:
        return replace(record, simulator=b"")
    return record


def compress(data: bytes) -> bytes:
    """The bytes as they are stored, compressed where it pays."""
    if len(data) >= _WORTH_COMPRESSING:
        packed = zlib.compress(data, 1)
        if len(packed) < len(data):
            return _DEFLATED + packed
    return _RAW + data


def expand(stored: bytes) -> bytes:
    """What ``compress`` was given."""
    if stored[:1] == _RAW:
        return stored[1:]
    if stored[:1] != _DEFLATED:
        raise JournalCorrupt("A stored value does not begin with a known mark.")
    try:
        return zlib.decompress(stored[1:])
    except zlib.error as error:
        raise JournalCorrupt(f"A stored value cannot be expanded: {error}.") from error
