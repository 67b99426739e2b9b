# SPDX-License-Identifier: Apache-2.0
"""A simulated cluster as its own process, with its own durable command log: the witness.

Loopback HTTP, msgpack bodies, one lock. Every command is one JSON line, on disk before the answer
leaves, so whatever a client claims to have done can be held against it. A client that dies in the
middle of a request costs nothing but its connection; its forks go with it. An intent that somebody
looked for and did not find is closed: a request of a dead client that is still on its way must not
be done after its successor has concluded that it never was.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pilothouse.errors import BackendError, MissingFile, PilothouseError, PortInUse
from pilothouse.sim import wire
from pilothouse.sim.cluster import SimCluster

FORKS_MAX = 256  # more at once means that somebody forgets to close them


class Witness:
    """An append-only file of commands; what was appended survives a crash."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115 (open for its life)
        except OSError as error:
            raise MissingFile(
                f"Cannot write the command log {path}: {error.strerror}. Give a writable path."
            ) from error
        self._written = 0

    def catch_up(self, cluster: SimCluster) -> None:
        """Write what the cluster's log has gained."""
        fresh = cluster.log_since(self._written)
        if not fresh:
            return
        wall = time.time()  # for a reader who asks whether the intent was recorded before
        lines = [{**wire.plain(command), "wall": wall} for command in fresh]
        self._file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._written += len(fresh)

    def close(self) -> None:
        self._file.close()


class Desk:
    """Answers requests for one cluster and its forks, one at a time."""

    def __init__(self, cluster: SimCluster, witness: Witness) -> None:
        self._cluster = cluster
        self._witness = witness
        self._forks: dict[int, SimCluster] = {}
        self._made_by: dict[int, object] = {}  # fork to the connection that asked for it
        self._next_fork = 1
        self._closed: set[str] = set()  # intents looked for and not found
        self._lock = threading.Lock()
        self._calls: dict[str, Callable[[SimCluster, Any], Any]] = {
            "describe": lambda c, _: {
                "name": c.name,
                "seed": c.seed,
                "scenario": c.scenario.name,
                "clock_seconds": c.clock_seconds,
            },
            "advance_to": self._advance_to,
            "observe": lambda c, _: wire.pack_snapshot(c.observe()),
            "execute": self._execute,
            "find": self._find,
            "toll": lambda c, _: wire.plain(c.toll()),
            "close": self._close,
            "stimuli": lambda c, _: [wire.plain(x) for x in c.stimuli()],
            "log": lambda c, _: [wire.plain(x) for x in c.log()],
            "save": lambda c, _: c.save(),
        }

    def answer(self, method: str, fork: int, argument: Any, caller: object) -> Any:
        """Do one call; the witness is up to date before anybody hears of it."""
        if method not in self._calls and method != "fork":
            known = ", ".join(sorted([*self._calls, "fork"]))
            raise BackendError(f'Unknown call "{method}". Available: {known}.')
        with self._lock:
            if fork and fork not in self._forks:
                raise BackendError(f"Fork {fork} is gone: closed, or the simulator was restarted.")
            cluster = self._forks[fork] if fork else self._cluster
            if method == "close":
                return self._close(cluster, fork)
            if method == "fork":
                return self._fork(cluster, caller)
            result = self._calls[method](cluster, argument)
            self._witness.catch_up(self._cluster)
            return result

    def forget(self, caller: object) -> None:
        """Drop the forks of a connection that has ended."""
        with self._lock:
            for number in [n for n, owner in self._made_by.items() if owner is caller]:
                self._close(self._cluster, number)

    def _advance_to(self, cluster: SimCluster, clock_seconds: int) -> int:
        cluster.advance_to(clock_seconds)
        return cluster.clock_seconds

    def _execute(self, cluster: SimCluster, argument: Any) -> Any:
        write, agent = wire.read_write(argument[0]), argument[1]
        if cluster is self._cluster and write.intent in self._closed:
            raise BackendError(f"Intent {write.intent} came too late: it was looked for already.")
        return wire.plain(cluster.execute(write, agent))

    def _find(self, cluster: SimCluster, intent: str) -> Any:
        receipt = cluster.find(intent)
        if receipt is None and cluster is self._cluster:
            self._closed.add(intent)
        return None if receipt is None else wire.plain(receipt)

    def _fork(self, cluster: SimCluster, caller: object) -> int:
        if len(self._forks) >= FORKS_MAX:
            raise BackendError(f"{FORKS_MAX} forks are open. Close some first.")
        number = self._next_fork
        self._next_fork += 1
        self._forks[number] = cluster.fork()
        self._made_by[number] = caller
        return number

    def _close(self, _: SimCluster, fork: int) -> bool:
        self._made_by.pop(fork, None)
        return self._forks.pop(fork, None) is not None


class _Request(BaseHTTPRequestHandler):
    """One connection; the desk is on the server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body leave together
    server: Server

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True  # the client died while speaking: nothing was asked
            return
        try:
            fork, argument = wire.unpack(body)
            method = self.path.strip("/")
            answer = [True, self.server.desk.answer(method, int(fork), argument, caller=self)]
        except PilothouseError as error:
            answer = [False, str(error)]
        except (TypeError, ValueError) as error:
            answer = [False, f"The simulator cannot use this request: {error}."]
        self._reply(wire.pack(answer))

    def do_GET(self) -> None:
        self._reply(b"ok\n")

    def _reply(self, data: bytes) -> None:
        try:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            self.wfile.flush()
        except ConnectionError:
            self.close_connection = True  # the client died; what it asked for is in the log

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True

    def finish(self) -> None:
        self.server.desk.forget(self)
        try:
            super().finish()
        except ConnectionError:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """The command log is the log."""


class Server(ThreadingHTTPServer):
    """The listening side; ``url`` is known as soon as it exists."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, cluster: SimCluster, host: str, port: int, log_path: Path) -> None:
        self.witness = Witness(log_path)
        self.desk = Desk(cluster, self.witness)
        try:
            super().__init__((host, port), _Request)
        except OSError as error:
            self.witness.close()
            raise PortInUse(
                f"Cannot serve on {host}:{port}: {error.strerror}. Give another port; 0 picks one."
            ) from error

    @property
    def url(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def server_close(self) -> None:
        super().server_close()
        self.witness.close()


def serve(
    cluster: SimCluster,
    host: str,
    port: int,
    log_path: Path,
    announce: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until interrupted; ``announce`` is told the address once it listens."""
    server = Server(cluster, host, port, log_path)
    announce(server.url)
    try:
        server.serve_forever(poll_interval=0.1)
    except KeyboardInterrupt:
        return
    finally:
        server.server_close()
