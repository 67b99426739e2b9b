# SPDX-License-Identifier: Apache-2.0
"""Builds the lab's parts once, through the Go module proxy, and keeps them.

A binary is taken from the cache while the inputs of its build are the same: the module's files,
the flags and the Go version. Builds run at low priority, because the machine has other work. A
folder of release binaries may stand in for everything but our own workload; the manifest says
which it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pilothouse.errors import LabFailed, LabUnavailable
from pilothouse.lab.part import PARTS, Part

GO_MINOR = 26  # Kubernetes 1.36 asks for it
MANIFEST = "manifest.json"

Progress = Callable[[str, int, int], None]  # (what, packages compiled, packages in all)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """Where every command of the lab lies, and how it got there."""

    folder: Path
    origin: Mapping[str, str]  # binary -> "built from k8s.io/kubernetes v1.36.4", "taken from DIR"

    def __getitem__(self, name: str) -> str:
        return str(self.folder / name)


def _silent(_what: str, _done: int, _total: int) -> None:
    pass


def obtain(
    cache: Path,
    *,
    given: Path | None = None,
    progress: Progress = _silent,
    parts: Sequence[Part] = PARTS,
) -> Binaries:
    """Every binary, from the cache, from ``given`` or built now."""
    cache.mkdir(parents=True, exist_ok=True)
    manifest = _read_manifest(cache)
    go = ""
    for part in parts:
        taken = _take(part, given, cache, manifest) if given and part.released else False
        if taken:
            continue
        go = go or _go_version()
        key = _key(part, go)
        if not _is_current(part, cache, manifest, key):
            _build(part, cache, progress)
            _note(part, cache, manifest, key, f"built from {_pin(part)} with {go}")
    return Binaries(
        folder=cache, origin={name: entry["origin"] for name, entry in manifest.items()}
    )


def _read_manifest(cache: Path) -> dict[str, dict[str, str]]:
    try:
        found = json.loads((cache / MANIFEST).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _note(
    part: Part, cache: Path, manifest: dict[str, dict[str, str]], key: str, origin: str
) -> None:
    for binary in part.binaries:
        size = (cache / binary).stat().st_size
        manifest[binary] = {"origin": origin, "key": key, "bytes": str(size)}
    written = cache / f"{MANIFEST}.new"
    written.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")
    written.replace(cache / MANIFEST)


def _is_current(
    part: Part, cache: Path, manifest: Mapping[str, Mapping[str, str]], key: str
) -> bool:
    return all(
        (cache / binary).is_file()
        and manifest.get(binary, {}).get("key") == key
        and manifest[binary].get("bytes") == str((cache / binary).stat().st_size)
        for binary in part.binaries
    )


def _take(part: Part, given: Path, cache: Path, manifest: dict[str, dict[str, str]]) -> bool:
    """Copy release binaries; a part that is only half there is named instead of mixed."""
    found = [name for name in part.binaries if (given / name).is_file()]
    if not found:
        return False
    if missing := sorted(set(part.binaries) - set(found)):
        raise LabUnavailable(
            f"{given} has {', '.join(found)} but not {', '.join(missing)}; components of different "
            "builds reject each other. Add the missing ones, or remove those."
        )
    for name in part.binaries:
        shutil.copy2(given / name, cache / name)
        (cache / name).chmod(0o755)
    _note(part, cache, manifest, f"taken:{given}", f"taken from {given}")
    return True


def _go_version() -> str:
    if shutil.which("go") is None:
        raise LabUnavailable(
            "The lab's parts are not built yet and there is no go command. Install Go "
            f"1.{GO_MINOR} or newer, or name a folder of release binaries: "
            "pilothouse lab up --binaries DIR."
        )
    said = subprocess.run(
        ["go", "env", "GOVERSION"], capture_output=True, text=True, check=True
    ).stdout.strip()
    numbers = said.removeprefix("go").split(".")
    if len(numbers) < 2 or not numbers[1].isdigit() or int(numbers[1]) < GO_MINOR:
        raise LabUnavailable(f"Go 1.{GO_MINOR} or newer is needed, but this machine has {said}.")
    return said


def _key(part: Part, go: str) -> str:
    digest = hashlib.sha256(f"{go} {part.ldflags} {part.packages}".encode())
    for path in sorted(part.folder.rglob("*")):
        if path.is_file() and not path.name.endswith(("_test.go", ".md")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _pin(part: Part) -> str:
    """The module and version the first command comes from, as go.mod names it."""
    for line in (part.folder / "go.mod").read_text().splitlines():
        words = line.removeprefix("require ").split()
        if len(words) >= 2 and words[1].startswith("v") and part.packages[0].startswith(words[0]):
            return f"{words[0]} {words[1]}"
    return f"our own {part.module}"


def _build(part: Part, cache: Path, progress: Progress) -> None:
    """One ``go build`` per module, so that what its commands share is compiled once."""
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly"}
    progress(f"{part.module}: fetching modules", 0, 0)
    total = _count_packages(part, environment)
    fresh = cache / f".{part.module}.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    command = ["go", "build", "-v", "-buildvcs=false", "-trimpath", "-ldflags", part.ldflags]
    command += ["-o", f"{fresh}/", *part.packages]
    with subprocess.Popen(
        command,
        cwd=part.folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_be_nice,
    ) as build:
        last: list[str] = []
        assert build.stderr is not None
        for done, line in enumerate(build.stderr, 1):
            last = [*last[-8:], line.strip()]
            progress(f"building {part.module}", min(done, total), total)
    if build.returncode != 0:
        raise LabFailed(f"Building {part.module} failed: {' '.join(last)}")
    _move(part, fresh, cache)


def _be_nice() -> None:
    os.nice(15)


def _count_packages(part: Part, environment: Mapping[str, str]) -> int:
    listed = subprocess.run(
        ["go", "list", "-deps", *part.packages],
        cwd=part.folder,
        env=dict(environment),
        capture_output=True,
        text=True,
    )
    if listed.returncode != 0:
        raise LabFailed(
            f"The modules of {part.module} could not be fetched: {listed.stderr.strip()[-600:]}. "
            "Check the Go module proxy (go env GOPROXY), or use --binaries DIR."
        )
    return len(listed.stdout.splitlines())


def _move(part: Part, fresh: Path, cache: Path) -> None:
    """``go build`` names a command after its package; a package called v3 is etcd to everybody."""
    for package, binary in zip(part.packages, part.binaries, strict=True):
        built = fresh / binary
        if not built.exists():
            words = package.split("/")
            versioned = words[-1].startswith("v") and words[-1][1:].isdigit()
            built = fresh / (words[-2] if versioned else words[-1])
        built.replace(cache / binary)
    shutil.rmtree(fresh, ignore_errors=True)
