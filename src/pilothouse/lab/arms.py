# SPDX-License-Identifier: Apache-2.0
"""Which scheduler places pods in the lab, changed while the lab is up.

An *arm* of a comparison is a scheduler with a profile: the stock one as it is, the stock one with
another way to score, or ours with a shipped profile and a policy. Changing it ends the scheduler
(and the scorer) and starts it again; workers, pods and latencies stay.

There is no random one: without scorers, or among equal scores, Kubernetes 1.36 takes the node that
its filters happened to finish first, which is no draw.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import yaml

from pilothouse.errors import LabFailed, LabUnavailable, UnknownName
from pilothouse.lab import controlplane, placement
from pilothouse.lab.component import Component, Site, flags
from pilothouse.lab.lab import Lab
from pilothouse.lab.part import PARTS, SCHEDULER

STOCK = "stock"
SETTLE_SECONDS = 3.0  # the plugin asks for its table every second
READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A scheduler to compare."""

    profile: str  # one of deploy/scheduler, or a stock one
    policy: str = ""  # what the scorer serves; empty: the stock scheduler asks nobody
    changes: dict[str, Any] = field(default_factory=dict)  # to the stock scheduler's profile

    @property
    def words(self) -> str:
        return f"profile {self.profile}" + (f", policy {self.policy}" if self.policy else "")


def _fit(strategy: str, **more: Any) -> dict[str, Any]:
    """NodeResourcesFit scoring by this strategy, CPU and memory alike."""
    resources = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    arguments = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "NodeResourcesFitArgs",
        "scoringStrategy": {"type": strategy, "resources": resources, **more},
    }
    return {"pluginConfig": [{"name": "NodeResourcesFit", "args": arguments}]}


# The fuller with the pod, the better, and nothing else scores. Among nodes of one size, which the
# lab's workers are, that is least room left: the simulated best fit.
_FULLER = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}
_ALONE = {
    "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}}
}

ARMS = {
    "default": Arm(profile=STOCK),
    "most-allocated": Arm(
        profile="stock, NodeResourcesFit MostAllocated", changes=_fit("MostAllocated")
    ),
    "best-fit": Arm(
        profile="stock, nothing but NodeResourcesFit RequestedToCapacityRatio",
        changes=_ALONE | _fit("RequestedToCapacityRatio", requestedToCapacityRatio=_FULLER),
    ),
    "ee": Arm(profile="ee", policy="ee"),
    "lb": Arm(profile="lb", policy="lb"),
    "el-rl": Arm(profile="el-rl", policy="el-rl"),
    "hybrid": Arm(profile="hybrid", policy="el-rl"),
    "isolated": Arm(profile="isolated", policy="el-rl"),
}


def use(lab: Lab, name: str, *, policy: str = "") -> Arm:
    """Make this arm the lab's scheduler; ``policy`` replaces the arm's own, such as by a file."""
    if name not in ARMS:
        raise UnknownName.among("arm of the lab", name, tuple(ARMS))
    planned = lab.planned
    if planned is None or planned.scheduler == STOCK:
        raise LabUnavailable(
            "Comparing schedulers needs the lab's latency probes and scorer. Bring it up with: "
            "pilothouse lab up --scheduler pilothouse."
        )
    arm = ARMS[name]
    if arm.policy and policy:
        arm = Arm(profile=arm.profile, policy=placement.resolved(policy))
    parts = (*PARTS, SCHEDULER)
    site = Site(layout=lab.layout, binaries=lab.build(parts=parts), ports=planned.ports)
    scorer = None
    if arm.policy:
        scorer = placement.scorer(site, arm.policy, prometheus=planned.prometheus)
    lab.reschedule(_scheduler(site, arm), scorer)
    # A stock scheduler asks nobody, and the scorer goes on with what it had.
    lab.plan(profile=arm.profile, policy=arm.policy or planned.policy)
    time.sleep(SETTLE_SECONDS)
    return arm


def keep(lab: Lab, names: Collection[str]) -> None:
    """These workers are nodes of the cluster and no others: as machines are lost, and join.

    A lost one's kubelet is dead and its Node is deleted, which is what a cloud does when the
    machine is gone; the kubelet of one that joins registers it again.
    """
    found = json.loads(lab.kubectl("get", "nodes", "-o", "json"))["items"]
    nodes = {node["metadata"]["name"] for node in found}
    for one in lab.workers():
        if one.name in nodes and one.name not in names:
            lab.kill(f"kubelet-{one.name}")
            lab.kubectl("delete", "node", one.name)
        elif one.name not in nodes and one.name in names:
            lab.restart(f"kubelet-{one.name}")
    _until("a worker", lambda: set(names) <= _ready(lab))


def _ready(lab: Lab) -> set[str]:
    found = json.loads(lab.kubectl("get", "nodes", "-o", "json"))["items"]
    return {
        node["metadata"]["name"]
        for node in found
        for condition in node["status"].get("conditions", [])
        if condition["type"] == "Ready" and condition["status"] == "True"
    }


def _scheduler(site: Site, arm: Arm) -> Component:
    if arm.policy:
        return placement.scheduler(site, arm.profile)
    stock = controlplane.scheduler(site)
    if not arm.changes:
        return stock
    return Component(
        name=stock.name,
        command=(
            site.binaries["kube-scheduler"],
            *flags(
                config=_changed(site, arm),
                authentication_kubeconfig=site.kubeconfig("kube-scheduler"),
                authorization_kubeconfig=site.kubeconfig("kube-scheduler"),
                bind_address="127.0.0.1",
                secure_port=site.ports["kube-scheduler"],
                tls_cert_file=site.pki("loopback.crt"),
                tls_private_key_file=site.pki("loopback.key"),
            ),
        ),
    )


def _changed(site: Site, arm: Arm) -> str:
    """The stock scheduler's configuration with this arm's changes, as a file."""
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": site.kubeconfig("kube-scheduler")},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": "default-scheduler", **arm.changes}],
    }
    path = site.layout.folder("scheduler") / "stock.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return str(path)


def _until(name: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise LabFailed(f"{name} was not ready {READY_SECONDS:g} s after its restart.")
        time.sleep(0.2)
