# SPDX-License-Identifier: Apache-2.0
"""Who does the pieces of long work: this process, or a Ray cluster.

A piece is a plain argument and the work a plain function of it, so a piece comes out the same
wherever it is done; results come back in the order of the pieces. Trials, training runs and fits,
files of a trace and buckets of features all go through here. Machines of a cluster must have the
same version of the package and see the same folders.
"""

from __future__ import annotations

import importlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pilothouse.errors import ClusterUnreachable

Piece = TypeVar("Piece")
Done = TypeVar("Done")
HANDED_ON = ("PILOTHOUSE_HOME", "PILOTHOUSE_RAW", "PILOTHOUSE_PROCESSED", "PILOTHOUSE_DATA")


class Crew(Protocol):
    """Does one work for many pieces."""

    size: int  # how many pieces can be under way at once

    def map(self, work: Callable[[Piece], Done], pieces: Iterable[Piece]) -> Iterator[Done]:
        """The results in order; nothing starts before the first is asked for."""
        ...


class Here:
    """One piece after the other, in this process."""

    size = 1

    def map(self, work: Callable[[Piece], Done], pieces: Iterable[Piece]) -> Iterator[Done]:
        return map(work, pieces)


HERE = Here()


class OnRay:
    """Pieces side by side on a Ray cluster; a few more than it has cores are under way."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self.size = max(int(ray.cluster_resources().get("CPU", 1)), 1)
        self._do = ray.remote(_do)
        self._work: Callable[..., Any] | None = None
        self._shared: Any = None

    def map(self, work: Callable[[Piece], Done], pieces: Iterable[Piece]) -> Iterator[Done]:
        if work is not self._work:  # what the work carries is sent to the cluster once
            self._work, self._shared = work, self._ray.put(work)
        under_way: deque[Any] = deque()
        for piece in pieces:
            under_way.append(self._do.remote(self._shared, piece))
            if len(under_way) > 2 * self.size:
                yield self._result(under_way.popleft())
        while under_way:
            yield self._result(under_way.popleft())

    def _result(self, promised: Any) -> Any:
        try:
            return self._ray.get(promised)
        except self._ray.exceptions.RayTaskError as error:
            # The message of a user's mistake is one line, wherever the mistake was found.
            raise error.cause from None


def _do(work: Callable[[Piece], Done], piece: Piece) -> Done:
    return work(piece)


@contextmanager
def crew_at(address: str | None) -> Iterator[Crew]:
    """The Ray cluster at an address (``ray start --head`` prints it), or this process if none."""
    if address is None:
        yield HERE
        return
    from pilothouse.learn.extras import need

    need("ray")
    ray = importlib.import_module("ray")
    here = {n: str(Path(os.environ[n]).absolute()) for n in HANDED_ON if n in os.environ}
    try:
        ray.init(address=address, log_to_driver=False, runtime_env={"env_vars": here})
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ClusterUnreachable(
            f"No Ray cluster answers at {address}: {str(error).splitlines()[0]} "
            "Start one with: ray start --head, and give the address it prints."
        ) from error
    try:
        yield OnRay(ray)
    finally:
        ray.shutdown()
