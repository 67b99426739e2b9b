# SPDX-License-Identifier: Apache-2.0
"""The cluster's own autoscalers, watched: what they want, and how late they are."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from pilothouse.cli.live import open_cluster
from pilothouse.domain import Reaction, Scaler
from pilothouse.domain.observed import NEVER
from pilothouse.lab import Lab
from tests.live.conftest import NAMESPACE, a_deployment, is_ready

LIMIT_SECONDS = 150.0


def an_autoscaler(name: str) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": 50}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        },
    }


def test_rival_autoscaler_really_scales_and_its_lateness_is_a_figure(
    lab: Lab,
    observer_kubeconfig: Path,
    space: Callable[..., None],
    pods: Callable[[str], list[dict[str, Any]]],
    eventually: Callable[..., Any],
) -> None:
    space(a_deployment("web", requests={"cpu": "150m", "memory": "32Mi"}))
    space(an_autoscaler("web"))
    pod = eventually(lambda: [p for p in pods("web") if is_ready(p)])[0]
    assert len(pods("web")) == 1
    _, cluster = open_cluster(observer_kubeconfig, namespaces=NAMESPACE, prometheus=None)
    scalers: list[Scaler] = []
    reactions: list[Reaction] = []
    try:
        url = f"http://{pod['status']['podIP']}:8000/burn?millicores=300"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        opener.open(urllib.request.Request(url, method="POST"), timeout=10).close()
        began = monotonic()
        while not reactions:
            snapshot = cluster.observe()
            scalers += snapshot.scalers
            reactions += snapshot.reactions
            assert monotonic() - began < LIMIT_SECONDS, scalers[-1:]
            sleep(1)
    finally:
        cluster.close()
    assert max(s.desired for s in scalers) > 1
    # The control: it did scale. A replica runs before its first probe says that it is ready.
    eventually(lambda: len([p for p in pods("web") if is_ready(p)]) > 1)
    (reaction,) = reactions
    assert (reaction.name, reaction.replicas_before) == ("web", 1)
    assert 0 <= reaction.decided_seconds <= reaction.running_seconds < LIMIT_SECONDS
    assert reaction.node_seconds == NEVER  # nobody adds nodes here


def test_node_claims_are_seen_where_the_cluster_has_them(
    observer_kubeconfig: Path,
    node_claims: Callable[[str], None],
    space: Callable[..., None],
    eventually: Callable[..., Any],
) -> None:
    node_claims("wanted")
    _, cluster = open_cluster(observer_kubeconfig, namespaces=NAMESPACE, prometheus=None)
    try:
        (claim,) = eventually(lambda: cluster.observe().claims)
    finally:
        cluster.close()
    assert (claim.name, claim.node, claim.ready) == ("wanted", "worker-1", True)
