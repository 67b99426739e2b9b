# SPDX-License-Identifier: Apache-2.0
"""Packs a static binary as a container image, without a registry and without a builder.

The archive is the one that ``docker save`` writes: a manifest, a configuration and one layer.
Times are zero, so the same binary always gives the same image.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path

WORKLOAD_IMAGE = "docker.io/pilothouse/workload:lab"
PAUSE_IMAGE = "docker.io/pilothouse/pause:lab"


def write_image(binary: Path, target: Path, *, name: str, entrypoint: list[str]) -> None:
    """Write an archive holding one image whose only file is ``/workload``."""
    pack(_layer(binary), target, name=name, entrypoint=entrypoint)


def pack(
    layer: bytes, target: Path, *, name: str, entrypoint: list[str], environment: Sequence[str] = ()
) -> None:
    """Write an archive holding one image of one layer, a tar file."""
    digest = hashlib.sha256(layer).hexdigest()
    configuration = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Entrypoint": entrypoint,
                "Env": list(environment),
                "User": "65532:65532",
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created": "1970-01-01T00:00:00Z", "comment": "pilothouse lab"}],
        }
    ).encode()
    config_name = f"{hashlib.sha256(configuration).hexdigest()}.json"
    manifest = json.dumps(
        [{"Config": config_name, "RepoTags": [name], "Layers": [f"{digest}/layer.tar"]}]
    ).encode()
    with tarfile.open(target, "w") as archive:
        _add(archive, config_name, configuration)
        _add(archive, f"{digest}/layer.tar", layer)
        _add(archive, "manifest.json", manifest)


def _layer(binary: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        _add(archive, "workload", binary.read_bytes(), mode=0o755)
    return content.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(content))
