# SPDX-License-Identifier: Apache-2.0
"""The loop in shadow on a real cluster: everything is seen, nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from deploy.render import render
from pilothouse.cli import main
from pilothouse.cli.live import history, open_cluster
from pilothouse.clients.access import from_kubeconfig
from pilothouse.domain import (
    ActionKind,
    Decision,
    Mode,
    Proposal,
    Ref,
    Ruling,
    Snapshot,
    Source,
    Verdict,
)
from pilothouse.lab import Lab
from pilothouse.lab.build import obtain
from pilothouse.lab.part import HELM
from pilothouse.observe.backfill import STEP_SECONDS
from pilothouse.predict import forecaster_of
from pilothouse.settings import ObserveSettings, Settings
from pilothouse.settings.file import with_overrides
from tests.live.conftest import NAMESPACE, OBSERVER, a_deployment, is_ready
from tests.live.witness import audit, by, strange_writes


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
            )
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
    said = capsys.readouterr()
    assert "rival-controller-4 begins" in said.err
    lines = [json.loads(line) for line in said.out.splitlines() if line[0] == "{"]
    assert [line["actions"] for line in lines if "decision" in line] == [[]] * 20
    assert main(["verify", str(tmp_path / "stressed.db")]) == 0
    assert main(["replay", str(tmp_path / "stressed.db")]) == 0
    seen = audit(lab)[already:]
    assert strange_writes(seen) == []
    theirs = [e for e in by(seen, "lab-exerciser") if e["verb"] not in ("get", "list", "watch")]
    assert {e["objectRef"]["namespace"] for e in theirs} == {"pilothouse-exercise"}
    scaled = [e for e in theirs if e["objectRef"].get("name") == "rival-controller-4"]
    assert len([e for e in scaled if e["verb"] == "patch"]) > 2  # made once, then up and down
    left = lab.kubectl("get", "deployments,jobs", "-n", "pilothouse-exercise", "-o", "name")
    assert left.strip() == ""


def test_forecasts_are_ready_at_once_where_prometheus_knows_the_past(
    lab: Lab, observer_kubeconfig: Path, eventually: Callable[..., Any]
) -> None:
    settings = with_overrides(Settings(), {"forecast.warmup_seconds": 15}, source="test")
    _, cluster = open_cluster(
        observer_kubeconfig, namespaces=NAMESPACE, prometheus=lab.prometheus_url
    )
    try:
        cold = forecaster_of(settings.forecast).predict(cluster.observe())
        (waits,) = cold.abstentions  # the control: without a past it abstains and says until when
        assert waits.until_seconds == cold.made_seconds + settings.forecast.warmup_seconds
        needed = settings.forecast.warmup_seconds + 2 * STEP_SECONDS

        def past() -> list[Snapshot]:
            found, _ = history(cluster, settings.observe, lab.prometheus_url)
            long = found and found[-1].taken_seconds - found[0].taken_seconds >= needed
            return found if long else []

        forecaster = forecaster_of(settings.forecast)
        for snapshot in eventually(past, seconds=200, every=5):
            forecaster.predict(snapshot)

        def fresh() -> Snapshot | None:
            snapshot = cluster.observe()
            return snapshot if snapshot.nodes.age_seconds.max() < 45 else None

        warm = forecaster.predict(eventually(fresh))
    finally:
        cluster.close()
    assert not warm.abstentions
    assert not warm.node_demand.abstains.any()


@pytest.fixture
def kubelets_kubeconfig(lab: Lab, observer_kubeconfig: Path) -> Iterator[Path]:
    """The observer's account with the one rule more that the chart has for this."""
    helm = obtain(lab.layout.binaries, parts=(HELM,))["helm"]
    rendered = [d for d in yaml.safe_load_all(render(helm, "rbac.kubelets=true")) if d]
    (role,) = [d for d in rendered if d["kind"] == "ClusterRole"]
    assert {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]} in role["rules"]
    lab.apply(json.dumps(role))
    yield observer_kubeconfig
    lab.apply(OBSERVER.read_text())  # the others test it without


def answer_of_a_kubelet(lab: Lab, kubeconfig: Path, token: str) -> int:
    address = lab.workers()[0].address
    return httpx2.get(
        f"https://{address}:10250/metrics/resource",
        headers={"Authorization": f"Bearer {token}"},
        verify=from_kubeconfig(kubeconfig).tls(),  # an account's: without a certificate of its own
        trust_env=False,
        timeout=10,
    ).status_code


def test_kubelets_tell_where_there_is_nobody_else(
    lab: Lab, kubelets_kubeconfig: Path, eventually: Callable[..., Any]
) -> None:
    # The control: an account without the rule is refused, so it is the rule that lets ours in.
    nobody = lab.kubectl("create", "token", "default", "-n", "pilothouse-system").strip()
    assert answer_of_a_kubelet(lab, kubelets_kubeconfig, nobody) == 403
    _, cluster = open_cluster(
        kubelets_kubeconfig,
        namespaces=NAMESPACE,
        prometheus=None,
        observe=ObserveSettings(usage="kubelets"),
    )

    def measured() -> Source | None:
        snapshot = cluster.observe()
        rows = [i for i, name in enumerate(snapshot.nodes.names) if name.startswith("worker-")]
        young = (snapshot.nodes.age_seconds[rows] < 60).all()
        return _source(snapshot, "kubelets") if young else None

    try:
        told = eventually(measured)
    finally:
        cluster.close()
    assert told.age_seconds < 60


def _source(snapshot: Snapshot, name: str) -> Source | None:
    return next((s for s in snapshot.sources if s.name == name), None)
