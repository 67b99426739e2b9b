# SPDX-License-Identifier: Apache-2.0
"""Being asked to stop, by a person or by a service manager."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_SECONDS = 1.0


@contextmanager
def stoppable() -> Iterator[None]:
    """Inside, SIGINT and SIGTERM raise KeyboardInterrupt, again and again until the block is left.

    Once is not enough. Python runs the handler wherever it happens to be, and some places drop
    what is raised there: NumPy does while it asks an enum for its array protocol, and so does
    every finalizer. A loop would go on as if nobody had spoken.
    """
    asked = over = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if not over:
            asked = True
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
            raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        over = True
        if asked:
            signal.setitimer(signal.ITIMER_REAL, 0)
            before[signal.SIGTERM] = signal.SIG_IGN  # who asks twice is already being obeyed
        for number, handler in before.items():
            signal.signal(number, handler)
