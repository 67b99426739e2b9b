# SPDX-License-Identifier: Apache-2.0
"""Our accounts may do what they do, and the API server refuses the rest."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pilothouse.clients.access import from_kubeconfig
from pilothouse.clients.keys import FENCE, GATES, account_path
from pilothouse.clients.requests import MERGE, STRATEGIC, Refusal, Requests
from pilothouse.lab import Lab
from tests.live.act.conftest import MANIFESTS
from tests.live.act.helm import SPACE, fence
from tests.live.act.objects import an_autoscaler
from tests.live.conftest import a_deployment

ACCOUNTS = ("actuator", "janitor", "node-agent")
# The code of a denial is 403 or 422, as its rule says; only the name tells it from a schema's 422.
DENIED = re.compile(r"ValidatingAdmissionPolicy '([^']+)'.* denied request")
POLICIES = frozenset(
    document["metadata"]["name"]
    for document in yaml.safe_load_all((MANIFESTS / "acting-policies.yaml").read_text())
    if document["kind"] == "ValidatingAdmissionPolicy"
)


@pytest.mark.parametrize("account", ACCOUNTS)
def test_rights_are_the_checked_in_ones(installed: Lab, account: str) -> None:
    user = f"system:serviceaccount:pilothouse-system:pilothouse-{account}"
    words = ("auth", "can-i", "--list", f"--as={user}", "--no-headers", "-n", "pilothouse-system")
    rows = sorted(" ".join(line.split()) for line in installed.kubectl(*words).splitlines())
    expected = (MANIFESTS / f"{account}-can-i.txt").read_text().splitlines()
    assert rows == expected
    granted = [row for row in rows if not row.startswith(("[/", "self"))]
    assert not any("*" in row or "secrets" in row or "exec" in row for row in granted)


@pytest.fixture
def actuator(installed: Lab, actuator_kubeconfig: Path) -> Iterator[Requests]:
    requests = Requests(from_kubeconfig(actuator_kubeconfig))
    yield requests
    requests.close()


def annotated(key: str, value: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {key: value}}}


def forbidden(pod: str) -> list[tuple[str, Any]]:
    """Writes that our rights would let through and our policies must not."""
    node, scaler = "/api/v1/nodes/worker-1", "horizontalpodautoscalers/target"
    gates, epochs = account_path(GATES), account_path(FENCE)
    hpa = f"/apis/autoscaling/v2/namespaces/{SPACE}/{scaler}"
    taint = {"key": "theirs", "effect": "NoSchedule"}
    cases: list[tuple[str, Any]] = []
    for key in ("a", "team", "app/role", "karpenter.sh/x", "example.com/y", "z"):
        cases.append((node, {"metadata": {"labels": {key: "x"}}}))
        cases.append((node, {"metadata": {"annotations": {key: "x"}}}))
        cases.append((node, {"spec": {"taints": [taint | {"key": key}]}}))
    for effect in ("NoExecute", "PreferNoSchedule"):
        ours = {"key": "pilothouse.dev/out-of-service", "value": "x", "effect": effect}
        cases.append((node, {"spec": {"taints": [ours]}}))
    cases.append((node, {"spec": {"unschedulable": True}}))
    cases.append((node, {"metadata": {"finalizers": ["theirs/keep"]}}))
    for most in (1, 2, 50, 99):
        cases.append((hpa, {"spec": {"maxReplicas": most}}))
    for name in ("other", "target2"):
        other = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        cases.append((hpa, {"spec": {"scaleTargetRef": other}}))
    target = {"type": "Utilization", "averageUtilization": 5}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    cases.append((hpa, {"spec": {"metrics": metrics}}))
    cases.append((hpa, {"spec": {"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}}))
    for key in ("team", "x/y"):
        cases.append((hpa, {"metadata": {"labels": {key: "x"}}}))
        cases.append((hpa, {"metadata": {"annotations": {key: "x"}}}))
    for word in ("open", "closed", "delete", "QUEUE", ""):
        cases.append((gates, annotated("gate.pilothouse.dev/shop", word)))
    for space in ("kube-system", "kube-public", "pilothouse-system"):
        cases.append((gates, annotated(f"gate.pilothouse.dev/{space}", "queue")))
    # The fence moves forward only, and only to the epoch and name that its mover signs with.
    for epoch in ("", "-1", "x", "1e3", "999999", None):
        cases.append((epochs, annotated("pilothouse.dev/epoch", epoch)))
    for holder in ("", "somebody", None):
        cases.append((epochs, annotated("pilothouse.dev/holder", holder)))
    cases.append((gates, annotated("pilothouse.dev/epoch", "1")))
    for account in (gates, epochs):
        cases.append((account, annotated("pilothouse.dev/purpose", "theirs")))
        cases.append((account, {"automountServiceAccountToken": True}))
        cases.append((account, {"secrets": [{"name": "theirs"}]}))
        cases.append((account, {"imagePullSecrets": [{"name": "theirs"}]}))
        cases.append((account, {"metadata": {"labels": {"team": "x"}}}))
        cases.append((account, {"metadata": {"finalizers": ["theirs/keep"]}}))
    for closed in ("closed-env", "kube-system"):
        scale = f"/apis/apps/v1/namespaces/{closed}/deployments/theirs/scale"
        cases.append((scale, {"spec": {"replicas": 3}}))
        cases.append(
            (f"/apis/autoscaling/v2/namespaces/{closed}/{scaler}", {"spec": {"minReplicas": 2}})
        )
    cases.append(
        (f"/apis/apps/v1/namespaces/{SPACE}/deployments/target/scale", {"spec": {"replicas": 0}})
    )
    for closed in ("closed-env", "kube-system"):
        limits = [{"name": "workload", "resources": {"limits": {"cpu": "80m"}}}]  # above 50m asked
        cases.append(
            (f"/api/v1/namespaces/{closed}/pods/theirs/resize", {"spec": {"containers": limits}})
        )
    return cases


def test_writes_outside_the_allowed_fields_are_denied_by_policy(
    installed: Lab,
    harbor: Callable[..., Any],
    actuator: Requests,
    measured: Callable[..., None],
) -> None:
    (pod,) = harbor("target", limits={"cpu": "200m", "memory": "64Mi"})
    installed.apply(json.dumps(an_autoscaler("target", least=1, most=4)))
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "closed-env"}}
    installed.apply(json.dumps(space))
    for closed in ("closed-env", "kube-system"):
        installed.apply(json.dumps(a_deployment("theirs", namespace=closed)))
        scaler = an_autoscaler("target", least=1, most=4)
        scaler["metadata"]["namespace"] = closed
        installed.apply(json.dumps(scaler))
        bare = a_deployment("theirs", namespace=closed)["spec"]["template"]
        bare["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "100m"}
        document = {"apiVersion": "v1", "kind": "Pod", "spec": bare["spec"]}
        installed.apply(
            json.dumps(document | {"metadata": {"name": "theirs", "namespace": closed}})
        )
    author = f"pilothouse:{fence(installed)}:policy"
    cases = forbidden(pod["metadata"]["name"])
    assert len(cases) >= 50
    try:
        fates = [(_fate(actuator, author, *case), case) for case in cases]
        counted = Counter(fate for fate, _ in fates)
        measured(cases=len(cases), denied_by=dict(sorted(counted.items())))
        # Refused by anything else, its rights or the schema, says nothing about the policies.
        assert [(fate, case) for fate, case in fates if fate not in POLICIES] == []
        # The control: what is allowed passes, so it was not for the switch or an old epoch.
        body = {"metadata": {"annotations": {"pilothouse.dev/frequency": None}}}
        actuator.patch("/api/v1/nodes/worker-1", body, author=author, audit_id="policy.ok")
    finally:
        for kind in ("deployment/theirs", "hpa/target", "pod/theirs"):
            words = ("--ignore-not-found", "--wait=false", "--grace-period=1")
            installed.kubectl("delete", kind, "-n", "kube-system", *words)
        installed.kubectl("delete", "namespace", "closed-env", "--wait=false")


def test_odd_gate_of_somebody_else_keeps_nobody_from_removing_another(
    installed: Lab, janitor_kubeconfig: Path
) -> None:
    account = ("serviceaccount", GATES, "-n", "pilothouse-system")
    odd, other = "gate.pilothouse.dev/odd", "gate.pilothouse.dev/shop"
    janitor = Requests(from_kubeconfig(janitor_kubeconfig))

    def tried(key: str, word: str | None) -> str:
        body = annotated(key, word)
        try:
            janitor.try_patch(
                account_path(GATES), body, author="pilothouse-janitor:odd", audit_id="odd"
            )
        except Refusal as refusal:
            return str(refusal)
        return ""

    installed.kubectl("annotate", "--overwrite", *account, f"{odd}=closed", f"{other}=queue")
    try:
        assert tried(other, None) == ""
        assert tried(other, "reject") == ""
        assert tried(odd, None) == ""
        # The control: what is changed is still judged, here and beside it.
        for key, word in ((odd, "open"), (other, "closed"), ("gate.pilothouse.dev/x", "closed")):
            assert "never of the system" in tried(key, word), (key, word)
    finally:
        janitor.close()
        installed.kubectl("annotate", *account, f"{odd}-", f"{other}-")


def _fate(actuator: Requests, author: str, path: str, body: Any) -> str:
    """The policy that denied a write; else who refused it; "passed" if nobody did."""
    kind = STRATEGIC if path.endswith("/resize") else MERGE
    try:
        actuator.patch(path, body, author=author, audit_id="policy.case", kind=kind)
    except Refusal as refusal:
        named = DENIED.search(str(refusal))
        return named[1] if named else f"{refusal.code}: {refusal}"
    return "passed"
