# SPDX-License-Identifier: Apache-2.0
"""Requests to one API server, and what its refusals mean in words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx2
import msgspec

from pilothouse import __version__
from pilothouse.clients.access import Access
from pilothouse.errors import BackendError, ClusterUnreachable, NotPermitted

ANSWER_SECONDS = 10.0


class ExpiredError(BackendError):
    """410: what we asked to go on from is no longer kept. The only cure is to list again."""


class ConflictError(BackendError):
    """409: the object is there already, or has changed since we read it."""


class NotFoundError(BackendError):
    """404: the object, or the namespace it should be in, is not there."""


class _Details(msgspec.Struct):
    retryAfterSeconds: int = 0  # noqa: N815


class Status(msgspec.Struct):
    """The API server's own error shape."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(Status)  # made before any two threads could both make it


class Api:
    """One API server. Connections are reused; a closed one is no error but a reason to reopen."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._client = httpx2.AsyncClient(
            base_url=access.server,
            verify=access.tls(),
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=3.0),
            limits=httpx2.Limits(max_connections=64, max_keepalive_connections=8),
            headers={"User-Agent": f"pilothouse/{__version__}", "Accept": "application/json"},
            trust_env=False,  # a cluster is never reached through somebody's proxy by accident
        )

    async def get(self, path: str, parameters: Mapping[str, str | int] | None = None) -> bytes:
        try:
            answer = await self._client.get(
                path, params=dict(parameters or {}), headers=self.access.headers()
            )
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error
        self._check(answer.status_code, path, answer.content)
        return answer.content

    async def post(self, path: str, body: bytes, *, audit_id: str) -> bytes:
        """Create an object; the API server's audit log keeps ``audit_id``."""
        return await self._write("POST", path, body, verb="create", audit_id=audit_id)

    async def put(self, path: str, body: bytes, *, audit_id: str) -> bytes:
        """Replace an object; its ``resourceVersion`` makes sure that it is the one we read."""
        return await self._write("PUT", path, body, verb="update", audit_id=audit_id)

    async def _write(
        self, method: str, path: str, body: bytes, *, verb: str, audit_id: str
    ) -> bytes:
        headers = self.access.headers() | {
            "Content-Type": "application/json",
            "Audit-ID": audit_id,
        }
        try:
            answer = await self._client.request(method, path, content=body, headers=headers)
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error
        self._check(answer.status_code, path, answer.content, verb=verb)
        return answer.content

    @asynccontextmanager
    async def lines(
        self, path: str, parameters: Mapping[str, str | int], *, silence_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """A stream of lines; silence longer than ``silence_seconds`` ends it with an error."""
        timeout = httpx2.Timeout(ANSWER_SECONDS, connect=3.0, read=silence_seconds)
        try:
            async with self._client.stream(
                "GET",
                path,
                params=dict(parameters),
                headers=self.access.headers(),
                timeout=timeout,
            ) as answer:
                if answer.status_code != 200:
                    self._check(answer.status_code, path, await answer.aread())
                yield _split(answer.aiter_bytes())
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error

    async def close(self) -> None:
        await self._client.aclose()

    def _unreachable(self, error: httpx2.HTTPError) -> ClusterUnreachable:
        reason = str(error) or type(error).__name__
        return ClusterUnreachable(f"{self.access.server} did not answer: {reason}.")

    def _check(self, code: int, path: str, body: bytes, *, verb: str = "") -> None:
        if code in (200, 201):
            return
        status = status_of(body, code)
        if code == 410:
            raise ExpiredError(status.message or "The resource version is too old.")
        if code == 401:
            raise NotPermitted(
                f"{self.access.server} does not know us (401): the token or certificate of "
                f'context "{self.access.context}" is wrong or has expired. Renew it.'
            )
        if code == 403:
            raise NotPermitted(f"{_rule(path, verb)} ({status.message or 'forbidden'})")
        kinds: dict[int, type[BackendError]] = {404: NotFoundError, 409: ConflictError}
        raise kinds.get(code, BackendError)(
            f"{self.access.server}{path} answered {code}: {status.message or 'no reason given'}."
        )


def _rule(path: str, verb: str) -> str:
    """The role rule that a refused request needs."""
    words = path.strip("/").split("/")
    core = words[0] == "api"
    group = "" if core else words[1] if len(words) > 1 else ""
    # .../namespaces/NAME/RESOURCE/NAME: what is named last is the object, not its kind.
    named = words.index("namespaces") + 2 if "namespaces" in words[:-2] else len(words) - 1
    resource = words[named]
    verb = verb or ("get" if named < len(words) - 1 else "")
    verbs = f'["{verb}"]' if verb else '["list", "watch"]'
    return (
        f"Not allowed to {verb or 'read'} {resource}. Add to the role: "
        f'apiGroups: ["{group}"], resources: ["{resource}"], verbs: {verbs}.'
    )


def status_of(body: bytes, code: int) -> Status:
    """What the server says went wrong; whatever came, where it is not said in its own shape."""
    try:
        return _STATUS.decode(body)
    except msgspec.MsgspecError:
        return Status(code=code, message=body[:200].decode(errors="replace").strip())


async def _split(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Whole lines from pieces of any size; a half line at the end of a stream is dropped."""
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
