# SPDX-License-Identifier: Apache-2.0
"""Where everything of the lab is: folders, addresses and the marks it can be recognized by.

One machine holds one lab. The ranges are blackholed before anything starts, so that a packet to a
pod or service that is gone fails at once instead of leaving the machine; the bridges' own routes
are more specific and win. The API server listens on the very address of the ``kubernetes``
service, so pods reach it with no kube-proxy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MARK = "pilothouse-lab"  # name of the cgroup and of the networks
BRIDGE = "phlab"  # prefix of every link
ROUTE_PROTOCOL = "197"  # of every route that we add
POD_RANGE = "10.197.0.0/16"
SERVICE_RANGE = "10.198.0.0/16"
API_ADDRESS = "10.198.0.1"  # the first of the service range: the kubernetes service
API_PORT = 443
FAKE_NODE_PORT = 10247
NODE_METER_PORT = 9100
CLUSTER = "lab"
MAXIMUM_WORKERS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One real node: a share of this machine with its own kubelet, containerd and bridge."""

    number: int  # from 1
    cpu_millicores: int
    memory_mib: int

    @property
    def name(self) -> str:
        return f"worker-{self.number}"

    @property
    def bridge(self) -> str:
        return f"{BRIDGE}{self.number}"

    @property
    def address(self) -> str:
        """The node's own address is its bridge's, so every kubelet can use the usual port."""
        return f"10.197.{self.number}.1"

    @property
    def subnet(self) -> str:
        return f"10.197.{self.number}.0/24"

    @property
    def cgroup(self) -> str:
        return f"/{MARK}/{self.name}"

    @property
    def zone(self) -> str:
        return "abc"[(self.number - 1) % 3]


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of one lab, below the home folder."""

    root: Path

    @property
    def binaries(self) -> Path:
        return self.root / "bin"

    @property
    def run(self) -> Path:
        """Everything that ``down`` removes."""
        return self.root / "run"

    @property
    def ledger(self) -> Path:
        """Outside ``run``: it must outlive what it lists."""
        return self.root / "ledger.jsonl"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.log"

    @property
    def pki(self) -> Path:
        return self.run / "pki"

    def folder(self, *names: str) -> Path:
        """A folder below ``run``, made when asked for."""
        path = self.run.joinpath(*names)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"
