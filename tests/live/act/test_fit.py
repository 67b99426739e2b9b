# SPDX-License-Identifier: Apache-2.0
"""What the fit check promises, the real scheduler keeps: random pods against random nodes.

The short form asks about a few dozen pods; ``PILOTHOUSE_CASES=200`` is the whole of it.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from time import monotonic, sleep
from typing import Any

import pytest

from pilothouse.act.fit import FitCheck, unmodelled
from pilothouse.clients.access import from_kubeconfig
from pilothouse.clients.requests import Refusal, Requests
from pilothouse.clients.resources import ACTING_KINDS, KINDS
from pilothouse.clients.store import Store
from pilothouse.lab import Lab

SPACE = "fit-env"
CASES = int(os.environ.get("PILOTHOUSE_CASES", "30"))
FAKE = {"key": "pilothouse.dev/fake", "operator": "Exists"}
COLORS, TIERS = ("red", "green", "blue"), ("1", "2", "3")


@pytest.fixture
def requests(installed: Lab) -> Iterator[Requests]:
    requests = Requests(from_kubeconfig(installed.layout.kubeconfig))
    yield requests
    requests.close()


@pytest.fixture
def store(installed: Lab) -> Iterator[Store]:
    store = Store(from_kubeconfig(installed.layout.kubeconfig), kinds=(*KINDS, *ACTING_KINDS))
    store.open()
    yield store
    store.close()


def prepare(lab: Lab, dice: random.Random) -> None:
    """Fake nodes with colors, tiers and taints; the real ones take no part."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    lab.apply(json.dumps(space))
    for node in json.loads(lab.kubectl("get", "nodes", "-o", "json"))["items"]:
        name = node["metadata"]["name"]
        if name.startswith("worker-"):
            continue
        labels = (f"color={dice.choice(COLORS)}", f"tier={dice.choice(TIERS)}")
        lab.kubectl("label", "node", name, *labels, "--overwrite")
        if dice.random() < 0.4:
            lab.kubectl("taint", "node", name, "lane=slow:NoSchedule", "--overwrite")


def a_pod(number: int, dice: random.Random) -> dict[str, Any]:
    """A pod that uses a random handful of what can keep it from a node."""
    container: dict[str, Any] = {"name": "c", "image": "none"}
    cpu = dice.choice(["100m", "100m", "200m", "500m", "40"])
    memory = dice.choice(["64Mi", "64Mi", "128Mi", "256Mi", "900Gi"])
    container["resources"] = {"requests": {"cpu": cpu, "memory": memory}}
    spec: dict[str, Any] = {
        "containers": [container],
        "tolerations": [FAKE],
        "schedulingGates": [{"name": "test/wait"}],
        "affinity": {},
    }
    fake_only = {"key": "color", "operator": "Exists"}
    if dice.random() < 0.3:
        spec["tolerations"].append({"key": "lane", "operator": "Equal", "value": "slow"})
    expressions = [fake_only]
    if dice.random() < 0.4:
        operator = dice.choice(["In", "NotIn"])
        values = dice.sample(COLORS, 2)
        expressions.append({"key": "color", "operator": operator, "values": values})
    if dice.random() < 0.3:
        way = dice.choice(["Gt", "Lt"])
        expressions.append({"key": "tier", "operator": way, "values": ["2"]})
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    spec["affinity"]["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    if dice.random() < 0.2:
        spec["nodeSelector"] = {"tier": dice.choice(TIERS)}
    if dice.random() < 0.25:
        container["ports"] = [{"containerPort": 80, "hostPort": dice.choice([7001, 7002])}]
    if dice.random() < 0.4:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": dice.choice(["kubernetes.io/hostname", "color"]),
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "fit"}},
            }
        ]
    kind = dice.random()
    if kind < 0.2:
        spec["volumes"] = [{"name": "v", "emptyDir": {}}]
    elif kind < 0.3:
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "none"}}]
    if dice.random() < 0.08:
        term = {"topologyKey": "color", "labelSelector": {"matchLabels": {"app": "fit"}}}
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        spec["affinity"]["podAntiAffinity"] = rule
    meta = {"name": f"case-{number}", "namespace": SPACE, "labels": {"app": "fit"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def placed(requests: Requests, path: str, pod: dict[str, Any]) -> bool:
    """Open the gate and see what the scheduler makes of it."""
    meta = {"uid": pod["metadata"]["uid"]}
    body = {"metadata": meta, "spec": {"schedulingGates": None}}
    requests.patch(path, body, author="test", audit_id=f"fit.{pod['metadata']['name']}")
    deadline = monotonic() + 30
    while True:
        now = requests.get(path)
        if now["spec"].get("nodeName"):
            return True
        for condition in now["status"].get("conditions") or []:
            refused = condition["type"] == "PodScheduled" and condition["status"] == "False"
            if refused and condition["reason"] == "Unschedulable":
                return False
        assert monotonic() < deadline, "the scheduler says nothing"
        sleep(0.05)


def test_every_promise_of_a_fit_is_kept_by_the_scheduler(
    installed: Lab,
    requests: Requests,
    store: Store,
    eventually: Callable[..., Any],
    measured: Callable[..., None],
) -> None:
    dice = random.Random(7)
    prepare(installed, dice)
    promised = kept = accepted = modelled = unknown = 0
    wrong: list[str] = []
    try:
        for number in range(CASES):
            wanted = a_pod(number, dice)
            path = f"/api/v1/namespaces/{SPACE}/pods"
            pod = requests.create(path, wanted, author="test", audit_id=f"fit.{number}")
            name = pod["metadata"]["name"]
            uid = pod["metadata"]["uid"]
            eventually(lambda uid=uid: any(p.metadata.uid == uid for p in store.pods()), every=0.02)
            why = FitCheck(store).objection(pod)
            known = not unmodelled(pod)
            fits = placed(requests, f"{path}/{name}", pod)
            promised += not why
            kept += not why and fits
            unknown += not known
            modelled += known and fits
            accepted += known and fits and not why
            if not why and not fits:
                wrong.append(json.dumps(wanted["spec"]))
            if dice.random() < 0.7 or not fits:
                _delete(requests, f"{path}/{name}")
            eventually(
                lambda uid=uid: all(
                    p.spec.node_name or p.metadata.uid != uid for p in store.pods()
                ),
                every=0.02,
            )
    finally:
        installed.kubectl("delete", "namespace", SPACE, "--wait=false")
        for node in json.loads(installed.kubectl("get", "nodes", "-o", "json"))["items"]:
            if any(t["key"] == "lane" for t in node["spec"].get("taints", [])):
                installed.kubectl("taint", "node", node["metadata"]["name"], "lane-")
    share = accepted / max(modelled, 1)
    measured(
        cases=CASES,
        promised=promised,
        kept=kept,
        modelled_that_the_scheduler_took=modelled,
        of_these_promised=accepted,
        not_modelled=unknown,
    )
    assert not wrong, wrong[0]
    assert share >= 0.9
    assert modelled > 0.2 * CASES
    assert promised < CASES, "nothing was ever refused, so nothing was tested"


def _delete(requests: Requests, path: str) -> None:
    try:
        requests.delete(path, {"gracePeriodSeconds": 0}, audit_id="fit.delete")
    except Refusal as refusal:
        if not refusal.is_missing:
            raise
