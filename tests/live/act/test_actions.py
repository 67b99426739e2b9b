# SPDX-License-Identifier: Apache-2.0
"""Each action on real pods and nodes: one decision, its writes in the server's log, its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pilothouse.domain import ActionKind
from pilothouse.lab import Lab
from tests.live.act.conftest import pods_of, read
from tests.live.act.helm import ACTUATOR, SPACE, Helm, done, witnessed

BUSY = {"arguments": ("--burn-millicores=400",), "limits": {"cpu": "300m", "memory": "64Mi"}}


def cpu_limit(pod: dict[str, Any]) -> str:
    return str(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"])


def test_throttle_lowers_the_limit_in_place_and_gives_it_back(
    helm: Helm, installed: Lab, harbor: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    (pod,) = harbor("busy", **BUSY)
    name, before = pod["metadata"]["name"], pod["status"]["containerStatuses"][0]
    helm.know(helm.pod(name))
    action, receipts = helm.act(ActionKind.THROTTLE, helm.pod(name), factor=0.5)
    assert done(receipts), receipts
    (now,) = pods_of(installed, "busy")
    assert cpu_limit(now) == "150m"
    assert witnessed(installed, action.writes[0].intent) == [
        (ACTUATOR, "patch", "pods/resize", 200)
    ]
    helm.turn_until(lambda: cpu_limit(pods_of(installed, "busy")[0]) == "300m", seconds=45)
    (after,) = pods_of(installed, "busy")
    status = after["status"]["containerStatuses"][0]
    assert status["restartCount"] == 0
    assert status["containerID"] == before["containerID"]


def test_replicate_adds_a_replica_and_takes_it_back(
    helm: Helm, installed: Lab, harbor: Callable[..., Any]
) -> None:
    harbor("web", replicas=2)
    helm.know(helm.workload("web"))
    _, receipts = helm.act(ActionKind.REPLICATE, helm.workload("web"), avoid="worker-1")
    assert done(receipts), receipts
    assert read(installed, "deployment", "web", "-n", SPACE)["spec"]["replicas"] == 3
    helm.turn_until(
        lambda: read(installed, "deployment", "web", "-n", SPACE)["spec"]["replicas"] == 2,
        seconds=40,
    )
    assert "taints" not in read(installed, "node", "worker-1")["spec"]
