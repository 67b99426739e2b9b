# SPDX-License-Identifier: Apache-2.0
"""What a pod asks for, by the rules of k8s.io/component-helpers/resource, worked out by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from pilothouse.act.fit import requests_of
from pilothouse.clients.asked import asked
from pilothouse.clients.resources import Pod
from pilothouse.observe.pods import facts
from pilothouse.policy.machines import request_of


def one(name: str, cpu: str = "", memory: str = "", **more: Any) -> dict[str, Any]:
    """A container, or the status of one with the resources that are in force."""
    requests = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v}
    return {"name": name, "resources": {"requests": requests}, **more}


def sidecar(name: str, cpu: str = "", memory: str = "") -> dict[str, Any]:
    return one(name, cpu, memory, restartPolicy="Always")


def resizing(reason: str) -> list[dict[str, str]]:
    return [{"type": "PodResizePending", "status": "True", "reason": reason}]


PODS: dict[str, tuple[dict[str, Any], dict[str, Any], int, int]] = {
    # spec, status, millicores, MiB
    "nothing is asked": ({"containers": [one("a")]}, {}, 0, 0),
    "containers add up": (
        {"containers": [one("a", "100m", "64Mi"), one("b", "200m", "64Mi")]},
        {},
        300,
        128,
    ),
    "halves of a millicore are rounded once": (
        {"containers": [one("a", "500u", "512Ki"), one("b", "500u", "512Ki")]},
        {},
        1,
        1,
    ),
    "an init container that is smaller changes nothing": (
        {"containers": [one("a", "300m")], "initContainers": [one("i", "200m")]},
        {},
        300,
        0,
    ),
    "of init containers the largest counts, resource by resource": (
        {
            "containers": [one("a", "300m", "64Mi")],
            "initContainers": [one("i", "500m", "32Mi"), one("j", "400m", "256Mi")],
        },
        {},
        500,
        256,
    ),
    "sidecars add to the containers": (
        {"containers": [one("a", "300m")], "initContainers": [sidecar("s", "100m", "32Mi")]},
        {},
        400,
        32,
    ),
    "an init container has the sidecars before it beside it": (
        {
            "containers": [one("a", "300m")],
            "initContainers": [sidecar("s", "200m"), one("i", "400m")],
        },
        {},
        600,  # 200 + 400 while it starts, 300 + 200 later
        0,
    ),
    "but not the sidecars after it": (
        {
            "containers": [one("a", "300m")],
            "initContainers": [one("i", "400m"), sidecar("s", "200m")],
        },
        {},
        500,  # 400 while it starts, 300 + 200 later
        0,
    ),
    "overhead comes on top": (
        {
            "containers": [one("a", "100m", "64Mi")],
            "initContainers": [one("i", "500m")],
            "overhead": {"cpu": "50m", "memory": "16Mi"},
        },
        {},
        550,
        80,
    ),
    "what the pod as a whole asks for replaces its containers": (
        {
            "containers": [one("a", "100m", "64Mi"), one("b", "100m", "64Mi")],
            "resources": {"requests": {"cpu": "1"}},
            "overhead": {"cpu": "50m"},
        },
        {},
        1050,
        128,  # nothing is said of memory, so the containers' counts
    ),
    "limits of the pod as a whole are no requests": (
        {"containers": [one("a", "100m")], "resources": {"limits": {"cpu": "1"}}},
        {},
        100,
        0,
    ),
    "a pod that is growing counts as large as it wants to be": (
        {"containers": [one("a", "500m")]},
        {"containerStatuses": [one("a", "200m", allocatedResources={"cpu": "200m"})]},
        500,
        0,
    ),
    "one that is shrinking as large as it still is": (
        {"containers": [one("a", "200m")]},
        {"containerStatuses": [one("a", "500m", allocatedResources={"cpu": "200m"})]},
        500,
        0,
    ),
    "and as what its kubelet has set aside": (
        {"containers": [one("a", "200m")]},
        {"containerStatuses": [one("a", "200m", allocatedResources={"cpu": "700m"})]},
        700,
        0,
    ),
    "a resize that its node can never do is not counted": (
        {"containers": [one("a", "8")]},
        {
            "containerStatuses": [one("a", "200m", allocatedResources={"cpu": "300m"})],
            "conditions": resizing("Infeasible"),
        },
        300,
        0,
    ),
    "one that is put off is": (
        {"containers": [one("a", "8")]},
        {
            "containerStatuses": [one("a", "200m", allocatedResources={"cpu": "300m"})],
            "conditions": resizing("Deferred"),
        },
        8000,
        0,
    ),
    "sidecars are resized, too, and other init containers are not": (
        {
            "containers": [one("a", "100m")],
            "initContainers": [sidecar("s", "100m"), one("i", "50m")],
        },
        {"initContainerStatuses": [one("s", "300m"), one("i", "900m")]},
        400,
        0,
    ),
    "a pod is resized as a whole": (
        {"containers": [one("a", "100m")], "resources": {"requests": {"cpu": "1"}}},
        {"resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "1500m"}},
        2000,
        0,
    ),
}


def a_pod(name: str) -> dict[str, Any]:
    spec, status, _, _ = PODS[name]
    return {"metadata": {"name": "p"}, "spec": spec, "status": status}


@pytest.mark.parametrize("name", PODS)
def test_a_pod_asks_for_what_the_scheduler_counts(name: str) -> None:
    pod = msgspec.convert(a_pod(name), Pod)
    cpu, memory = PODS[name][2:]

    seen = request_of(pod)
    assert (seen.cpu_millicores, seen.memory_mib) == (cpu, memory), "the scorer's view"
    row = facts(pod)
    assert (row.cpu_request, row.memory_request) == (cpu, memory), "the snapshot's"


@pytest.mark.parametrize("name", [name for name, pod in PODS.items() if not pod[1]])
def test_a_replacement_asks_for_the_same(name: str) -> None:
    found = requests_of(a_pod(name))
    assert found.pop("pods") == 1
    assert found == asked(msgspec.convert(a_pod(name), Pod))


def test_a_replacement_knows_nothing_of_a_resize_under_way() -> None:
    pod = a_pod("one that is shrinking as large as it still is")
    assert requests_of(pod)["cpu"] == Decimal("0.2")


def test_disk_and_what_else_is_asked_for_is_counted_alike() -> None:
    requests = {"ephemeral-storage": "1Gi", "example.com/gpu": "2"}
    spec = {
        "containers": [{"name": "a", "resources": {"requests": requests}}],
        "initContainers": [{"name": "i", "resources": {"requests": {"ephemeral-storage": "3Gi"}}}],
        "resources": {"requests": {"ephemeral-storage": "9Gi"}},  # no pod can ask for it whole
    }
    pod = msgspec.convert({"spec": spec}, Pod)

    assert asked(pod) == {"ephemeral-storage": 3 * 2**30, "example.com/gpu": 2}
    assert request_of(pod).disk_mib == 3072


def test_a_pod_that_was_decoded_elsewhere_may_have_volumes() -> None:
    """As the extender protocol brings it: one whose volumes could not be read asked for nothing."""
    volumes = [
        {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "host", "hostPath": {"path": "/var"}},
    ]
    pod = msgspec.convert({"spec": {"containers": [one("a", "100m")], "volumes": volumes}}, Pod)

    assert request_of(pod).cpu_millicores == 100
    assert [(v.empty_dir is not None, v.host_path is not None) for v in pod.spec.volumes] == [
        (True, False),
        (False, True),
    ]
