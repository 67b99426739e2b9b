# SPDX-License-Identifier: Apache-2.0
"""The server starts on loopback, or says in one line why not."""

from __future__ import annotations

import json
import socket
import time
import urllib.request

import pytest

from pilothouse.errors import InvalidSetting, PortInUse
from pilothouse.server import Feed
from pilothouse.server.app import create_app
from pilothouse.server.run import reserve, serve, start
from tests.server.parade import publish


def an_app(feed: Feed):
    return create_app(
        feed, token="t", ingest=lambda s, c: 0, ready=lambda: (True, "fine"), version="1"
    )


def read(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def test_server_answers_on_a_free_port_and_frees_it():
    feed = Feed()
    publish(feed, 2)
    running = start(an_app(feed), "127.0.0.1", 0)
    assert running.url == f"http://127.0.0.1:{running.port}"
    assert read(f"{running.url}/v1/state")["current"]["cycle"] == 2
    running.stop()
    reserve("127.0.0.1", running.port).close()


def test_stop_ends_open_streams():
    feed = Feed()
    publish(feed, 1)
    running = start(an_app(feed), "127.0.0.1", 0)
    with urllib.request.urlopen(f"{running.url}/v1/stream", timeout=60) as answer:
        assert answer.readline() == b"retry: 1000\n"
        running.stop()
        assert b"event: end" in answer.read()


def test_reader_that_never_reads_does_not_hold_the_loop_up():
    feed = Feed()
    publish(feed, 1)
    running = start(an_app(feed), "127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", running.port)) as stuck:
        stuck.sendall(b"GET /v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert stuck.recv(15) == b"HTTP/1.1 200 OK"
        view = feed.latest
        assert view is not None
        began = time.perf_counter()
        for _ in range(300):
            feed.publish(view)
        assert time.perf_counter() - began < 3
        assert read(f"{running.url}/readyz")["ok"]
    running.stop()


def test_port_in_use_is_one_clear_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"^Port {port} on 127\.0\.0\.1 is in use[^\n]*$"):
            reserve("127.0.0.1", port)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", ""])
def test_host_beyond_loopback_is_refused(host):
    with pytest.raises(InvalidSetting, match="must be a loopback address"):
        reserve(host, 0)


def test_address_can_be_reserved_before_anything_starts():
    listener = reserve("localhost", 0)
    port = listener.getsockname()[1]
    with pytest.raises(PortInUse):
        reserve("localhost", port)
    running = serve(an_app(Feed()), listener)
    assert running.port == port
    assert read(f"{running.url}/v1/state")["current"] is None
    running.stop()
