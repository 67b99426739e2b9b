# SPDX-License-Identifier: Apache-2.0
"""The HTTP API: reading what the loop published, one way in for records of other processes.

Reading needs no token because the server only listens on loopback and the fence keeps other web
pages out. Nothing a GET does changes anything.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Query, Request
from fastapi.responses import FileResponse, HTMLResponse, Response
from fastapi.sse import EventSourceResponse, format_sse_event
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.concurrency import run_in_threadpool
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from pilothouse.server import failures, openapi
from pilothouse.server.failures import Refused
from pilothouse.server.feed import Feed, Reader
from pilothouse.server.fence import Fence
from pilothouse.server.shapes import (
    CyclesPage,
    CycleView,
    Health,
    HistoryView,
    RecordAccepted,
    Shape,
    StagesView,
    StateView,
)

Ingest = Callable[[str, dict[str, Any]], int]  # source and content to a journal number, durable
Ready = Callable[[], tuple[bool, str]]

STATIC = Path(__file__).parent / "static"
BODY_LIMIT_BYTES = 1 << 20
SOURCE_LIMIT = 64
STREAM_BURST = 50  # a reader further behind than this gets the latest cycle only
STREAM_GAP_SECONDS = 0.1  # ten frames a second is what an eye can use; the rest is coalesced
HEARTBEAT_SECONDS = 5.0
RETRY_MS = 1000

NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Pilothouse</title>
<h1>The page is not built</h1>
<p>Build it with <code>make web</code> and reload. The API works without it:
<a href="/v1/state">/v1/state</a>, <a href="/v1/openapi.json">/v1/openapi.json</a>,
<a href="/metrics">/metrics</a>.</p></html>
"""


def create_app(
    feed: Feed,
    *,
    token: str,
    ingest: Ingest,
    ready: Ready,
    version: str,
    static: Path = STATIC,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
) -> FastAPI:
    """The whole application; ``run.start`` serves it."""
    app = FastAPI(
        title="Pilothouse",
        version=openapi.API_VERSION,
        description=openapi.DESCRIPTION,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # the stock pages load scripts from elsewhere
        redoc_url=None,
        separate_input_output_schemas=False,
    )
    app.state.feed = feed
    _add_probes(app, feed, ready)
    _add_reading(app, feed, version)
    _add_stream(app, feed, heartbeat_seconds)
    _add_ingest(app, token, ingest)
    _add_page(app, static)
    failures.install(app)
    openapi.install(app)
    app.add_middleware(Fence)
    return app


def _add_probes(app: FastAPI, feed: Feed, ready: Ready) -> None:
    @app.get("/healthz", responses=openapi.answers(Health), tags=["process"])
    def healthz() -> Response:
        """The process answers."""
        return _json(Health(ok=True, detail="alive"))

    @app.get("/readyz", responses=openapi.answers(Health, 503), tags=["process"])
    def readyz() -> Response:
        """The loop turns and its journal can be written."""
        ok, detail = ready()
        if not ok:
            raise Refused(503, f"Not ready: {detail}.", "Ask again, or look at the log.")
        return _json(Health(ok=True, detail=detail))

    @app.get("/metrics", responses=openapi.text("Prometheus exposition format"), tags=["process"])
    def metrics() -> Response:
        """Counters and gauges of the loop."""
        return Response(feed.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _add_reading(app: FastAPI, feed: Feed, version: str) -> None:
    @app.get("/v1/state", responses=openapi.answers(StateView), tags=["reading"])
    def state() -> Response:
        """All a page needs to begin with."""
        current, timeline, history, events, stages = feed.state_parts()
        return _json(
            {
                "version": version,
                "current": msgspec.Raw(current or b"null"),
                "timeline": timeline,
                "history": history,
                "events": events,
                "stages": stages.stages,
                "checks": stages.checks,
            }
        )

    @app.get("/v1/cycles", responses=openapi.answers(CyclesPage, 422), tags=["reading"])
    def cycles(
        limit: Annotated[int, Query(ge=1, le=600)] = 100,
        before: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    ) -> Response:
        """Remembered cycles, newest first; ``before`` is a cycle number."""
        return _json(feed.cycles(limit=limit, before=before))

    @app.get("/v1/decisions/{id}", responses=openapi.answers(CycleView, 404), tags=["reading"])
    def decision(id: str) -> Response:
        """The cycle of one decision, by its id or an unambiguous beginning of it."""
        body = feed.decision(id) if id else None
        if body is None:
            raise Refused(
                404,
                f'No remembered decision is meant by "{id[:80]}".',
                "See /v1/cycles for the remembered ones; older ones are in the journal: "
                "pilothouse explain <id>.",
            )
        return Response(body, media_type="application/json")

    @app.get("/v1/stages", responses=openapi.answers(StagesView), tags=["reading"])
    def stages() -> Response:
        """Stages of the run and its self-checks."""
        return _json(feed.stages())

    @app.get("/v1/history", responses=openapi.answers(HistoryView), tags=["reading"])
    def history() -> Response:
        """Series over the remembered cycles."""
        return _json(feed.history())


def _add_stream(app: FastAPI, feed: Feed, heartbeat_seconds: float) -> None:
    @app.get("/v1/stream", responses=openapi.stream(), tags=["reading"])
    async def stream(request: Request) -> Response:
        """Each cycle as it is published; resumes after ``Last-Event-ID``."""
        reader = feed.subscribe(request.headers.get("last-event-id"))
        return EventSourceResponse(
            _frames(feed, reader, heartbeat_seconds), headers={"X-Accel-Buffering": "no"}
        )


async def _frames(feed: Feed, reader: Reader, heartbeat_seconds: float) -> AsyncIterator[bytes]:
    try:
        yield format_sse_event(retry=RETRY_MS)
        while not feed.closed:
            for frame in feed.take(reader, burst=STREAM_BURST):
                yield format_sse_event(
                    event="cycle", id=frame.id, data_str=frame.body.decode("utf-8")
                )
            await asyncio.sleep(STREAM_GAP_SECONDS)
            try:
                await asyncio.wait_for(reader.wake.wait(), heartbeat_seconds)
            except TimeoutError:
                # An event, not a comment: scripts cannot see comments, and the page must be able
                # to tell a quiet loop from a dead connection.
                yield format_sse_event(event="heartbeat", data_str="{}")
        yield format_sse_event(event="end", data_str="{}")
    finally:
        feed.unsubscribe(reader)


def _add_ingest(app: FastAPI, token: str, ingest: Ingest) -> None:
    expected = f"Bearer {token}".encode()

    @app.post(
        "/v1/records",
        status_code=202,
        responses=openapi.answers(RecordAccepted, 400, 401, 403, 413, 415, 503, status=202),
        openapi_extra=openapi.record_body(),
        tags=["records"],
    )
    async def records(request: Request) -> Response:
        """Hand a record of another process to the owner of the journal; durable on 202."""
        _must_be_local(request)
        given = request.headers.get("authorization", "").encode("utf-8", "surrogateescape")
        if not token or not hmac.compare_digest(given, expected):
            raise Refused(401, "The token is missing or wrong.", "Send Authorization: Bearer ….")
        content = _parsed(await _body(request), request.headers)
        source = request.headers.get("x-pilothouse-source", "unknown")[:SOURCE_LIMIT]
        seq = await run_in_threadpool(ingest, source, content)
        return _json(RecordAccepted(seq=seq), status=202)


def _must_be_local(request: Request) -> None:
    address = request.client.host if request.client else ""
    try:
        local = ipaddress.ip_address(address).is_loopback
    except ValueError:
        local = False
    if not local:
        raise Refused(403, "Records are taken from this machine only.", "Send it over loopback.")


async def _body(request: Request) -> bytes:
    """The body, read no further than the limit, whatever its length header claims."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > BODY_LIMIT_BYTES:
            raise Refused(
                413,
                f"The record is larger than {BODY_LIMIT_BYTES} bytes.",
                "Split it, or send a summary.",
            )
        chunks.append(chunk)
    return b"".join(chunks)


def _parsed(body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(
            415, f'The record is "{kind[:80]}".', "Send it with Content-Type: application/json."
        )
    try:
        content = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused(400, f"The record is not JSON: {error}.", "Send one JSON object.") from error
    if not isinstance(content, dict):
        raise Refused(400, "The record is not a JSON object.", "Send one JSON object.")
    return content


class _Assets(StaticFiles):
    """Built files carry a hash in their name, so they never change."""

    async def check_config(self) -> None:
        """The folder may not be there yet: it comes with the first build of the page."""

    def file_response(
        self, full_path: Any, stat_result: Any, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def _add_page(app: FastAPI, static: Path) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> Response:
        built = static / "index.html"
        if not built.is_file():
            return HTMLResponse(NOT_BUILT)
        return FileResponse(built, media_type="text/html", headers={"Cache-Control": "no-cache"})

    app.mount("/assets", _Assets(directory=static / "assets", check_dir=False))


def _json(value: Shape | dict[str, Any], *, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
