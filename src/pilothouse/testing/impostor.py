# SPDX-License-Identifier: Apache-2.0
"""Something else at the scorer's address: it hangs, dawdles, flaps or answers garbage.

A behavior is what happens to one connection. Whoever asks is the scheduler plugin, which has to
place every pod whatever it is told here. Records it wants to hand in find nobody.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import socket
import struct
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

Behavior = Callable[[socket.socket], None]
HUGE = 100 << 20
CHUNK = b" " * (1 << 20)
HANGING_SECONDS = 30.0  # longer than any caller waits


@contextmanager
def impostor(port: int, behave: Behavior) -> Iterator[None]:
    """Listen on a loopback port and treat every connection that way."""
    listener = socket.create_server(("127.0.0.1", port))
    gone = threading.Event()

    def serve() -> None:
        while not gone.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=treat, args=(connection,), daemon=True).start()

    def treat(connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the scheduler hanging up is the right thing to do
            if not connection.recv(4096, socket.MSG_PEEK).startswith(b"POST"):
                behave(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        gone.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def answer(body: bytes) -> Behavior:
    """Says this, whatever was asked."""

    def behave(connection: socket.socket) -> None:
        _head(connection, len(body))
        connection.sendall(body)

    return behave


def answer_hugely(connection: socket.socket) -> None:
    """A hundred megabytes of nothing."""
    _head(connection, HUGE)
    for _ in range(HUGE // len(CHUNK)):
        connection.sendall(CHUNK)


def hang(_connection: socket.socket) -> None:
    """Accepts and never answers."""
    threading.Event().wait(HANGING_SECONDS)


def hang_up(connection: socket.socket) -> None:
    """Reads the question and goes away."""
    connection.recv(4096)


def late(seconds: float, behave: Behavior) -> Behavior:
    """The same, later."""

    def dawdle(connection: socket.socket) -> None:
        threading.Event().wait(seconds)
        behave(connection)

    return dawdle


def in_turn(*behaviors: Behavior) -> Behavior:
    """Another one at every connection, round and round."""
    turns = itertools.cycle(behaviors)
    lock = threading.Lock()

    def behave(connection: socket.socket) -> None:
        with lock:
            chosen = next(turns)
        chosen(connection)

    return behave


def counted(behaviors: Mapping[str, Behavior], met: Counter[str]) -> dict[str, Behavior]:
    """The same; ``met`` counts who was treated in which way, also where nobody was."""

    def counting(name: str, behave: Behavior) -> Behavior:
        met[name] += 0

        def count(connection: socket.socket) -> None:
            met[name] += 1
            behave(connection)

        return count

    return {name: counting(name, behave) for name, behave in behaviors.items()}


def _head(connection: socket.socket, length: int) -> None:
    connection.recv(4096)
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    connection.sendall(head.encode())


def good_table(scorer: str) -> dict[str, Any]:
    """What the real scorer says, weights and all."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{scorer}/v1/table", timeout=30) as said:
        table: dict[str, Any] = json.loads(said.read())
    return table


def slow(table: dict[str, Any]) -> Behavior:
    """Good answers: one within the plugin's patience, the next beyond it."""
    good = answer(json.dumps(table).encode())
    return in_turn(late(0.5, good), late(2.0, good))


def flapping(table: dict[str, Any]) -> Behavior:
    """Good answers that live for a second, and between them nobody there."""
    good = answer(json.dumps(table | {"ttlSeconds": 1.0}).encode())
    return in_turn(good, good, hang_up, hang_up, hang_up)


def garbage(table: dict[str, Any]) -> dict[str, Behavior]:
    """By name: answers that are no table, and tables that make no sense."""
    node = next(iter(table["latency"].get("", {})), "fake-0001")
    latency = {"": {node: 1e308, "nonesuch": -1e308}, "nobody": {node: -1e308}}
    scores = {"nonesuch": 100.0, node: 1e308}
    changes: dict[str, dict[str, Any]] = {
        "version": {"apiVersion": "pilothouse.dev/v9"},
        "extreme": {"latency": latency, "idlePowerShare": {node: -1e308, "nonesuch": 1e308}},
        "unknown-nodes": {"avoid": ["nonesuch"], "latency": {"": {"nonesuch": 1.0}}},
        "suggestions": {"suggestions": {"u": {"scores": scores, "expiresInSeconds": 1e308}}},
        "weights": {"policy": {**table["policy"], "version": "other", "weights": "AAAA"}},
        "nan-weights": {"policy": without_a_number(table["policy"])},
        "forever": {"ttlSeconds": 1e308},
    }
    bodies = {name: json.dumps(table | change).encode() for name, change in changes.items()}
    bodies |= {
        "text": b"<html>hello</html>",
        "empty": b"",
        "not-a-number": json.dumps(table | {"ttlSeconds": float("nan")}).encode(),
        "half": json.dumps(table).encode()[:-20],
    }
    return {name: answer(body) for name, body in bodies.items()} | {"huge": answer_hugely}


def without_a_number(policy: Mapping[str, Any]) -> dict[str, Any]:
    """A policy of the same shape whose weights are all NaN, its card and hash in order."""
    data = base64.b64decode(policy["weights"])
    begin = 8 + struct.unpack("<Q", data[:8])[0] if data else 0  # safetensors: length, header, data
    data = data[:begin] + struct.pack("<f", float("nan")) * ((len(data) - begin) // 4)
    found = hashlib.sha256(data).hexdigest()
    return {
        "version": f"nan-{found[:12]}",
        "card": {**policy["card"], "policy": "nan", "weights_sha256": found},
        "weights": base64.b64encode(data).decode(),
    }
