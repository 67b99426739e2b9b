# SPDX-License-Identifier: Apache-2.0
"""What people's own queries give, whatever names their nodes have."""

from __future__ import annotations

import asyncio
from typing import Any

from pilothouse.clients.prometheus import Answer, Row
from pilothouse.clients.resources import Address, Meta, Node, NodeStatus
from pilothouse.errors import ClusterUnreachable
from pilothouse.observe import FiguresPoll
from pilothouse.settings import ObserveSettings

SETTINGS = ObserveSettings(
    latency_query="latency",
    stolen_query="stolen",
    errors_query="errors",
    node_queries={"pods": 'q{node="$node"}'},
)


class FakePrometheus:
    def __init__(self, answers: dict[str, list[Row]]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.dead = False

    async def query(self, query: str) -> Answer:
        if self.dead:
            raise ClusterUnreachable("no answer")
        self.asked.append(query)
        return Answer(rows=tuple(self.answers.get(query, [])), dropped=0)


def a_row(value: float, **labels: str) -> Row:
    return Row(labels, ((1000.0, value),))


def a_poll(prometheus: Any, *names: str) -> FiguresPoll:
    nodes = [
        Node(
            metadata=Meta(name=name),
            status=NodeStatus(addresses=(Address(type="InternalIP", address="10.0.0.1"),)),
        )
        for name in names
    ]
    return FiguresPoll(prometheus, SETTINGS, lambda: nodes, now=lambda: 1000.0)


def test_latency_is_found_by_deployment_or_workload() -> None:
    rows = [
        a_row(0.25, namespace="shop", deployment="cart"),
        a_row(0.5, namespace="shop", workload="db"),
        a_row(-1.0, namespace="shop", deployment="lying"),
        a_row(1e9, namespace="shop", deployment="absurd"),
    ]
    poll = a_poll(FakePrometheus({"latency": rows}))
    asyncio.run(poll.ask())
    assert poll.latest.latency_ms == {("shop", "cart"): 250, ("shop", "db"): 500}


def test_hostile_node_name_stays_a_name() -> None:
    hostile = 'a"} or vector(1) #'
    prometheus = FakePrometheus({})
    asyncio.run(a_poll(prometheus, hostile).ask())
    assert prometheus.asked[-1] == 'q{node="a\\"} or vector(1) #"}'


def test_last_answer_stays_when_prometheus_dies_and_the_reason_is_told() -> None:
    rows = {"stolen": [a_row(0.4, node="n1")], "errors": [a_row(14.2, node="n1")]}
    prometheus = FakePrometheus(rows)
    poll = a_poll(prometheus, "n1")
    asyncio.run(poll.ask())
    prometheus.dead = True
    asyncio.run(poll.ask())
    assert poll.latest.stolen_permille == {"n1": 400}
    assert poll.latest.errors_per_minute == {"n1": 14}
    assert poll.problem == "no answer"


def test_large_clusters_are_not_asked_node_by_node() -> None:
    prometheus = FakePrometheus({})
    names = [f"n{i}" for i in range(SETTINGS.node_queries_limit + 1)]
    asyncio.run(a_poll(prometheus, *names).ask())
    assert prometheus.asked == ["latency", "stolen", "errors"]
