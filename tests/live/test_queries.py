# SPDX-License-Identifier: Apache-2.0
"""The queries that people bring along give rows on the lab's Prometheus."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from pilothouse.clients.prometheus import fill
from pilothouse.lab import Lab
from pilothouse.settings import ObserveSettings
from tests.live.conftest import a_deployment, is_ready

# A quota agent's dashboard: latency of training, memory and CPU by workload.
BY_WORKLOAD = {
    "training latency": 'avg by(deployment) (model_training_latency_seconds{namespace="sim-env"})',
    "memory by workload": """
        sum(
          container_memory_working_set_bytes{job="kubelet", metrics_path="/metrics/cadvisor",
            cluster="$cluster", namespace="$namespace"}
          * on(namespace,pod)
          group_left(workload, workload_type) namespace_workload_pod:kube_pod_owner:relabel{
            cluster="$cluster", namespace="$namespace", workload_type=~"$type"}
        ) by (workload, workload_type)""",
    "processor by workload": """
        sum(
          node_namespace_pod_container:container_cpu_usage_seconds_total:sum_irate{
            cluster="$cluster", namespace="$namespace"}
          * on(namespace,pod)
          group_left(workload, workload_type) namespace_workload_pod:kube_pod_owner:relabel{
            cluster="$cluster", namespace="$namespace", workload_type=~"$type"}
        ) by (workload, workload_type)""",
}
# A learned scheduler's view of one node, as the settings ship it.
BY_NODE = ObserveSettings().node_queries


def ask(lab: Lab, query: str) -> list[dict[str, Any]]:
    parameters = urllib.parse.urlencode({"query": query})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{lab.prometheus_url}/api/v1/query?{parameters}", timeout=10) as answer:
        return list(json.load(answer)["data"]["result"])


@pytest.fixture
def trainer(space: Callable[..., None], pods: Any, eventually: Callable[..., Any]) -> None:
    space(a_deployment("trainer", replicas=3))
    eventually(lambda: len([p for p in pods("trainer") if is_ready(p)]) == 3)


def test_every_query_by_workload_gives_rows(
    lab: Lab, trainer: None, eventually: Callable[..., Any]
) -> None:
    for name, template in BY_WORKLOAD.items():
        values = {"cluster": "lab", "namespace": "sim-env", "type": "deployment"}
        used = {k: v for k, v in values.items() if f"${k}" in template}
        rows = eventually(lambda t=template, u=used: ask(lab, fill(t, u)))
        assert all(float(row["value"][1]) >= 0 for row in rows), name


def test_every_query_by_node_gives_one_row_for_each_worker(
    lab: Lab, trainer: None, eventually: Callable[..., Any]
) -> None:
    for worker in lab.workers():
        for name, template in BY_NODE.items():
            values = {"address": worker.address, "node": worker.name}
            used = {k: v for k, v in values.items() if f"${k}" in template}
            rows = eventually(lambda t=template, u=used: ask(lab, fill(t, u)))
            assert len(rows) == 1, name
