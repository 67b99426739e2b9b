# SPDX-License-Identifier: Apache-2.0
"""Other machines get figures and health, and nothing else."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from pilothouse.errors import PortInUse
from pilothouse.server import Feed
from pilothouse.server.outside import create_outside_app, reserve_outside
from pilothouse.server.run import Running, serve
from tests.server.parade import publish


@pytest.fixture
def health() -> dict[str, tuple[bool, str]]:
    return {"alive": (True, "alive"), "ready": (True, "cycle 2 is done")}


@pytest.fixture
def door(health: dict[str, tuple[bool, str]]):
    feed = Feed()
    publish(feed, 2)
    app = create_outside_app(feed, alive=lambda: health["alive"], ready=lambda: health["ready"])
    listener = reserve_outside(0)
    running = serve(app, listener)
    yield running
    running.stop()
    listener.close()


def ask(door: Running, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{door.port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_and_probes_answer(door: Running) -> None:
    code, text = ask(door, "/metrics")
    assert code == 200
    assert "pilothouse_cycles_total 2.0" in text
    assert ask(door, "/healthz")[0] == ask(door, "/readyz")[0] == 200


def test_probe_fails_with_its_reason(door: Running, health: dict[str, tuple[bool, str]]) -> None:
    health["alive"] = (False, "no cycle for 130 s; the limit is 120 s")
    assert ask(door, "/healthz") == (503, "no cycle for 130 s; the limit is 120 s\n")


@pytest.mark.parametrize(
    "path", ["/", "/v1/state", "/v1/stream", "/v1/cycles", "/v1/records", "/v1/openapi.json"]
)
def test_page_and_its_api_are_not_there(door: Running, path: str) -> None:
    assert ask(door, path)[0] == 404


def test_nothing_can_be_sent(door: Running) -> None:
    assert ask(door, "/metrics", "POST")[0] == 405


def test_port_in_use_is_told_with_the_setting(door: Running) -> None:
    with pytest.raises(PortInUse, match=f"serve.metrics_port {door.port}"):
        reserve_outside(door.port)
