# SPDX-License-Identifier: Apache-2.0
"""Takes the lab away, however much of it is left.

It goes by the ledger and by marks that nothing else on the machine carries: the cgroup, the
bridges' prefix, the routes' protocol and the run folder. So it works after a crash, after
``kill -9`` of everything, without a ledger, and twice.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pilothouse.lab import cgroup, network, process
from pilothouse.lab.layout import MARK, Layout
from pilothouse.lab.ledger import Ledger, Opened, Started, Tuned

PATIENCE_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What of a lab is on the machine now."""

    processes: list[int] = field(default_factory=list)
    mounts: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    routes: list[str] = field(default_factory=list)
    cgroups: list[str] = field(default_factory=list)

    @property
    def sentence(self) -> str:
        counts = {name: len(getattr(self, name)) for name in self.__slots__}
        return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def find(layout: Layout) -> Leftovers:
    """Look, by ledger and marks."""
    recorded = {p.pid for p in _recorded(layout) if process.is_alive(p.pid, p.ticks)}
    return Leftovers(
        processes=sorted(recorded | cgroup.pids()),
        mounts=list(_mounts(layout)),
        links=network.links() if shutil.which("ip") else [],
        routes=network.routes() if shutil.which("ip") else [],
        cgroups=[str(mount / MARK) for mount in cgroup.hierarchies() if (mount / MARK).is_dir()],
    )


def _recorded(layout: Layout) -> list[Started]:
    with contextlib.suppress(Exception):  # an unreadable ledger must not keep anything alive
        return Ledger(layout.ledger).of(Started)
    return []


def reap(layout: Layout) -> Leftovers:
    """Take everything away; returns what resisted."""
    _end_processes(layout)
    _unmount(layout)
    network.remove_links()
    network.remove_routes()
    _remove_traces(layout)
    cgroup.remove(PATIENCE_SECONDS)
    ledger = Ledger(layout.ledger)
    with contextlib.suppress(Exception):  # as above; the settings are the kernel's defaults then
        network.restore(ledger.of(Tuned))
    left = find(layout)
    if not left.sentence:
        ledger.forget()
    return left


def _end_processes(layout: Layout) -> None:
    """Supervisors first, or a kubelet would start again what was just ended; then all the rest."""
    recorded = _recorded(layout)
    supervisors = [p for p in recorded if p.name.startswith(("kubelet", "containerd"))]
    for group in (supervisors, recorded):
        for one in group:
            if process.is_alive(one.pid, one.ticks):
                process.kill_all([one.pid])
        process.wait_until_dead([(p.pid, p.ticks) for p in group], PATIENCE_SECONDS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (left := cgroup.pids()) and time.monotonic() < deadline:
        process.kill_all(left)
        process.wait_until_dead([(pid, process.start_ticks(pid)) for pid in left], 1.0)


def _mounts(layout: Layout) -> Iterator[str]:
    """Mount points below the run folder, the deepest first."""
    inside = str(layout.run.resolve()) + "/"
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        where = line.split()[4].encode().decode("unicode_escape")  # \040 is a space
        if where.startswith(inside):
            found.append(where)
    yield from reversed(found)


def _unmount(layout: Layout) -> None:
    for where in _mounts(layout):
        if subprocess.run(["umount", where], capture_output=True).returncode != 0:
            subprocess.run(["umount", "--lazy", where], capture_output=True)


def _remove_traces(layout: Layout) -> None:
    shutil.rmtree(layout.run, ignore_errors=True)
    layout.kubeconfig.unlink(missing_ok=True)
    opened: list[Opened] = []
    with contextlib.suppress(Exception):  # as above: an unreadable ledger costs empty folders
        opened = Ledger(layout.ledger).of(Opened)
    for folder in reversed(opened):
        with contextlib.suppress(OSError):  # somebody else put something there meanwhile
            Path(folder.path).rmdir()
