# SPDX-License-Identifier: Apache-2.0
"""Images without a registry."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

from pilothouse.lab.image import write_image


def test_archive_holds_one_layer_with_one_executable_file(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x7fELF")
    write_image(binary, tmp_path / "image.tar", name="docker.io/a/b:c", entrypoint=["/workload"])
    with tarfile.open(tmp_path / "image.tar") as archive:
        manifest = json.loads(archive.extractfile("manifest.json").read())[0]
        config = json.loads(archive.extractfile(manifest["Config"]).read())
        layer = archive.extractfile(manifest["Layers"][0]).read()
        with tarfile.open(fileobj=archive.extractfile(manifest["Layers"][0])) as files:
            entry = files.getmember("workload")
    assert manifest["RepoTags"] == ["docker.io/a/b:c"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert entry.mode == 0o755
    assert config["config"]["User"] != "0"


def test_same_binary_gives_the_same_image(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"x" * 1000)
    for name in ("one", "two"):
        write_image(binary, tmp_path / name, name="a:b", entrypoint=["/workload"])
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
