# SPDX-License-Identifier: Apache-2.0
"""The chart on a real cluster, from install to uninstall, with the product in its own pods.

Runs last: it removes what the other tests installed, and afterwards nothing of it is there.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import yaml

from deploy.render import CHART
from pilothouse.lab import Lab
from pilothouse.lab.build import obtain
from pilothouse.lab.part import HELM
from pilothouse.lab.worker import load_image
from pilothouse.settings.file import to_tree
from tests.live.act.conftest import INSTALLED, MANIFESTS, pods_of, read
from tests.live.act.helm import JANITOR, SPACE, audit
from tests.live.act.ownimage import NAME, TAG, write_own_image
from tests.live.act.pilot import quick_settings
from tests.live.conftest import a_deployment, is_ready

SYSTEM = "pilothouse-system"
Make = Callable[..., Any]


@pytest.fixture(scope="module")
def bare(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A lab from which everything of ours was deleted, and whose nodes know our image.

    The API server is the one that knew our policies before: nobody may have to start it again.
    """
    archive = tmp_path_factory.mktemp("image") / "own.tar"
    with ThreadPoolExecutor() as pool:
        written = pool.submit(write_own_image, archive)
        for name in reversed(INSTALLED):
            words = ("delete", "--ignore-not-found", "--wait=true", "-f", str(MANIFESTS / name))
            lab.kubectl(*words)
        written.result()
        list(pool.map(lambda worker: load_image(lab.layout, worker, archive), lab.workers()))
    for worker in lab.workers():
        zone = "topology.kubernetes.io/zone=a"
        lab.kubectl("label", "node", worker.name, zone, "--overwrite")
        word = "pilothouse.dev/frequency-status-"  # a node agent's last one stays, and is not ours
        lab.kubectl("annotate", "node", worker.name, word)
    archive.unlink()
    return lab


@pytest.fixture
def chart(bare: Lab, tmp_path: Path) -> Iterator[Make]:
    """Helm itself, for this release."""
    binary = obtain(bare.layout.binaries, parts=(HELM,))["helm"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}

    def helm(*words: str) -> str:
        command = [binary, "--kubeconfig", str(bare.layout.kubeconfig), "-n", SYSTEM, *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield helm
    if "pilothouse" in helm("list", "-q"):
        helm("uninstall", "pilothouse", "--no-hooks")


def values(path: Path) -> Path:
    """Short windows, so that an action comes within seconds; everything else is the chart's."""
    quick = quick_settings(guard__ttl_seconds={"replicate": 600})
    tree = to_tree(quick)
    config = {part: tree[part] for part in ("forecast", "guard", "score")}
    image = {"repository": NAME, "tag": TAG, "pullPolicy": "Never"}
    acting = {"enabled": True, "enforce": "safety"}
    chosen = {"image": image, "acting": acting, "journal": {"persistent": False}, "interval": 1}
    path.write_text(yaml.safe_dump(chosen | {"config": config}))
    return path


def leaking(lab: Lab, eventually: Make) -> None:
    space = {"name": SPACE, "labels": {"pilothouse.dev/managed": "true"}}
    lab.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": space}))
    leak = ("--memory-mib=56", "--grow-mib-per-minute=40")
    service = a_deployment("leaky", namespace=SPACE, arguments=leak, limits={"memory": "96Mi"})
    lab.apply(json.dumps(service))
    eventually(lambda: [p for p in pods_of(lab, "leaky") if is_ready(p)])


def wait_for_ticket(lab: Lab, seconds: float = 220.0) -> None:
    """Until the loop in its pod begins an action; what it said is in the failure."""
    deadline = monotonic() + seconds
    while not read(lab, "tickets", "-n", SYSTEM)["items"]:
        if monotonic() > deadline:
            words = ("logs", "deploy/pilothouse-observer", "--tail=12", "-n", SYSTEM)
            pytest.fail(f"no action within {seconds:.0f} s: {lab.kubectl(*words)}")
        sleep(0.3)


def replicas(lab: Lab) -> int:
    return int(read(lab, "deployment", "leaky", "-n", SPACE)["spec"]["replicas"])


def residue(lab: Lab) -> list[str]:
    """Whatever on nodes, pods and workloads still carries our name."""
    found = []
    for node in read(lab, "nodes")["items"]:
        notes = {k: v for k, v in node["metadata"]["annotations"].items() if "pilothouse" in k}
        keys = [t["key"] for t in node["spec"].get("taints", [])]
        keys = [key for key in keys if key.startswith("pilothouse.dev/") and "fake" not in key]
        found += [f"{node['metadata']['name']}: {notes or keys}"] if notes or keys else []
    for pod in read(lab, "pods", "-A")["items"]:
        gates = [g["name"] for g in pod["spec"].get("schedulingGates", [])]
        found += [pod["metadata"]["name"]] if "pilothouse.dev/queue" in gates else []
    return found


def ours(lab: Lab) -> list[str]:
    """Everything the chart made."""
    kinds = ("deployments,jobs,pods,clusterroles,clusterrolebindings,roles,rolebindings,"
             "validatingadmissionpolicies,validatingadmissionpolicybindings,"
             "mutatingadmissionpolicies,mutatingadmissionpolicybindings,crds")  # fmt: skip
    names = lab.kubectl("get", kinds, "-A", "-o", "name").splitlines()
    return [name for name in names if "pilothouse" in name and "lab" not in name]


@pytest.mark.timeout(900)
def test_uninstalling_in_the_middle_of_an_action_leaves_nothing_behind_and_can_be_undone(
    bare: Lab, chart: Make, tmp_path: Path, eventually: Make, measured: Make
) -> None:
    for _ in range(2):
        took = act_and_uninstall(bare, chart, tmp_path, eventually)
        measured(uninstalled_seconds=round(took, 1))
        bare.kubectl("delete", "deployment", "leaky", "-n", SPACE, "--wait=true")
        eventually(lambda: not pods_of(bare, "leaky"))


def act_and_uninstall(lab: Lab, chart: Make, tmp_path: Path, eventually: Make) -> float:
    """From install to uninstall, with an action of the loop in between; the seconds it took."""
    chart("install", "pilothouse", str(CHART), "--create-namespace", "-f",
          str(values(tmp_path / "values.yaml")), "--wait", "--timeout", "4m")  # fmt: skip
    assert ours(lab)  # the control: the list that must be empty afterwards is not empty now
    leaking(lab, eventually)
    wait_for_ticket(lab)
    eventually(lambda: replicas(lab) == 2, every=0.2)
    before, began = len(audit(lab)), monotonic()
    chart("uninstall", "pilothouse", "--timeout", "4m")
    took = monotonic() - began
    assert replicas(lab) == 1
    assert residue(lab) == []
    eventually(lambda: ours(lab) == [])
    inverses = [
        e
        for e in audit(lab)[before:]
        if e["user"].get("username") == JANITOR
        and e.get("objectRef", {}).get("subresource") == "scale"
        and e["responseStatus"]["code"] != 409  # which wrote nothing, and was tried again
    ]
    assert [e["verb"] for e in inverses] == ["patch"]
    return took
