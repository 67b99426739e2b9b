# SPDX-License-Identifier: Apache-2.0
"""Single requests to an API server, one at a time, for whoever writes.

Every write names its author (the field manager, which the object then carries) and its intent (the
audit id, which the server's own log then carries). A write that could not be read back for certain
ends within ``DEADLINE_SECONDS`` on the server's side too: the server is told the deadline, so after
that long a request that has not arrived never will.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
import msgspec

from pilothouse import __version__
from pilothouse.clients.access import Access
from pilothouse.clients.api import status_of
from pilothouse.errors import BackendError, ClusterUnreachable

DEADLINE_SECONDS = 5
PAGE = 500
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json"


class Refusal(BackendError):
    """The API server's answer when it is no; ``code`` is its HTTP status."""

    def __init__(self, code: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason

    @property
    def is_conflict(self) -> bool:
        return self.code == 409

    @property
    def is_missing(self) -> bool:
        return self.code == 404


class Requests:
    """One API server, asked synchronously. Safe for one thread."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._client = httpx2.Client(
            base_url=access.server,
            verify=access.tls(),
            timeout=httpx2.Timeout(DEADLINE_SECONDS, connect=3.0),
            headers={"User-Agent": f"pilothouse/{__version__}", "Accept": JSON},
            trust_env=False,
        )

    def get(self, path: str, parameters: Mapping[str, str | int] | None = None) -> dict[str, Any]:
        return self._ask("GET", path, parameters=dict(parameters or {}))

    def every(self, path: str, parameters: Mapping[str, str | int] | None = None) -> list[Any]:
        """All items of a list, page by page."""
        items: list[Any] = []
        query: dict[str, str | int] = {"limit": PAGE, **(parameters or {})}
        while True:
            page = self.get(path, query)
            items += page.get("items") or []
            rest = (page.get("metadata") or {}).get("continue")
            if not rest:
                return items
            query["continue"] = rest

    def create(
        self, path: str, body: Mapping[str, Any], *, author: str, audit_id: str
    ) -> dict[str, Any]:
        return self._write("POST", path, body, author=author, audit_id=audit_id, kind=JSON)

    def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        author: str,
        audit_id: str,
        kind: str = MERGE,
    ) -> dict[str, Any]:
        """A merge patch; ``uid`` and ``resourceVersion`` in its metadata are preconditions."""
        return self._write("PATCH", path, body, author=author, audit_id=audit_id, kind=kind)

    def try_patch(
        self, path: str, body: Mapping[str, Any], *, author: str, audit_id: str
    ) -> dict[str, Any]:
        """What would become of a merge patch; the server judges it and stores nothing."""
        more = {"dryRun": "All"}
        return self._write(
            "PATCH", path, body, author=author, audit_id=audit_id, kind=MERGE, more=more
        )

    def delete(self, path: str, body: Mapping[str, Any], *, audit_id: str) -> dict[str, Any]:
        return self._ask(
            "DELETE",
            path,
            content=msgspec.json.encode(body),
            headers={"Content-Type": JSON, "Audit-ID": audit_id},
        )

    def close(self) -> None:
        self._client.close()

    def _write(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any],
        *,
        author: str,
        audit_id: str,
        kind: str,
        more: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        parameters = {"fieldManager": author, "timeout": f"{DEADLINE_SECONDS}s"}
        return self._ask(
            method,
            path,
            parameters=parameters | dict(more or {}),
            content=msgspec.json.encode(body),
            headers={"Content-Type": kind, "Audit-ID": audit_id},
        )

    def _ask(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str | int] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        try:
            answer = self._client.request(
                method,
                path,
                params=dict(parameters or {}),
                content=content,
                headers=self.access.headers() | dict(headers or {}),
            )
        except httpx2.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise ClusterUnreachable(f"{self.access.server} did not answer: {reason}.") from error
        if answer.status_code >= 300:
            raise _refusal(answer.status_code, answer.content)
        return _document(answer.content)


def _refusal(code: int, body: bytes) -> Refusal:
    status = status_of(body, code)
    return Refusal(code, status.message or f"answered {code} without a reason", status.reason)


def _document(content: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise BackendError(f"The API server's answer cannot be read: {error}.") from None
