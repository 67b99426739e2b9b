# SPDX-License-Identifier: Apache-2.0
"""What each verb reads and changes on a Kubernetes object."""

from __future__ import annotations

from typing import Any

import pytest

from pilothouse.act.fields import (
    Mark,
    UnfitError,
    field_of,
    saved_resources,
    shares,
    with_saved,
)
from pilothouse.act.ownership import foreign_owner, our_intent
from pilothouse.domain import Gate, Verb

MARK = Mark(action="d.0", expires_unix=1_800_000_000)


def a_container(name: str = "c", **resources: Any) -> dict[str, Any]:
    return {"name": name, "resources": resources}


def a_pod(*containers: dict[str, Any], qos: str = "Burstable", **spec: Any) -> dict[str, Any]:
    meta = {"name": "p", "namespace": "shop", "uid": "u", "resourceVersion": "7"}
    return {
        "metadata": meta,
        "spec": {"containers": list(containers), **spec},
        "status": {"qosClass": qos},
    }


def a_node(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n", "uid": "u", "resourceVersion": "7"} | metadata, "spec": {}}


def change(verb: Verb, thing: dict[str, Any], value: int, key: str = "", kind: str = "") -> Any:
    return field_of(verb, kind).change(thing, key, value, MARK)


def test_shares_add_up_and_keep_the_proportions() -> None:
    assert shares([300, 100], 200) == [150, 50]
    assert sum(shares([333, 333, 334], 500)) == 500


def test_throttle_lowers_limits_and_leaves_requests_of_a_burstable_pod() -> None:
    pod = a_pod(a_container(limits={"cpu": "400m"}, requests={"cpu": "100m"}))
    (container,) = change(Verb.CPU_LIMIT, pod, 200)["spec"]["containers"]
    assert container == {"name": "c", "resources": {"limits": {"cpu": "200m"}}}


def test_guaranteed_pod_moves_request_and_limit_together() -> None:
    same = {"cpu": "400m", "memory": "1Gi"}
    pod = a_pod(a_container(limits=same, requests=same), qos="Guaranteed")
    (container,) = change(Verb.CPU_LIMIT, pod, 200)["spec"]["containers"]
    assert container["resources"] == {"limits": {"cpu": "200m"}, "requests": {"cpu": "200m"}}


@pytest.mark.parametrize(
    ("pod", "word"),
    [
        (a_pod(a_container(requests={"cpu": "1"})), "no CPU limit"),
        (a_pod(a_container(limits={"cpu": "400m"}, requests={"cpu": "300m"})), "requests 300 m"),
        (
            a_pod(
                {
                    **a_container(limits={"cpu": "400m"}),
                    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
                }
            ),
            "restarted",
        ),
        (
            a_pod(
                a_container(limits={"cpu": "400m"}),
                initContainers=[{"name": "proxy", "restartPolicy": "Always"}],
            ),
            "sidecar",
        ),
    ],
    ids=["adds a limit", "below its request", "would restart", "has a sidecar"],
)
def test_pod_that_cannot_be_throttled_in_place_says_why(pod: dict[str, Any], word: str) -> None:
    with pytest.raises(UnfitError, match=word):
        change(Verb.CPU_LIMIT, pod, 200)


def test_balloon_takes_the_limit_along_at_the_same_ratio() -> None:
    pod = a_pod(a_container(limits={"memory": "400Mi"}, requests={"memory": "200Mi"}))
    (container,) = change(Verb.MEMORY_REQUEST, pod, 100)["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"memory": "100Mi"},
        "limits": {"memory": "200Mi"},
    }


def test_saved_resources_come_back_word_for_word() -> None:
    pod = a_pod(a_container(limits={"cpu": "0.4", "memory": "1Gi"}, requests={"cpu": "0.1"}))
    body = with_saved(pod, saved_resources(pod), "cpu")
    assert body["spec"]["containers"] == [
        {"name": "c", "resources": {"limits": {"cpu": "0.4"}, "requests": {"cpu": "0.1"}}}
    ]


def test_taint_is_added_and_removed_beside_those_of_others() -> None:
    node = a_node()
    theirs = {"key": "theirs", "effect": "NoSchedule"}
    node["spec"]["taints"] = [theirs]
    added = change(Verb.TAINT, node, 1)["spec"]["taints"]
    assert added[0] == theirs
    assert added[1] == {
        "key": "pilothouse.dev/out-of-service",
        "value": "d.0",
        "effect": "NoSchedule",
    }
    node["spec"]["taints"] = added
    assert field_of(Verb.TAINT, "Node").read(node, "") == 1
    assert change(Verb.TAINT, node, 0)["spec"]["taints"] == [theirs]


def test_node_that_drains_or_sleeps_says_so_in_its_annotation() -> None:
    node = a_node(annotations={"pilothouse.dev/power": "draining-to-sleep"})
    assert field_of(Verb.DRAIN, "Node").read(node, "") == 2
    assert field_of(Verb.POWER, "Node").read(node, "") == 1
    body = change(Verb.POWER, node, 0)
    assert body == {"metadata": {"annotations": {"pilothouse.dev/power": "asleep"}}}


def test_clock_carries_the_moment_at_which_it_ends() -> None:
    body = change(Verb.FREQUENCY, a_node(), 650)
    assert body["metadata"]["annotations"]["pilothouse.dev/frequency"] == "650 until 1800000000"


def test_gate_is_a_line_of_our_own_object() -> None:
    thing: dict[str, Any] = {"metadata": {"annotations": {"gate.pilothouse.dev/shop": "reject"}}}
    for gate, word in ((Gate.QUEUE, "queue"), (Gate.OPEN, None)):
        body = change(Verb.GATE, thing, gate, "shop")
        assert body == {"metadata": {"annotations": {"gate.pilothouse.dev/shop": word}}}
    field = field_of(Verb.GATE, "ServiceAccount")
    assert (field.read(thing, "shop"), field.read(thing, "bank")) == (Gate.REJECT, Gate.OPEN)
    path = ("f:metadata", "f:annotations", "f:gate.pilothouse.dev/shop")
    assert list(field.owned(thing, "shop")) == [path]


def test_autoscaler_is_never_asked_for_more_than_its_maximum() -> None:
    scaler = {"spec": {"minReplicas": 1, "maxReplicas": 3}}
    with pytest.raises(UnfitError, match="at most 3"):
        change(Verb.SCALE, scaler, 4, kind="HorizontalPodAutoscaler")


def a_deployment(manager: str) -> dict[str, Any]:
    entry = {"manager": manager, "time": "2026-01-01T00:00:00Z"}
    return {"metadata": {"managedFields": [entry | {"fieldsV1": {"f:spec": {"f:replicas": {}}}}]}}


@pytest.mark.parametrize(
    ("manager", "owner"),
    [
        ("kubectl-client-side-apply", ""),
        ("helm", ""),
        ("pilothouse:3:us:d.0.0", ""),
        ("argocd-controller", "argocd-controller"),
        ("kustomize-controller", "kustomize-controller"),
        ("kube-controller-manager", "kube-controller-manager"),
        ("vpa-updater", "vpa-updater"),
    ],
)
def test_field_of_a_controller_is_not_ours_to_change(manager: str, owner: str) -> None:
    paths = [("f:spec", "f:replicas")]
    assert foreign_owner(a_deployment(manager), paths, Verb.SCALE) == owner


def test_object_says_which_intent_set_it() -> None:
    paths = [("f:spec", "f:replicas")]
    assert our_intent(a_deployment("pilothouse:3:us:d.0.1"), paths) == "d.0.1"
    assert our_intent(a_deployment("kubectl"), paths) == ""
