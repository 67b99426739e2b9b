# SPDX-License-Identifier: Apache-2.0
"""The lab with everything that acting needs: accounts, policies, tickets and a janitor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from pilothouse.domain import ActionKind
from pilothouse.lab import Lab
from tests.live.act.helm import SPACE, Helm, fence, pods_of, read
from tests.live.conftest import a_deployment, clear, is_ready

__all__ = ["MANIFESTS", "pods_of", "read", "token_kubeconfig"]

MANIFESTS = Path(__file__).parents[3] / "deploy/manifests"
INSTALLED = (
    "observer-rbac.yaml",
    "ticket-crd.yaml",
    "acting-objects.yaml",
    "actuator-rbac.yaml",
    "janitor-rbac.yaml",
    "node-agent-rbac.yaml",
    "acting-policies.yaml",
)


def token_kubeconfig(lab: Lab, account: str, path: Path) -> Path:
    """A kubeconfig that is one of our accounts and nobody else."""
    token = lab.kubectl("create", "token", account, "-n", "pilothouse-system", "--duration=4h")
    document = json.loads(lab.layout.kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token.strip()}
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(scope="session")
def installed(lab: Lab) -> Lab:
    for name in INSTALLED:
        lab.apply((MANIFESTS / name).read_text())
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": SPACE, "labels": {"pilothouse.dev/managed": "true"}},
    }
    lab.apply(json.dumps(space))
    # For whoever looks or writes before a loop of ours has led.
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    named = {"metadata": {"name": "pilothouse", "namespace": "pilothouse-system"}}
    lab.apply(json.dumps(lease | named))
    if not fence(lab):
        account = ("serviceaccount", "pilothouse-fence", "-n", "pilothouse-system")
        words = ("pilothouse.dev/epoch=0", "pilothouse.dev/holder=installer")
        lab.kubectl("annotate", "--overwrite", *account, *words)
    for worker in lab.workers():  # one zone, so that a worker that leaves is not its last node
        zone = "topology.kubernetes.io/zone=a"
        lab.kubectl("label", "node", worker.name, zone, "--overwrite")
    lab.kubectl("wait", "--for=condition=Established", "crd/tickets.pilothouse.dev")
    return lab


@pytest.fixture(scope="session")
def actuator_kubeconfig(installed: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("accounts")
    return token_kubeconfig(installed, "pilothouse-actuator", folder / "actuator")


@pytest.fixture(scope="session")
def janitor_kubeconfig(installed: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("accounts")
    return token_kubeconfig(installed, "pilothouse-janitor", folder / "janitor")


def start_janitor(kubeconfig: Path, log: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pilothouse.cli", "janitor", "--kubeconfig", str(kubeconfig)]
    with log.open("ab") as output:
        return subprocess.Popen([*command, *options], stdout=output, stderr=output)


def _holder(lab: Lab) -> str:
    words = ("lease", "pilothouse-janitor", "-n", "pilothouse-system", "--ignore-not-found")
    return lab.kubectl("get", *words, "-o", "jsonpath={.spec.holderIdentity}")


@pytest.fixture(scope="session")
def janitor(
    installed: Lab, janitor_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[subprocess.Popen[bytes]]:
    log = tmp_path_factory.mktemp("janitor") / "log"
    process = start_janitor(janitor_kubeconfig, log, "--dead-after", "20", "--grace", "3")
    deadline = monotonic() + 120
    while f"_{process.pid}_" not in _holder(installed):  # without one nobody may enforce
        assert monotonic() < deadline, log.read_text()[-500:]
        sleep(0.5)
    yield process
    process.terminate()
    process.wait(60)


@pytest.fixture(scope="module")
def helm(
    installed: Lab,
    actuator_kubeconfig: Path,
    janitor: subprocess.Popen[bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Helm]:
    folder = tmp_path_factory.mktemp("helm")
    hook = folder / "hook"
    hook.write_text(f'#!/bin/sh\necho "$1 $2" >> {folder}/switched\n')
    hook.chmod(0o755)
    helm = Helm(
        actuator_kubeconfig,
        folder / "act.db",
        act__power_hook=str(hook),
        admission__allow_reject=True,
        guard__window_seconds=10,  # shorter than a drain is in force: the next one may begin
    )
    helm.folder = folder
    yield helm
    helm.close()


@pytest.fixture
def harbor(installed: Lab, eventually: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Make a Deployment and wait for its pods; everything is gone afterwards."""

    def make(name: str, *, replicas: int = 1, wait: bool = True, **wishes: Any) -> list[Any]:
        installed.apply(
            json.dumps(a_deployment(name, namespace=SPACE, replicas=replicas, **wishes))
        )
        if not wait:
            return []
        eventually(lambda: len([p for p in pods_of(installed, name) if is_ready(p)]) == replicas)
        return pods_of(installed, name)

    yield make
    clear(installed, SPACE, "statefulsets")


@pytest.fixture
def measured(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Say what a test measured; a campaign keeps it in the file that it names."""

    def say(**figures: Any) -> None:
        line = json.dumps({"test": request.node.name, **figures})
        print(line)
        kept = os.environ.get("PILOTHOUSE_FIGURES")
        if kept:
            with Path(kept).open("a") as file:
                file.write(line + "\n")

    return say


@pytest.fixture
def helm_journal(
    installed: Lab,
    harbor: Callable[..., Any],
    actuator_kubeconfig: Path,
    janitor: subprocess.Popen[bytes],
    tmp_path: Path,
) -> Path:
    """The journal of a loop that did one small thing and stopped in good order."""
    harbor("small", replicas=1)
    journal = tmp_path / "small.db"
    helm = Helm(actuator_kubeconfig, journal)
    try:
        helm.know(helm.node("worker-1"))
        helm.act(ActionKind.DVFS, helm.node("worker-1"), agent="efficiency", frequency_permille=800)
        helm.turn_until(lambda: not helm.runner.loop.ledger.active, seconds=60)
    finally:
        helm.close()
    return journal
