# SPDX-License-Identifier: Apache-2.0
"""A part of the lab that runs as a process: its name and how it is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pilothouse.lab.build import Binaries
from pilothouse.lab.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One process. Its log is named after it."""

    name: str  # "etcd", "kubelet-worker-1"
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What every component needs to know about where it runs."""

    layout: Layout
    binaries: Binaries
    ports: Mapping[str, int]

    def kubeconfig(self, name: str) -> str:
        return str(self.layout.pki / f"{name}.kubeconfig")

    def pki(self, name: str) -> str:
        return str(self.layout.pki / name)


def flags(**values: str | int) -> tuple[str, ...]:
    """``flags(bind_address="x")`` is ``--bind-address=x``."""
    return tuple(f"--{name.replace('_', '-')}={value}" for name, value in values.items())
