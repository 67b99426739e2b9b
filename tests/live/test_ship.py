# SPDX-License-Identifier: Apache-2.0
"""The chart and the manifests, as a real API server and a real helm see them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import yaml

from deploy.render import CHART, REST, ROLES, WHO, manifests, render
from pilothouse.errors import LabFailed
from pilothouse.lab import Lab
from pilothouse.lab.build import obtain
from pilothouse.lab.layout import API_ADDRESS, API_PORT
from pilothouse.lab.part import HELM
from pilothouse.scorer.watch import Watching
from tests.live.witness import audit, by

SYSTEM = "pilothouse-system"


@pytest.fixture(scope="module")
def helm(lab: Lab) -> str:
    return obtain(lab.layout.binaries, parts=(HELM,))["helm"]


def test_plain_manifests_are_the_rendered_chart(helm: str) -> None:
    for path, text in manifests(helm).items():
        assert path.read_text() == text, f"{path.name}: run make manifests"


def test_chart_has_nothing_that_helm_minds(helm: str) -> None:
    command = [helm, "lint", "--strict", "--namespace", SYSTEM, str(CHART)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_chart_refuses_values_it_does_not_know(helm: str) -> None:
    for value in ("intreval=3", "interval=0", "metrics.port=80", "image.digest=latest"):
        with pytest.raises(subprocess.CalledProcessError):
            render(helm, value)


def test_chart_with_everything_switched_on_still_renders(helm: str) -> None:
    text = render(
        helm,
        "prometheus=http://prometheus.monitoring:9090",
        "rbac.kubelets=true",
        "metrics.serviceMonitor.enabled=true",
        "metrics.dashboard.enabled=true",
        "journal.persistent=false",
        "image.digest=sha256:" + "0" * 64,
        "config.referee.actions_per_cycle=2",
    )
    found = {d["kind"]: d for d in yaml.safe_load_all(text) if d}
    assert {"ServiceMonitor", "NetworkPolicy", "Deployment"} <= found.keys()
    assert "PersistentVolumeClaim" not in found
    assert "actions_per_cycle: 2" in text
    boards = [d for d in yaml.safe_load_all(text) if d and "dashboard" in d["metadata"]["name"]]
    assert json.loads(boards[0]["data"]["pilothouse.json"])["title"] == "Pilothouse"


@pytest.fixture
def shipped(lab: Lab) -> str:
    """The namespace with its labels; what is applied there is only tried out."""
    lab.apply(ROLES.read_text())
    return REST.read_text()


def dry_run(lab: Lab, text: str) -> str:
    """What the API server would say, warnings included."""
    command = [str(lab.layout.binaries / "kubectl"), "--kubeconfig", str(lab.layout.kubeconfig)]
    command += ["apply", "--server-side", "--dry-run=server", "-f", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise LabFailed(done.stderr)
    return done.stdout + done.stderr


def pods_of(text: str) -> str:
    """The pod templates as pods: admission judges pods, and only warns about templates."""
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "tried", "namespace": SYSTEM},
            "spec": document["spec"]["template"]["spec"],
        }
        for document in yaml.safe_load_all(text)
        if document["kind"] == "Deployment"
    ]
    return "\n---\n".join(map(json.dumps, pods))


def test_manifests_are_admitted_where_pods_are_restricted(lab: Lab, shipped: str) -> None:
    said = dry_run(lab, shipped)
    assert "Warning" not in said
    assert said.count("serverside-applied") == len(list(yaml.safe_load_all(shipped)))
    assert "Warning" not in dry_run(lab, pods_of(shipped))


def test_pod_with_one_privilege_more_is_refused(lab: Lab, shipped: str) -> None:
    wider = pods_of(shipped).replace('"drop": ["ALL"]', '"add": ["NET_ADMIN"]')
    assert wider != pods_of(shipped)
    with pytest.raises(LabFailed, match="restricted"):
        dry_run(lab, wider)


def test_service_account_runs_the_loop_as_its_pod_would(
    lab: Lab, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """Its token, its arguments, its settings, and no privilege."""
    lab.apply(ROLES.read_text())
    mounted = tmp_path / "serviceaccount"
    mounted.mkdir()
    token = lab.kubectl("create", "token", "pilothouse-observer", "-n", SYSTEM)
    (mounted / "token").write_text(token)
    (mounted / "ca.crt").write_bytes((lab.layout.pki / "ca.crt").read_bytes())
    home = tmp_path / "home"
    home.mkdir()
    documents = list(yaml.safe_load_all(REST.read_text()))
    config = next(d for d in documents if d["kind"] == "ConfigMap")["data"]["config.yaml"]
    (tmp_path / "config.yaml").write_text(config)
    spec = next(d for d in documents if d["kind"] == "Deployment")["spec"]["template"]["spec"]
    places = {
        "/etc/pilothouse/": f"{tmp_path}/",
        "/var/run/secrets/kubernetes.io/serviceaccount": str(mounted),
        "/var/lib/pilothouse": str(home),
    }
    words = [_moved(word, places) for word in spec["containers"][0]["args"]]
    # Without any capability: what its files' permissions allow is all it has.
    drop = ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
    command = [*drop, sys.executable, "-m", "pilothouse.cli", *words, "--json", "--port=0"]
    environment = {
        "PATH": os.environ["PATH"],
        "KUBERNETES_SERVICE_HOST": API_ADDRESS,
        "KUBERNETES_SERVICE_PORT": str(API_PORT),
        "PILOTHOUSE_HOME": str(home),
    }
    cycles = 8  # enough time to be asked for metrics meanwhile
    said = (tmp_path / "said.txt").open("w+")
    with subprocess.Popen(
        [*command, f"--cycles={cycles}", "--interval=0.5"],
        env=environment,
        stdout=said,
        stderr=said,
    ) as process:
        text = eventually(lambda: _scrape("/metrics"), every=0.1)
        assert "pilothouse_cycles_total" in text
        assert process.wait(60) == 0
    said.seek(0)
    lines = [json.loads(line) for line in said.read().splitlines() if line.startswith("{")]
    said.close()
    assert sum("decision" in line for line in lines) == cycles


def test_scorer_may_read_nodes_and_pods_and_uses_every_verb_of_it(
    lab: Lab, helm: str, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    name = "pilothouse-scorer"
    account = f"system:serviceaccount:{SYSTEM}:{name}"
    rendered = yaml.safe_load_all(render(helm, "placement.enabled=true"))
    found = [d for d in rendered if d and d["kind"] in WHO and d["metadata"]["name"] == name]
    assert {d["kind"] for d in found} == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    lab.apply(ROLES.read_text())  # the namespace
    lab.apply("\n---\n".join(map(json.dumps, found)))
    try:
        words = ("auth", "can-i", "--list", f"--as={account}", "--no-headers", "-n", SYSTEM)
        expected = ROLES.with_name("scorer-can-i.txt").read_text().splitlines()

        def rows() -> list[str]:
            return sorted(" ".join(line.split()) for line in lab.kubectl(*words).splitlines())

        eventually(lambda: set(expected) <= set(rows()))  # the server reads new roles by and by
        assert rows() == expected
        document = json.loads(lab.layout.kubeconfig.read_text())
        token = lab.kubectl("create", "token", name, "-n", SYSTEM).strip()
        document["users"][0]["user"] = {"token": token}
        (tmp_path / "kubeconfig").write_text(json.dumps(document))
        watching = Watching(tmp_path / "kubeconfig")
        watching.open()
        try:
            granted = {(what, verb) for what in ("nodes", "pods") for verb in ("list", "watch")}
            eventually(lambda: granted <= _used(lab, account))
            assert "worker-1" in {machine.name for machine in watching.machines()}
        finally:
            watching.close()
        assert _used(lab, account) == granted
    finally:
        lab.kubectl("delete", "clusterrole,clusterrolebinding", name)
        lab.kubectl("delete", "serviceaccount", name, "-n", SYSTEM)


def _used(lab: Lab, account: str) -> set[tuple[str, str]]:
    """What the API server let an account do."""
    return {
        (event["objectRef"]["resource"], event["verb"])
        for event in by(audit(lab), account)
        if "objectRef" in event and event.get("responseStatus", {}).get("code", 500) < 300
    }


def _moved(word: str, places: dict[str, str]) -> str:
    for there, here in places.items():
        word = word.replace(there, here)
    return word


def _scrape(path: str) -> str:
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = monotonic() + 1
    while monotonic() < deadline:
        try:
            with opener.open(f"http://127.0.0.1:9098{path}", timeout=2) as answer:
                return str(answer.read().decode())
        except OSError:
            sleep(0.1)
    return ""
