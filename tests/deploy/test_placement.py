# SPDX-License-Identifier: Apache-2.0
"""The scorer and the probes as the chart installs them: off by default, and all wired when on."""

from __future__ import annotations

import json
import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from deploy.render import render
from pilothouse.cli import app
from pilothouse.cli.probe import _users
from pilothouse.policy import shipped, shipped_names
from pilothouse.scorer.board import Board, PolicySource
from pilothouse.scorer.serve import Wish
from pilothouse.scorer.view import NoCluster
from tests.deploy.chart import ON, Document, find, named, rendered

USER = "placement.user=shop.example:443"


def scorer(helm: str, *values: str) -> Document:
    deployment = named(rendered(helm, ON, *values), "Deployment", "pilothouse-scorer")
    return dict(deployment["spec"]["template"]["spec"])


def probe(helm: str, *values: str) -> Document:
    daemon = named(rendered(helm, ON, USER, *values), "DaemonSet", "pilothouse-probe")
    return dict(daemon["spec"]["template"]["spec"])


def parsed(pod: Document) -> dict[str, Any]:
    """The container's words as the command line itself understands them."""
    name, *words = pod["containers"][0]["args"]
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    return dict(
        command.make_context(name, [w.replace("$(NODE_ADDRESS)", "::") for w in words]).params
    )


def test_shipped_values_install_nothing_of_placement(helm: str) -> None:
    words = json.dumps(rendered(helm))
    assert words.count("observer") > 5, "nothing was looked at"
    assert [w for w in ("scorer", "probe ", "10270", "10271", "DaemonSet") if w in words] == []


def test_every_word_of_the_scorer_is_understood(helm: str) -> None:
    pod = scorer(helm, USER, "placement.policy=ee", "placement.prometheus=http://prometheus:9090")
    said = parsed(pod)

    assert said["policy"] == "ee"
    assert said["prometheus"] == "http://prometheus:9090"
    assert said["probe_port"] == parsed(probe(helm))["port"]
    assert pod["containers"][0]["ports"] == [
        {"name": "http", "containerPort": Wish(policy="").port}
    ]


def test_prometheus_and_probes_are_asked_only_where_they_are_named(helm: str) -> None:
    said = parsed(scorer(helm))

    assert (said["prometheus"], said["probe_port"]) == ("", 0)
    assert find(rendered(helm, ON), "DaemonSet", "pilothouse-probe") is None


def test_every_file_of_the_scorer_is_on_a_volume(helm: str) -> None:
    pod = scorer(helm)
    said, volumes = parsed(pod), {v["name"]: v for v in pod["volumes"]}
    mounts = {m["mountPath"]: m for m in pod["containers"][0]["volumeMounts"]}
    token, journal = (mounts[str(Path(said[key]).parent)] for key in ("token_file", "journal"))

    assert token["readOnly"]
    assert volumes[token["name"]]["secret"] == {"secretName": "pilothouse-scorer"}
    assert not journal.get("readOnly")
    assert {m["name"] for m in mounts.values()} == volumes.keys()


@pytest.mark.parametrize(
    ("value", "volume"),
    [
        ("configMap", {"configMap": {"name": "mine"}}),
        ("secret", {"secret": {"secretName": "mine"}}),
    ],
)
def test_a_policy_of_one_s_own_is_mounted_whole_and_watched(
    helm: str, value: str, volume: dict[str, Any]
) -> None:
    pod = scorer(helm, f"placement.policyFrom.{value}=mine", "placement.policy=ee")
    folder = parsed(pod)["policy"]
    (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["mountPath"] == folder]

    assert mount["readOnly"]
    assert "subPath" not in mount, "a change of the ConfigMap would never arrive"
    assert [v for v in pod["volumes"] if v["name"] == mount["name"]] == [
        {"name": mount["name"]} | volume
    ]
    assert PolicySource(folder).path == Path(folder), "a folder that is watched, not a name"


def test_shipped_policies_need_no_volume(helm: str) -> None:
    pod = scorer(helm)

    assert parsed(pod)["policy"] in shipped_names()
    assert "policy" not in {v["name"] for v in pod["volumes"]}


def publish(mount: Path, revision: str, policy: str) -> None:
    """A ConfigMap's files as kubelet writes them: names lead through a link, which is swapped."""
    folder = resources.files("pilothouse.policy") / "shipped"
    (mount / revision).mkdir(parents=True)
    for suffix in ("json", "safetensors"):
        data = (folder / f"{policy}.{suffix}").read_bytes()
        (mount / revision / f"mine.{suffix}").write_bytes(data)
        if not (mount / f"mine.{suffix}").is_symlink():
            (mount / f"mine.{suffix}").symlink_to(Path("..data", f"mine.{suffix}"))
    (mount / "..data_tmp").symlink_to(revision)
    (mount / "..data_tmp").rename(mount / "..data")


def test_a_changed_config_map_is_served_without_a_restart(tmp_path: Path) -> None:
    publish(tmp_path, "..2026_11_18_1", "ee")
    source, board = PolicySource(str(tmp_path)), Board(view=NoCluster())
    assert source.changed()
    assert board.load(source).ok
    assert not source.changed(), "nothing happened meanwhile"

    publish(tmp_path, "..2026_11_18_2", "lb")

    assert source.changed()
    assert board.load(source).ok
    assert board.policy is not None
    assert board.policy.version == shipped("lb").version != shipped("ee").version


def claimed(helm: str, *values: str) -> tuple[dict[str, Any], Document | None]:
    """What the scorer's journal is on, and the claim that comes with it."""
    found = rendered(helm, ON, *values)
    pod = named(found, "Deployment", "pilothouse-scorer")["spec"]["template"]["spec"]
    volume = next(v for v in pod["volumes"] if v["name"] == "journal")
    return volume, find(found, "PersistentVolumeClaim", "pilothouse-scorer-journal")


def test_records_outlive_the_pod_and_the_release(helm: str) -> None:
    volume, claim = claimed(
        helm, "placement.journal.size=3Gi", "placement.journal.storageClass=fast"
    )

    assert claim is not None
    assert volume["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"]}
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert claim["spec"]["resources"] == {"requests": {"storage": "3Gi"}}
    assert claim["spec"]["storageClassName"] == "fast"


def test_records_go_with_the_pod_only_when_that_is_said(helm: str) -> None:
    volume, claim = claimed(helm, "placement.journal.persistent=false")
    assert (volume["emptyDir"], claim) == ({"sizeLimit": "1Gi"}, None)

    volume, claim = claimed(helm, "placement.journal.existingClaim=mine")
    assert (volume["persistentVolumeClaim"], claim) == ({"claimName": "mine"}, None)


def test_the_service_leads_to_the_scorer(helm: str) -> None:
    found = rendered(helm, ON)
    service = named(found, "Service", "pilothouse-scorer")["spec"]
    template = named(found, "Deployment", "pilothouse-scorer")["spec"]["template"]

    assert service["selector"] == template["metadata"]["labels"]
    assert [p["targetPort"] for p in service["ports"]] == ["http"]
    # What the observer's Service and network policy select is the observer alone.
    observer = named(found, "Deployment", "pilothouse-observer")["spec"]["selector"]["matchLabels"]
    assert not observer.items() <= template["metadata"]["labels"].items()


def test_the_scorer_reads_nodes_and_pods_and_nothing_else(helm: str) -> None:
    found = rendered(helm, ON, USER)
    bound = [
        d["roleRef"]["name"]
        for d in found
        if d["kind"].endswith("Binding")
        and any(subject["name"] == "pilothouse-scorer" for subject in d["subjects"])
    ]

    assert bound == ["pilothouse-scorer"]
    assert named(found, "ClusterRole", "pilothouse-scorer")["rules"] == [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}
    ]


def test_no_pod_of_placement_can_become_more_than_it_is(helm: str) -> None:
    for pod in (scorer(helm), probe(helm)):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert [c["securityContext"] for c in pod["containers"]] == [
            {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
        ]
    assert not scorer(helm).get("hostNetwork")
    assert probe(helm)["hostNetwork"] is True
    assert probe(helm)["automountServiceAccountToken"] is False


def test_a_pod_may_name_the_users_that_the_values_allow_and_nobody_else(helm: str) -> None:
    said = parsed(
        probe(
            helm,
            "placement.otherUsers={cafe.example:80,10.1.1.1:80}",
            "placement.allow={192.0.2.0/24,2001:db8::/32}",
        )
    )
    users = _users(list(said["users"]), list(said["allow"]))

    assert users.find("") == "shop.example:443"
    for asked in ("cafe.example:80", "10.1.1.1:80", "192.0.2.7:8080", "[2001:db8::1]:80"):
        assert users.find(asked) == asked
    assert [users.find(a) for a in ("10.1.1.1:22", "192.0.3.7:80", "bar.example:80")] == [None] * 3

    alone = parsed(probe(helm))
    assert _users(list(alone["users"]), list(alone["allow"] or ())).find("192.0.2.7:8080") is None


def test_images_are_pulled_with_the_secrets_that_were_given(helm: str) -> None:
    secrets = "imagePullSecrets[0].name=registry"
    account = named(rendered(helm, ON, secrets), "ServiceAccount", "pilothouse-scorer")

    assert account["imagePullSecrets"] == probe(helm, secrets)["imagePullSecrets"]
    assert account["imagePullSecrets"] == [{"name": "registry"}]
    assert "imagePullSecrets" not in probe(helm)


@pytest.mark.parametrize(
    "value",
    [
        "placement.polizy=ee",
        "placement.policyFrom.configmap=mine",
        "placement.policyFrom.configMap=Mine",
        "placement.policyFrom.configMap=mine,placement.policyFrom.secret=mine",
        "placement.allow={shop.example}",
        "placement.allow=10.0.0.0/8",
        "placement.prometheus=prometheus:9090",
        "placement.journal.sice=1Gi",
    ],
)
def test_chart_refuses_what_nobody_could_have_meant(helm: str, value: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        render(helm, ON, value)
