# SPDX-License-Identifier: Apache-2.0
"""What the lab is made of, and where each part comes from.

Versions are pinned by the ``go.mod`` and ``go.sum`` beside each module; this list only says which
commands a module yields. Parts that Debian ships are found on the machine instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "modules"
REPOSITORY = Path(__file__).parents[3]
KUBERNETES_VERSION = "1.36.4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One Go module and the commands it is built for."""

    module: str  # folder under modules/
    packages: tuple[str, ...]  # import paths of the commands
    binaries: tuple[str, ...]  # what the commands are called, in the same order
    ldflags: str = "-s -w"
    released: bool = True  # release binaries may stand in for it

    @property
    def folder(self) -> Path:
        """Beside the others in an installed package; ours is at the top of the repository."""
        beside = MODULES / self.module
        return beside if beside.is_dir() else REPOSITORY / self.module


def _version() -> str:
    """Without the version in them the components reject each other."""
    major, minor, _ = KUBERNETES_VERSION.split(".")
    stamp = "k8s.io/component-base/version"
    return (
        f"-s -w -X {stamp}.gitVersion=v{KUBERNETES_VERSION} "
        f"-X {stamp}.gitMajor={major} -X {stamp}.gitMinor={minor}"
    )


def _kubernetes() -> Part:
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet")
    return Part(
        module="kubernetes",
        packages=tuple(f"k8s.io/kubernetes/cmd/{name}" for name in names),
        binaries=names,
        ldflags=_version(),
    )


# The longest first: a build that fails fails early.
PARTS = (
    _kubernetes(),
    Part(module="etcd", packages=("go.etcd.io/etcd/server/v3",), binaries=("etcd",)),
    Part(
        module="metrics-server",
        packages=("sigs.k8s.io/metrics-server/cmd/metrics-server",),
        binaries=("metrics-server",),
    ),
    Part(
        module="kube-state-metrics",
        packages=("k8s.io/kube-state-metrics/v2",),
        binaries=("kube-state-metrics",),
    ),
    Part(module="kwok", packages=("sigs.k8s.io/kwok/cmd/kwok",), binaries=("kwok",)),
    Part(
        module="workload",
        packages=("pilothouse.dev/lab/workload",),
        binaries=("workload",),
        released=False,
    ),
)

# Only where it is asked for. Nearly all of it is the kube-scheduler's own packages, which are
# compiled already.
SCHEDULER = Part(
    module="scheduler",
    packages=("pilothouse.dev/scheduler/cmd/pilothouse-scheduler",),
    binaries=("pilothouse-scheduler",),
    ldflags=_version(),
    released=False,
)

# Not of a lab, but built like its parts: renders and installs our chart in tests. A helm without
# the version takes every cluster for an old one.
HELM = Part(
    module="helm",
    packages=("helm.sh/helm/v3/cmd/helm",),
    binaries=("helm",),
    ldflags=(
        "-s -w -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 "
        f"-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor={KUBERNETES_VERSION.split('.')[1]}"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A command the machine must have, and the Debian package that brings it."""

    command: str
    package: str
    why: str


TOOLS = (
    Tool(command="containerd", package="containerd", why="runs the workers' containers"),
    Tool(command="ctr", package="containerd", why="loads images without a registry"),
    Tool(command="runc", package="runc", why="starts containers"),
    Tool(command="ip", package="iproute2", why="makes the workers' bridges"),
    Tool(command="openssl", package="openssl", why="makes the lab's certificates"),
    Tool(command="nsenter", package="util-linux", why="enters a worker's namespaces"),
    Tool(command="mount", package="mount", why="the kubelets mount volumes"),
)
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CNI_PLUGINS = ("bridge", "host-local", "loopback")
PROMETHEUS = Tool(command="prometheus", package="prometheus", why="scrapes the lab")
