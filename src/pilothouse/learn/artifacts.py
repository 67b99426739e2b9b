# SPDX-License-Identifier: Apache-2.0
"""Artefacts: folders with a manifest, complete or not there at all.

A folder is filled under another name and renamed when its manifest is written, so a killed process
leaves nothing that could be loaded. The manifest says what went in (with hashes), under which
settings and version, and what came out.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from pilothouse import __version__
from pilothouse.errors import ArtifactBroken, MissingFile, UnknownName
from pilothouse.home import folder

MANIFEST = "manifest.json"
SCHEMA = 1
KINDS = ("processed", "models", "reports")  # folders of the home that hold artefacts


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One file: its name, size and hash."""

    path: str
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an artefact is and where it came from."""

    schema: int = SCHEMA
    kind: str
    name: str
    track: str  # the reader or trainer that made it
    inputs: tuple[Part, ...]
    settings: dict[str, Any]
    files: tuple[Part, ...]
    facts: dict[str, Any]  # rows, repairs, figures
    revision: str = __version__


def part_of(path: Path, relative_to: Path | None = None) -> Part:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    name = str(path.relative_to(relative_to)) if relative_to else path.name
    return Part(path=name, bytes=path.stat().st_size, sha256=digest.hexdigest())


def write_atomically(path: Path, data: bytes) -> None:
    """All of it or nothing, also when the power goes."""
    import os

    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def to_json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=1)


def seal(
    target: Path,
    *,
    kind: str,
    track: str,
    inputs: tuple[Part, ...],
    settings: dict[str, Any],
    facts: dict[str, Any],
    name: str | None = None,
) -> Manifest:
    """Write the manifest of a filled folder: from here on it counts."""
    files = tuple(
        part_of(path, target)
        for path in sorted(target.rglob("*"))
        if path.is_file() and path.name != MANIFEST and not path.name.startswith(".")
    )
    manifest = Manifest(
        kind=kind,
        name=name or target.name,
        track=track,
        inputs=inputs,
        settings=settings,
        files=files,
        facts=facts,
    )
    write_atomically(target / MANIFEST, to_json(manifest))
    return manifest


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A folder to fill; it takes the target's place when the block ends well."""
    building = target.with_name(f".{target.name}.building")
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    try:
        yield building
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    building.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def load(path: Path, *, check: bool = False) -> Manifest:
    """The manifest of a complete artefact; ``check`` also hashes every file."""
    try:
        manifest = msgspec.json.decode((path / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError as error:
        raise MissingFile(
            f"{path} has no {MANIFEST}: it is no artefact, or making it was interrupted. "
            "Run the command that makes it again."
        ) from error
    except msgspec.MsgspecError as error:
        raise ArtifactBroken(
            f"{path / MANIFEST} cannot be read: {error}. Make it again."
        ) from error
    if manifest.schema != SCHEMA:
        raise ArtifactBroken(
            f"{path} follows schema {manifest.schema}, but this build knows "
            f"{SCHEMA}. Make it again."
        )
    for part in manifest.files:
        file = path / part.path
        if not file.is_file() or file.stat().st_size != part.bytes:
            raise ArtifactBroken(f"{file} is missing or cut off. Make {path.name} again.")
        if check and part_of(file).sha256 != part.sha256:
            raise ArtifactBroken(f"{file} was altered since it was made. Make {path.name} again.")
    return manifest


def every() -> list[tuple[Path, Manifest]]:
    """All complete artefacts of the home, by folder and name."""
    found = []
    for kind in KINDS:
        for path in sorted(folder(kind).glob(f"*/{MANIFEST}")):
            if not path.parent.name.startswith("."):
                found.append((path.parent, load(path.parent)))
    return found


def find(name: str, kind: str | None = None) -> Path:
    """An artefact by name, ``kind/name`` or path."""
    if "/" in name and (Path(name) / MANIFEST).is_file():
        return Path(name)
    known = {
        f"{path.parent.name}/{path.name}": path
        for path, _ in every()
        if kind in (None, path.parent.name)
    }
    matches = [path for key, path in known.items() if name in (key, path.name)]
    if not matches:
        raise UnknownName.among("artefact", name, sorted(known) or ["none yet"])
    return matches[0]
