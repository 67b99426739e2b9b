# SPDX-License-Identifier: Apache-2.0
"""Rows of nodes that are looked at again and again say what a first look would say."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from pilothouse.clients.resources import Node, Pod
from pilothouse.policy.machines import Rows, machines_of

NODES = 6


def a_node(number: int, cpu: str = "4") -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": f"node-{number}", "uid": f"n{number}"},
            "spec": {},
            "status": {
                "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        Node,
        strict=False,
    )


def a_pod(uid: str, node: str, cpu: str = "100m", phase: str = "Running") -> Pod:
    resources = {"requests": {"cpu": cpu, "memory": "64Mi"}}
    content: dict[str, Any] = {
        "metadata": {"name": uid, "namespace": "test", "uid": uid},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": phase},
    }
    return msgspec.convert(content, Pod, strict=False)


def test_after_any_changes_the_rows_are_those_of_a_first_look() -> None:
    draw = random.Random(7)
    nodes = {number: a_node(number) for number in range(NODES)}
    pods: dict[str, Pod] = {}
    rows = Rows()
    for turn in range(300):
        what, where = draw.randrange(6), f"node-{draw.randrange(NODES)}"
        some = draw.choice(list(pods)) if pods else ""
        if what == 0 and some:
            del pods[some]
        elif what == 1 and some:  # resized, moved or finished: another object under the same name
            phase = draw.choice(("Running", "Succeeded"))
            pods[some] = a_pod(some, where, f"{draw.randrange(1, 500)}m", phase)
        elif what == 2:
            number = draw.randrange(NODES)
            nodes[number] = a_node(number, cpu=str(draw.randrange(1, 64)))
        elif what == 3:
            nodes.pop(draw.randrange(NODES), None)
        else:
            pods[f"pod-{turn}"] = a_pod(f"pod-{turn}", draw.choice((where, "")))

        found = rows.of(list(nodes.values()), list(pods.values()))

        # repr: a node that says nothing of its power has NaN there, which equals nothing.
        assert repr(found) == repr(machines_of(list(nodes.values()), list(pods.values())))
        nodes.setdefault(turn % NODES, a_node(turn % NODES))


def test_only_nodes_that_changed_are_worked_out_again() -> None:
    nodes = [a_node(number) for number in range(NODES)]
    pods = [a_pod(f"pod-{number}", f"node-{number}") for number in range(NODES)]
    rows = Rows()
    before = rows.of(nodes, pods)

    pods[2] = a_pod("pod-2", "node-2", cpu="700m")
    after = rows.of(nodes, pods)

    assert [old is new for old, new in zip(before, after, strict=True)] == [
        number != 2 for number in range(NODES)
    ]
    assert after[2].cpu_requested == 700
