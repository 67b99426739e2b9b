# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document, made from the response types.

Answers are encoded by msgspec, which FastAPI does not look into, so the schemas are added here.
``python -m pilothouse.server.openapi`` prints the document that is committed in ``api/``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from pilothouse.server import shapes
from pilothouse.server.shapes import ErrorView, Shape

API_VERSION = "1"
DESCRIPTION = (
    "What the loop saw, forecast, weighed, chose, did and got. Served on loopback. Times named "
    "*_seconds are the cluster's clock; shares are per mille; energy and power are modelled."
)
_REF = "#/components/schemas/{name}"
_WORDS = {
    400: "The record cannot be used.",
    401: "The token is missing or wrong.",
    403: "Not from this machine or from a foreign origin.",
    404: "Not remembered.",
    413: "Too large.",
    415: "Not JSON.",
    422: "A parameter cannot be used.",
    503: "Not possible now.",
}
Answers = dict[int | str, dict[str, Any]]


def answers(shape: type[Shape], *errors: int, status: int = 200) -> Answers:
    """What a route answers, for FastAPI's ``responses``."""
    good = {"description": _summary(shape), "content": _content(shape.__name__)}
    bad: Answers = {
        code: {"description": _WORDS[code], "content": _content(ErrorView.__name__)}
        for code in errors
    }
    return {status: good, **bad}


def text(description: str) -> Answers:
    """A route that answers plain text."""
    return {
        200: {"description": description, "content": {"text/plain": {"schema": {"type": "string"}}}}
    }


def stream() -> Answers:
    """The live stream: events named cycle (a CycleView), heartbeat and end."""
    return {
        200: {
            "description": (
                "Server-sent events. cycle: data is a CycleView, id resumes the stream; "
                "heartbeat: nothing new; end: the run is over."
            ),
            "content": {"text/event-stream": {"schema": {"$ref": _REF.format(name="CycleView")}}},
        },
        **{400: {"description": "Too many open streams.", "content": _content("ErrorView")}},
    }


def record_body() -> dict[str, Any]:
    """The body and headers of an ingested record."""
    return {
        "security": [{"bearer": []}],
        "parameters": [
            {
                "name": "X-Pilothouse-Source",
                "in": "header",
                "schema": {"type": "string", "maxLength": 64},
                "description": "Which process sends it.",
            }
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
    }


def install(app: FastAPI) -> None:
    """Make ``app.openapi`` include the shapes."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    types = [t for t in vars(shapes).values() if isinstance(t, type) and issubclass(t, Shape)]
    _, schemas = msgspec.json.schema_components(
        [t for t in types if t is not Shape], ref_template=_REF
    )
    components = document.setdefault("components", {})
    components["schemas"] = dict(sorted(schemas.items()))
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    for path in document["paths"].values():
        for operation in path.values():
            _only_our_errors(operation["responses"])
    return document


def _only_our_errors(responses: dict[str, Any]) -> None:
    """FastAPI describes its own 422; ours has the one error shape."""
    if "422" in responses:
        responses["422"] = {"description": _WORDS[422], "content": _content(ErrorView.__name__)}
    responses["default"] = {
        "description": "Any other error.",
        "content": _content(ErrorView.__name__),
    }


def _content(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=name)}}}


def _summary(shape: type[Shape]) -> str:
    return (shape.__doc__ or shape.__name__).strip().partition("\n")[0]


def render() -> str:
    """The committed document, byte for byte."""
    from pilothouse.server.app import create_app
    from pilothouse.server.feed import Feed

    app = create_app(
        Feed(),
        token="",
        ingest=lambda source, content: 0,
        ready=lambda: (False, "only the document is wanted"),
        version="",
    )
    return json.dumps(app.openapi(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
