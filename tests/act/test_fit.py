# SPDX-License-Identifier: Apache-2.0
"""The fit check, rule by rule; tests/live compares it with the real scheduler."""

from __future__ import annotations

from typing import Any

import pytest

from pilothouse.act.fit import Scene, over_quota, requests_of, unmodelled
from pilothouse.clients.resources import (
    Affinity,
    AffinityTerm,
    AntiAffinity,
    Condition,
    Container,
    Meta,
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    Port,
    Quota,
    QuotaStatus,
    Resources,
    Taint,
)


def a_node(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> Node:
    return Node(
        metadata=Meta(name=name, labels={"kubernetes.io/hostname": name} | (labels or {})),
        spec=NodeSpec(**spec),
        status=NodeStatus(
            allocatable={"cpu": "2", "memory": "4Gi", "pods": "10"},
            conditions=(Condition(type="Ready", status="True"),),
        ),
    )


def a_resident(
    name: str, node: str, cpu: str = "1", labels: dict[str, str] | None = None, **spec: Any
) -> Pod:
    containers = (
        Container(resources=Resources(requests={"cpu": cpu}), ports=spec.pop("ports", ())),
    )
    return Pod(
        metadata=Meta(name=name, namespace="shop", uid=f"uid-{name}", labels=labels or {}),
        spec=PodSpec(node_name=node, containers=containers, **spec),
    )


def a_pod(cpu: str = "1", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}} | spec.pop("container", {})
    meta = {"name": "moved", "namespace": "shop", "uid": "uid-moved", "labels": {"app": "web"}}
    return {"metadata": meta, "spec": {"containers": [container], **spec}}


def place(pod: dict[str, Any], nodes: list[Node], pods: list[Pod] | None = None) -> tuple[str, str]:
    return Scene(nodes, pods or []).place(pod, requests_of(pod))


def test_pod_goes_where_there_is_room() -> None:
    nodes = [a_node("a"), a_node("b")]
    assert place(a_pod(), nodes, [a_resident("x", "a", "1500m")]) == ("b", "")


def test_full_nodes_are_named_by_what_is_missing() -> None:
    found, why = place(a_pod("3"), [a_node("a")])
    assert (found, why) == ("", "1 of 1 nodes: not enough cpu")


def test_pod_itself_takes_no_place_from_itself() -> None:
    leaving = a_resident("moved", "a", "2")
    assert place(a_pod("2"), [a_node("a")], [leaving])[0] == "a"


@pytest.mark.parametrize(
    ("tolerations", "fits"),
    [
        ([], False),
        ([{"key": "lane", "operator": "Exists"}], True),
        ([{"key": "lane", "value": "slow"}], True),
        ([{"key": "lane", "value": "fast"}], False),
        ([{"operator": "Exists"}], True),
        ([{"key": "lane", "operator": "Exists", "effect": "NoExecute"}], False),
    ],
)
def test_taints_keep_off_who_does_not_tolerate_them(
    tolerations: list[dict[str, str]], fits: bool
) -> None:
    node = a_node("a", taints=(Taint(key="lane", value="slow", effect="NoSchedule"),))
    assert bool(place(a_pod(tolerations=tolerations), [node])[0]) is fits


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "tier", "operator": "In", "values": ["1", "2"]}, True),
        ({"key": "tier", "operator": "NotIn", "values": ["2"]}, False),
        ({"key": "tier", "operator": "Gt", "values": ["1"]}, True),
        ({"key": "tier", "operator": "Lt", "values": ["2"]}, False),
        ({"key": "other", "operator": "DoesNotExist"}, True),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_node_affinity_is_read_as_the_scheduler_reads_it(
    expression: dict[str, Any], fits: bool
) -> None:
    term = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}}
    node = a_node("a", labels={"tier": "2"})
    assert bool(place(a_pod(affinity=affinity), [node])[0]) is fits


def test_host_port_is_taken_once() -> None:
    pod = a_pod(container={"ports": [{"hostPort": 80}]})
    held = a_resident("x", "a", "100m", ports=(Port(host_port=80),))
    assert place(pod, [a_node("a")], [held])[0] == ""
    assert place(pod, [a_node("a"), a_node("b")], [held])[0] == "b"


def test_hard_spread_counts_the_pods_of_its_selector() -> None:
    rule = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    twin = a_resident("twin", "a", "100m", labels={"app": "web"})
    nodes = [a_node("a"), a_node("b")]
    assert place(a_pod(topologySpreadConstraints=[rule]), nodes, [twin])[0] == "b"
    full = a_resident("full", "b", "2")
    assert place(a_pod(topologySpreadConstraints=[rule]), nodes, [twin, full])[0] == ""


def test_somebody_who_wants_no_company_closes_the_place() -> None:
    alone = Affinity(pod_anti_affinity=AntiAffinity(required=(AffinityTerm(topology_key="zone"),)))
    loner = a_resident("loner", "a", "100m", affinity=alone)
    nodes = [a_node("a", labels={"zone": "1"}), a_node("b", labels={"zone": "1"})]
    assert place(a_pod(), nodes, [loner])[0] == ""


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {}}]}, "persistentVolumeClaim"),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "podAffinity",
        ),
        ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims"),
        ({"schedulerName": "mine"}, "mine"),
    ],
)
def test_what_is_not_modelled_is_named(spec: dict[str, Any], word: str) -> None:
    assert word in unmodelled(a_pod(**spec))
    assert unmodelled(a_pod()) == ""


def test_namespace_above_its_quota_could_not_make_the_replacement() -> None:
    quota = Quota(
        metadata=Meta(name="q", namespace="shop"),
        status=QuotaStatus(hard={"pods": "3"}, used={"pods": "4"}),
    )
    assert "quota q" in over_quota([quota], "shop")
    assert over_quota([quota], "elsewhere") == ""


def test_init_containers_count_as_the_scheduler_counts_them() -> None:
    pod = a_pod("1", initContainers=[{"resources": {"requests": {"cpu": "3"}}}])
    assert requests_of(pod)["cpu"] == 3
