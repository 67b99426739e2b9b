# SPDX-License-Identifier: Apache-2.0
"""A guide as the tests see it: fenced blocks, and a sandbox that runs them in order.

A block's first line says what it is: ``sh`` is run, ``sh fails`` must fail with the words of the
``text`` after it, ``sh full`` and ``sh kind`` are only looked at, and a language with a name is a
file that later blocks use.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "how-to"
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
FENCES = re.compile(r"^```", flags=re.MULTILINE)
ONLY_LOOKED_AT = ("full", "kind")
PRINTED_PORT = "10279"  # what the guides print where a test needs a port of its own
SECONDS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block."""

    language: str
    tag: str
    text: str

    @property
    def is_file(self) -> bool:
        return self.language not in ("sh", "text")


def pages() -> list[Path]:
    return sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")


def blocks(page: str) -> list[Block]:
    """Every fenced block; one that the pattern does not understand is an error."""
    found = [Block(language=m[1], tag=m[2] or "", text=m[3]) for m in FENCE.finditer(page)]
    assert 2 * len(found) == len(FENCES.findall(page)), "a fence is not closed or has odd words"
    known = {"", "fails", *ONLY_LOOKED_AT}
    odd = [b.tag for b in found if (not b.tag if b.is_file else b.tag not in known)]
    assert odd == [], f"blocks that nothing would test: {odd}"
    for before, block in pairwise([Block(language="", tag="", text=""), *found]):
        alone = (before.tag == "fails") != (block.language == "text")
        assert not alone, f"an error without its words, or words without an error: {block.text}"
    return found


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command line, continuations joined."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.strip():
            yield shlex.split(line)


class Failed(Exception):
    """A block that did not do what its guide says."""


def play(page: str, folder: Path) -> int:
    """Write the files and run the blocks in order; how many were run."""
    for name in ("api", "deploy", "docs", "src"):
        (folder / name).symlink_to(ROOT / name)
    count, said = 0, ""
    for block in blocks(page):
        if block.is_file:
            (folder / block.tag).write_text(block.text, encoding="utf-8")
        elif block.language == "text":
            if block.text.split() != said.split():
                raise Failed(f"the guide says:\n{block.text}\nbut it was:\n{said}")
        elif block.tag not in ONLY_LOOKED_AT:
            code, said = _run(block, folder)
            if (code == 0) != (block.tag == ""):
                raise Failed(f"status {code} of:\n{block.text}\n{said}")
            count += 1
    return count


def _run(block: Block, folder: Path) -> tuple[int, str]:
    script = block.text.replace(PRINTED_PORT, str(_free_port()))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PILOTHOUSE_HOME": str(folder / "home")}
    # Into a file: a server that a failed block leaves behind would hold a pipe open.
    with (folder / "said.txt").open("w+b") as said:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            _end(process)
        said.seek(0)
        return code, said.read().decode("utf-8", "replace")[-4000:]


def _end(process: subprocess.Popen[bytes]) -> None:
    """The shell and whatever it started; the session is ours alone."""
    with suppress(ProcessLookupError):  # all of it may have ended by itself
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
