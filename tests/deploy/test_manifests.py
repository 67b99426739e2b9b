# SPDX-License-Identifier: Apache-2.0
"""What is shipped asks for little and opens nothing; the API server's own word is in tests/live."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pilothouse import __version__
from pilothouse.server import Feed
from pilothouse.settings.file import load
from tests.server.parade import publish

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "charts" / "pilothouse"
MANIFESTS = ROOT / "deploy" / "manifests"


def documents() -> list[dict[str, Any]]:
    found = []
    for name in ("observer-rbac.yaml", "observer.yaml"):
        found += list(yaml.safe_load_all((MANIFESTS / name).read_text()))
    return found


def of_kind(kind: str, among: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    return [d for d in among or documents() if d["kind"] == kind]


def pod() -> dict[str, Any]:
    return dict(of_kind("Deployment")[0]["spec"]["template"]["spec"])


def what_is_too_much(found: list[dict[str, Any]]) -> list[str]:
    """Rules that no observer needs."""
    bad = []
    for document in found:
        for rule in document.get("rules", ()):
            words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            if "*" in words:
                bad.append(f"wildcard in {document['metadata']['name']}")
            for resource in rule["resources"]:
                if resource in ("secrets", "nodes/proxy") or resource.endswith(("/exec", "/log")):
                    bad.append(resource)
            writes = set(rule["verbs"]) - {"get", "list", "watch"}
            if writes and not set(rule["resources"]) <= {"events", "leases"}:
                bad.append(f"{sorted(writes)} of {rule['resources']}")
    return bad


def scorer_role() -> dict[str, Any]:
    found = yaml.safe_load_all((MANIFESTS / "scorer.yaml").read_text())
    (role,) = [document for document in found if document["kind"] == "ClusterRole"]
    return dict(role)


def test_scorer_has_the_rights_of_its_checked_in_file_and_writes_nothing() -> None:
    role = scorer_role()
    assert what_is_too_much([role]) == []
    rows = {
        f"{resource}{'.' + group if group else ''} [] [] [{' '.join(rule['verbs'])}]"
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    listed = (MANIFESTS / "scorer-can-i.txt").read_text().splitlines()
    # What every account has: the addresses of the API itself, and to ask about oneself.
    assert {row for row in listed if not row.startswith(("[/", "self"))} == rows
    assert not any(verb in row for row in rows for verb in ("create", "update", "patch", "delete"))


def test_roles_read_and_write_only_events_and_the_lease() -> None:
    assert of_kind("ClusterRole"), "nothing was looked at"
    assert what_is_too_much(documents()) == []


def test_role_that_asks_for_more_is_found() -> None:
    planted = copy.deepcopy(documents())
    of_kind("ClusterRole", planted)[0]["rules"] += [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]},
        {"apiGroups": ["*"], "resources": ["pods"], "verbs": ["list"]},
    ]
    assert len(what_is_too_much(planted)) == 3


def test_pod_is_restricted() -> None:
    spec = pod()
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert of_kind("Namespace")[0]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == (
        "restricted"
    )


def test_every_folder_that_is_written_to_is_a_volume() -> None:
    mounts = {m["mountPath"]: m for m in pod()["containers"][0]["volumeMounts"]}
    assert not mounts["/var/lib/pilothouse"].get("readOnly")
    assert mounts["/etc/pilothouse"]["readOnly"]
    arguments = " ".join(pod()["containers"][0]["args"])
    assert "--journal=/var/lib/pilothouse/" in arguments


def test_page_has_no_service_and_no_port() -> None:
    ports = [p for c in pod()["containers"] for p in c["ports"]]
    assert [p["name"] for p in ports] == ["metrics"]
    assert of_kind("Ingress") == []
    for service in of_kind("Service"):
        assert [p["targetPort"] for p in service["spec"]["ports"]] == ["metrics"]


def test_network_policy_lets_in_scrapes_alone() -> None:
    policy = of_kind("NetworkPolicy")[0]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    metrics = pod()["containers"][0]["ports"][0]["containerPort"]
    allowed = [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
    assert allowed == [metrics]
    assert all("ports" in rule for rule in policy["egress"])
    assert policy["podSelector"]["matchLabels"].items() <= (
        of_kind("Deployment")[0]["spec"]["template"]["metadata"]["labels"].items()
    )


def test_settings_in_the_config_map_are_read(tmp_path: Path) -> None:
    text = of_kind("ConfigMap")[0]["data"]["config.yaml"]
    (tmp_path / "config.yaml").write_text(text)
    settings = load(tmp_path / "config.yaml")
    assert settings.serve.metrics_port == pod()["containers"][0]["ports"][0]["containerPort"]
    assert settings.serve.host == "127.0.0.1"


def test_command_line_of_the_pod_is_one_that_exists() -> None:
    from typer.main import get_command

    from pilothouse.cli import app

    known = {o for p in get_command(app).commands["up"].params for o in p.opts}  # type: ignore[attr-defined]
    words = pod()["containers"][0]["args"]
    assert words[0] == "up"
    assert {word.partition("=")[0] for word in words[1:]} <= known


def test_chart_and_package_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_every_value_is_in_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def unknown(value: Any, shape: dict[str, Any], path: str) -> list[str]:
        if not isinstance(value, dict) or "properties" not in shape:
            return []
        missing = [f"{path}.{key}" for key in value if key not in shape["properties"]]
        for key in value:
            missing += unknown(value[key], shape["properties"].get(key, {}), f"{path}.{key}")
        return missing

    assert unknown(values, schema, "values") == []


def test_dashboard_asks_only_for_metrics_that_are_served() -> None:
    board = json.loads((CHART / "dashboards" / "pilothouse.json").read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"pilothouse_\w+", target["expr"])
    }
    feed = Feed()
    publish(feed, 2)
    served = set(re.findall(r"^(pilothouse_\w+)[ {]", feed.metrics.text().decode(), flags=re.M))
    assert len(asked) > 10
    assert asked <= served


@pytest.fixture
def stages() -> dict[str, list[list[str]]]:
    """The instructions of the Dockerfile by stage."""
    found: dict[str, list[list[str]]] = {}
    text = (ROOT / "deploy" / "Dockerfile").read_text().replace("\\\n", " ")
    stage = ""
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == "FROM":
            stage = words[-1]
        if words and not line.startswith("#"):
            found.setdefault(stage, []).append(words)
    return found


def test_image_copies_what_exists_and_runs_as_nobody(stages: dict[str, list[list[str]]]) -> None:
    for words in [w for stage in stages.values() for w in stage if w[0] == "COPY"]:
        if not words[1].startswith("--from"):
            assert [s for s in words[1:-1] if not (ROOT / s).exists()] == []
    last = stages["runtime"]
    assert ["USER", "65532:65532"] in last
    assert not [words for words in last if words[0] == "RUN"]


def test_image_installs_nothing_without_a_hash(stages: dict[str, list[list[str]]]) -> None:
    installs = [
        " ".join(w) for s in stages.values() for w in s if "install" in w and "pip" in str(w)
    ]
    assert installs
    for line in installs:
        assert "--require-hashes" in line or "--no-index" in line
