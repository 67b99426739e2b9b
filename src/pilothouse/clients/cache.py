# SPDX-License-Identifier: Apache-2.0
"""A copy of one resource, kept current by listing once and watching from there.

What an informer must do: go on from the last version after a break, list again only when the
server says that version is gone (410) and never more often than once per ``RELIST_SECONDS``, take
bookmarks so that a quiet resource does not grow old, notice deletions that happened while nobody
watched, and notice a connection that is open but dead. For the last, each watch asks to be ended
after a short window: a stream is silent for at most that long, or it is dead.

``age_seconds`` counts from the last proof that the copy was current, so a reader always knows how
old the worst case is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol

import msgspec

from pilothouse.clients.api import ExpiredError, NotFoundError
from pilothouse.clients.resources import Kind, ListMeta, T, Trimmed
from pilothouse.clients.sharing import Sharing
from pilothouse.errors import BackendError, NotPermitted, PilothouseError

PAGE = 500
WINDOW_SECONDS = 10
SILENCE_SECONDS = WINDOW_SECONDS + 2.0
RELIST_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 3.0
DISCOVERY_SECONDS = 30.0  # how often a resource that is not served is asked for again


class Server(Protocol):
    """What a cache needs of an API server."""

    async def get(self, path: str, parameters: Mapping[str, str | int] | None = None) -> bytes: ...

    def lines(
        self, path: str, parameters: Mapping[str, str | int], *, silence_seconds: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...


class _Change(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bookmark(Trimmed, frozen=True, kw_only=True):
    metadata: ListMeta = ListMeta()


class _Failure(msgspec.Struct):
    code: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How a cache is, for whoever reads it."""

    name: str
    synced: bool  # it has listed at least once
    objects: int
    age_seconds: float  # since the last proof that it was current
    lists: int
    watches: int
    changes: int
    problem: str  # the last failure, empty while all is well
    refused: bool = False  # the problem is a missing permission


class Cache(Generic[T]):
    """One resource. ``values`` may be called from any thread: it copies in one step."""

    def __init__(
        self,
        api: Server,
        kind: Kind,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.kind = kind
        self._api = api
        self._clock = clock
        self._sleep = sleep
        self._objects: dict[str, T] = {}
        self._sharing = Sharing()
        self._version = ""
        self._proof = float("-inf")
        self._listed = float("-inf")
        self._page = msgspec.json.Decoder(_page_type(kind.type))
        self._object: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind.type)
        self._change = msgspec.json.Decoder(_Change)
        self._lists = self._watches = self._changes = 0
        self.pages = 0  # of all lists: a large one moves on, a stuck one does not
        self._problem = ""
        self._refused = False
        self._absent = False

    def values(self) -> list[T]:
        """Everything there is, in no order."""
        return list(self._objects.values())

    def health(self) -> Health:
        return Health(
            name=self.kind.name,
            synced=self._lists > 0,
            objects=len(self._objects),
            age_seconds=0.0 if self._absent else self._clock() - self._proof,
            lists=self._lists,
            watches=self._watches,
            changes=self._changes,
            problem=self._problem,
            refused=self._refused,
        )

    async def run(self) -> None:
        """Keep current until cancelled. Nothing that a server does ends it."""
        await self._until_served()
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
                pause = FIRST_PAUSE_SECONDS
                self._problem, self._refused = "", False
            except ExpiredError as error:
                self._problem, self._version = str(error), ""
            except NotFoundError as error:
                # What may be absent may also go away again; for anything else it is a fault.
                self._problem, self._version = str(error), ""
                if self.kind.discovery:
                    self._objects = {}
                    await self._until_served()
                await self._sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            except PilothouseError as error:
                self._problem, self._refused = str(error), isinstance(error, NotPermitted)
                await self._sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _until_served(self) -> None:
        """A resource that a cluster may not have is empty until it has it, and that is no fault."""
        while self.kind.discovery:
            try:
                await self._api.get(self.kind.discovery)
                self._absent = False
                return
            except NotFoundError:
                self._absent, self._lists = True, max(self._lists, 1)
                self._proof = self._clock()
                await self._sleep(DISCOVERY_SECONDS)
            except PilothouseError as error:
                self._problem = str(error)
                await self._sleep(LONGEST_PAUSE_SECONDS)

    async def _list(self) -> None:
        """A consistent list, page by page; swapped in whole, which takes care of deletions.

        Lists keep their distance from the *end* of the one before: one that waited for a server to
        come back reaches it seconds after it began.
        """
        await self._sleep(max(self._listed + RELIST_SECONDS - self._clock(), 0))
        began = self._clock()
        try:
            found, version = await self._pages()
        finally:
            self._listed = self._clock()
        self._objects, self._version = found, version
        self._lists += 1
        self._proof = began

    async def _pages(self) -> tuple[dict[str, T], str]:
        found: dict[str, T] = {}
        parameters: dict[str, str | int] = {"limit": PAGE}
        while True:
            page = self._decode(self._page, await self._api.get(self.kind.path, parameters))
            for item in page.items:
                self._sharing.share(item)
                found[item.metadata.uid] = item
            self.pages += 1
            if not page.metadata.continue_:
                return found, page.metadata.resource_version
            parameters["continue"] = page.metadata.continue_
            await self._sleep(0)

    async def _watch(self) -> None:
        """One window; changes are applied as they come."""
        parameters: Mapping[str, str | int] = {
            "watch": "1",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": WINDOW_SECONDS,
        }
        self._watches += 1
        began = self._clock()
        async with self._api.lines(
            self.kind.path, parameters, silence_seconds=SILENCE_SECONDS
        ) as lines:
            # The server has accepted our version: what we hold is a state it can go on from.
            self._problem = ""
            async for line in lines:
                self._apply(self._decode(self._change, line))
                self._proof = self._clock()
        self._proof = self._clock()
        # A server that ends every watch at once must not be asked in a hot loop.
        await self._sleep(max(began + FIRST_PAUSE_SECONDS - self._clock(), 0))

    def _apply(self, change: _Change) -> None:
        if change.type == "ERROR":
            failure = self._decode(msgspec.json.Decoder(_Failure), change.object)
            if failure.code == 410:
                raise ExpiredError(failure.message)
            raise BackendError(f"The watch of {self.kind.name} failed: {failure.message}")
        if change.type == "BOOKMARK":
            mark: _Bookmark = self._decode(msgspec.json.Decoder(_Bookmark), change.object)
            self._version = mark.metadata.resource_version or self._version
            return
        item: T = self._decode(self._object, change.object)
        self._sharing.share(item)
        self._changes += 1
        if change.type == "DELETED":
            self._objects.pop(item.metadata.uid, None)
        else:
            self._objects[item.metadata.uid] = item
        self._version = item.metadata.resource_version

    def _decode(self, decoder: msgspec.json.Decoder[Any], content: bytes | msgspec.Raw) -> Any:
        try:
            return decoder.decode(content)
        except msgspec.MsgspecError as error:
            # Half an answer or another shape: start over rather than go on from a guess.
            self._version = ""
            raise BackendError(
                f"The answer about {self.kind.name} cannot be read: {error}."
            ) from None


def _page_type(item: type[Trimmed]) -> Any:
    return msgspec.defstruct(
        f"{item.__name__}Page",
        [("metadata", ListMeta, ListMeta()), ("items", tuple[item, ...], ())],  # type: ignore[valid-type]
    )
