# SPDX-License-Identifier: Apache-2.0
"""Run the scorer in the foreground until it is told to stop."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from pilothouse.errors import MissingFile, PortInUse, UserError
from pilothouse.scorer.app import Parts, create_app
from pilothouse.scorer.board import Board, PolicySource
from pilothouse.scorer.placements import Placements
from pilothouse.scorer.view import NoCluster, View
from pilothouse.scorer.watch import Chores, Watching
from pilothouse.server.fence import LOOPBACK_NAMES

# Where scheduler and scorer share processors the scheduler goes first: what the scorer works on is
# for a table that lives for seconds, and a scheduling cycle takes milliseconds.
YIELDING = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the scorer is asked to do."""

    policy: str
    kubeconfig: Path | None = None
    prometheus: str = ""
    probe_port: int = 0
    host: str = "127.0.0.1"
    port: int = 10270
    token_file: Path | None = None
    journal: Path | None = None
    enforce_hard_limit: bool = False


def serve(wish: Wish, *, say: Callable[[str], None]) -> None:
    """Until interrupted. A policy that cannot be run ends it at the start, and only there."""
    os.nice(YIELDING)
    listener = _reserve(wish.host, wish.port)
    watching = Watching(wish.kubeconfig) if wish.kubeconfig else None
    view: View = watching or NoCluster()
    board = Board(view=view)
    source = PolicySource(wish.policy)
    source.changed()
    loaded = board.load(source)
    if not loaded.ok:
        raise UserError(loaded.detail)
    parts = Parts(
        board=board,
        placements=Placements(wish.journal, cluster="cluster"),
        token=_token(wish.token_file),
        enforce_hard_limit=wish.enforce_hard_limit,
        loopback=wish.host in LOOPBACK_NAMES,
    )
    app = create_app(parts)
    chores = Chores(
        parts,
        app.state.metrics,
        source=source,
        watching=watching,
        probe_port=wish.probe_port,
        prometheus=wish.prometheus,
    )
    try:
        if watching is not None:
            watching.open()
        chores.start()
        address, port = listener.getsockname()[:2]
        say(f"Scorer with {loaded.detail} http://{address}:{port}/")
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", server_header=False
        )
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        chores.stop()
        parts.placements.close()
        if watching is not None:
            watching.close()


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise MissingFile(f"The token file {path} cannot be read: {error.strerror}.") from error
    if len(token) < 16:
        raise UserError(f"The token in {path} is shorter than 16 characters. Make a longer one.")
    return token


def _reserve(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise PortInUse(
            f"Cannot serve on {host} port {port}: {error.strerror}. Stop what uses it, or choose "
            "another with --port (0 picks a free one)."
        ) from error
    return listener
