# SPDX-License-Identifier: Apache-2.0
"""What other machines may ask: figures and health, never the page.

In a cluster a kubelet probes the pod's address and Prometheus scrapes it, and neither can log in
to anything. So this door has three answers, none of which names an object of the cluster, and
everything else, the page and its API above all, stays on loopback.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from pilothouse.errors import PortInUse
from pilothouse.server.feed import Feed

Ready = Callable[[], tuple[bool, str]]


def create_outside_app(feed: Feed, *, alive: Ready, ready: Ready) -> Starlette:
    """Three answers. ``alive`` is false when only a new start can help."""

    def probe(ask: Ready) -> Callable[[Request], Response]:
        def answer(_: Request) -> Response:
            ok, detail = ask()
            return PlainTextResponse(detail + "\n", status_code=200 if ok else 503)

        return answer

    def metrics(_: Request) -> Response:
        return Response(feed.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = Starlette(
        routes=[
            Route("/metrics", metrics, methods=["GET"]),
            Route("/healthz", probe(alive), methods=["GET"]),
            Route("/readyz", probe(ready), methods=["GET"]),
        ]
    )
    app.state.feed = feed
    return app


def reserve_outside(port: int) -> socket.socket:
    """A listening socket on every address, IPv6 included where the machine has it."""
    try:
        return socket.create_server(
            ("::" if socket.has_dualstack_ipv6() else "", port),
            family=socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET,
            dualstack_ipv6=socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else str(error.strerror)
        raise PortInUse(
            f"serve.metrics_port {port}: {reason}. Choose another, or 0 for none."
        ) from error
