# SPDX-License-Identifier: Apache-2.0
"""Sharing saves memory and changes no value."""

from __future__ import annotations

import msgspec

from pilothouse.clients.resources import Pod
from pilothouse.clients.sharing import Sharing


def decoded(name: str, *, owner: str = "rs", image: str = "a", cpu: str = "100m") -> Pod:
    document = {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "labels": {"app": "cart"},
            "ownerReferences": [{"kind": "ReplicaSet", "uid": owner, "controller": True}],
        },
        "spec": {
            "nodeName": f"node-of-{name}",
            "containers": [{"name": image, "resources": {"requests": {"cpu": cpu}}}],
        },
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def test_pods_of_one_owner_share_what_is_equal() -> None:
    sharing, first, second = Sharing(), decoded("x"), decoded("y")
    assert first.spec.containers is not second.spec.containers
    for pod in (first, second):
        sharing.share(pod)
    assert first.spec.containers is second.spec.containers
    assert first.metadata.labels is second.metadata.labels
    assert (second.metadata.name, second.spec.node_name) == ("y", "node-of-y")
    assert second == decoded("y")


def test_what_differs_stays_each_pods_own() -> None:
    sharing, first, resized = Sharing(), decoded("x"), decoded("y", cpu="200m")
    for pod in (first, resized):
        sharing.share(pod)
    assert resized == decoded("y", cpu="200m")
    assert first == decoded("x")


def test_pods_of_different_owners_share_nothing() -> None:
    sharing, first, other = Sharing(), decoded("x"), decoded("y", owner="another")
    for pod in (first, other):
        sharing.share(pod)
    assert first.spec.containers is not other.spec.containers


def test_a_status_that_says_what_the_spec_says_is_kept_once() -> None:
    amounts = {"cpu": "100m"}
    document = {
        "spec": {"containers": [{"name": "a", "resources": {"requests": amounts}}]},
        "status": {
            "containerStatuses": [
                {"name": "a", "resources": {"requests": amounts}, "allocatedResources": amounts}
            ]
        },
    }
    pod = msgspec.json.decode(msgspec.json.encode(document), type=Pod)
    Sharing().share(pod)

    (container,), (status,) = pod.spec.containers, pod.status.container_statuses
    assert status.resources is container.resources
    assert status.allocated_resources is container.resources.requests
    assert pod == msgspec.json.decode(msgspec.json.encode(document), type=Pod)
