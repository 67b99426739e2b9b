# SPDX-License-Identifier: Apache-2.0
"""The learned forecaster: deterministic, monotone, and silent about what it does not know."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

from benchmarks.forecast_loop import strange
from pilothouse.domain import ActionKind, Power, Snapshot
from pilothouse.errors import ArtifactBroken
from pilothouse.predict import forecaster_of, with_thresholds
from pilothouse.predict.baseline import EwmaTrend
from pilothouse.predict.learned import SHIPPED, Learned, RiskArtifact, load_artifact
from pilothouse.propose.safety import Safety
from pilothouse.scenarios import load
from pilothouse.settings import ForecastSettings, SafetySettings, Settings
from pilothouse.sim.cluster import SimCluster

SHIPPED_SHA256 = "f86a2fd7609294e77272e696521348b2e85d6acaf335a8ded2d8319c18633ce6"


@pytest.fixture(scope="module")
def artifact() -> RiskArtifact:
    return load_artifact()


@pytest.fixture(scope="module")
def day() -> list[Snapshot]:
    cluster = SimCluster(load("node-degradation"), seed=5)
    seen = []
    for _ in range(70):
        cluster.advance(15)
        seen.append(cluster.observe())
    return seen


def forecasts(artifact: RiskArtifact, snapshots: list[Snapshot]) -> list:
    learned = Learned(artifact, ForecastSettings())
    return [learned.predict(snapshot) for snapshot in snapshots]


def abstains(forecast) -> bool:
    return any("abstains" in note.reason for note in forecast.abstentions)


def test_same_snapshots_give_the_same_forecasts(artifact, day) -> None:
    for one, two in zip(forecasts(artifact, day), forecasts(artifact, day), strict=True):
        np.testing.assert_array_equal(one.node_risk.risk_permille, two.node_risk.risk_permille)
        np.testing.assert_array_equal(one.pod_risk.risk_permille, two.pod_risk.risk_permille)


def test_risk_never_falls_with_a_longer_horizon(artifact, day) -> None:
    for forecast in forecasts(artifact, day):
        for table in (forecast.node_risk, forecast.pod_risk, forecast.workload_risk):
            assert (np.diff(table.risk_permille, axis=1) >= 0).all()
            assert (table.risk_permille >= 0).all()
            assert (table.risk_permille <= 1000).all()


def test_familiar_snapshots_are_forecast_not_handed_down(artifact, day) -> None:
    said = forecasts(artifact, day)

    assert sum(f.forecaster == artifact.name for f in said) >= 0.99 * len(said)


def test_a_node_that_will_die_is_riskier_than_the_others(artifact, day) -> None:
    dead = [s for s in day if (s.nodes.power == Power.DEAD).any()]
    if not dead:
        pytest.fail("the scenario must kill a node within the test's time")
    at = day.index(dead[0])
    doomed = int(np.flatnonzero(dead[0].nodes.power == Power.DEAD)[0])
    before = forecasts(artifact, day[:at])[-2].node_risk.risk_permille[:, 1]

    assert before[doomed] == before.max()
    assert before[doomed] >= 200


@pytest.mark.parametrize("change", [c for c in strange.CHANGES if c != "familiar"])
def test_it_abstains_within_a_minute_on_what_it_never_saw(artifact, day, change) -> None:
    said = forecasts(artifact, [strange.CHANGES[change](s) for s in day])[4:]

    assert np.mean([abstains(f) for f in said]) >= 0.95


def test_abstention_names_the_number_and_the_forecaster_used_instead(artifact, day) -> None:
    note = forecasts(artifact, [strange.units_times_a_thousand(s) for s in day[:6]])[
        -1
    ].abstentions[-1]

    assert "in training it was" in note.reason
    assert "ewma-trend/1 is used instead" in note.reason


def test_handed_down_risk_crosses_our_thresholds_exactly_where_it_crossed_its_own(
    artifact, day
) -> None:
    odd = [strange.units_times_a_thousand(s) for s in day]
    baseline = EwmaTrend(ForecastSettings())
    defaults = SafetySettings()
    for moved, snapshot in zip(forecasts(artifact, odd), odd, strict=True):
        plain = baseline.predict(snapshot).node_risk.risk_permille
        for name in ("throttle_risk", "migrate_risk", "replicate_risk"):
            level, crossed = artifact.thresholds[name], plain >= 1000 * getattr(defaults, name)
            np.testing.assert_array_equal(moved.node_risk.risk_permille >= 1000 * level, crossed)


def test_workloads_handed_down_are_judged_where_the_baseline_would_have_been(artifact, day) -> None:
    """An hour ahead the baseline is sure of much; only its five minutes count for our hour."""
    looks_far = replace(
        artifact, thresholds={**artifact.thresholds, "workload_horizon_seconds": 3600}
    )
    odd = [strange.source_missing(s) for s in day]
    baseline, level = EwmaTrend(ForecastSettings()), artifact.thresholds["replicate_risk"]
    sure = 0
    for moved, snapshot in zip(forecasts(looks_far, odd), odd, strict=True):
        plain = baseline.predict(snapshot).workload_risk.risk_permille
        crossed = plain[:, 0] >= 1000 * SafetySettings().replicate_risk
        sure += int((plain[:, -1] >= 1000 * SafetySettings().replicate_risk).sum() > crossed.sum())
        told = moved.workload_risk.risk_permille
        np.testing.assert_array_equal(told[:, -1] >= 1000 * level, crossed)
        assert (np.diff(told, axis=1) >= 0).all()
    assert sure, "the day must have a workload that only the longer horizon worries about"


def test_shipped_thresholds_apply_only_where_nobody_set_one(artifact) -> None:
    learned = ForecastSettings(forecaster="learned")
    shipped = with_thresholds(Settings(forecast=learned)).safety
    mine = with_thresholds(
        Settings(forecast=learned, safety=SafetySettings(migrate_risk=0.42))
    ).safety

    assert shipped.migrate_risk == artifact.thresholds["migrate_risk"]
    assert mine.migrate_risk == 0.42
    assert with_thresholds(Settings()).safety == SafetySettings()


def test_rows_at_risk_say_what_moved_them_and_the_parts_add_up_in_order(artifact, day) -> None:
    said = forecasts(artifact, day)
    told = [f for f in said if any(a.scope == "nodes" for a in f.attributions)]
    if not told:
        pytest.fail("a degrading node must be explained")
    forecast = told[-1]
    uid = next(a.uid for a in forecast.attributions if a.scope == "nodes")
    moved = forecast.attributed("nodes", uid)

    assert {a.feature for a in moved} <= set(artifact.nodes.names)
    sizes = [abs(a.adds_thousandths) for a in moved]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 0


def test_calm_snapshots_explain_no_node(artifact, day) -> None:
    first = forecasts(artifact, day[:6])[-1]

    assert not [a for a in first.attributions if a.scope == "nodes"]


def test_proposal_carries_the_features_that_moved_its_risk(artifact, day) -> None:
    settings = with_thresholds(Settings(forecast=ForecastSettings(forecaster="learned")))
    proposals = [
        proposal
        for snapshot, forecast in zip(day, forecasts(artifact, day), strict=True)
        for proposal in Safety(settings).propose(snapshot, forecast)
        if "fails within 15 min" in proposal.reason
    ]
    if not proposals:
        pytest.fail("the dying node must be proposed for something")
    for proposal in proposals:
        assert f"says {artifact.name}" in proposal.reason
        assert sum(e.unit == "log-odds" for e in proposal.evidence) == 3
    holds = {p.payload.get("seconds") for p in proposals if p.kind is ActionKind.MIGRATE}
    assert holds == {artifact.thresholds["hold_seconds"]}


def test_transparent_risk_has_no_attributions_and_its_proposals_name_nobody(day) -> None:
    baseline, settings = EwmaTrend(ForecastSettings()), Settings()
    for snapshot in day:
        forecast = baseline.predict(snapshot)
        assert forecast.attributions == ()
        for proposal in Safety(settings).propose(snapshot, forecast):
            assert "says" not in proposal.reason
            assert "seconds" not in proposal.payload or proposal.target.kind == "workload"


def test_abstention_says_until_when(artifact, day) -> None:
    said = forecasts(artifact, [strange.units_times_a_thousand(s) for s in day[:6]])
    note = said[-1].abstentions[-1]

    assert note.until_seconds == day[5].taken_seconds + 15  # the next look
    assert "asked again every cycle" in note.reason


def test_one_number_beyond_training_in_age_alone_is_not_strange(artifact, day) -> None:
    """A cluster watched for a week: only what grows with time has grown."""
    week = 7 * 86_400
    older = [
        replace(s, pods=replace(s.pods, created_seconds=s.pods.created_seconds - week)) for s in day
    ]
    said = forecasts(artifact, older)

    assert sum(f.forecaster == artifact.name for f in said) >= 0.99 * len(said)


def test_drift_is_told_for_other_machines_and_not_for_the_same(artifact, day) -> None:
    def thinner(s: Snapshot) -> Snapshot:
        return replace(s, pods=replace(s.pods, memory_used_mib=s.pods.memory_used_mib * 3 // 2))

    moved = forecasts(artifact, [thinner(s) for s in day])[-1].drift
    assert "memory_over_limit" in {shift.feature for shift in moved}


def test_shipped_artefact_is_the_one_its_command_made() -> None:
    """Made by the command on its card; benchmarks/forecast_loop checks that byte by byte."""
    shipped = resources.files("pilothouse.predict") / "shipped" / SHIPPED
    document = json.loads(shipped.read_bytes())

    assert document["sha256"] == SHIPPED_SHA256
    assert document["forecaster"]["card"]["command"] == (
        "pilothouse train risk --name learned --seeds 3 --cycles 300"
    )


def test_empty_cluster_is_no_accident(artifact, day) -> None:
    first = day[0]
    none = np.zeros(0, np.int64)

    def emptied(table):
        return replace(table, **{f: getattr(table, f)[none] for f in table.__dataclass_fields__})

    empty = replace(first, pods=emptied(first.pods), nodes=emptied(first.nodes))
    forecast = Learned(artifact, ForecastSettings()).predict(empty)

    assert abstains(forecast)


def test_altered_or_cut_off_artefact_is_never_loaded(artifact) -> None:
    data = artifact.dump()
    assert RiskArtifact.parse(data, "it").name == artifact.name
    with pytest.raises(ArtifactBroken, match="altered"):
        RiskArtifact.parse(data.replace(b'"migrate_risk":', b'"migrate_risk": 1', 1), "it")
    with pytest.raises(ArtifactBroken, match="cut off"):
        RiskArtifact.parse(data[:-100], "it")
    with pytest.raises(ArtifactBroken, match="schema 9"):
        RiskArtifact.parse(data.replace(b'"schema":1', b'"schema":9', 1), "it")


def test_settings_name_the_forecaster(artifact) -> None:
    assert forecaster_of(ForecastSettings()).name == "ewma-trend/1"
    assert forecaster_of(ForecastSettings(forecaster="learned")).name == artifact.name
