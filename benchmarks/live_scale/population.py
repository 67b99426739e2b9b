# SPDX-License-Identifier: Apache-2.0
"""A crowd of pods on fake nodes, and a hand that keeps changing it.

Pods are created bound and owned, while the controller manager is down: it finds every Deployment
satisfied when it is back. Ten thousand pods stand after seconds, not minutes, and what happens to
them afterwards is real: a pod that is deleted is made again by its ReplicaSet, placed by the
scheduler and started by kwok.

Many more at once would keep kwok from renewing its nodes' leases, and Kubernetes would take the
pods away again. Those are given the status that kwok would give them, while it is down as well.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pilothouse.clients.access import Access, from_kubeconfig
from pilothouse.clients.resources import Pod, Trimmed
from pilothouse.lab import Lab, fake
from pilothouse.lab.layout import API_ADDRESS

NAMESPACE = "crowd"
ACCOUNT = {"name": "default", "namespace": NAMESPACE}
LANES = 8
MANY = 20_000  # pods that kwok does not start fast enough
HASH = "pod-template-hash"
MARKED = "pilothouse.dev/mark"


class _Pods(Trimmed, frozen=True, kw_only=True):
    items: tuple[Pod, ...] = ()


class Lane:
    """One connection to the API server, kept open."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._host = access.server.removeprefix("https://")
        self._connection = self._open()

    def _open(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, timeout=120, context=self._access.tls())

    def ask(self, method: str, path: str, body: Any = None, kind: str = "json") -> dict[str, Any]:
        return dict(json.loads(self.read(method, path, body, kind)))

    def read(self, method: str, path: str, body: Any = None, kind: str = "json") -> bytes:
        headers = {"Content-Type": f"application/{kind}", **self._access.headers()}
        text = json.dumps(body) if body else None
        try:
            answer = self._answer(method, path, text, headers)
        except (http.client.RemoteDisconnected, ConnectionError):
            self._connection.close()  # it was kept open for too long; nothing was done
            answer = self._answer(method, path, text, headers)
        content = answer.read()
        if answer.status >= 300 and answer.status != 404:  # somebody else's deletion came first
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:300]!r}")
        return content

    def _answer(
        self, method: str, path: str, text: str | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        self._connection.request(method, path, text, headers)
        return self._connection.getresponse()

    def close(self) -> None:
        self._connection.close()


@dataclass
class Crowd:
    """So many fake nodes and pods in a lab."""

    lab: Lab
    nodes: int
    pods: int
    prefix: str = "fake"  # of the nodes it stands on
    replicas: int = 25  # of every Deployment
    _access: Access = field(init=False)
    _lanes: queue.Queue[Lane] = field(init=False)

    def __post_init__(self) -> None:
        self._access = from_kubeconfig(self.lab.layout.kubeconfig)
        self._lanes = queue.Queue()
        for _ in range(LANES):
            self._lanes.put(Lane(self._access))

    def ask(self, method: str, path: str, body: Any = None, kind: str = "json") -> dict[str, Any]:
        lane = self._lanes.get()
        try:
            return lane.ask(method, path, body, kind)
        finally:
            self._lanes.put(lane)

    @property
    def is_large(self) -> bool:
        return self.pods > MANY

    def settle(self, advance: Callable[[int], None] = lambda _: None) -> None:
        """Make everything, and wait until every pod runs."""
        self.lab.kubectl("create", "namespace", NAMESPACE)
        away = ("kube-controller-manager", *(("kwok",) if self.is_large else ()))
        try:
            for name in away:
                self.lab.kill(name)
            # Whoever would make the account that pods need may not have come to it.
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": ACCOUNT}
            self.lab.apply(json.dumps(account))
            wanted = self._wanted()
            with ThreadPoolExecutor(LANES) as pool:
                for done, _ in enumerate(pool.map(self._create_pod, wanted), 1):
                    advance(done)
        finally:
            for name in reversed(away):
                self.lab.restart(name)
        self.wait_running()

    def _wanted(self) -> Iterable[dict[str, Any]]:
        for first in range(0, self.pods, self.replicas):
            count = min(self.replicas, self.pods - first)
            owner = self._own(f"app-{first // self.replicas:05d}", count)
            for number in range(first, first + count):
                yield self._pod(owner, number)

    def _own(self, name: str, count: int) -> dict[str, Any]:
        """A Deployment and the ReplicaSet that it would make; returns the latter."""
        base = f"/apis/apps/v1/namespaces/{NAMESPACE}"
        made = self.ask("POST", f"{base}/deployments", _deployment(name, count))
        template = made["spec"]["template"]  # with every default the API server put in
        labels = {"app": name, HASH: "0a1b2c3d"}
        return self.ask(
            "POST",
            f"{base}/replicasets",
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {
                    "name": f"{name}-0a1b2c3d",
                    "labels": labels,
                    "annotations": {"deployment.kubernetes.io/revision": "1"},
                    "ownerReferences": [_owner("Deployment", made)],
                },
                "spec": {
                    "replicas": count,
                    "selector": {"matchLabels": labels},
                    "template": template | {"metadata": {"labels": labels}},
                },
            },
        )

    def _pod(self, owner: dict[str, Any], number: int) -> dict[str, Any]:
        template = owner["spec"]["template"]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{owner['metadata']['name']}-{number:05d}",
                "labels": template["metadata"]["labels"],
                "ownerReferences": [_owner("ReplicaSet", owner)],
            },
            "spec": template["spec"]
            | {"nodeName": fake.name_of(1 + number % self.nodes, prefix=self.prefix)},
        }

    def _create_pod(self, pod: dict[str, Any]) -> None:
        made = self.ask("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
        if self.is_large:
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{made['metadata']['name']}/status"
            self.ask("PATCH", path, {"status": _running(made)}, "merge-patch+json")

    def wait_running(self, seconds: float | None = None) -> None:
        """As long as ``seconds``, or as long as so many pods may take to start."""
        seconds = 300 + self.pods / 40 if seconds is None else seconds
        deadline = time.monotonic() + seconds
        while (running := len(self.names("Running"))) < self.pods:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{running} of {self.pods} pods run after {seconds:g} s")
            time.sleep(1 + self.pods / 10_000)

    def names(self, phase: str) -> list[str]:
        """Decoded by the few fields that count: a thousand pages of JSON take a while."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?resourceVersion=0"
        lane = self._lanes.get()
        try:
            found = msgspec.json.decode(lane.read("GET", path), type=_Pods)
        finally:
            self._lanes.put(lane)
        return [
            pod.metadata.name
            for pod in found.items
            if pod.status.phase == phase and pod.metadata.deletion_timestamp is None
        ]

    def go(self) -> None:
        """Take it away; one request, because one by one would take minutes."""
        self.ask("DELETE", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
        self.ask("DELETE", f"/apis/apps/v1/namespaces/{NAMESPACE}/replicasets")
        self.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods?gracePeriodSeconds=0")
        self.lab.kubectl("delete", "namespace", NAMESPACE, "--wait=true", "--timeout=300s")

    def close(self) -> None:
        while not self._lanes.empty():
            self._lanes.get().close()


def _owner(kind: str, made: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": made["metadata"]["name"],
        "uid": made["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _running(pod: dict[str, Any]) -> dict[str, Any]:
    """The status of a pod that has just become ready, as the lab's kwok writes it."""
    now = pod["metadata"]["creationTimestamp"]
    number = int(pod["metadata"]["name"].rpartition("-")[2])
    address = str(ipaddress.ip_network(fake.FAKE_RANGE)[1 + number % 65_000])
    told = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return {
        "phase": "Running",
        "startTime": now,
        "hostIP": API_ADDRESS,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {"type": kind, "status": "True", "lastTransitionTime": now} for kind in told
        ],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in pod["spec"]["containers"]
        ],
    }


def _deployment(name: str, count: int) -> dict[str, Any]:
    """As large as a real one: probes, environment, limits."""
    probe = {"httpGet": {"path": "/readyz", "port": 8000}, "periodSeconds": 5}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "labels": {"app": name, "app.kubernetes.io/part-of": "crowd"},
            "annotations": {"deployment.kubernetes.io/revision": "1"},
        },
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "tolerations": [{"key": "pilothouse.dev/fake", "operator": "Exists"}],
                    "nodeSelector": {"pilothouse.dev/lab": "fake"},
                    "automountServiceAccountToken": False,
                    "containers": [
                        {
                            "name": "server",
                            "image": "docker.io/pilothouse/workload:lab",
                            "args": ["serve", "--burn-millicores=50"],
                            "env": [
                                {"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(8)
                            ],
                            "ports": [{"containerPort": 8000, "name": "http"}],
                            "readinessProbe": probe,
                            "livenessProbe": probe,
                            "resources": {
                                "requests": {"cpu": "100m", "memory": "128Mi"},
                                "limits": {"cpu": "200m", "memory": "256Mi"},
                            },
                        }
                    ],
                },
            },
        },
    }


class Churn:
    """Deletes pods at a steady rate; their ReplicaSets make as many anew.

    A change is a deletion or a creation, so ``per_second`` of 20 deletes ten pods a second. A slow
    API server does not slow the hand down: requests are sent when they are due.
    """

    def __init__(self, crowd: Crowd, *, per_second: float, seed: int = 7) -> None:
        self._crowd = crowd
        self._gap = 2 / per_second
        self._random = random.Random(seed)
        self._names = self._draw()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="churn")
        self.deleted = 0
        self.problem: BaseException | None = None

    def __enter__(self) -> Churn:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _draw(self) -> list[str]:
        names = self._crowd.names("Running")
        self._random.shuffle(names)
        return names[: max(len(names) // 2, 1)]  # asked anew before long: young pods go too

    def _run(self) -> None:
        due = time.monotonic()
        with ThreadPoolExecutor(LANES) as pool:
            while not self._end.wait(max(due - time.monotonic(), 0)):
                due += self._gap
                if not self._names:
                    self._names = self._draw()
                pool.submit(self._delete, self._names.pop())
            pool.shutdown(cancel_futures=True)  # a server that is far behind need not catch up

    def _delete(self, name: str) -> None:
        try:
            self._crowd.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
            self.deleted += 1
        except BaseException as error:  # raised by whoever measures
            self.problem = error
