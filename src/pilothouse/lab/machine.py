# SPDX-License-Identifier: Apache-2.0
"""Whether this machine can hold a lab, said all at once instead of one failure after another."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from pilothouse.errors import LabUnavailable
from pilothouse.lab.cgroup import MOUNT, hierarchies, is_unified
from pilothouse.lab.part import CNI_FOLDERS, CNI_PLUGINS, PROMETHEUS, TOOLS
from pilothouse.lab.worker import machine_memory_kib

ELSEWHERE = (
    "Without a lab, make a cluster with kind (real pods) or kwokctl (fake ones) "
    "and give its kubeconfig to: pilothouse up --kubeconfig FILE."
)
SPARE_MEMORY_MIB = 2048  # control plane and kubelets


def missing(*, prometheus: bool) -> list[str]:
    """What keeps a lab from running here, each as a sentence; empty when nothing does."""
    if not sys.platform.startswith("linux"):
        return [f"The lab needs Linux, but this is {sys.platform}."]
    said = []
    if os.geteuid() != 0:
        said.append("The lab needs root: it makes bridges, cgroups and mounts.")
    packages = [
        tool.package
        for tool in (*TOOLS, *((PROMETHEUS,) if prometheus else ()))
        if shutil.which(tool.command, path=_path()) is None
    ]
    if not any(all((f / p).exists() for p in CNI_PLUGINS) for f in CNI_FOLDERS):
        packages.append("containernetworking-plugins")
    if packages:
        names = " ".join(dict.fromkeys(packages))
        said.append(f"These are not installed: {names} (Debian: apt-get install {names}).")
    if not MOUNT.is_dir() or not hierarchies():
        said.append(f"No cgroups are mounted at {MOUNT}.")
    elif is_unified():
        there = (MOUNT / "cgroup.controllers").read_text().split()
        absent = [name for name in ("cpu", "memory", "pids") if name not in there]
        if absent:
            said.append(f"These cgroup controllers are not available: {', '.join(absent)}.")
    else:
        absent = [n for n in ("cpu", "cpuacct", "memory", "pids") if not (MOUNT / n).is_dir()]
        if absent:
            said.append(f"These cgroup controllers are not mounted: {', '.join(absent)}.")
    if not Path("/proc/sys/net/ipv4/ip_forward").exists():
        said.append("The kernel has no IPv4 forwarding.")
    return said


def require(*, prometheus: bool) -> None:
    if said := missing(prometheus=prometheus):
        raise LabUnavailable(f"{' '.join(said)} {ELSEWHERE}")


def _path() -> str:
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def share(workers: int) -> tuple[int, int]:
    """CPU (millicores) and memory (MiB) for each worker: three quarters of the machine in all."""
    cores = os.cpu_count() or 1
    cpu = max(cores * 1000 * 3 // 4 // workers // 50 * 50, 100)
    spare = max(machine_memory_kib() // 1024 - SPARE_MEMORY_MIB, 512)
    return min(cpu, 4000), min(max(spare * 3 // 4 // workers // 64 * 64, 256), 2048)
