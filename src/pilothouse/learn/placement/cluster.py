# SPDX-License-Identifier: Apache-2.0
"""A real cluster to place pods in: create, bind, wait until they run, delete, look.

All pods are made in a namespace of their own and carry a label; a namespace that holds anybody
else's pods is refused. A pod that nobody may schedule but us names a scheduler that does not
exist, so it stays pending until it is bound. Looking lists nodes and pods afresh: a placement
takes seconds, and what is seen must be newer than what was done.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pilothouse.clients import from_kubeconfig
from pilothouse.clients.probes import Probes
from pilothouse.clients.requests import Refusal, Requests
from pilothouse.clients.resources import Node, Pod
from pilothouse.errors import BackendError, InvalidSetting
from pilothouse.policy.machines import (
    DISK,
    HARD_ANNOTATION,
    SOFT_ANNOTATION,
    Machine,
    Request,
    machines_of,
)

AUTHOR = "pilothouse-placement"
BY_HAND = "pilothouse-by-hand"  # nobody's name, so no scheduler takes the pod
DEFAULT_SCHEDULER = "default-scheduler"
LABEL = "pilothouse.dev/placement"
EVERY_SECONDS = 0.05
REPELLING = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where pods are made, and how."""

    kubeconfig: Path
    namespace: str = "pilothouse-placement"
    image: str = "registry.k8s.io/pause:3.10"
    probe_port: int = 0  # of the latency probes; 0: latencies stay unknown
    patience_seconds: float = 60.0  # until a pod runs, or is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The cluster at one moment."""

    machines: tuple[Machine, ...]  # that would take a pod without tolerations
    latency_ms: Mapping[str, float]  # by node; NaN: unknown
    own: Mapping[str, str]  # our pods, to their nodes; "" while pending

    def counted(self, node: str) -> int:
        """Our pods on a node."""
        return sum(place == node for place in self.own.values())


class Cluster:
    """One real cluster."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._api = Requests(from_kubeconfig(place.kubeconfig))
        self._probes = Probes(place.probe_port) if place.probe_port else None
        self._pods = f"/api/v1/namespaces/{place.namespace}/pods"
        try:
            self._ensure_namespace()
        except BaseException:
            self._hang_up()
            raise

    def look(self) -> Look:
        """Nodes that take ordinary pods, how far they are, and where our pods are."""
        nodes = msgspec.convert(self._api.every("/api/v1/nodes"), list[Node])
        pods = msgspec.convert(self._api.every("/api/v1/pods"), list[Pod])
        ordinary = [n for n in nodes if not any(t.effect in REPELLING for t in n.spec.taints)]
        machines = tuple(m for m in machines_of(ordinary, pods) if m.ready)
        latency = {
            m.name: self._probes.latency_ms(m.address) if self._probes else float("nan")
            for m in machines
        }
        ours = [p for p in pods if p.metadata.namespace == self.place.namespace]
        own = {p.metadata.name: p.spec.node_name for p in ours}
        return Look(machines=machines, latency_ms=latency, own=own)

    def create(self, name: str, request: Request, *, scheduler: str = BY_HAND) -> None:
        """A pending pod; its limits are annotations, as the scheduler reads them."""
        limits = (
            (SOFT_ANNOTATION, request.soft_limit_ms),
            (HARD_ANNOTATION, request.hard_limit_ms),
        )
        annotations = {key: f"{value:g}" for key, value in limits if value > 0}
        requests = {
            "cpu": f"{request.cpu_millicores:.0f}m",
            "memory": f"{request.memory_mib:.0f}Mi",
        }
        if request.disk_mib:
            requests[DISK] = f"{request.disk_mib:.0f}Mi"
        container = {
            "name": "placed",
            "image": self.place.image,
            "imagePullPolicy": "IfNotPresent",
            "resources": {"requests": requests},
        }
        spec = {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
        }
        metadata = {"name": name, "labels": {LABEL: "pod"}, "annotations": annotations}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self._write(self._pods, pod)

    def bind(self, name: str, node: str) -> None:
        """What a scheduler does at the end of its cycle."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        self._write(f"{self._pods}/{name}/binding", binding | {"target": target})

    def wait_bound(self, name: str) -> str:
        """The node a scheduler chose; empty when patience ends before one did."""
        try:
            return str(self._until(lambda: self._node_of(name)))
        except TimeoutError:
            return ""

    def wait_running(self, name: str) -> bool:
        """Whether the pod runs; False when its kubelet refused it. Never running is an error."""
        try:
            phase = self._until(lambda: self._phase_if(name, ("Running", "Failed", "Succeeded")))
        except TimeoutError:
            raise BackendError(
                f"Pod {self.place.namespace}/{name} was bound but does not run after "
                f"{self.place.patience_seconds:g} s: {self._complaint(name)}. "
                "Look at its events, or choose another --image."
            ) from None
        return str(phase) == "Running"

    def delete(self, names: Sequence[str], *, force: bool = False) -> None:
        """Delete pods and wait until they are gone; ``force`` where no kubelet will answer."""
        for name in names:
            self._delete(f"{self._pods}/{name}", grace=0 if force else 1)
        try:
            self._until(lambda: not (set(names) & set(self._ours())))
        except TimeoutError:
            left = sorted(set(names) & set(self._ours()))
            raise BackendError(
                f"These pods were deleted but are still there after "
                f"{self.place.patience_seconds:g} s: {', '.join(left[:5])}. Are their nodes up?"
            ) from None

    def clear(self) -> None:
        """Delete every pod of ours."""
        if names := self._ours():
            self.delete(names)

    def close(self) -> None:
        """Take our pods away and hang up."""
        try:
            self.clear()
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        self._api.close()
        if self._probes is not None:
            self._probes.close()

    def _ours(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self._api.every(self._pods)]

    def _ensure_namespace(self) -> None:
        name = self.place.namespace
        try:
            self._api.get(f"/api/v1/namespaces/{name}")
        except Refusal as refusal:
            if not refusal.is_missing:
                raise
            metadata = {"name": name, "labels": {LABEL: "namespace"}}
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            self._write("/api/v1/namespaces", space)
        foreign = [
            pod["metadata"]["name"]
            for pod in self._api.every(self._pods)
            if LABEL not in (pod["metadata"].get("labels") or {})
        ]
        if foreign:
            raise InvalidSetting(
                f'The namespace "{name}" holds pods that are not ours ({foreign[0]} and '
                f"{len(foreign) - 1} more), and ours are deleted all together. Name another one."
            )

    def _node_of(self, name: str) -> str:
        return str(self._api.get(f"{self._pods}/{name}")["spec"].get("nodeName") or "")

    def _phase_if(self, name: str, among: Sequence[str]) -> str:
        phase = str(self._api.get(f"{self._pods}/{name}")["status"].get("phase") or "")
        return phase if phase in among else ""

    def _complaint(self, name: str) -> str:
        """What the pod's own status says is missing."""
        status = self._api.get(f"{self._pods}/{name}")["status"]
        for container in status.get("containerStatuses") or ():
            if waiting := (container.get("state") or {}).get("waiting"):
                return f"{waiting.get('reason', 'waiting')} {waiting.get('message', '')}".strip()
        return f"phase {status.get('phase', 'unknown')}"

    def _until(self, look: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + self.place.patience_seconds
        while not (found := look()):
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(EVERY_SECONDS)
        return found

    def _write(self, path: str, body: Mapping[str, Any]) -> None:
        self._api.create(path, body, author=AUTHOR, audit_id=str(uuid.uuid4()))

    def _delete(self, path: str, *, grace: int) -> None:
        try:
            self._api.delete(path, {"gracePeriodSeconds": grace}, audit_id=str(uuid.uuid4()))
        except Refusal as refusal:
            if not refusal.is_missing:  # gone already is what was wanted
                raise
