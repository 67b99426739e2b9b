# SPDX-License-Identifier: Apache-2.0
"""Who may talk to a server on loopback.

Loopback keeps other machines out, not other web pages: a page from anywhere may ask the browser
to call 127.0.0.1, or point its own name there. So the Host must be a loopback name, a request that
changes something must not come from a foreign origin, and a browser that says "cross-site" is
believed. Responses tell the browser to load nothing from elsewhere and run nothing inline.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pilothouse.server.shapes import ErrorView, Problem

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
SAFE_METHODS = frozenset({"GET", "HEAD"})
FOREIGN_SITES = frozenset({"cross-site", "same-site"})  # same-site: another port of this machine
CONTENT_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Fence:
    """Refuses strangers before any route runs and puts the headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        problem = stranger(scope["method"], scope["path"], Headers(scope=scope))
        if problem is not None:
            await _refuse(problem, _guarded(send))
            return
        await self._app(scope, receive, _guarded(send))


def stranger(method: str, path: str, headers: Headers) -> Problem | None:
    """Why this request is not served, or None."""
    host = headers.get("host", "")
    if not is_loopback_host(host):
        return _problem(
            f'The Host "{host[:80]}" is not a loopback name.', "Use 127.0.0.1, localhost or [::1]."
        )
    arriving = path == "/" and method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    if headers.get("sec-fetch-site") in FOREIGN_SITES and not arriving:
        return _problem("The request comes from another site.", "Open the page itself.")
    origin = headers.get("origin")
    if method not in SAFE_METHODS and origin is not None and not _same_origin(origin, host):
        return _problem(
            f'The Origin "{origin[:80]}" may not change anything here.',
            "Call from the page itself, or from a program that sends no Origin.",
        )
    return None


def is_loopback_host(host: str) -> bool:
    """Whether a Host header spells one of the loopback names, with or without a port."""
    if host.startswith("["):
        name, closed, port = host[1:].partition("]")
        if not closed or (port and not (port[0] == ":" and port[1:].isdigit())):
            return False
    else:
        name, colon, port = host.partition(":")
        if colon and not port.isdigit():
            return False
    return name.lower() in LOOPBACK_NAMES


def _same_origin(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme == "http" and parts.netloc.lower() == host.lower()


def _problem(message: str, hint: str) -> Problem:
    return Problem(code="forbidden", message=message, hint=hint)


def _guarded(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return send_with_headers


async def _refuse(problem: Problem, send: Send) -> None:
    body = msgspec.json.encode(ErrorView(error=problem))
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
