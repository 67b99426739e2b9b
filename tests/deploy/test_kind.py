# SPDX-License-Identifier: Apache-2.0
"""What is shipped for kind fits together; the scheduler's own word is in tests/live/placement."""

from __future__ import annotations

import ipaddress
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
KIND = ROOT / "deploy" / "kind"
PROFILES = sorted((ROOT / "deploy" / "scheduler").glob("*.yaml"))
STATIC_BAND = 256  # of a /16 service range, addresses that are never given out by themselves


def document(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((KIND / name).read_text()))


def arguments(profile: Path) -> dict[str, Any]:
    command = ["sed", "-f", str(KIND / "addresses.sed"), str(profile)]
    return plugin_arguments(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )


def plugin_arguments(text: str) -> dict[str, Any]:
    plugins = yaml.safe_load(text)["profiles"][0]["pluginConfig"]
    return dict(next(p["args"] for p in plugins if p["name"] == "PilothousePlacement"))


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.stem)
def test_a_profile_gets_the_address_that_the_service_has(profile: Path) -> None:
    service = document("scorer-service.yaml")["spec"]
    address = f"http://{service['clusterIP']}:{service['ports'][0]['port']}"
    found = arguments(profile)
    plain = plugin_arguments(profile.read_text())

    assert found["scorerAddress"] == found["journalAddress"] == address
    changed = {"scorerAddress", "journalAddress"}
    assert {k: v for k, v in found.items() if k not in changed} == {
        k: v for k, v in plain.items() if k not in changed
    }


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.stem)
def test_a_profile_hands_its_records_to_the_scorer_it_asks(profile: Path) -> None:
    given = plugin_arguments(profile.read_text())

    assert given["journalAddress"] == given["scorerAddress"]
    assert given["journalTokenFile"] == "/etc/kubernetes/pilothouse/token"  # the static pod's


def test_the_fixed_address_is_in_the_part_of_the_range_that_is_left_for_such() -> None:
    subnet = ipaddress.ip_network(document("cluster.yaml")["networking"]["serviceSubnet"])
    address = ipaddress.ip_address(document("scorer-service.yaml")["spec"]["clusterIP"])

    assert address in subnet
    assert 10 < int(address) - int(subnet.network_address) <= STATIC_BAND


def test_the_service_finds_the_scorer_of_the_chart() -> None:
    chart = (ROOT / "deploy/charts/pilothouse/templates/placement/scorer.yaml").read_text()
    service = document("scorer-service.yaml")
    selector = ", ".join(f"{k}: {v}" for k, v in service["spec"]["selector"].items())

    assert f"labels: {{{selector}}}" in chart
    assert service["metadata"]["namespace"] == "pilothouse-system"


def test_every_file_that_the_static_pod_reads_is_mounted() -> None:
    spec = document("kube-scheduler.yaml")["spec"]
    container = spec["containers"][0]
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    files = [word.split("=")[1] for word in container["command"] if "=/" in word]
    files.append(arguments(PROFILES[0])["journalTokenFile"])

    assert {v["name"] for v in spec["volumes"]} == {m["name"] for m in container["volumeMounts"]}
    assert [f for f in files if not any(f == m or f.startswith(f"{m}/") for m in mounted)] == []


def test_the_static_pod_takes_the_stock_ones_place_with_no_more_rights() -> None:
    pod = document("kube-scheduler.yaml")
    container = pod["spec"]["containers"][0]

    assert (pod["metadata"]["namespace"], pod["metadata"]["name"]) == (
        "kube-system",
        "kube-scheduler",
    )
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert "--bind-address=127.0.0.1" in container["command"]
    assert all(mount["readOnly"] for mount in container["volumeMounts"])


def test_the_binary_is_where_its_image_has_it() -> None:
    command = document("kube-scheduler.yaml")["spec"]["containers"][0]["command"]

    assert f'ENTRYPOINT ["{command[0]}"]' in (ROOT / "deploy/scheduler/Dockerfile").read_text()
