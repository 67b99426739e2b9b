# SPDX-License-Identifier: Apache-2.0
"""Two services alike, asked alike: one where agents may act, one where they are off.

Both live through the same stimulus at the same time, so whatever else the machine does happens to
both. The lab's load generator asks each by its ready endpoints, as kube-proxy would, and counts
what became of every request that was due.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pilothouse.lab import Lab
from pilothouse.lab.fake import FAKE_TAINT
from pilothouse.lab.layout import API_ADDRESS, API_PORT
from tests.live.act.helm import SPACE
from tests.live.conftest import a_deployment, is_ready

OFF = "off-env"  # did not opt in: nobody acts there
ON_FAKE_NODES = {"pilothouse.dev/lab": "fake"}
PAIR = {"on": SPACE, "off": OFF}


@dataclass(frozen=True, slots=True)
class Load:
    """A load generator at work on one service."""

    process: subprocess.Popen[bytes]
    said: Path
    began: float  # wall clock

    def tally(self) -> dict[str, Any]:
        """What became of the requests, once all of them were due."""
        self.process.wait(300)
        found: dict[str, Any] = json.loads(self.said.read_text())
        return found | {"lost": found["due"] - found["answered"]}


class Twins:
    """The pair of services, and who asks them."""

    def __init__(self, lab: Lab, folder: Path, eventually: Callable[..., Any]) -> None:
        self._lab, self._folder, self._eventually = lab, folder, eventually
        self._stack = ExitStack()

    def make(self, name: str, *, replicas: int = 1, least: int = 0, **wishes: Any) -> None:
        """Both Deployments with their Services, and budgets where some must stay."""
        for space in PAIR.values():
            meta = {"name": name, "namespace": space}
            chosen = {"selector": {"app": name}}
            self._apply(a_deployment(name, namespace=space, replicas=replicas, **wishes))
            self._apply(
                {"kind": "Service", "apiVersion": "v1", "metadata": meta}
                | {"spec": chosen | {"clusterIP": "None", "ports": [{"port": 8000}]}}
            )
            if least:
                spec = {"minAvailable": least, "selector": {"matchLabels": {"app": name}}}
                self._apply(
                    {"kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": meta}
                    | {"spec": spec}
                )
        for space in PAIR.values():
            self._eventually(lambda s=space: self.ready(name, s) == replicas)

    def surround(self, count: int) -> None:
        """So many fake pods beside the pair, in the arm where nobody acts: shares of all pods are
        meant for clusters of more than three."""
        crowd = a_deployment("crowd", namespace=OFF, replicas=count, selector=ON_FAKE_NODES)
        pod = crowd["spec"]["template"]["spec"]
        pod["tolerations"] = [{"key": FAKE_TAINT["key"], "operator": "Exists"}]
        del pod["containers"][0]["readinessProbe"]  # nobody would answer it
        self._apply(crowd)
        self._eventually(lambda: self.ready("crowd", OFF) == count)

    def _apply(self, thing: dict[str, Any]) -> None:
        self._lab.apply(json.dumps(thing))

    def ready(self, name: str, space: str) -> int:
        return sum(map(is_ready, self.pods(name, space)))

    def pods(self, name: str, space: str) -> list[dict[str, Any]]:
        found = self._lab.kubectl("get", "pods", "-n", space, "-l", f"app={name}", "-o", "json")
        return list(json.loads(found)["items"])

    def ask(self, name: str, shape: str, *, seed: int = 0) -> dict[str, Load]:
        """Ask both alike: the same arrivals, by the same seed."""
        return {arm: self._ask(f"{space}/{name}", shape, seed) for arm, space in PAIR.items()}

    def _ask(self, service: str, shape: str, seed: int) -> Load:
        command = [str(self._lab.layout.binaries / "workload"), "load"]
        command += [f"-service={service}", f"-shape={shape}", f"-seed={seed}"]
        command += [f"-api=https://{API_ADDRESS}:{API_PORT}", f"-ca={self._lab.layout.pki}/ca.crt"]
        command += [f"-token-file={self._folder}/token"]
        said = self._folder / f"{service.replace('/', '-')}.json"
        began = time.time()
        with said.open("wb") as output:
            process = subprocess.Popen(command, stdout=output)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return Load(process, said, began)

    def close(self) -> None:
        self._stack.close()


@contextmanager
def twins(lab: Lab, folder: Path, eventually: Callable[..., Any]) -> Iterator[Twins]:
    lab.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OFF}}))
    lab.apply(json.dumps(_asker()))
    lab.apply(json.dumps(_asks()))
    token = lab.kubectl("create", "token", "asker", "-n", OFF, "--duration=4h")
    (folder / "token").write_text(token)
    pair = Twins(lab, folder, eventually)
    try:
        yield pair
    finally:
        pair.close()
        kinds = "deployments,services,poddisruptionbudgets,horizontalpodautoscalers"
        for space in PAIR.values():
            lab.kubectl("delete", kinds, "--all", "-n", space, "--wait=false")
            lab.kubectl("delete", "pods", "--all", "-n", space, "--grace-period=1", "--wait=false")


def _asker() -> dict[str, Any]:
    meta = {"name": "asker", "namespace": OFF}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}


def _asks() -> dict[str, Any]:
    """It may look up endpoints, by the lab's own role."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "off-env-asker"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "lab-reads-metrics"},
        "subjects": [{"kind": "ServiceAccount", "name": "asker", "namespace": OFF}],
    }
