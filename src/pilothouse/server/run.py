# SPDX-License-Identifier: Apache-2.0
"""Serve the app beside the loop, in a thread of its own.

The address is reserved before anything else starts: a port in use must be one clear line, not a
loop that runs without its page. Only loopback is served, because reading needs no token.
"""

from __future__ import annotations

import errno
import socket
import threading
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette

from pilothouse.errors import InternalError, InvalidSetting, PortInUse
from pilothouse.server.feed import Feed

START_SECONDS = 10.0
STOP_SECONDS = 5.0
_FAMILIES = {
    "127.0.0.1": (socket.AF_INET, "127.0.0.1"),
    "localhost": (socket.AF_INET, "127.0.0.1"),
    "::1": (socket.AF_INET6, "::1"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server that answers at ``url`` until it is stopped."""

    url: str
    port: int
    _server: uvicorn.Server
    _thread: threading.Thread
    _feed: Feed

    def stop(self) -> None:
        """End the open streams, then the server; returns when the port is free."""
        self._feed.close()
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS)


def reserve(host: str, port: int) -> socket.socket:
    """A bound and listening socket; port 0 picks a free one."""
    if host not in _FAMILIES:
        raise InvalidSetting(
            "serve.host must be a loopback address (127.0.0.1, ::1 or localhost), "
            f'but got "{host}". Reading needs no token, so other machines are not served.'
        )
    family, address = _FAMILIES[host]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise _unusable(host, port, error) from error
    return listener


def _unusable(host: str, port: int, error: OSError) -> PortInUse:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(
            f"Port {port} on {host} is in use by another process. "
            "Stop it, or choose another port with --port (0 picks a free one)."
        )
    return PortInUse(f"Cannot serve on {host} port {port}: {error.strerror}. Choose another port.")


def start(app: FastAPI, host: str, port: int) -> Running:
    """Reserve and serve."""
    return serve(app, reserve(host, port))


def serve(app: Starlette, listener: socket.socket) -> Running:
    """Serve on a reserved socket; returns when requests are answered."""
    address, port = listener.getsockname()[:2]
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=2,
            timeout_keep_alive=30,
            ws="none",
        )
    )
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="server", daemon=True
    )
    thread.start()
    _wait_until_started(server, thread)
    name = f"[{address}]" if ":" in address else address
    return Running(
        url=f"http://{name}:{port}",
        port=port,
        _server=server,
        _thread=thread,
        _feed=app.state.feed,
    )


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    pause = threading.Event()
    for _ in range(int(START_SECONDS / 0.01)):
        if server.started:
            return
        if not thread.is_alive():
            break
        pause.wait(0.01)
    raise InternalError("The page's server did not start. This is a bug in pilothouse.")
