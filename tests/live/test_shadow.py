# SPDX-License-Identifier: Apache-2.0
"""The loop in shadow on a real cluster: everything is seen, nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from pilothouse.cli import main
from pilothouse.cli.live import open_cluster
from pilothouse.domain import (
    ActionKind,
    Decision,
    Mode,
    Proposal,
    Ref,
    Ruling,
    Verdict,
)
from pilothouse.lab import Lab
from pilothouse.observe import ShadowCluster
from tests.live.conftest import NAMESPACE, a_deployment, is_ready
from tests.live.witness import audit, by, strange_writes

NAMED_SECONDS = 30.0


@pytest.fixture
def cluster(lab: Lab, observer_kubeconfig: Path) -> Iterator[ShadowCluster]:
    _, cluster = open_cluster(
        observer_kubeconfig, namespaces="sim-*,default", prometheus=lab.prometheus_url
    )
    yield cluster
    cluster.close()


def within(look: Callable[[], bool], seconds: float = NAMED_SECONDS) -> float:
    began = monotonic()
    while not look():
        assert monotonic() - began < seconds
        sleep(0.5)
    return monotonic() - began


def test_snapshot_knows_the_workers_and_their_usage(
    lab: Lab, cluster: ShadowCluster, space: Callable[..., None]
) -> None:
    space(a_deployment("busy", node="worker-1", arguments=("--burn-millicores=300",)))

    def seen() -> bool:
        snapshot = cluster.observe()
        row = snapshot.nodes.names.tolist().index("worker-1")
        return bool(
            snapshot.nodes.cpu_used_millicores[row] > 200
            and snapshot.nodes.age_seconds[row] < 30
            and snapshot.nodes.cpu_capacity_millicores[row] == lab.workers()[0].cpu_millicores
        )

    within(seen, 90)


def test_memory_growth_is_seen_before_and_after_the_kill(
    cluster: ShadowCluster, space: Callable[..., None]
) -> None:
    arguments = ("--memory-mib=8", "--grow-mib-per-minute=240")
    space(a_deployment("grower", arguments=arguments, limits={"memory": "64Mi", "cpu": "200m"}))
    peaks: list[int] = []

    def killed() -> bool:
        pods = cluster.observe().pods
        rows = [i for i, name in enumerate(pods.names) if name.startswith("grower-")]
        peaks.extend(int(pods.memory_peak_mib[row]) for row in rows)
        return any(int(pods.oom_kills[row]) > 0 for row in rows)

    within(killed, 60)
    assert max(peaks) > 20


def test_loop_in_shadow_writes_nothing(
    lab: Lab,
    observer_kubeconfig: Path,
    space: Callable[..., None],
    pods: Callable[[str], list[dict[str, Any]]],
    eventually: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    space(a_deployment("watched", replicas=2))
    eventually(lambda: len([p for p in pods("watched") if is_ready(p)]) == 2)
    arguments = ["up", "--kubeconfig", str(observer_kubeconfig), "--no-serve", "--json"]
    arguments += ["--interval", "0.2", "--cycles", "20", "--namespaces", NAMESPACE]
    assert main([*arguments, "--journal", str(tmp_path / "live.db")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line[0] == "{"]
    assert sum("decision" in line for line in lines) == 20
    assert all(not line["actions"] for line in lines if "decision" in line)
    assert main(["verify", str(tmp_path / "live.db")]) == 0
    assert by(audit(lab)), "the witness saw nothing, so it proves nothing"
    assert strange_writes(audit(lab)) == []


def test_decision_is_told_on_the_object_it_concerns(
    lab: Lab,
    observer_kubeconfig: Path,
    space: Callable[..., None],
    pods: Callable[[str], list[dict[str, Any]]],
    eventually: Callable[..., Any],
) -> None:
    space(a_deployment("told"))
    eventually(lambda: [p for p in pods("told") if is_ready(p)])
    _, cluster = open_cluster(observer_kubeconfig, namespaces=NAMESPACE, prometheus=None)
    try:
        cluster.comment(a_decision(Ref("lab", "workload", NAMESPACE, "told"), "0198f2c4"))
        described = eventually(
            lambda: (
                (text := lab.kubectl("describe", "deployment", "told", "-n", NAMESPACE))
                and "WouldReplicate" in text
                and text
            ),
            seconds=20,
        )
    finally:
        cluster.close()
    assert "risk 0.91" in described
    mine = [e for e in audit(lab) if e["auditID"] == "0198f2c4"]
    assert [(e["verb"], e["objectRef"]["resource"]) for e in mine] == [("create", "events")]


def a_decision(target: Ref, identity: str) -> Decision:
    proposal = Proposal(
        agent="safety",
        label="AgentA:replicate",
        kind=ActionKind.REPLICATE,
        target=target,
        payload={},
        score=0.91,
        priority=0,
        evidence=(),
        reason="risk 0.91 within 15 min",
        expires_seconds=10,
    )
    return Decision(
        id=identity,
        cycle=1,
        made_seconds=1,
        snapshot_digest="",
        forecast_digest="",
        proposals=(proposal,),
        verdicts=(Verdict(ruling=Ruling.CHOSEN, rule="", sentence="", mode=Mode.SHADOW),),
        actions=(),
        headline=0,
        rationale="",
        margin="",
    )


def test_exerciser_stresses_the_lab_under_its_own_name_while_the_loop_looks_on(
    lab: Lab, observer_kubeconfig: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    already = len(audit(lab))
    arguments = ["up", "--kubeconfig", str(observer_kubeconfig), "--no-serve", "--json"]
    arguments += ["--interval", "1", "--cycles", "20", "--exercise", "rival-controller"]
    arguments += ["--pace", "100", "--journal", str(tmp_path / "stressed.db")]
    assert main(arguments) == 0
    assert "rival-controller-4 begins" in capsys.readouterr().err
    seen = audit(lab)[already:]
    assert strange_writes(seen) == []
    theirs = [e for e in by(seen, "lab-exerciser") if e["verb"] not in ("get", "list", "watch")]
    assert {e["objectRef"]["namespace"] for e in theirs} == {"pilothouse-exercise"}
    scaled = [e for e in theirs if e["objectRef"].get("name") == "rival-controller-4"]
    assert len([e for e in scaled if e["verb"] == "patch"]) > 2  # made once, then up and down
    left = lab.kubectl("get", "deployments,jobs", "-n", "pilothouse-exercise", "-o", "name")
    assert left.strip() == ""
