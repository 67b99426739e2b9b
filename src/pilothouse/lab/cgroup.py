# SPDX-License-Identifier: Apache-2.0
"""The lab's cgroups: one per worker with a real quota and limit, one for everything else.

A worker's quota is what it advertises, so saturation stays on the worker. Both versions of the
kernel's interface are spoken. On version 1 a quota cannot fall below the limit of a container in
it, nor can a container ask for more than its worker has: the kernel refuses.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

from pilothouse.errors import LabFailed
from pilothouse.lab.layout import MARK

MOUNT = Path("/sys/fs/cgroup")
PERIOD_MICROSECONDS = 100_000
SYSTEM = f"/{MARK}/system"
# What a worker advertises it must get even where the machine is busy with other things, so the
# workers together weigh as much as this many ordinary processes; their quotas bound them.
WEIGHT = 20


def is_unified() -> bool:
    """Whether this machine has cgroup version 2 alone."""
    return (MOUNT / "cgroup.controllers").exists()


def hierarchies() -> list[Path]:
    """Every place a cgroup exists in."""
    if is_unified():
        return [MOUNT]
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind in ("cgroup", "cgroup2") and Path(where).is_relative_to(MOUNT):
            found.append(Path(where))
    return sorted(set(found))


def make(path: str) -> None:
    """Create a cgroup in every hierarchy, with parents."""
    for mount in hierarchies():
        if is_unified():
            _delegate(mount, path)
        folder = mount
        for name in Path(path.strip("/")).parts:
            folder = folder / name
            folder.mkdir(exist_ok=True)
            if (folder / "cpuset.cpus").exists() and not is_unified():
                _inherit_cpuset(folder)


def _delegate(mount: Path, path: str) -> None:
    """Version 2 hands controllers down one level at a time."""
    folder = mount
    for name in ("", *Path(path.strip("/")).parts[:-1]):
        folder = folder / name
        folder.mkdir(exist_ok=True)
        for controller in ("cpu", "memory", "pids", "cpuset", "io"):
            with contextlib.suppress(OSError):  # not every kernel has every controller
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def _inherit_cpuset(folder: Path) -> None:
    """A new version 1 cpuset is empty and admits no process until it is filled."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        if not (folder / name).read_text().strip():
            (folder / name).write_text((folder.parent / name).read_text())


def mounts() -> list[tuple[Path, str]]:
    """Where each hierarchy is mounted, and the ``mount`` arguments that mount it again."""
    if is_unified():
        return [(MOUNT, "-t cgroup2")]
    found = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if not Path(where).is_relative_to(MOUNT) or kind not in ("cgroup", "cgroup2"):
            continue
        common = ("rw", "ro", "relatime", "nosuid", "nodev", "noexec", "xattr", "nsdelegate")
        named = [o for o in options.split(",") if o not in common and "=" in o]
        plain = [o for o in options.split(",") if o not in common and "=" not in o]
        chosen = ",".join([*(["none"] if named and not plain else []), *plain, *named])
        found[Path(where)] = f"-t {kind}" + (f" -o {chosen}" if kind == "cgroup" else "")
    return sorted(found.items())


def leave(pid: int) -> None:
    """Move a process out of its worker: from now on only its view stays there."""
    for mount in hierarchies():
        group = members_file(SYSTEM) if mount in (MOUNT, MOUNT / "pids") else mount / "cgroup.procs"
        group.write_text(str(pid))


def give_weight() -> None:
    """Make the lab's workers count for more than a single process of somebody else."""
    if is_unified():
        (MOUNT / MARK / "cpu.weight").write_text(str(100 * WEIGHT))
    else:
        (MOUNT / "cpu" / MARK / "cpu.shares").write_text(str(1024 * WEIGHT))


def members_file(path: str) -> Path:
    """Where a process writes its pid to join; one hierarchy is enough to be found by."""
    root = MOUNT if is_unified() else MOUNT / "pids"
    return root / path.strip("/") / "cgroup.procs"


def limit(path: str, *, cpu_millicores: int, memory_mib: int) -> None:
    """Set what a cgroup and all below it may use together."""
    set_cpu(path, cpu_millicores)
    relative = path.strip("/")
    if is_unified():
        (MOUNT / relative / "memory.max").write_text(str(memory_mib << 20))
    else:
        (MOUNT / "memory" / relative / "memory.limit_in_bytes").write_text(str(memory_mib << 20))


def set_cpu(path: str, millicores: int) -> None:
    """Change the CPU quota alone: how a worker is made to degrade."""
    quota = millicores * PERIOD_MICROSECONDS // 1000
    relative = path.strip("/")
    try:
        if is_unified():
            (MOUNT / relative / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")
        else:
            (MOUNT / "cpu" / relative / "cpu.cfs_quota_us").write_text(str(quota))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise LabFailed(
            f"The quota of {path} cannot be {millicores} millicores: the kernel refuses a quota "
            "below that of a container in it. Use pods without CPU limits there."
        ) from None


def used_seconds(path: str) -> float:
    """CPU time used by everything in a cgroup, ever."""
    relative = path.strip("/")
    if not is_unified():
        return int((MOUNT / "cpuacct" / relative / "cpuacct.usage").read_text()) / 1e9
    for line in (MOUNT / relative / "cpu.stat").read_text().splitlines():
        if line.startswith("usage_usec "):
            return int(line.split()[1]) / 1e6
    return 0.0


def _below(mount: Path) -> Iterator[Path]:
    root = mount / MARK
    if not root.is_dir():
        return
    for folder, _, _ in os.walk(root, topdown=False):
        yield Path(folder)


def pids() -> set[int]:
    """Every process in any cgroup of the lab."""
    found: set[int] = set()
    for mount in hierarchies():
        for folder in _below(mount):
            with contextlib.suppress(OSError):  # it may go while we look
                found.update(map(int, (folder / "cgroup.procs").read_text().split()))
    return found


def remove(seconds: float) -> list[Path]:
    """Take every cgroup of the lab away; returns what stayed. The kernel lets go with a delay."""
    deadline = time.monotonic() + seconds
    while True:
        left = [folder for mount in hierarchies() for folder in _below(mount)]
        for folder in left:
            with contextlib.suppress(OSError):
                folder.rmdir()
        left = [folder for folder in left if folder.exists()]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)
