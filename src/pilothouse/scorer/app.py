# SPDX-License-Identifier: Apache-2.0
"""The scorer's HTTP API.

Reading is open to whoever reaches the address (loopback unless told otherwise); publishing scores,
naming nodes to avoid and handing in records need the token.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import BoundedSemaphore
from typing import Annotated, Any

import msgspec
from fastapi import FastAPI, Header, Query, Request
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.concurrency import run_in_threadpool

from pilothouse.scorer import extender, shapes
from pilothouse.scorer.board import Board
from pilothouse.scorer.history import History
from pilothouse.scorer.metrics import Metrics
from pilothouse.scorer.placements import Placements
from pilothouse.scorer.suggest import suggest
from pilothouse.scorer.thesis import NodeMetrics
from pilothouse.server import failures
from pilothouse.server.failures import Refused
from pilothouse.server.fence import Fence
from pilothouse.server.openapi import API_VERSION

PAGE = Path(__file__).parent / "page"
MOST_BODY_BYTES = 32 << 20  # an extender without nodeCacheCapable sends every node whole
RECORD_BODY_BYTES = 4 << 20
SOURCE_LIMIT = 64
# Reasons for thousands of nodes take half a second of a processor, which the scheduler's next table
# would wait for if there were many of them at once.
EXPLAINED_AT_ONCE = 2
EXPLAINING_WAIT_SECONDS = 0.5
DESCRIPTION = "Scores nodes for pods with a trained policy, and says why."
Problems = dict[int | str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parts:
    """What the routes work with."""

    board: Board
    placements: Placements
    token: str  # empty: nobody may publish
    enforce_hard_limit: bool = False
    loopback: bool = True
    history: History = field(default_factory=History)
    metrics_of_nodes: NodeMetrics = field(default_factory=NodeMetrics)


def create_app(parts: Parts) -> FastAPI:
    """The whole application."""
    app = FastAPI(
        title="Pilothouse scorer",
        version=API_VERSION,  # the API's, so that a release alone changes no document
        description=DESCRIPTION,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # the stock pages load scripts from elsewhere
        redoc_url=None,
    )
    metrics = Metrics(parts.board)
    app.state.metrics = metrics
    _add_process(app, parts, metrics)
    _add_suggestions(app, parts)
    _add_table(app, parts)
    _add_extender(app, parts)
    _add_records(app, parts)
    _add_page(app, parts)
    failures.install(app)
    _add_limits(app, metrics)
    if parts.loopback:
        app.add_middleware(Fence)
    return app


def _problems(*statuses: int) -> Problems:
    said = {
        400: "Not what the route takes.",
        401: "The token is missing or wrong.",
        413: "Too large.",
        422: "A value is not usable.",
        429: "Others are being answered.",
        503: "No policy is loaded, or nothing more can be kept.",
    }
    return {
        status: {"description": said[status], "model": shapes.ProblemOut} for status in statuses
    }


def _require_policy(parts: Parts) -> None:
    if parts.board.policy is None:
        raise Refused(503, "No policy is loaded.", "Start the scorer with --policy NAME or FILE.")


def _require_token(parts: Parts, given: str | None) -> None:
    expected = f"Bearer {parts.token}".encode()
    said = (given or "").encode("utf-8", "surrogateescape")
    if not parts.token or not hmac.compare_digest(said, expected):
        raise Refused(401, "The token is missing or wrong.", "Send Authorization: Bearer ….")


def _add_process(app: FastAPI, parts: Parts, metrics: Metrics) -> None:
    @app.get("/healthz", tags=["process"])
    def healthz() -> shapes.Health:
        """The process answers."""
        return shapes.Health(ok=True, detail="alive")

    @app.get("/readyz", tags=["process"], responses=_problems(503))
    def readyz() -> shapes.Health:
        """A policy is loaded."""
        _require_policy(parts)
        return shapes.Health(ok=True, detail="a policy is loaded")

    @app.get("/metrics", tags=["process"], response_class=Response)
    def prometheus() -> Response:
        """Counters and gauges of the scorer."""
        return Response(metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    @app.get("/v1/policy", tags=["process"])
    def policy() -> shapes.PolicyOut:
        """The policy in use and how the last reload went."""
        loaded = parts.board.policy
        last = parts.board.reloads[-1].detail if parts.board.reloads else "never loaded"
        return shapes.PolicyOut(
            version=loaded.version if loaded else None,
            card=msgspec.to_builtins(loaded.card) if loaded else None,
            last_reload=last,
        )


def _add_suggestions(app: FastAPI, parts: Parts) -> None:
    board = parts.board
    places = BoundedSemaphore(EXPLAINED_AT_ONCE)

    @contextmanager
    def in_turn() -> Iterator[None]:
        if not places.acquire(timeout=EXPLAINING_WAIT_SECONDS):
            raise Refused(429, "Others are being answered.", "Ask again, or name fewer nodes.")
        try:
            yield
        finally:
            places.release()

    @app.post("/v1/suggestions", tags=["scoring"], responses=_problems(413, 422, 429, 503))
    def suggestions(given: shapes.SuggestionRequest) -> shapes.SuggestionOut:
        """Scores for one pod, with the features, contributions and flip of every node."""
        _require_policy(parts)
        with in_turn():
            return suggest(board, given.pod, given.nodes)

    @app.put(
        "/v1/suggestions/{uid}",
        tags=["scoring"],
        status_code=204,
        responses=_problems(401, 413, 422, 503),
    )
    def publish(
        uid: Annotated[str, PathParameter(min_length=1, max_length=128)],
        given: shapes.Publication,
        authorization: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Publish scores for one pod; they replace the policy's until they expire."""
        _require_token(parts, authorization)
        if not board.publish(uid, given.scores, given.ttl_seconds, given.source):
            raise Refused(503, "Too many suggestions are kept already.", "Let some expire.")
        return Response(status_code=204)

    @app.put("/v1/avoid", tags=["scoring"], status_code=204, responses=_problems(401, 413, 422))
    def avoid(
        given: shapes.Avoidance, authorization: Annotated[str | None, Header()] = None
    ) -> Response:
        """Name the nodes to leave alone; replaces the list before."""
        _require_token(parts, authorization)
        board.avoid(given.nodes)
        return Response(status_code=204)


def _add_table(app: FastAPI, parts: Parts) -> None:
    board = parts.board

    @app.get("/v1/table", tags=["scheduler"], responses={422: _problems(422)[422]})
    def table(policy: Annotated[str, Query(max_length=200)] = "") -> Response:
        """All the scheduler plugin needs; weights only when ``policy`` is another version."""
        return Response(board.table(policy), media_type="application/json")

    @app.get("/v1/nodes", tags=["scheduler"])
    def nodes() -> shapes.NodesOut:
        """Every node with its load, latency and metrics, and how old they are."""
        now, latency = board.clock(), board.latencies()
        avoided = set(board.avoided())
        rows = []
        for machine in board.machines():
            measured = latency.get(machine.name)
            values, age = parts.metrics_of_nodes.of(machine.name, machine.address, now)
            rows.append(
                shapes.NodeOut(
                    node=machine.name,
                    ready=machine.ready,
                    pods=machine.pods,
                    counted_pods=machine.counted_pods,
                    cpu_requested_millicores=machine.cpu_requested,
                    cpu_allocatable_millicores=machine.cpu_allocatable,
                    memory_requested_mib=machine.memory_requested,
                    memory_allocatable_mib=machine.memory_allocatable,
                    latency_ms=measured.milliseconds if measured else None,
                    latency_spread_ms=measured.spread_ms if measured else None,
                    latency_age_seconds=now - measured.at if measured else None,
                    metrics=values,
                    metrics_age_seconds=age,
                    avoided=machine.name in avoided,
                )
            )
        return shapes.NodesOut(age_seconds=board.view.age_seconds(), nodes=rows)


def _add_extender(app: FastAPI, parts: Parts) -> None:
    @app.post("/extender/filter", tags=["extender"], responses=_problems(413, 422))
    def filter_nodes(given: shapes.ExtenderArguments) -> shapes.ExtenderFiltered:
        """The extender protocol's filter: everything passes, but for enforced hard limits."""
        return extender.filter_nodes(parts.board, given, enforce=parts.enforce_hard_limit)

    @app.post("/extender/prioritize", tags=["extender"], responses=_problems(413, 422, 503))
    def prioritize(given: shapes.ExtenderArguments) -> list[shapes.HostPriority]:
        """The extender protocol's prioritize: 0 to 10 by rank."""
        _require_policy(parts)
        return extender.prioritize(parts.board, given)


def _add_records(app: FastAPI, parts: Parts) -> None:
    @app.post(
        "/v1/records",
        tags=["scheduler"],
        status_code=202,
        responses=_problems(400, 401, 413, 503),
        response_model=shapes.Accepted,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"type": "object"}}},
            }
        },
    )
    async def records(
        request: Request,
        authorization: Annotated[str | None, Header()] = None,
        x_pilothouse_source: Annotated[str, Header(max_length=SOURCE_LIMIT)] = "unknown",
    ) -> Any:
        """Hand in placements; durable on 202 when the scorer keeps a journal."""
        _require_token(parts, authorization)
        body = await request.body()
        if len(body) > RECORD_BODY_BYTES:
            raise Refused(413, f"More than {RECORD_BODY_BYTES} bytes.", "Send smaller batches.")
        try:
            content = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise Refused(400, f"Not JSON: {error}.", "Send one JSON object.") from error
        if not isinstance(content, dict):
            raise Refused(400, "Not a JSON object.", "Send one JSON object.")
        policy = parts.board.policy
        take = parts.placements.take
        seq = await run_in_threadpool(take, x_pilothouse_source, content, policy)
        return JSONResponse({"seq": seq}, status_code=202)


def _add_page(app: FastAPI, parts: Parts) -> None:
    @app.get("/v1/graphs", tags=["page"])
    def graphs() -> dict[str, Any]:
        """The series of the page."""
        return parts.history.graphs(parts.board, parts.placements)

    @app.get("/favicon.ico", include_in_schema=False)
    def icon() -> Response:
        """Browsers ask; there is none."""
        return Response(status_code=204)

    for path, name, kind in (
        ("/", "index.html", "text/html"),
        ("/page.js", "page.js", "text/javascript"),
        ("/page.css", "page.css", "text/css"),
    ):
        app.add_api_route(
            path, _file(PAGE / name, kind), include_in_schema=False, response_class=FileResponse
        )


def _file(path: Path, kind: str) -> Callable[[], FileResponse]:
    def serve() -> FileResponse:
        return FileResponse(path, media_type=kind, headers={"Cache-Control": "no-cache"})

    return serve


def _add_limits(app: FastAPI, metrics: Metrics) -> None:
    @app.middleware("http")
    async def limited(
        request: Request, answer: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        began = time.perf_counter()
        length = request.headers.get("content-length", "0")
        if "transfer-encoding" in request.headers:
            response = failures.error_response(
                413, "The body has no length.", "Send Content-Length."
            )
        elif not length.isdigit() or int(length) > MOST_BODY_BYTES:
            response = failures.error_response(
                413, f"The body is larger than {MOST_BODY_BYTES} bytes.", "Send less."
            )
        else:
            response = await answer(request)
        route = getattr(request.scope.get("route"), "path", "other")
        metrics.requests.labels(route, str(response.status_code)).inc()
        metrics.seconds.labels(route).observe(time.perf_counter() - began)
        return response
