# SPDX-License-Identifier: Apache-2.0
"""A Prometheus that can be told to lie, for clients of ours on a real cluster.

It answers the usage queries for the nodes and pods it was given, truthfully until ``mode`` says
otherwise. ``slow`` answers after longer than anybody waits; closing it makes it ``absent``.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qs

Lie = Literal[
    "truth", "slow", "empty", "nan", "old", "future", "duplicated", "thousandfold", "html"
]

CORES, BYTES = 0.02, 100 * 2**20  # idleness: a node that could be put to sleep


class LyingPrometheus:
    """Listens on a free loopback port; ``mode`` may be changed at any time."""

    def __init__(self, nodes: Sequence[str], pods: Sequence[tuple[str, str]] = ()) -> None:
        self.mode: Lie = "truth"
        self.asked: list[str] = []
        self._nodes, self._pods = nodes, pods
        self._end = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                query = parse_qs(self.rfile.read(length).decode()).get("query", [""])[0]
                outer.asked.append(query)
                if outer.mode == "slow":
                    outer._end.wait(30)
                    return
                body = outer._answer(query)
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _answer(self, query: str) -> bytes:
        if self.mode == "html":
            return b"<html><script>alert(1)</script></html>"
        value = CORES if "cpu" in query else float(BYTES)
        if "(node)" in query or "by (node" in query:
            keys = [{"node": name} for name in self._nodes]
        else:
            keys = [{"namespace": space, "pod": name} for space, name in self._pods]
        rows = [] if self.mode == "empty" else [row for k in keys for row in self._rows(k, value)]
        answer = {"status": "success", "data": {"resultType": "vector", "result": rows}}
        return json.dumps(answer).encode()

    def _rows(self, labels: dict[str, str], value: float) -> list[dict[str, Any]]:
        now = time.time()
        at = {"old": now - 3000, "future": now + 3000}.get(self.mode, now)
        text = "NaN" if self.mode == "nan" else str(value)
        if self.mode == "thousandfold":
            text = str(1000 * value)
        rows = [{"metric": labels, "value": [at, text]}]
        if self.mode == "duplicated":
            rows.append({"metric": labels, "value": [at, str(value / 100)]})
        return rows

    def close(self) -> None:
        self._end.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
