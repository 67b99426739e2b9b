# SPDX-License-Identifier: Apache-2.0
"""Starts, recognizes and ends the lab's processes.

A process joins the lab's cgroup before it becomes the program, so that even one whose record was
lost can be found. It gets its own session: the lab outlives the command that started it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

JOIN = 'echo $$ > "$0" && exec "$@"'


def start(
    command: list[str], *, log: Path, group: Path, environment: Mapping[str, str]
) -> tuple[int, int]:
    """Run a command detached; returns its pid and start time. ``group`` is a cgroup.procs file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            ["/bin/sh", "-c", JOIN, str(group), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
        )
    ticks = start_ticks(child.pid)
    # The child is meant to outlive us; without this the interpreter would warn about that.
    child.returncode = 0
    return child.pid, ticks


def start_ticks(pid: int) -> int:
    """When a process began, in the kernel's ticks since boot; 0 when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The name may hold spaces and brackets; what follows the last bracket is regular.
    return int(stat.rpartition(")")[2].split()[19])


def is_alive(pid: int, ticks: int) -> bool:
    """Whether this very process runs; one that ended and was not yet collected does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    fields = stat.rpartition(")")[2].split()
    if int(fields[19]) != ticks:
        return False
    return fields[0] not in "ZX" or _has_threads(pid)


def _has_threads(pid: int) -> bool:
    """The first thread may be gone while others still hold the sockets."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False


def state(pid: int, ticks: int) -> str:
    """``running``, ``paused`` or ``dead``."""
    if not is_alive(pid, ticks):
        return "dead"
    letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "paused" if letter in "Tt" else "running"


def send(pid: int, ticks: int, number: signal.Signals) -> bool:
    """Signal a process if it is still the one that was started."""
    if not is_alive(pid, ticks):
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def kill_all(pids: Iterable[int]) -> None:
    """SIGKILL; a paused process dies of it too."""
    for pid in pids:
        if pid in (0, 1, os.getpid()):
            continue
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def wait_until_dead(processes: Iterable[tuple[int, int]], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    left = list(processes)
    while left and time.monotonic() < deadline:
        for pid, _ in left:
            _collect(pid)
        left = [p for p in left if is_alive(*p)]
        if left:
            time.sleep(0.02)
    return not left


def _collect(pid: int) -> None:
    """A child of this very command would stay a zombie otherwise."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
