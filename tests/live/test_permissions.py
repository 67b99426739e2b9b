# SPDX-License-Identifier: Apache-2.0
"""The observer may do what it does, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from pilothouse.cli.live import open_cluster
from pilothouse.domain import Ref
from pilothouse.lab import Lab
from tests.live.conftest import NAMESPACE, OBSERVER, a_deployment
from tests.live.test_shadow import a_decision
from tests.live.witness import ACCOUNT, audit, by

EXPECTED = OBSERVER.with_name("observer-can-i.txt")
# What it may do there beyond what it may do everywhere.
EXPECTED_IN = {
    "pilothouse-system": [
        "leases.coordination.k8s.io [] [] [create]",
        "leases.coordination.k8s.io [] [pilothouse] [get update]",
    ],
    "kube-node-lease": ["leases.coordination.k8s.io [] [] [list watch]"],
}


def test_permissions_are_the_checked_in_ones(lab: Lab, observer_kubeconfig: Path) -> None:
    said = lab.kubectl("auth", "can-i", "--list", f"--as={ACCOUNT}", "--no-headers")
    rows = sorted(" ".join(line.split()) for line in said.splitlines())
    assert rows == EXPECTED.read_text().splitlines()
    for namespace in ("pilothouse-system", "kube-node-lease"):
        given = ("auth", "can-i", "--list", f"--as={ACCOUNT}", "--no-headers", "-n", namespace)
        more = {" ".join(line.split()) for line in lab.kubectl(*given).splitlines()} - set(rows)
        assert sorted(more) == EXPECTED_IN[namespace]
        rows += more
    granted = [row for row in rows if not row.startswith(("[/", "self"))]
    assert not any("*" in row or "secrets" in row or "exec" in row for row in granted)
    assert not any("nodes/proxy" in row for row in granted)


def test_every_verb_that_is_granted_is_used(
    lab: Lab,
    observer_kubeconfig: Path,
    space: Callable[[dict[str, Any]], None],
    node_claims: Callable[[str], None],
    eventually: Callable[..., Any],
) -> None:
    space(a_deployment("used"))
    node_claims("wanted")
    _, cluster = open_cluster(observer_kubeconfig, namespaces=NAMESPACE, prometheus=None)
    granted = {
        (group, resource, verb)
        for document in yaml.safe_load_all(OBSERVER.read_text())
        for rule in document.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    try:
        cluster.comment(a_decision(Ref("lab", "workload", NAMESPACE, "used"), "0198f2c5"))
        eventually(lambda: granted <= used(lab))
    finally:
        cluster.close()
    assert used(lab) == granted


def used(lab: Lab) -> set[tuple[str, str, str]]:
    """What the API server saw the observer do."""
    return {
        (e["objectRef"].get("apiGroup", ""), e["objectRef"]["resource"], e["verb"])
        for e in by(audit(lab))
        if "objectRef" in e and e.get("responseStatus", {}).get("code", 0) < 300
    }
