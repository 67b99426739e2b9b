# SPDX-License-Identifier: Apache-2.0
"""Nothing is granted that is not used: every verb of every account, by the API server's own log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import yaml

from pilothouse.cli.janitor import restore
from pilothouse.clients.access import from_kubeconfig
from pilothouse.clients.requests import Requests
from pilothouse.domain import ActionKind
from pilothouse.lab import Lab
from pilothouse.nodeagent import Clock, NodeAgent
from tests.live.act.conftest import MANIFESTS, pods_of, token_kubeconfig
from tests.live.act.helm import SPACE, Helm, audit, done
from tests.live.act.objects import an_autoscaler, gated
from tests.live.conftest import a_deployment, is_ready

Grant = tuple[str, str, str]  # group, resource with its subresource, verb
Make = Callable[..., Any]


def granted(account: str) -> set[Grant]:
    text = (MANIFESTS / f"{account}-rbac.yaml").read_text()
    return {
        (group, resource, verb)
        for document in yaml.safe_load_all(text)
        for rule in document.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(lab: Lab, account: str) -> set[Grant]:
    user = f"system:serviceaccount:pilothouse-system:pilothouse-{account}"
    found = set()
    for event in audit(lab):
        what = event.get("objectRef", {})
        done = event.get("responseStatus", {}).get("code", 500) < 300
        if event["user"].get("username") != user or not done or "resource" not in what:
            continue
        parts = (what["resource"], what.get("subresource", ""))
        found.add((what.get("apiGroup", ""), "/".join(filter(None, parts)), event["verb"]))
    return found


@pytest.fixture
def brief_helm(
    installed: Lab,
    actuator_kubeconfig: Path,
    janitor: Any,
    node_claims: Callable[[str], None],
    tmp_path: Path,
) -> Iterator[Helm]:
    """A loop whose tickets are soon forgotten; nobody had a Lease before it."""
    node_claims("wanted")
    names = ("lease", "pilothouse", "--ignore-not-found")
    installed.kubectl("delete", *names, "-n", "pilothouse-system")
    brief = {"guard__window_seconds": 2, "guard__quarantine_seconds": 1}
    # No pod is evicted in the last minute of its workload's extra replica: that one lasts longer.
    ttl = dict.fromkeys(("throttle", "dvfs", "admission"), 60) | {"replicate": 180}
    helm = Helm(actuator_kubeconfig, tmp_path / "act.db", guard__ttl_seconds=ttl, **brief)
    yield helm
    helm.close()
    kinds = "statefulsets,replicasets"
    installed.kubectl("delete", kinds, "--all", "-n", SPACE, "--wait=false")


def of_kind(kind: str, name: str) -> dict[str, Any]:
    """The same pods under another owner."""
    made = a_deployment(name, namespace=SPACE, limits={"cpu": "100m", "memory": "64Mi"})
    made["kind"] = kind
    if kind == "StatefulSet":
        made["spec"]["serviceName"] = name
    return made


def test_every_verb_that_is_granted_is_used(
    brief_helm: Helm,
    installed: Lab,
    janitor_kubeconfig: Path,
    harbor: Make,
    eventually: Make,
    tmp_path: Path,
) -> None:
    helm, names = brief_helm, ("plain", "ordered", "bare", "scaled")
    kinds = ("Deployment", "StatefulSet", "ReplicaSet", "Deployment")
    for kind, name in zip(kinds, names, strict=True):
        installed.apply(json.dumps(of_kind(kind, name)))
    installed.apply(json.dumps(an_autoscaler("scaled", least=1, most=4)))
    for name in names:
        eventually(lambda n=name: [p for p in pods_of(installed, n) if is_ready(p)])
    helm.know(*map(helm.workload, names))
    autoscaled = lambda s: s.workloads.autoscaled[s.find(helm.workload("scaled"))]  # noqa: E731
    helm.turn_until(lambda: autoscaled(helm.cluster.observe()))
    for name in names:
        action, receipts = helm.act(ActionKind.REPLICATE, helm.workload(name))
        assert done(receipts), receipts
        assert helm.cluster.find(action.writes[0].intent) is not None  # as after a crash
    spare = next(p for p in pods_of(installed, "ordered") if is_ready(p))
    _, receipts = helm.act(ActionKind.MIGRATE, helm.pod(spare["metadata"]["name"]))
    assert done(receipts), receipts
    plain = next(p for p in pods_of(installed, "plain") if is_ready(p))
    pod = helm.pod(plain["metadata"]["name"])
    for kind, target, agent, payload in (
        (ActionKind.THROTTLE, pod, "safety", {"factor": 0.6}),
        (ActionKind.DVFS, helm.node("worker-1"), "efficiency", {"frequency_permille": 700}),
        (ActionKind.ADMISSION, helm.space(), "admission", {"decision": "queue"}),
    ):
        _, receipts = helm.act(kind, target, agent=agent, **payload)
        assert done(receipts), receipts
    harbor("held", wait=False)  # for the janitor to release
    eventually(lambda: any(map(gated, pods_of(installed, "held"))), seconds=20)
    helm.cluster.comment(helm.turns[-1].turn.decision)
    clock_follows(installed, tmp_path)
    restore(everything=True, kubeconfig=janitor_kubeconfig)
    for account in ("actuator", "janitor", "node-agent"):
        assert unused(installed, account) == set()
        assert used(installed, account) <= granted(account)


def unused(lab: Lab, account: str, seconds: float = 150.0) -> set[Grant]:
    """What is granted and was not used by then; the janitor takes its time to forget tickets."""
    deadline = monotonic() + seconds
    while (left := granted(account) - used(lab, account)) and monotonic() < deadline:
        sleep(2)
    return left


def clock_follows(lab: Lab, folder: Path) -> None:
    account = token_kubeconfig(lab, "pilothouse-node-agent", folder / "account")
    requests = Requests(from_kubeconfig(account))
    try:
        NodeAgent(requests, "worker-1", Clock(folder / "sys", folder / "memory")).look()
        words = ("annotate", "node", "worker-1", "pilothouse.dev/frequency-status-")
        lab.kubectl(*words)  # its last word stays by itself; see the runbook
    finally:
        requests.close()
