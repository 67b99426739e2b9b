# SPDX-License-Identifier: Apache-2.0
"""Wrong, missing, lying or hostile input: a clear message, a careful decision, nothing lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
import yaml

from pilothouse.cli import main
from pilothouse.clients import Store, from_kubeconfig
from pilothouse.clients.prometheus import Prometheus
from pilothouse.errors import BackendError, ClusterUnreachable, NotPermitted
from pilothouse.journal import JournalReader
from pilothouse.lab import Lab
from pilothouse.observe import Observer, PrometheusUsage, ShadowCluster, UsagePoll
from pilothouse.testing.lyingprometheus import Lie, LyingPrometheus
from tests.live.conftest import NAMESPACE, OBSERVER, a_deployment, is_ready

SYSTEM = "pilothouse-system"


def kubeconfig(lab: Lab, path: Path, **user: Any) -> Path:
    """The lab's kubeconfig with another user."""
    document = json.loads(lab.layout.kubeconfig.read_text())
    document["users"][0]["user"] = user
    path.write_text(json.dumps(document))
    return path


def up(kubeconfig: Path, journal: Path, *more: str) -> int:
    arguments = ["up", "--kubeconfig", str(kubeconfig), "--no-serve", "--json", "--interval", "0.2"]
    return main([*arguments, "--journal", str(journal), *more])


# Reaching the cluster


def test_cluster_that_is_not_there_is_named_at_once(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(lab.layout.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "config").write_text(json.dumps(document))
    began = monotonic()
    assert up(tmp_path / "config", tmp_path / "j.db") == ClusterUnreachable.exit_code
    assert "https://127.0.0.1:9 did not answer" in capsys.readouterr().err
    assert monotonic() - began < 20
    assert not (tmp_path / "j.db").exists()


def test_cluster_with_a_foreign_certificate_is_not_trusted(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(lab.layout.kubeconfig.read_text())
    cluster = document["clusters"][0]["cluster"]
    del cluster["certificate-authority-data"]
    cluster["certificate-authority"] = str(lab.layout.pki / "front-proxy-ca.crt")
    (tmp_path / "config").write_text(json.dumps(document))
    assert up(tmp_path / "config", tmp_path / "j.db") == ClusterUnreachable.exit_code
    assert "certificate" in capsys.readouterr().err


def test_token_that_nobody_issued_is_told_to_be_renewed(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kubeconfig(lab, tmp_path / "config", token="wrong")
    assert up(path, tmp_path / "j.db") == NotPermitted.exit_code
    said = capsys.readouterr().err
    assert "401" in said
    assert "Renew it" in said
    assert "wrong or has expired" in said


def test_token_that_ends_while_we_watch_ages_the_view_until_it_is_renewed(
    lab: Lab, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """A token bound to an object ends with that object: minutes are saved, the 401 is real."""
    lab.apply(OBSERVER.read_text())
    ticket = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "t", "namespace": SYSTEM}}
    lab.apply(json.dumps(ticket))
    make = ("create", "token", "pilothouse-observer", "-n", SYSTEM)
    token = tmp_path / "token"
    token.write_text(
        lab.kubectl(*make, "--bound-object-kind", "Secret", "--bound-object-name", "t")
    )
    store = Store(from_kubeconfig(kubeconfig(lab, tmp_path / "config", tokenFile=str(token))))
    store.open()
    try:
        lab.kubectl("delete", "secret", "t", "-n", SYSTEM)
        refused = eventually(lambda: [h for h in store.health() if h.refused])
        assert "Renew it" in refused[0].problem
        kept = len(store.nodes())
        assert kept == len(lab.status()["nodes"]), "what was known is not forgotten"
        eventually(lambda: max(h.age_seconds for h in store.health()) > 12)
        token.write_text(lab.kubectl(*make))
        eventually(lambda: not [h for h in store.health() if h.problem])
    finally:
        store.close()


@pytest.fixture
def clipped(lab: Lab, tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """An account that may do all that the observer may, but for one resource."""

    def make(without: str) -> Path:
        documents = list(yaml.safe_load_all(OBSERVER.read_text()))
        for document in documents:
            for rule in document.get("rules", ()):
                rule["resources"] = [r for r in rule["resources"] if r != without] or ["none"]
            if document["kind"] in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"):
                document["metadata"]["name"] += "-clipped"
                if "roleRef" in document:
                    document["roleRef"]["name"] += "-clipped"
                    document["subjects"][0]["name"] = "clipped"
        account = {"name": "clipped", "namespace": SYSTEM}
        documents.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        lab.apply("\n---\n".join(map(json.dumps, documents)))
        token = lab.kubectl("create", "token", "clipped", "-n", SYSTEM).strip()
        return kubeconfig(lab, tmp_path / "clipped", token=token)

    yield make
    for kind in ("clusterrolebinding", "clusterrole"):
        lab.kubectl("delete", kind, "pilothouse-observer-clipped", "--ignore-not-found")


@pytest.mark.parametrize(
    ("resource", "group"), [("pods", ""), ("jobs", "batch"), ("poddisruptionbudgets", "policy")]
)
def test_missing_permission_is_named_with_the_rule_to_add(
    clipped: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    resource: str,
    group: str,
) -> None:
    assert up(clipped(resource), tmp_path / "j.db") == NotPermitted.exit_code
    rule = f'apiGroups: ["{group}"], resources: ["{resource}"], verbs: ["list", "watch"]'
    assert rule in capsys.readouterr().err


def test_permission_that_is_taken_away_ages_the_view_and_names_the_rule(
    lab: Lab, clipped: Callable[[str], Path], eventually: Callable[..., Any]
) -> None:
    store = Store(from_kubeconfig(clipped("nothing")))
    store.open()
    try:
        lab.kubectl("delete", "clusterrolebinding", "pilothouse-observer-clipped")
        refused = eventually(lambda: [h for h in store.health() if h.refused and h.name == "pods"])
        assert 'resources: ["pods"]' in refused[0].problem
        eventually(lambda: next(h.age_seconds for h in store.health() if h.name == "pods") > 5)
    finally:
        store.close()


# Usage that is absent, slow, empty or a lie


@pytest.fixture
def prometheus(lab: Lab) -> Iterator[LyingPrometheus]:
    with LyingPrometheus([n["name"] for n in lab.status()["nodes"]]) as server:
        yield server


@pytest.fixture
def told(
    observer_kubeconfig: Path, prometheus: LyingPrometheus
) -> Iterator[tuple[ShadowCluster, UsagePoll]]:
    """A cluster whose usage only that server tells."""
    store = Store(from_kubeconfig(observer_kubeconfig))
    poll = UsagePoll(PrometheusUsage(Prometheus(prometheus.url)), poll_seconds=0.3)
    store.add(poll.run)
    store.open()
    cluster = ShadowCluster(store, Observer(store=store, usage=poll, cluster="lab"))
    yield cluster, poll
    cluster.close()


def completeness(cluster: ShadowCluster) -> int:
    """Per mille of the ready nodes whose usage is known and young."""
    snapshot = cluster.observe()
    ready = snapshot.nodes.ready == 1
    return int(1000 * (snapshot.nodes.age_seconds[ready] < 45).mean())


def wait_truth(cluster: ShadowCluster, eventually: Callable[..., Any]) -> None:
    """The control of every lie: the same server, believed."""
    eventually(lambda: completeness(cluster) == 1000)


@pytest.mark.parametrize("lie", ["empty", "nan", "old", "future", "duplicated", "thousandfold"])
def test_lie_shows_as_usage_that_is_not_known(
    told: tuple[ShadowCluster, UsagePoll],
    prometheus: LyingPrometheus,
    eventually: Callable[..., Any],
    lie: Lie,
) -> None:
    cluster, poll = told
    wait_truth(cluster, eventually)
    prometheus.mode = lie
    poll.latest = replace(poll.latest, nodes={}, pods={})  # what was true before is not the point
    # Sooner than the truth would be too old by itself.
    eventually(lambda: len(prometheus.asked) and completeness(cluster) == 0, seconds=30)
    before = len(prometheus.asked)
    eventually(lambda: len(prometheus.asked) > before + 8)
    snapshot = cluster.observe()
    assert completeness(cluster) == 0
    if lie != "old":  # what is old is shown with its age
        assert int(snapshot.nodes.cpu_used_millicores.max()) == 0
    usage = next(s for s in snapshot.sources if s.name == "metrics")
    assert usage.age_seconds > 45 or usage.completeness_permille == 0
    prometheus.mode = "truth"
    wait_truth(cluster, eventually)


@pytest.mark.parametrize(
    ("lie", "words"), [("slow", "did not answer within"), ("html", "is not Prometheus' format")]
)
def test_server_that_does_not_answer_properly_is_named_and_the_last_truth_ages(
    told: tuple[ShadowCluster, UsagePoll],
    prometheus: LyingPrometheus,
    eventually: Callable[..., Any],
    lie: Lie,
    words: str,
) -> None:
    cluster, poll = told
    wait_truth(cluster, eventually)
    prometheus.mode = lie
    eventually(lambda: words in poll.problem)
    began = monotonic()
    cluster.observe()
    assert monotonic() - began < 2, "a hung Prometheus is no hung loop"
    used = cluster.observe().nodes.age_seconds
    sleep(2)
    assert (cluster.observe().nodes.age_seconds > used).any()


def test_prometheus_that_is_absent_is_named(
    told: tuple[ShadowCluster, UsagePoll],
    prometheus: LyingPrometheus,
    eventually: Callable[..., Any],
) -> None:
    cluster, poll = told
    wait_truth(cluster, eventually)
    prometheus.close()
    eventually(lambda: f"Prometheus at {prometheus.url} did not answer" in poll.problem)
    assert cluster.observe().nodes.uid.size


@pytest.mark.parametrize("lie", ["truth", "empty", "thousandfold"])
def test_loop_proposes_nothing_disruptive_on_usage_it_cannot_believe(
    prometheus: LyingPrometheus,
    observer_kubeconfig: Path,
    tmp_path: Path,
    lie: Lie,
) -> None:
    """Zero for "not known" would put every node to sleep. The control, the truth, is idleness."""
    prometheus.mode = lie
    settings = tmp_path / "config.yaml"
    settings.write_text(
        "apiVersion: pilothouse.dev/v1alpha1\nkind: Configuration\n"
        "forecast: {warmup_seconds: 1}\nobserve: {usage: prometheus, backfill_seconds: 0}\n"
    )
    arguments = ["--config", str(settings), "--prometheus", prometheus.url, "--cycles", "30"]
    assert up(observer_kubeconfig, tmp_path / "j.db", *arguments) == 0
    wishes = [
        proposal
        for cycle in JournalReader(tmp_path / "j.db").cycles()
        for proposal in cycle.cycle.decision.proposals
        if proposal.agent == "efficiency" and not proposal.is_noop
    ]
    if lie == "truth":
        assert wishes, "the control wants nothing, so the lie proves nothing"
    else:
        assert wishes == []
    assert main(["verify", str(tmp_path / "j.db")]) == 0


# The cluster's own content


def test_namespace_that_vanishes_takes_its_rows_and_nothing_else(
    lab: Lab,
    observer_kubeconfig: Path,
    tmp_path: Path,
    eventually: Callable[..., Any],
) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vanishing"}}
    lab.apply(json.dumps(space))
    lab.apply(json.dumps(a_deployment("doomed", namespace="vanishing", replicas=2)))
    listed = ("get", "pods", "-n", "vanishing", "-o", "json")
    eventually(lambda: any(map(is_ready, json.loads(lab.kubectl(*listed))["items"])))
    journal = tmp_path / "j.db"
    command = [sys.executable, "-m", "pilothouse.cli", "up", "--kubeconfig"]
    command += [str(observer_kubeconfig), "--no-serve", "--json", "--interval", "0.2"]
    command += ["--journal", str(journal), "--namespaces", "vanishing", "--cycles", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert any('"decision"' in line for line in run.stdout), "it never began"
        lab.kubectl("delete", "namespace", "vanishing", "--wait=false")
        run.communicate(timeout=90)
    assert run.returncode == 0
    assert main(["verify", str(journal)]) == 0
    assert main(["replay", str(journal)]) == 0
    eventually(lambda: "vanishing" not in lab.kubectl("get", "namespaces", "-o", "name"))


HOSTILE = {
    "html": "<img src=x onerror=alert(1)><script>alert(1)</script>",
    "terminal": "\x1b[2J\x1b]0;owned\x07\x1b[31mred",
    "promql": '"}) or vector(1) #',
    "bidi": "\u202egnp.exe\u200b",
    "lines": "first\nDecision 0000 chosen\r\n",
    "long": "x" * 200_000,
}


def test_hostile_annotations_and_events_reach_nobody(
    lab: Lab,
    observer_kubeconfig: Path,
    space: Callable[..., None],
    pods: Callable[[str], list[dict[str, Any]]],
    eventually: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    deployment = a_deployment("hostile")
    noted = {f"evil.example/{name}": text for name, text in HOSTILE.items()}
    noted["pilothouse.dev/latency-objective-ms"] = "٣٣"  # digits, to a naive reader
    deployment["metadata"]["annotations"] = noted
    space(deployment)
    pod = eventually(lambda: [p for p in pods("hostile") if is_ready(p)])[0]
    for number, text in enumerate(HOSTILE.values()):
        lab.kubectl("create", "-f", "-", text=json.dumps(_event(pod, number, text)))
    journal = tmp_path / "j.db"
    arguments = ["up", "--kubeconfig", str(observer_kubeconfig), "--no-serve", "--interval", "0.2"]
    arguments += ["--cycles", "15", "--namespaces", NAMESPACE, "--journal", str(journal)]
    assert main(arguments) == 0
    assert main(["explain", "last", "--journal", str(journal)]) == 0
    said = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in said)
    assert "Decision 0000 chosen" not in said.splitlines()
    assert main(["verify", str(journal)]) == 0
    assert main(["replay", str(journal)]) == 0


def _event(pod: dict[str, Any], number: int, text: str) -> dict[str, Any]:
    """A quota refusal in somebody's words: what the observer reads to classify."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"hostile-{number}", "namespace": NAMESPACE},
        "involvedObject": {
            "kind": "ReplicaSet",
            "namespace": NAMESPACE,
            "name": pod["metadata"]["name"],
            "uid": f"{pod['metadata']['uid']}-{number}",
        },
        "reason": "FailedCreate",
        "message": f"exceeded quota: {text}"[:1000],
        "type": "Warning",
        "lastTimestamp": pod["status"]["startTime"],
        "firstTimestamp": pod["status"]["startTime"],
        "source": {"component": HOSTILE["html"]},
    }


def test_control_answer_that_is_no_kubernetes_is_told(tmp_path: Path, lab: Lab) -> None:
    """A server that answers, but is something else."""
    document = json.loads(lab.layout.kubeconfig.read_text())
    with LyingPrometheus(()) as server:
        document["clusters"][0]["cluster"] = {"server": server.url}
        (tmp_path / "config").write_text(json.dumps(document))
        store = Store(from_kubeconfig(tmp_path / "config"))
        with pytest.raises(BackendError, match=server.url):
            store.open(wait_seconds=5)
        store.close()
