# SPDX-License-Identifier: Apache-2.0
"""The HTTP API: one error shape, closed to strangers, numbers as published."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from pilothouse.errors import JournalUnwritable
from pilothouse.server import Feed, cycle_view, openapi
from pilothouse.server.app import BODY_LIMIT_BYTES, create_app
from pilothouse.server.run import start
from pilothouse.server.shapes import CycleView, StateView
from tests.server.parade import turns

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-for-tests"
AUTH = {"Authorization": f"Bearer {TOKEN}"}


class Inbox:
    """Takes records as the journal would."""

    def __init__(self) -> None:
        self.records: list[tuple[str, dict[str, Any]]] = []
        self.broken: Exception | None = None

    def __call__(self, source: str, content: dict[str, Any]) -> int:
        if self.broken is not None:
            raise self.broken
        self.records.append((source, content))
        return len(self.records)


def a_client(feed: Feed, inbox: Inbox, static: Path, *, ready=(True, "turning")) -> TestClient:
    app = create_app(
        feed, token=TOKEN, ingest=inbox, ready=lambda: ready, version="9.9", static=static
    )
    return TestClient(
        app,
        base_url="http://127.0.0.1:8088",
        client=("127.0.0.1", 50_000),
        raise_server_exceptions=False,
    )


@pytest.fixture(scope="module")
def views() -> list[CycleView]:
    told: list[CycleView] = []
    for turn in turns(30):
        told.append(cycle_view(turn, told[-1] if told else None))
    return told


@pytest.fixture
def feed(views: list[CycleView]) -> Feed:
    feed = Feed()
    for view in views:
        feed.publish(view)
    return feed


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
def client(feed, inbox, tmp_path) -> TestClient:
    return a_client(feed, inbox, tmp_path)


def is_error(response, status: int, code: str) -> bool:
    body = response.json()
    return (
        response.status_code == status
        and list(body) == ["error"]
        and sorted(body["error"]) == ["code", "hint", "message"]
        and body["error"]["code"] == code
        and bool(body["error"]["message"])
        and response.headers["x-content-type-options"] == "nosniff"
        and response.headers["content-type"] == "application/json"
    )


def test_every_error_has_the_one_shape(client, inbox, feed):
    post = {"content": b"{}", "headers": {**AUTH, "Content-Type": "application/json"}}
    assert is_error(client.get("/nowhere"), 404, "not_found")
    assert is_error(client.get("/v1/nowhere"), 404, "not_found")
    assert is_error(client.get("/assets/nowhere.js"), 404, "not_found")
    assert is_error(client.get("/v1/decisions/ffffffffff"), 404, "not_found")
    assert is_error(client.post("/v1/state"), 405, "method_not_allowed")
    assert is_error(client.get("/v1/records"), 405, "method_not_allowed")
    assert is_error(client.get("/v1/cycles?limit=0"), 422, "invalid")
    assert is_error(client.get("/v1/cycles?before=x"), 422, "invalid")
    assert is_error(client.get("/v1/state", headers={"Host": "evil.example"}), 403, "forbidden")
    assert is_error(client.post("/v1/records", content=b"{}"), 401, "unauthorized")
    inbox.broken = JournalUnwritable("The disk is full.")
    assert is_error(client.post("/v1/records", **post), 503, "unavailable")
    inbox.broken = ZeroDivisionError("a secret")
    assert is_error(client.post("/v1/records", **post), 500, "internal")
    assert "a secret" not in client.post("/v1/records", **post).text


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]),
    path=st.sampled_from(
        ["/", "/v1/state", "/v1/cycles", "/v1/decisions/", "/v1/records", "/assets/", "/metrics"]
    ),
    tail=st.text(max_size=20),
    query=st.dictionaries(st.sampled_from(["limit", "before", "x"]), st.text(max_size=12)),
    body=st.binary(max_size=40),
)
def test_any_request_is_answered_or_refused_in_the_one_shape(
    client, inbox, method, path, tail, query, body
):
    address = f"{path}{quote(tail, safe='')}"
    headers = {**AUTH, "Content-Type": "application/json"}
    answer = client.request(method, address, params=query, content=body, headers=headers)
    assert answer.status_code < 500
    if answer.status_code >= 400:
        assert sorted(answer.json()["error"]) == ["code", "hint", "message"]


def test_readiness_says_why_not(feed, inbox, tmp_path):
    client = a_client(feed, inbox, tmp_path, ready=(False, "no cycle for 12 s"))
    assert is_error(client.get("/readyz"), 503, "unavailable")
    assert "no cycle for 12 s" in client.get("/readyz").text
    assert client.get("/healthz").json() == {"ok": True, "detail": "alive"}


def test_state_carries_the_published_numbers(client, feed):
    state = msgspec.json.decode(client.get("/v1/state").content, type=StateView)
    assert state.version == "9.9"
    assert state.current == feed.latest
    assert [mark.cycle for mark in state.timeline] == list(range(1, 31))
    assert state.events[0].cycle >= state.events[-1].cycle
    assert state.history.queue[-1] == feed.latest.cluster.interpreted.queue_length


def test_decision_is_the_cycle_that_made_it(client, feed):
    ident = feed.latest.decision.id
    cycle = msgspec.json.decode(client.get(f"/v1/decisions/{ident}").content, type=CycleView)
    assert cycle.decision == feed.latest.decision


def test_stages_and_history_and_metrics_answer(client):
    assert client.get("/v1/stages").json()["stages"][-1]["name"] == "loop"
    assert len(client.get("/v1/history").json()["safety"]) == 30
    assert client.get("/metrics").headers["content-type"].startswith("text/plain")
    assert client.get("/v1/cycles?limit=3").json()["before"] == 28


def test_record_is_handed_over_with_its_source(client, inbox):
    answer = client.post("/v1/records", json={"a": 1}, headers={**AUTH, "X-Pilothouse-Source": "s"})
    assert (answer.status_code, answer.json()) == (202, {"seq": 1})
    assert inbox.records == [("s", {"a": 1})]


@pytest.mark.parametrize("token", ["", "Bearer ", "Bearer wrong", TOKEN, f"bearer  {TOKEN}", "é"])
def test_record_without_the_token_is_refused(client, inbox, token):
    answer = client.post("/v1/records", json={}, headers={"Authorization": token.encode()})
    assert is_error(answer, 401, "unauthorized")
    assert inbox.records == []


def test_record_must_be_one_small_json_object(client, inbox):
    json_type = {**AUTH, "Content-Type": "application/json"}

    def send(body: bytes, headers: dict[str, str] = json_type):
        return client.post("/v1/records", content=body, headers=headers)

    assert is_error(send(b"[1]"), 400, "bad_request")
    assert is_error(send(b"{"), 400, "bad_request")
    assert is_error(send(b"[" * 100_000), 400, "bad_request")
    assert is_error(send(b'{"a":"' + b"x" * BODY_LIMIT_BYTES + b'"}'), 413, "too_large")
    plain = {**AUTH, "Content-Type": "text/plain"}
    assert is_error(send(b"{}", plain), 415, "unsupported_media_type")
    assert inbox.records == []


def test_empty_token_lets_nobody_in(feed, inbox, tmp_path):
    app = create_app(
        feed, token="", ingest=inbox, ready=lambda: (True, ""), version="", static=tmp_path
    )
    client = TestClient(app, base_url="http://localhost", client=("127.0.0.1", 1))
    assert (
        client.post("/v1/records", json={}, headers={"Authorization": "Bearer "}).status_code == 401
    )


def test_record_from_another_machine_is_refused(feed, inbox, tmp_path):
    app = create_app(
        feed, token=TOKEN, ingest=inbox, ready=lambda: (True, ""), version="", static=tmp_path
    )
    client = TestClient(app, base_url="http://127.0.0.1", client=("10.0.0.9", 1))
    assert is_error(client.post("/v1/records", json={}, headers=AUTH), 403, "forbidden")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "2130706433",
        "0x7f000001",
        "127.1",
        "[::ffff:127.0.0.1]",
        "[::1",
        "[::1]x",
        "127.0.0.1:80:80",
        "0.0.0.0",
        "localhost.",
        "",
    ],
)
def test_foreign_host_is_refused(client, host):
    assert is_error(client.get("/v1/state", headers={"Host": host}), 403, "forbidden")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8088", "[::1]:8088", "LOCALHOST"])
def test_loopback_host_is_served(client, host):
    assert client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "https://127.0.0.1:8088"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_foreign_page_cannot_send_records(client, inbox, headers):
    answer = client.post("/v1/records", json={}, headers={**AUTH, **headers})
    assert is_error(answer, 403, "forbidden")
    assert inbox.records == []


def test_foreign_page_cannot_read_but_a_link_to_the_page_works(client):
    cross = {"Sec-Fetch-Site": "cross-site"}
    assert client.get("/v1/state", headers=cross).status_code == 403
    assert client.get("/", headers={**cross, "Sec-Fetch-Mode": "navigate"}).status_code == 200


def test_page_may_load_nothing_from_elsewhere(client):
    policy = client.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert client.get("/").headers["x-frame-options"] == "DENY"


def test_missing_page_says_how_to_build_it(client, feed, inbox, tmp_path):
    assert "make web" in client.get("/").text
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<p>built</p>")
    (tmp_path / "assets" / "a.js").write_text("1")
    built = a_client(feed, inbox, tmp_path)
    assert built.get("/").text == "<p>built</p>"
    assert "immutable" in built.get("/assets/a.js").headers["cache-control"]
    assert built.get("/assets/../index.html").status_code == 404


def test_stream_starts_with_the_latest_cycle_and_ends_with_the_run(client, feed):
    feed.publish(feed.latest)
    with client.stream("GET", "/v1/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        event = [next(lines) for _ in range(5)]
        feed.close()
        rest = list(lines)
    assert event[0] == "retry: 1000"
    assert event[2] == "event: cycle"
    assert json.loads(event[3].removeprefix("data: "))["cycle"] == 30
    assert event[4].startswith("id: ")
    assert "event: end" in rest


def test_stream_sends_a_heartbeat_when_nothing_happens(feed, inbox, tmp_path):
    app = create_app(
        feed,
        token=TOKEN,
        ingest=inbox,
        ready=lambda: (True, ""),
        version="",
        static=tmp_path,
        heartbeat_seconds=0.01,
    )
    running = start(app, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"{running.url}/v1/stream", timeout=60) as answer:
            while answer.readline() != b"event: heartbeat\n":
                pass
    finally:
        running.stop()


def test_committed_openapi_document_is_fresh():
    committed = (ROOT / "api" / "openapi.json").read_text()
    assert committed == openapi.render(), (
        "run: python -m pilothouse.server.openapi > api/openapi.json"
    )


def test_openapi_document_resolves_and_is_served(client):
    document = client.get("/v1/openapi.json").json()
    schemas = document["components"]["schemas"]
    for reference in _references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas
    undescribed = [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, about in schema["properties"].items()
        if not about.get("description")
    ]
    assert undescribed == []


def test_nothing_changes_by_reading(client):
    document = client.get("/v1/openapi.json").json()
    writing = {
        (path, method)
        for path, methods in document["paths"].items()
        for method in methods
        if method != "get"
    }
    assert writing == {("/v1/records", "post")}


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [r for child in value.values() for r in _references(child)]
    if isinstance(value, list):
        return [r for child in value for r in _references(child)]
    return []
