# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that can be told to misbehave, between a client of ours and a real server.

``pass`` forwards; ``blackhole`` keeps connections open and forwards nothing, which is what a lost
route looks like from inside; ``refuse`` closes everything at once.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Literal, Self

FaultMode = Literal["pass", "blackhole", "refuse"]


class FaultProxy:
    """Listens on a free loopback port; ``mode`` may be changed at any time."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._ends: list[socket.socket] = []  # every socket ever, closed when we are
        self._mode: FaultMode = "pass"
        self.port: int = self._door.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def mode(self) -> FaultMode:
        return self._mode

    @mode.setter
    def mode(self, mode: FaultMode) -> None:
        """Connections that were blackholed stay dead: what was lost does not come back."""
        before, self._mode = self._mode, mode
        if mode == "refuse" or (before == "blackhole" and mode == "pass"):
            pairs, self._pairs = self._pairs, []
            for pair in pairs if mode == "refuse" else ():
                _shut(pair)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            self._ends.append(client)
            if self._mode == "refuse":
                _shut((client,))
                continue
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        if self._mode == "blackhole":
            self._pairs.append((client, client))
            return
        try:
            server = socket.create_connection(self._upstream, timeout=5)
        except OSError:
            _shut((client,))
            return
        server.settimeout(None)
        self._ends.append(server)
        pair = (client, server)
        self._pairs.append(pair)
        for source, target in (pair, (server, client)):
            threading.Thread(target=self._pump, args=(pair, source, target), daemon=True).start()

    def _pump(
        self,
        pair: tuple[socket.socket, socket.socket],
        source: socket.socket,
        target: socket.socket,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self._mode == "blackhole" or pair not in self._pairs:
                    return  # swallowed, and the connection stays open and silent
                target.sendall(data)
        if self._mode != "blackhole" and pair in self._pairs:
            _shut(pair)

    def close(self) -> None:
        _shut((self._door,))
        self._door.close()
        _shut(self._ends)
        for end in self._ends:
            end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _shut(ends: Iterable[socket.socket]) -> None:
    """Wake whoever reads from these; one that is shut already does not mind."""
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
