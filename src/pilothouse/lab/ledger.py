# SPDX-License-Identifier: Apache-2.0
"""What the lab put on this machine, written down before it is put there.

An entry may name a thing that never came to be, because the command died in between. A process has
no pid before it exists, so its entry comes right after; until then its cgroup gives it away.
``down`` works through the entries and through the marks of ``layout``.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from pilothouse.errors import LabUnavailable


class Planned(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="lab"):
    """The lab itself: what was asked for. The latest counts: its scheduler may be changed."""

    workers: int
    worker_cpu_millicores: int
    worker_memory_mib: int
    fake_nodes: int
    prometheus: bool
    ports: dict[str, int]
    origin: dict[str, str]  # of the binaries
    scheduler: str = "stock"  # or "pilothouse"
    policy: str = ""  # what the scorer serves, by name or file; with our scheduler
    profile: str = ""  # of the scheduler that places pods; with our scheduler
    fake_lease_seconds: int = 40


class Started(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="process"):
    """A process, known by its pid *and* start time: pids come round again."""

    name: str
    command: list[str]
    pid: int
    ticks: int  # start time as /proc tells it
    environment: dict[str, str] = {}


class Linked(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="link"):
    """A bridge."""

    name: str


class Routed(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="route"):
    """A blackhole route."""

    range: str


class Grouped(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="cgroup"):
    """A cgroup, in every hierarchy."""

    path: str


class Tuned(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="sysctl"):
    """A kernel setting and what it was before."""

    path: str
    before: str


class Opened(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="folder"):
    """A folder outside the lab's own that was not there before it."""

    path: str


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="ready"):
    """The lab came up whole."""

    seconds: float


Entry = Planned | Started | Linked | Routed | Grouped | Tuned | Opened | Ready
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Entry)
E_ = TypeVar("E_", bound=Entry)


class Ledger:
    """Append-only lines; a torn last line is an entry for something that was never made."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, entry: Entry) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(_encoder.encode(entry) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def entries(self) -> list[Entry]:
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        found: list[Entry] = []
        for number, line in enumerate(lines, 1):
            try:
                found.append(_decoder.decode(line))
            except msgspec.MsgspecError as error:
                if number < len(lines):
                    raise LabUnavailable(
                        f"{self.path} line {number} cannot be read: {error}. "
                        "Run pilothouse lab down, which also finds things by their marks."
                    ) from None
        return found

    def of(self, kind: type[E_]) -> list[E_]:
        return [entry for entry in self.entries() if isinstance(entry, kind)]

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One ``up`` or ``down`` at a time; the kernel lets go when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabUnavailable(
                f"Another pilothouse lab command is at work (it holds {path}). Wait for it."
            ) from None
        yield
