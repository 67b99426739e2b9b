# SPDX-License-Identifier: Apache-2.0
"""Pilothouse as a container image for the lab, where there is neither a registry nor a builder.

The same contents as ``deploy/Dockerfile`` makes from a base image: an interpreter, the locked
runtime requirements and this package, here taken from the environment that runs the tests. What
runs in the pod is the product as the chart starts it; only the base differs.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pilothouse
from pilothouse.lab.image import pack

NAME = "docker.io/pilothouse/pilothouse"
TAG = "lab"
SITE = "/opt/site"
REQUIREMENTS = Path(__file__).parents[3] / "requirements/runtime.txt"
LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "ensurepip", "lib2to3", "site-packages"}
LINKED = re.compile(r"(?:=> )?(/\S+) \(0x")


def write_own_image(target: Path) -> None:
    content = io.BytesIO()
    python = Path(sys.executable).resolve()
    with tarfile.open(fileobj=content, mode="w") as layer:
        seen: set[str] = set()
        for there, here in files(python):
            if there not in seen:
                seen.add(there)
                layer.add(here, there, recursive=False, filter=_plain)
    pack(
        content.getvalue(),
        target,
        name=f"{NAME}:{TAG}",
        entrypoint=[str(python), "-m", "pilothouse.cli"],
        environment=[f"PYTHONPATH={SITE}", f"PYTHONHOME={sys.base_prefix}", "PYTHONUNBUFFERED=1"],
    )


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Readable by the user of the image, whoever made the file; times stay, or nothing that was
    compiled before would count."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= 0o444 | (0o111 if entry.mode & 0o100 else 0)
    return entry


def files(python: Path) -> Iterator[tuple[str, Path]]:
    """Where each file goes, and where it is."""
    library = Path(sysconfig.get_paths()["stdlib"])
    found = [(str(python), python)]
    found += [(str(path), path) for path in _tree(library)]
    found += list(_requirements())
    package = Path(pilothouse.__file__).parent
    found += [(f"{SITE}/pilothouse/{p.relative_to(package)}", p) for p in _tree(package)]
    compiled = [here for _, here in found if ".so" in here.name or here == python]
    yield from found
    yield from _libraries(compiled)


def _tree(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        embeds = parts[0].startswith("config-")  # for whoever links the interpreter, 44 MB
        if path.is_file() and not embeds and not LEFT_OUT & set(parts):
            yield path.resolve()


def _requirements() -> Iterator[tuple[str, Path]]:
    names = re.findall(r"^([a-z0-9-]+)==", REQUIREMENTS.read_text(), re.M)
    for name in sorted(set(names)):
        try:
            found = distribution(name)
        except ModuleNotFoundError:
            continue  # for another platform
        for file in found.files or ():
            here = Path(str(found.locate_file(file)))
            inside = not str(file).startswith("..") and "tests" not in Path(str(file)).parts
            if inside and here.is_file():
                yield f"{SITE}/{file}", here


def _libraries(compiled: list[Path]) -> Iterator[tuple[str, Path]]:
    """The shared libraries that all of these need, by the loader's own word."""
    wanted: set[str] = set()
    for start in range(0, len(compiled), 50):
        some = [str(path) for path in compiled[start : start + 50]]
        said = subprocess.run(["ldd", *some], capture_output=True, text=True).stdout
        wanted |= {path for path in LINKED.findall(said) if "/site-packages/" not in path}
    for path in sorted(wanted):
        yield path, Path(path).resolve()
