# SPDX-License-Identifier: Apache-2.0
"""One lab for all live tests, and what the machine looked like before it.

Where a machine cannot hold a lab the tests are skipped with the reason; under CI that is a
failure, because a suite that quietly tests nothing is worse than none.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from pilothouse.errors import LabUnavailable
from pilothouse.home import home
from pilothouse.lab import Lab, Wish, machine
from pilothouse.lab.cgroup import hierarchies

# A TLS handshake that is given up in the middle leaves its socket to the garbage collector: that is
# the HTTP library's way with cancellation, and the collector may come around in any later test.
GIVEN_UP = (
    "ignore:Exception ignored in. <(socket.socket|function _SelectorTransport)"
    ":pytest.PytestUnraisableExceptionWarning"
)
WISH = Wish(workers=3, fake_nodes=5, prometheus=True)
NAMESPACE = "sim-env"
OBSERVER = Path(__file__).parents[2] / "deploy/manifests/observer-rbac.yaml"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:  # pytest hands every conftest the whole collection
            item.add_marker(pytest.mark.live)
            if item.get_closest_marker("timeout") is None:  # a module may have set its own
                item.add_marker(pytest.mark.timeout(300))
            item.add_marker(pytest.mark.filterwarnings(GIVEN_UP))


def lists_of_the_machine(lab: Lab) -> dict[str, list[str]]:
    """What ``lab down`` must leave as it was."""

    def rows(*command: str) -> list[str]:
        return sorted(subprocess.run(command, capture_output=True, text=True).stdout.splitlines())

    links = json.loads(subprocess.run(["ip", "-j", "link"], capture_output=True).stdout)
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    groups = [str(path) for mount in hierarchies() for path in mount.iterdir() if path.is_dir()]
    root = str(lab.layout.root)
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_text().split("\0")
            except OSError:
                continue
            # Only what is ours: other people work on this machine too.
            if root in " ".join(words) and "pytest" not in " ".join(words):
                processes.append(" ".join(words)[:200])
    folders = ("/var/lib/cni/results", "/run/containerd/s", "/var/log/containers")
    files = [str(p) for f in folders if Path(f).is_dir() for p in Path(f).iterdir()]
    return {
        "processes": sorted(processes),
        "mounts": sorted(mounts),
        "links": sorted(link["ifname"] for link in links),
        "routes": rows("ip", "route", "show", "table", "all", "scope", "link")
        + rows("ip", "route"),
        "namespaces": rows("ip", "netns"),
        "cgroups": sorted(groups),
        "files": sorted(files),
        "sysctls": [Path("/proc/sys/net/ipv4/ip_forward").read_text()],
    }


def unbuilt() -> list[str]:
    """Why the lab's parts cannot be made here; a build that breaks is an error, not a reason."""
    try:
        Lab(home() / "lab").build()
    except LabUnavailable as reason:
        return [str(reason)]
    return []


@pytest.fixture(scope="session")
def machine_before() -> dict[str, list[str]]:
    missing = machine.missing(prometheus=True) or unbuilt()
    if missing and os.environ.get("CI"):
        pytest.fail(f"This machine must hold a lab: {' '.join(missing)}")
    if missing:
        pytest.skip(" ".join(missing))
    lab = Lab(home() / "lab")
    lab.down()
    return lists_of_the_machine(lab)


@pytest.fixture(scope="session")
def lab(machine_before: dict[str, list[str]]) -> Iterator[Lab]:
    lab = Lab(home() / "lab")
    lab.up(WISH)
    yield lab
    lab.down(keep_logs=True)


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """Wait for a claim about the cluster; the last value is in the failure."""

    def wait(look: Callable[[], Any], *, seconds: float = 120.0, every: float = 0.5) -> Any:
        deadline = monotonic() + seconds
        while True:
            found = look()
            if found:
                return found
            assert monotonic() < deadline, f"not within {seconds} s; last: {found!r}"
            sleep(every)

    return wait


def a_deployment(
    name: str,
    *,
    namespace: str = NAMESPACE,
    replicas: int = 1,
    arguments: tuple[str, ...] = (),
    requests: dict[str, str] | None = None,
    limits: dict[str, str] | None = None,
    node: str = "",
    selector: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A Deployment of the lab's workload, with good defaults."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {
                    "labels": {"app": name},
                    "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8000"},
                },
                "spec": {
                    "terminationGracePeriodSeconds": 4,
                    "nodeSelector": (selector or {})
                    | ({"kubernetes.io/hostname": node} if node else {}),
                    "containers": [
                        {
                            "name": "workload",
                            "image": "docker.io/pilothouse/workload:lab",
                            "imagePullPolicy": "Never",
                            "args": ["serve", *arguments],
                            "env": [{"name": "DEPLOYMENT", "value": name}],
                            "ports": [{"containerPort": 8000}],
                            "resources": {
                                "requests": requests or {"cpu": "50m", "memory": "32Mi"},
                                "limits": limits or {},
                            },
                            "readinessProbe": {
                                "httpGet": {"path": "/readyz", "port": 8000},
                                "periodSeconds": 1,
                            },
                        }
                    ],
                },
            },
        },
    }


def clear(lab: Lab, namespace: str, *more: str) -> None:
    """Delete what tests make in a namespace.

    Pods that run have a moment to end, for which nobody waits: they are asked for by name, and
    counted where they are until they are gone. Those that wait go at once, or they would be the
    next one's queue.
    """
    kinds = "deployments,horizontalpodautoscalers,poddisruptionbudgets,jobs,resourcequotas"
    lab.kubectl("delete", ",".join((kinds, *more)), "--all", "-n", namespace, "--wait=false")
    words = ("delete", "pods", "-n", namespace, "--grace-period=1")
    lab.kubectl(*words, "--field-selector=status.phase=Pending")
    lab.kubectl(*words, "--all", "--wait=false")


@pytest.fixture
def space(lab: Lab) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Apply objects in the tests' namespace; they are gone afterwards."""
    space_object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    lab.apply(json.dumps(space_object))
    yield lambda thing: lab.apply(json.dumps(thing))
    clear(lab, NAMESPACE, "services")


@pytest.fixture
def pods(lab: Lab) -> Callable[[str], list[dict[str, Any]]]:
    """The pods of one Deployment."""

    def listed(name: str) -> list[dict[str, Any]]:
        found = lab.kubectl("get", "pods", "-n", NAMESPACE, "-l", f"app={name}", "-o", "json")
        return list(json.loads(found)["items"])

    return listed


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@pytest.fixture
def observer_kubeconfig(lab: Lab, tmp_path: Path) -> Path:
    """The observer as it is shipped: its own account, its own roles."""
    lab.apply(OBSERVER.read_text())
    token = lab.kubectl(
        "create", "token", "pilothouse-observer", "-n", "pilothouse-system", "--duration=2h"
    ).strip()
    document = json.loads(lab.layout.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


NODE_CLAIMS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "nodeclaims.karpenter.sh",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"},
    },
    "spec": {
        "group": "karpenter.sh",
        "scope": "Cluster",
        "names": {"kind": "NodeClaim", "plural": "nodeclaims", "singular": "nodeclaim"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def node_claims(lab: Lab, eventually: Callable[..., Any]) -> Iterator[Callable[[str], None]]:
    """A cluster that knows Karpenter's NodeClaims; gives a way to ask for a node."""
    lab.apply(json.dumps(NODE_CLAIMS))
    eventually(lambda: "nodeclaims" in lab.kubectl("api-resources", "--api-group=karpenter.sh"))

    def ask(name: str) -> None:
        claim = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name}}
        claim["status"] = {  # type: ignore[assignment]
            "nodeName": "worker-1",
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        lab.apply(json.dumps(claim))

    yield ask
    lab.kubectl("delete", "crd", "nodeclaims.karpenter.sh")
