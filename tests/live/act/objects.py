# SPDX-License-Identifier: Apache-2.0
"""Objects that tests of acting make, and what they look at in those the cluster has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

from pilothouse.lab import Lab
from tests.live.act.helm import SPACE, read


def a_budget(name: str, least: int, namespace: str = SPACE) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": name}}},
    }


def an_autoscaler(name: str, *, least: int, most: int) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": {
            "minReplicas": least,
            "maxReplicas": most,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 80},
                    },
                }
            ],
        },
    }


def limit_of(pod: dict[str, Any], resource: str = "cpu") -> str:
    return str(pod["spec"]["containers"][0]["resources"]["limits"][resource])


def gated(pod: dict[str, Any]) -> bool:
    names = [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]
    return "pilothouse.dev/queue" in names


def where(pods: list[dict[str, Any]]) -> list[str]:
    return [p["spec"].get("nodeName", "") for p in pods]


def replicas(lab: Lab, name: str) -> int:
    return int(read(lab, "deployment", name, "-n", SPACE)["spec"]["replicas"])


def taints(lab: Lab, node: str) -> list[str]:
    return [t["key"] for t in read(lab, "node", node)["spec"].get("taints", [])]


@contextmanager
def only(lab: Lab, *open_workers: str) -> Iterator[None]:
    """New pods land on these workers; the others are cordoned meanwhile."""
    closed = [w.name for w in lab.workers() if w.name not in open_workers]
    for name in closed:
        lab.kubectl("cordon", name)
    try:
        yield
    finally:
        for name in closed:
            lab.kubectl("uncordon", name)
        deadline = monotonic() + 60
        # A controller takes the taint away by itself, and until then no pod lands there.
        while any("node.kubernetes.io/unschedulable" in taints(lab, name) for name in closed):
            assert monotonic() < deadline, f"some of {closed} are still closed"
            sleep(0.1)
