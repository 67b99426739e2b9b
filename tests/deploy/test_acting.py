# SPDX-License-Identifier: Apache-2.0
"""Acting as it is shipped: off, in parts that belong together, and removed after it is undone."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from inspect import signature
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from typer.main import get_command

from deploy.render import CHART, HOOKS, REST, ROLES, manifests, render
from pilothouse.act.fence import LAST_EPOCH, MOST_DIGITS
from pilothouse.act.standing import HEARTBEAT_SECONDS
from pilothouse.cli import app
from pilothouse.cli.enforce import AGENTS, enforcing
from pilothouse.cli.janitor import janitor
from pilothouse.cli.live import live_settings
from pilothouse.clients.keys import account_path
from pilothouse.domain import Mode
from pilothouse.settings import Settings
from pilothouse.settings.file import load

MANIFESTS = REST.parent
SYSTEM = "pilothouse-system"
TEMPLATES = sorted(p.name for p in (CHART / "templates" / "acting").iterdir())
ENFORCING = ("acting.enabled=true", "acting.enforce=safety/shop")
ACTING = "pilothouse.dev/acting"
HIDDEN = ("secrets", "nodes/proxy")
Document = dict[str, Any]


@pytest.fixture(scope="module")
def acting(helm: str) -> list[Document]:
    return rendered(helm, *ENFORCING)


def rendered(helm: str, *values: str) -> list[Document]:
    return [d for d in yaml.safe_load_all(render(helm, *values)) if d]


def named(found: list[Document], kind: str, name: str, *, hook: bool = False) -> Document:
    (one,) = [
        d
        for d in found
        if d["kind"] == kind and d["metadata"]["name"] == name and is_hook(d) is hook
    ]
    return one


def is_hook(document: Document) -> bool:
    return "helm.sh/hook" in document["metadata"].get("annotations", {})


def acting_of(found: list[Document]) -> str:
    """What the switch says."""
    switch = named(found, "ServiceAccount", "pilothouse-switch")
    return str(switch["metadata"]["annotations"].get(ACTING, ""))


def pod_of(document: Document) -> Document:
    return dict(document["spec"]["template"]["spec"])


def command_of(document: Document) -> list[str]:
    words: list[str] = pod_of(document)["containers"][0]["args"]
    return words


# What is shipped does nothing by itself.


def test_shipped_values_install_nothing_of_acting(helm: str) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())["acting"]
    assert (values["enabled"], values["enforce"]) == (False, "")
    assert values["nodeAgent"]["enabled"] is False
    found = rendered(helm)
    assert found
    words = json.dumps(found)
    assert [w for w in ("actuator", "janitor", "--enforce", "switch", "hook") if w in words] == []


def test_chart_without_acting_is_the_observer_and_no_byte_more(helm: str) -> None:
    plain = render(helm, "namespace.create=true")
    assert "templates/acting" not in plain
    wanted = manifests(helm)
    assert wanted[ROLES] == ROLES.read_text()
    assert wanted[REST] == REST.read_text()


def test_nobody_enforces_on_a_live_cluster_unless_named() -> None:
    settings = live_settings(Settings(), "harbor")
    assert settings.modes.default is Mode.SHADOW
    assert dict(settings.modes.agents) == {}
    assert settings.admission.allow_reject is False
    assert settings.act.power_hook == ""
    named_one = enforcing(settings, "safety/shop")
    assert named_one.modes.default is Mode.SHADOW
    assert {k: str(v) for k, v in named_one.modes.agents.items()} == {"safety/shop": "enforce"}


def test_shipped_budgets_and_windows_are_the_documented_ones(helm: str, tmp_path: Path) -> None:
    """Live tests run under short windows; these are what everybody else gets."""
    config = named(rendered(helm, *ENFORCING), "ConfigMap", "pilothouse-observer")
    (tmp_path / "config.yaml").write_text(config["data"]["config.yaml"])
    guard = load(tmp_path / "config.yaml").guard
    assert guard == Settings().guard
    budgets = (guard.per_agent, guard.per_namespace, guard.per_workload, guard.per_node)
    assert (guard.window_seconds, *budgets) == (600, 12, 8, 2, 2)
    assert (guard.dwell_seconds, guard.reversals, guard.quarantine_seconds) == (120, 1, 3600)
    assert (guard.node_share, guard.disturbed_share, guard.drains_at_once) == (0.1, 0.05, 1)
    assert (guard.unready_share, guard.protected_priority) == (0.2, 1_000_000)
    assert max(guard.ttl_seconds.values()) == 1800, "nothing stays in force for longer"
    defaults = {name: p.default for name, p in signature(janitor).parameters.items()}
    assert (defaults["dead_after"], defaults["grace"]) == (30.0, 10.0)
    assert HEARTBEAT_SECONDS == 15.0


# The parts of acting.


def test_manifests_are_the_rendered_chart(helm: str) -> None:
    wanted = manifests(helm)
    placement = {p.name for p in (CHART / "templates" / "placement").iterdir()}
    assert placement == {"scorer.yaml", "probe.yaml", "scheduler.yaml"}
    assert {p.name for p in wanted} == {ROLES.name, REST.name, *TEMPLATES, *placement} - {HOOKS}
    stale = [p.name for p, text in wanted.items() if p.read_text() != text]
    assert stale == [], "run make manifests"


def test_loop_has_the_actuators_account_only_while_somebody_enforces(helm: str) -> None:
    for values, account, word in (
        ((), "pilothouse-observer", None),
        (ENFORCING[:1], "pilothouse-observer", None),
        (ENFORCING, "pilothouse-actuator", "--enforce=safety/shop"),
    ):
        loop = named(rendered(helm, *values), "Deployment", "pilothouse-observer")
        assert pod_of(loop)["serviceAccountName"] == account
        said = [w for w in command_of(loop) if w.startswith("--enforce")]
        assert said == ([word] if word else [])


def test_switch_is_off_while_nobody_enforces(helm: str) -> None:
    for values, acting in ((ENFORCING[:1], "disabled"), (ENFORCING, "enabled")):
        assert acting_of(rendered(helm, *values)) == acting


def judged_by(found: list[Document]) -> dict[str, str]:
    """Policy to the parameter its binding names, where it has one."""
    specs = {(d["kind"], d["metadata"]["name"]): d.get("spec", {}) for d in found}
    return {
        name: f"{spec['paramKind']['kind']} {specs[f'{kind}Binding', name]['paramRef']['name']}"
        for (kind, name), spec in specs.items()
        if "paramKind" in spec
    }


def test_policies_judge_by_accounts_that_can_do_nothing(acting: list[Document]) -> None:
    """The API server follows accounts always; other kinds only until a policy is deleted."""
    assert judged_by(acting) == {
        "pilothouse-kill-switch": "ServiceAccount pilothouse-switch",
        "pilothouse-fence": "ServiceAccount pilothouse-fence",
        "pilothouse-queue": "ServiceAccount pilothouse-gates",
        "pilothouse-reject": "ServiceAccount pilothouse-gates",
    }
    bound = {s["name"] for d in acting for s in d.get("subjects", ())}
    assert "pilothouse-actuator" in bound
    for name in ("pilothouse-switch", "pilothouse-fence", "pilothouse-gates"):
        assert named(acting, "ServiceAccount", name)["automountServiceAccountToken"] is False
        assert name not in bound


def test_upgrade_leaves_the_fence_and_the_gates_where_they_are(acting: list[Document]) -> None:
    for name in ("pilothouse-fence", "pilothouse-gates"):
        notes = named(acting, "ServiceAccount", name)["metadata"]["annotations"]
        assert list(notes) == ["pilothouse.dev/purpose"]


def test_policy_allows_as_many_digits_of_an_epoch_as_the_leader_does() -> None:
    policies = (MANIFESTS / "acting-policies.yaml").read_text()
    (more,) = re.findall(r"epoch\.matches\('\^\(0\|\[1-9\]\[0-9\]\{0,(\d+)\}\)\$'\)", policies)
    assert 1 + int(more) == MOST_DIGITS
    assert LAST_EPOCH < 2**31, "what a Lease can count to"


def test_every_command_line_is_one_that_exists(helm: str) -> None:
    found = rendered(
        helm, *ENFORCING, "acting.nodeAgent.enabled=true", "config.act.power_hook=hook"
    )
    known = get_command(app).commands  # type: ignore[attr-defined]
    seen = set()
    for document in [d for d in found if "template" in d.get("spec", {})]:
        command, *words = command_of(document)
        options = {o for p in known[command].params for o in p.opts}
        assert {w.partition("=")[0] for w in words} <= options
        seen.add(command)
    assert seen == {"up", "janitor", "restore", "node-agent"}


def test_whoever_takes_back_can_wake_what_the_loop_put_to_sleep(helm: str) -> None:
    hook = "https://power.example:8443/switch"
    found = rendered(helm, *ENFORCING, f"config.act.power_hook={hook}")
    config = named(found, "ConfigMap", "pilothouse-observer")["data"]["config.yaml"]
    assert yaml.safe_load(config)["act"]["power_hook"] == hook
    for kind, name, is_removal in (
        ("Deployment", "pilothouse-janitor", False),
        ("Job", "pilothouse-restore", True),
    ):
        assert f"--power-hook={hook}" in command_of(named(found, kind, name, hook=is_removal))
    for name in ("pilothouse-observer", "pilothouse-janitor"):
        policy = named(found, "NetworkPolicy", name)["spec"]
        assert 8443 in [port["port"] for rule in policy["egress"] for port in rule["ports"]]


@pytest.mark.parametrize(
    "value",
    ["acting.enforce=captain", "acting.enforce=safety shop", "acting.enabeld=true"],
)
def test_chart_refuses_what_nobody_could_have_meant(helm: str, value: str) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        render(helm, "acting.enabled=true", value)


def test_chart_enforces_nothing_that_could_not_be_taken_back(helm: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        render(helm, "acting.enforce=safety")
    assert "acting.enabled is false" in refused.value.stderr


def test_chart_knows_the_agents_that_there_are(helm: str) -> None:
    assert rendered(helm, "acting.enabled=true", "acting.enforce=" + r"\,".join(AGENTS))


# Rights.


def too_much(found: list[Document]) -> list[str]:
    """Rights that no part of acting needs."""
    bad = []
    for document in found:
        for rule in document.get("rules", ()):
            if "*" in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]:
                bad.append(f"wildcard in {document['metadata']['name']}")
            for resource in rule["resources"]:
                if resource in HIDDEN or resource.endswith(("/exec", "/log", "/token")):
                    bad.append(resource)
                may_write = set(rule["verbs"]) - {"get", "list", "watch"}
                names = rule.get("resourceNames", ["pilothouse-switch"])
                if resource == "serviceaccounts" and may_write and "pilothouse-switch" in names:
                    bad.append("the switch is a person's")
                if resource.endswith("admissionpolicies"):
                    bad.append("policies are a person's")
    return bad


def test_accounts_have_no_wildcard_and_no_hold_of_the_switch() -> None:
    found = [
        document
        for name in TEMPLATES
        if name.endswith("-rbac.yaml")
        for document in yaml.safe_load_all((MANIFESTS / name).read_text())
    ]
    assert sum("rules" in d for d in found) >= 5, "nothing was looked at"
    assert too_much(found) == []
    planted = copy.deepcopy(next(d for d in found if "rules" in d))
    planted["rules"] += [
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
        {"apiGroups": ["*"], "resources": ["pods"], "verbs": ["get"]},
    ]
    assert len(too_much([planted])) == 3


def test_acting_pods_are_restricted(acting: list[Document]) -> None:
    checked = 0
    for document in [d for d in acting if d["kind"] in ("Deployment", "Job")]:
        spec = pod_of(document)
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["containers"][0]["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        checked += 1
    assert checked == 3


# Removal.


def objections_to_removal(found: list[Document]) -> list[str]:
    """Why removing this release could leave something of ours behind."""
    hooks = sorted(
        (d for d in found if is_hook(d)),
        key=lambda d: int(d["metadata"]["annotations"]["helm.sh/hook-weight"]),
    )
    jobs = [d for d in hooks if d["kind"] == "Job"]
    if len(jobs) != 1 or command_of(jobs[0]) != ["restore", "--all"]:
        return ["nothing is taken back"]
    bad = []
    first = hooks[0]
    is_switch = (first["kind"], first["metadata"]["name"]) == (
        "ServiceAccount",
        "pilothouse-switch",
    )
    if not is_switch or first["metadata"]["annotations"].get(ACTING) != "disabled":
        bad.append("the loop can act again behind the restore's back")
    if any(d["metadata"]["annotations"]["helm.sh/hook"] != "pre-delete" for d in hooks):
        bad.append("it is not asked before the removal")
    account = pod_of(jobs[0])["serviceAccountName"]
    if account != "pilothouse-janitor":
        bad.append(f"{account} may not take back")
    if not any(
        d["kind"] == "ServiceAccount" and d["metadata"]["name"] == account and not is_hook(d)
        for d in found
    ):
        bad.append(f"{account} is not there")
    if "hook-failed" in jobs[0]["metadata"]["annotations"]["helm.sh/hook-delete-policy"]:
        bad.append("nobody could read why it failed")
    return bad


def test_uninstall_switches_off_and_takes_back_first(acting: list[Document]) -> None:
    assert objections_to_removal(acting) == []


def wrong(change: Callable[[list[Document]], None], found: list[Document]) -> list[str]:
    planted = copy.deepcopy(found)
    change(planted)
    return objections_to_removal(planted)


def test_removal_that_would_leave_something_is_found(acting: list[Document]) -> None:
    def no_job(found: list[Document]) -> None:
        found[:] = [d for d in found if d["kind"] != "Job"]

    def no_switch(found: list[Document]) -> None:
        found[:] = [d for d in found if not (is_hook(d) and d["kind"] == "ServiceAccount")]

    def another_account(found: list[Document]) -> None:
        named(found, "ServiceAccount", "pilothouse-switch", hook=True)["metadata"]["name"] = "x"

    def another_kind(found: list[Document]) -> None:
        named(found, "ServiceAccount", "pilothouse-switch", hook=True)["kind"] = "ConfigMap"

    def as_actuator(found: list[Document]) -> None:
        job = named(found, "Job", "pilothouse-restore", hook=True)
        job["spec"]["template"]["spec"]["serviceAccountName"] = "pilothouse-actuator"

    def too_late(found: list[Document]) -> None:
        job = named(found, "Job", "pilothouse-restore", hook=True)
        job["metadata"]["annotations"]["helm.sh/hook"] = "post-delete"

    for change in (no_job, no_switch, another_account, another_kind, as_actuator, too_late):
        assert wrong(change, acting), change.__name__


# What an upgrade finds in the cluster.


@contextmanager
def a_cluster(folder: Path, *objects: Document) -> Iterator[Path]:
    """As much of an API server as Helm's lookup asks; gives a kubeconfig."""
    kind = {"name": "serviceaccounts", "kind": "ServiceAccount", "namespaced": True}
    core = [kind | {"singularName": "", "verbs": ["get"]}]
    answers: dict[str, Any] = {
        "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": core},
    }
    for thing in objects:
        answers[account_path(thing["metadata"]["name"])] = thing

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            missing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}
            body = json.dumps(answer or missing).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            "clusters": [
                {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
            ],
            "users": [{"name": "c", "user": {}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(config))
        yield folder / "kubeconfig"
        server.shutdown()


def upgraded(helm: str, kubeconfig: Path, *values: str) -> list[Document]:
    """What an upgrade would install there."""
    command = [helm, "template", "pilothouse", str(CHART), "--namespace", SYSTEM, "--is-upgrade"]
    command += ["--dry-run=server", "--kubeconfig", str(kubeconfig)]
    for value in values:
        command += ["--set", value]
    quiet = {k: v for k, v in os.environ.items() if "proxy" not in k.lower()}
    quiet["HELM_CACHE_HOME"] = quiet["HOME"] = str(kubeconfig.parent)
    done = subprocess.run(command, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0, done.stderr
    return [d for d in yaml.safe_load_all(done.stdout) if d]


def an_account(name: str, **notes: str) -> Document:
    annotations = {f"pilothouse.dev/{key}": value for key, value in notes.items()}
    meta = {"name": name, "namespace": SYSTEM, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ({"acting": "disabled", "reason": "incident 12"}, "disabled"),
        ({"acting": "disabled"}, "disabled"),
        ({"acting": "disabled", "reason": "acting.enforce names nobody"}, "enabled"),
        ({"acting": "enabled"}, "enabled"),
        ({"acting": "Enabled "}, "Enabled "),
        ({}, ""),
    ],
)
def test_upgrade_never_undoes_a_persons_stop(
    helm: str, tmp_path: Path, now: dict[str, str], then: str
) -> None:
    with a_cluster(tmp_path, an_account("pilothouse-switch", **now)) as kubeconfig:
        found = upgraded(helm, kubeconfig, *ENFORCING)
    assert acting_of(found) == then


def test_upgrade_without_acting_takes_back_first_where_it_was_installed(
    helm: str, tmp_path: Path
) -> None:
    with a_cluster(tmp_path, an_account("pilothouse-janitor")) as kubeconfig:
        found = upgraded(helm, kubeconfig)
    hooks = [d for d in found if is_hook(d)]
    assert [d["kind"] for d in hooks] == ["ServiceAccount", "Job"]
    assert {d["metadata"]["annotations"]["helm.sh/hook"] for d in hooks} == {"pre-upgrade"}
    with a_cluster(tmp_path) as kubeconfig:
        assert not [d for d in upgraded(helm, kubeconfig) if is_hook(d)]
