# SPDX-License-Identifier: Apache-2.0
"""The second scheduler as the chart installs it: off by default, a shipped profile, few rights."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from deploy.render import CHART, HERE, PROFILES, profiles, render
from tests.deploy.chart import ON, Document, find, named, rendered

NAME = "pilothouse-scheduler"
BESIDE = "placement.scheduler.enabled=true"
NAMES = sorted(path.stem for path in PROFILES.glob("*.yaml"))
SCORER = "http://pilothouse-scorer.pilothouse-system.svc:10270"


def pod(helm: str, *values: str) -> Document:
    deployment = named(rendered(helm, ON, BESIDE, *values), "Deployment", NAME)
    return dict(deployment["spec"]["template"]["spec"])


def configured(helm: str, *values: str) -> Document:
    data = named(rendered(helm, ON, BESIDE, *values), "ConfigMap", NAME)["data"]
    return dict(yaml.safe_load(data["profile.yaml"]))


def arguments(document: Document) -> dict[str, Any]:
    (profile,) = document["profiles"]
    plugins = {entry["name"]: entry["args"] for entry in profile["pluginConfig"]}
    return cast("dict[str, Any]", plugins["PilothousePlacement"])


def without_what_is_the_clusters(document: Document) -> Document:
    """The profile less what a cluster fills in."""
    rest = copy.deepcopy(document)
    (profile,) = rest["profiles"]
    del profile["schedulerName"], rest["clientConnection"]
    rest.pop("leaderElection", None)
    for entry in profile["pluginConfig"]:
        for word in ("mode", "scorerAddress", "journalAddress", "journalTokenFile"):
            entry["args"].pop(word, None)
    return rest


def test_the_charts_profiles_are_those_of_deploy_scheduler() -> None:
    """Needs no helm: a copy that is older than its original is found by every run of the tests."""
    held = {path: path.read_text() for path in (CHART / "profiles").glob("*")}
    assert len(held) >= 5
    assert held == profiles(), "run make manifests"


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_differs_from_the_shipped_one_in_what_is_the_clusters(
    helm: str, name: str
) -> None:
    found = configured(helm, f"placement.scheduler.profile={name}")
    shipped = yaml.safe_load((PROFILES / f"{name}.yaml").read_text())

    assert without_what_is_the_clusters(found) == without_what_is_the_clusters(shipped)
    assert arguments(found)["mode"] == "enforce"
    assert arguments(found)["scorerAddress"] == arguments(found)["journalAddress"] == SCORER


@pytest.mark.parametrize("name", NAMES)
def test_the_plugins_arguments_can_be_set_and_nothing_else_changes(helm: str, name: str) -> None:
    chosen = f"placement.scheduler.profile={name}"
    words = ("enforceHardLimit=true", "fallback=none", "compareShare=0", "uncountedNamespaces={a}")
    given = {"enforceHardLimit": True, "fallback": "none", "compareShare": 0}
    wanted = configured(helm, chosen)
    arguments(wanted).update(given, uncountedNamespaces=["a"])

    found = configured(helm, chosen, *(f"placement.scheduler.args.{word}" for word in words))
    assert found == wanted


def test_the_scheduler_without_arguments_is_as_it_was_before_there_were_any(helm: str) -> None:
    """The manifest was written without them."""
    assert rendered(helm, ON, BESIDE, "placement.scheduler.args=null") == rendered(helm, ON, BESIDE)
    written = yaml.safe_load_all((HERE / "manifests" / "scheduler.yaml").read_text())
    assert configured(helm) == yaml.safe_load(
        named(list(written), "ConfigMap", NAME)["data"]["profile.yaml"]
    )


def test_every_profile_looks_at_all_nodes_as_its_readme_says() -> None:
    assert "Each looks at all nodes" in (PROFILES / "README.md").read_text()
    for path in PROFILES.glob("*.yaml"):
        assert yaml.safe_load(path.read_text())["percentageOfNodesToScore"] == 100, path


@pytest.mark.parametrize(
    "values", [(), (ON,), (BESIDE,)], ids=["as shipped", "only the scorer", "no scorer"]
)
def test_nobody_gets_a_scheduler_who_did_not_ask_for_it_and_the_scorer(
    helm: str, values: tuple[str, ...]
) -> None:
    text = render(helm, *values)
    assert "pilothouse-observer" in text, "nothing was looked at"
    assert NAME not in text


def test_pods_ask_for_it_by_a_name_that_is_not_the_stock_ones(helm: str) -> None:
    (profile,) = configured(helm)["profiles"]
    assert profile["schedulerName"] == "pilothouse"
    (profile,) = configured(helm, "placement.scheduler.name=packer")["profiles"]
    assert profile["schedulerName"] == "packer"


def test_the_scorer_that_is_asked_is_the_charts_own(helm: str) -> None:
    found = rendered(helm, ON, BESIDE)
    service = named(found, "Service", "pilothouse-scorer")
    (port,) = service["spec"]["ports"]
    meta = service["metadata"]

    assert f"http://{meta['name']}.{meta['namespace']}.svc:{port['port']}" == SCORER


def test_every_file_of_the_scheduler_is_on_a_volume(helm: str) -> None:
    spec, volumes = pod(helm), {v["name"]: v for v in pod(helm)["volumes"]}
    (container,) = spec["containers"]
    mounts = {m["mountPath"]: m for m in container["volumeMounts"]}
    words = dict(word.removeprefix("--").split("=") for word in container["args"])
    config = mounts[str(Path(words["config"]).parent)]
    token = mounts[str(Path(arguments(configured(helm))["journalTokenFile"]).parent)]

    assert volumes[config["name"]]["configMap"] == {"name": NAME}
    assert Path(words["config"]).name == "profile.yaml"
    assert volumes[token["name"]]["secret"] == {"secretName": "pilothouse-scorer"}
    assert all(mount["readOnly"] for mount in mounts.values())
    assert {m["name"] for m in mounts.values()} == volumes.keys()


def test_one_of_several_works_by_a_lease_that_it_may_renew_and_is_not_the_stock_ones(
    helm: str,
) -> None:
    found = rendered(helm, ON, BESIDE, "placement.scheduler.replicas=2")
    lease = configured(helm)["leaderElection"]
    (rule,) = named(found, "Role", NAME)["rules"]

    assert named(found, "Deployment", NAME)["spec"]["replicas"] == 2
    assert lease == {
        "leaderElect": True,
        "resourceName": NAME,
        "resourceNamespace": named(found, "Role", NAME)["metadata"]["namespace"],
    }
    assert rule == {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [NAME],
        "verbs": ["get", "update"],
    }


def test_it_has_a_schedulers_rights_and_no_others(helm: str) -> None:
    found = rendered(helm, ON, BESIDE)
    bindings = [
        d
        for d in found
        if d["kind"].endswith("Binding") and any(s["name"] == NAME for s in d["subjects"])
    ]
    bound = {(d["kind"], d["metadata"].get("namespace"), d["roleRef"]["name"]) for d in bindings}

    assert bound == {
        ("ClusterRoleBinding", None, "system:kube-scheduler"),
        ("ClusterRoleBinding", None, "system:volume-scheduler"),
        ("RoleBinding", "kube-system", "extension-apiserver-authentication-reader"),
        ("RoleBinding", "pilothouse-system", NAME),
    }
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": "pilothouse-system"}
    assert [d["subjects"] for d in bindings] == [[account]] * len(bindings)
    assert find(found, "ClusterRole", NAME) is None
    assert pod(helm)["serviceAccountName"] == NAME


def test_it_cannot_become_more_than_it_is(helm: str) -> None:
    spec = pod(helm)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert [c["securityContext"] for c in spec["containers"]] == [
        {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    ]
    assert not spec.get("hostNetwork")


def test_it_is_asked_how_it_is_at_the_port_that_it_serves(helm: str) -> None:
    (container,) = pod(helm)["containers"]
    (port,) = container["ports"]

    assert f"--secure-port={port['containerPort']}" in container["args"]
    for probe, path in (("startup", "/livez"), ("liveness", "/livez"), ("readiness", "/readyz")):
        asked = container[f"{probe}Probe"]["httpGet"]
        assert asked == {"path": path, "port": port["name"], "scheme": "HTTPS"}


def test_the_image_is_the_schedulers_own(helm: str) -> None:
    mine = "placement.scheduler.image.repository=registry.example/scheduler"
    digest = "sha256:" + "0" * 64

    assert pod(helm)["containers"][0]["image"].startswith(f"{NAME}:")
    assert pod(helm, mine, "placement.scheduler.image.tag=v1")["containers"][0]["image"] == (
        "registry.example/scheduler:v1"
    )
    assert pod(helm, mine, f"placement.scheduler.image.digest={digest}")["containers"][0][
        "image"
    ] == (f"registry.example/scheduler@{digest}")
    assert "command" not in pod(helm)["containers"][0], "the image's own entry point"


def test_a_new_profile_is_a_new_pod(helm: str) -> None:
    def annotations(*values: str) -> Any:
        deployment = named(rendered(helm, ON, BESIDE, *values), "Deployment", NAME)
        return deployment["spec"]["template"]["metadata"]["annotations"]

    assert annotations() == annotations("placement.scheduler.replicas=2")
    assert annotations() != annotations("placement.scheduler.mode=shadow")


@pytest.mark.parametrize(
    "value",
    [
        "placement.scheduler.profile=el-lr",
        "placement.scheduler.mode=enforec",
        "placement.scheduler.name=default-scheduler",
        "placement.scheduler.name=Pilot House",
        "placement.scheduler.replicas=0",
        "placement.scheduler.image.digest=latest",
        "placement.scheduler.images=x",
        "placement.scheduler.args=enforceHardLimit",
        "placement.scheduler.args.mode=shadow",
    ],
)
def test_chart_refuses_what_nobody_could_have_meant(helm: str, value: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        render(helm, ON, BESIDE, value)


def test_a_cluster_older_than_the_scheduler_is_refused(
    helm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deploy.render.KUBERNETES_VERSION", "1.35.9")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        render(helm, ON, BESIDE)

    assert "must not be newer than the API server" in refused.value.stderr
    assert render(helm, ON)
