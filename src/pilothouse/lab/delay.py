# SPDX-License-Identifier: Apache-2.0
"""A proxy that holds answers back: distance between a worker and its user, without a kernel module.

One process serves all workers, a port each. Delays are read from a file, so that they can change
while it runs. A way without a user of its own is answered by the process itself, as the user.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

CHUNK = 16 << 10
ANSWER = b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def delays(path: Path) -> dict[str, float]:
    """Milliseconds by node; what cannot be read is no delay."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {str(node): float(ms) for node, ms in found.items()}


def set_delays(path: Path, changes: dict[str, float]) -> None:
    """Change some nodes' delays, atomically."""
    merged = delays(path) | changes
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n")
    fresh.replace(path)


class Way:
    """The way from one worker to its user."""

    def __init__(self, node: str, path: Path, user: tuple[str, int] | None) -> None:
        self._node, self._path, self._user = node, path, user

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._user is None:
                await self._answer(reader, writer)
            else:
                await self._forward(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # somebody hung up
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        await self._hold()
        writer.write(ANSWER)
        await writer.drain()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._user is not None
        there, onward = await asyncio.open_connection(*self._user)
        up = asyncio.create_task(self._copy(reader, onward, held=False))
        try:
            await self._copy(there, writer, held=True)
        finally:
            up.cancel()
            onward.close()

    async def _copy(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, held: bool
    ) -> None:
        while data := await source.read(CHUNK):
            if held:
                await self._hold()
            target.write(data)
            await target.drain()

    async def _hold(self) -> None:
        await asyncio.sleep(delays(self._path).get(self._node, 0.0) / 1000)


async def run(path: Path, ways: dict[str, str]) -> None:
    """Serve every way until cancelled, as the user at its end."""
    servers = []
    for node, address in ways.items():
        host, _, port = address.rpartition(":")
        servers.append(await asyncio.start_server(Way(node, path, None).serve, host, int(port)))
    await asyncio.gather(*(server.serve_forever() for server in servers))
