# SPDX-License-Identifier: Apache-2.0
"""Every error of the API in one JSON shape: what is wrong, what was given, what to do."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from msgspec import json
from starlette.exceptions import HTTPException

from pilothouse.errors import JournalError, PilothouseError
from pilothouse.server.fence import SECURITY_HEADERS
from pilothouse.server.shapes import ErrorView, Problem

_CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid",
    503: "unavailable",
}
_HINTS = {
    404: "The API is described at /v1/openapi.json.",
    405: "The API is described at /v1/openapi.json.",
}


class Refused(Exception):
    """A request that a route turns down."""

    def __init__(self, status: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.message, self.hint = status, message, hint


def error_response(
    status: int, message: str, hint: str = "", *, headers: dict[str, str] | None = None
) -> Response:
    """The one shape."""
    code = _CODES.get(status, "internal" if status >= 500 else "bad_request")
    body = ErrorView(error=Problem(code=code, message=message, hint=hint or _HINTS.get(status, "")))
    return Response(json.encode(body), status, headers, media_type="application/json")


def install(app: FastAPI) -> None:
    """Give every error that can leave the app the one shape."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(PilothouseError, _known)
    app.add_exception_handler(Exception, _unexpected)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)  # registered for this type
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
    return error_response(error.status, error.message, error.hint, headers=headers)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # registered for this type
    path = request.url.path[:120]
    said = {
        404: f"There is nothing at {path}.",
        405: f"{request.method} is not possible at {path}.",
    }
    message = said.get(error.status_code, str(error.detail))
    return error_response(error.status_code, message, headers=dict(error.headers or {}))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # registered for this type
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("query", "path"))
    given = str(first.get("input"))[:80]
    return error_response(422, f'{where} is not usable: got "{given}".', f"{first['msg']}.")


async def _known(request: Request, error: Exception) -> Response:
    status = 503 if isinstance(error, JournalError) else 400
    return error_response(status, str(error))


async def _unexpected(request: Request, error: Exception) -> Response:
    # This one is answered outside the fence, so it brings the headers itself; the traceback is
    # logged by the server, which gets the exception after the answer.
    return error_response(
        500,
        f"{type(error).__name__} while answering {request.url.path[:120]}.",
        "This is a bug in pilothouse; please report it with the log.",
        headers=SECURITY_HEADERS,
    )
