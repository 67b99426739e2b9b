# SPDX-License-Identifier: Apache-2.0
"""Being asked to stop, by a person or by a service manager."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

_asked = _impatient = False  # of a process, as signals are


@contextmanager
def stoppable() -> Iterator[None]:
    """Around a whole command, with all it tidies up: SIGINT and SIGTERM raise KeyboardInterrupt.

    From the beginning, because a container's first process does not even get a SIGTERM that
    nobody handles. Once, because who asks again is already being obeyed; only an impatient Ctrl-C
    interrupts the tidying up as well. To stop when asked is no failure, wherever it is heard.
    """
    global _asked, _impatient
    _asked = _impatient = False
    numbers = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, _stop) for number in numbers}
    try:
        yield
    except KeyboardInterrupt:
        if _impatient:
            raise
        typer.echo("Stopped.", err=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def check() -> None:
    """Stop here if that was asked for: loops call it at every turn.

    Python runs a handler wherever it happens to be, and some places drop what is raised there:
    NumPy does while it asks an enum for its array protocol, and so does every finalizer.
    """
    if _asked:
        raise KeyboardInterrupt


def _stop(number: int, frame: FrameType | None) -> None:
    global _asked, _impatient
    if _asked and number != signal.SIGINT:
        return
    _impatient, _asked = _asked, True
    raise KeyboardInterrupt
