# SPDX-License-Identifier: Apache-2.0
"""Node metrics at ``/v1/nodes``: what Prometheus is asked, and what its answers become."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import pytest

from pilothouse.errors import InvalidSetting
from pilothouse.scorer import thesis
from pilothouse.scorer.watch import Chores
from tests.scorer.test_scorer import Scorer, a_machine

AT = 1_763_262_000.123
Sample = tuple[dict[str, str], str]
# As a real one answers: by node where the scrape says so, by instance alone where it does not.
NEAR = {"node": "near", "instance": "10.0.0.1:9100", "job": "node"}
FAR = {"instance": "10.0.0.2:9100", "job": "node"}
SIXTH = {"instance": "[fd00::6]:9100", "job": "node"}
ANSWERS: dict[str, list[Sample]] = {
    "cpu_busy_percent": [(NEAR, "12.5"), (FAR, "99.90000000000001"), (SIXTH, "0")],
    "memory_available_bytes": [(NEAR, "8.123456e+09"), (FAR, "1024")],
    "disk_used_percent": [(NEAR, "41.5"), (FAR, "NaN")],
    "received_bytes_per_second": [(NEAR, "+Inf"), (FAR, "250000")],
    "established_connections": [(NEAR, "17"), (NEAR, "18"), (FAR, "3")],
    "pods": [({"node": "near"}, "4"), ({"node": "gone"}, "9"), ({}, "1")],
}
ASKED = {
    '100 - avg by (node, instance) (irate(node_cpu_seconds_total{mode="idle"}[1m])) * 100': (
        "cpu_busy_percent"
    ),
    "node_memory_MemAvailable_bytes": "memory_available_bytes",
    '100 - node_filesystem_free_bytes{mountpoint="/run"} '
    '/ node_filesystem_size_bytes{mountpoint="/run"} * 100': "disk_used_percent",
    'sum by (node, instance) (rate(node_network_receive_bytes_total{device="eth0"}[5m]))': (
        "received_bytes_per_second"
    ),
    "node_netstat_Tcp_CurrEstab": "established_connections",
    "count by (node) (kube_pod_info)": "pods",
}
BROKEN: dict[str, tuple[int, bytes]] = {
    "refused": (400, b'{"status":"error","errorType":"bad_data","error":"parse error"}'),
    "away": (503, b"<html>no healthy upstream</html>"),
    "empty": (200, b""),
    "half": (200, b'{"status":"success","data":{"resultType":"vector","result":[{"met'),
    "no text": (200, b'{"status":"\xff\xfe"}'),
    "deep": (200, b'{"x":' + 100_000 * b"["),
    "other shape": (200, b'{"status":"success","data":{"result":[{"value":"1"}]}}'),
}


def vector(samples: list[Sample]) -> bytes:
    result = [{"metric": labels, "value": [AT, value]} for labels, value in samples]
    data = {"resultType": "vector", "result": result}
    return json.dumps({"status": "success", "data": data}).encode()


class FakePrometheus:
    """A server that answers Prometheus's query API; ``broken`` is what it says to one query."""

    def __init__(self) -> None:
        self.answers = dict(ANSWERS)
        self.broken: dict[str, tuple[int, bytes]] = {}
        self.asked: Counter[str] = Counter()
        self.paths: set[str] = set()
        self.strangers: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                (query,) = parse_qs(body)["query"]
                name = ASKED.get(query, "")
                outer.paths.add(self.path)
                outer.asked[name] += 1  # before the answer: the next query comes right after it
                if not name:
                    outer.strangers.append(query)
                found = 200, vector(outer.answers.get(name, []))
                status, said = outer.broken.get(name, found)
                self.send_response(status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def rounds(self) -> int:
        """How often the scorer has come to its first query."""
        return self.asked["cpu_busy_percent"]


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    made = FakePrometheus()
    thread = Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


class Followed(Scorer):
    """The scorer with its chores, which follow a Prometheus every few milliseconds."""

    def __init__(self, url: str) -> None:
        super().__init__(Path())
        self.view.rows = [
            a_machine("near", address="10.0.0.1"),
            a_machine("far", address="10.0.0.2"),
            a_machine("sixth", address="fd00::6"),
            a_machine("unseen", address="10.0.0.9"),
        ]
        metrics = self.app.state.metrics
        self.chores = Chores(
            self.parts, metrics, source=None, watching=None, probe_port=0, prometheus=url
        )

    def nodes(self) -> dict[str, tuple[dict[str, float], float | None]]:
        answer = self.call("GET", "/v1/nodes")
        assert answer.status_code == 200, answer.text
        rows = answer.json()["nodes"]
        return {row["node"]: (row["metrics"], row["metrics_age_seconds"]) for row in rows}

    def until(self, found: Callable[[], Any], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not found():
            assert self.chores._thread.is_alive(), "the chores have ended"
            assert time.monotonic() < deadline, self.nodes()
            time.sleep(0.005)


@pytest.fixture
def followed(prometheus: FakePrometheus, monkeypatch: pytest.MonkeyPatch) -> Iterator[Followed]:
    monkeypatch.setattr(thesis, "EVERY_SECONDS", 0.01)
    made = Followed(prometheus.url)
    made.chores.start()
    try:
        yield made
    finally:
        made.chores.stop()


def test_the_thesis_queries_are_asked_and_nothing_else(
    followed: Followed, prometheus: FakePrometheus
) -> None:
    followed.until(lambda: prometheus.rounds() >= 3)

    assert prometheus.strangers == []
    assert prometheus.paths == {"/api/v1/query"}
    assert set(prometheus.asked) == set(ASKED.values())
    assert max(prometheus.asked.values()) - min(prometheus.asked.values()) <= 1


def test_values_are_shown_by_node_and_what_is_no_number_is_not_shown(followed: Followed) -> None:
    followed.until(lambda: followed.nodes()["near"][0])
    values = {node: metrics for node, (metrics, _) in followed.nodes().items()}

    assert values["near"] == {  # received +Inf, and two different counts of connections
        "cpu_busy_percent": 12.5,
        "memory_available_bytes": 8123456000,
        "disk_used_percent": 41.5,
        "pods": 4,
    }
    assert values["far"] == {  # disk NaN; kube-state-metrics knows no pods there
        "cpu_busy_percent": 99.90000000000001,
        "memory_available_bytes": 1024,
        "received_bytes_per_second": 250000,
        "established_connections": 3,
    }
    assert values["sixth"] == {"cpu_busy_percent": 0}
    assert values["unseen"] == {}


def test_ages_say_when_prometheus_last_answered(
    followed: Followed, prometheus: FakePrometheus
) -> None:
    followed.until(lambda: followed.nodes()["near"][0])
    assert {age for _, age in followed.nodes().values()} == {0.0}

    prometheus.broken = {"pods": BROKEN["away"]}
    before = prometheus.rounds()
    followed.until(lambda: prometheus.rounds() >= before + 2)  # none is under way any more
    followed.clock.now += 40
    assert {age for _, age in followed.nodes().values()} == {40.0}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("query", ["cpu_busy_percent", "received_bytes_per_second"])
def test_one_bad_answer_leaves_the_round_before_as_it_was(
    followed: Followed, prometheus: FakePrometheus, kind: str, query: str
) -> None:
    followed.until(lambda: followed.nodes()["near"][0])
    before = followed.nodes()
    prometheus.broken = {query: BROKEN[kind]}
    bad = prometheus.rounds()
    followed.until(lambda: prometheus.rounds() >= bad + 2)
    followed.clock.now += 5
    prometheus.answers = {name: [(NEAR, "77")] for name in ANSWERS}
    bad = prometheus.rounds()
    followed.until(lambda: prometheus.rounds() >= bad + 2)
    assert followed.nodes() == {node: (values, 5.0) for node, (values, _) in before.items()}

    prometheus.broken = {}
    followed.until(lambda: followed.nodes()["near"] == (dict.fromkeys(ANSWERS, 77), 0.0))
    assert followed.nodes()["far"] == ({}, 0.0), "what is not said any more is not shown"


def test_without_a_prometheus_there_are_no_values_and_no_age() -> None:
    assert Followed("").nodes()["near"] == ({}, None)


def test_an_address_that_is_none_is_refused_at_the_start() -> None:
    with pytest.raises(InvalidSetting, match="http://"):
        Followed("prometheus:9090")
