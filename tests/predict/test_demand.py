# SPDX-License-Identifier: Apache-2.0
"""Learned demand in the loop: it drives the agents, is quoted, and steps back where it is blind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.forecast_loop import strange
from pilothouse.cli import main
from pilothouse.domain import Snapshot
from pilothouse.errors import ArtifactBroken
from pilothouse.features.familiarity import Range
from pilothouse.features.series import LIVE
from pilothouse.journal import JournalReader
from pilothouse.predict import forecaster_of, with_thresholds
from pilothouse.predict.baseline import EwmaTrend
from pilothouse.predict.demand import DemandArtifact, DemandPart, WithDemand
from pilothouse.predict.learned import RiskArtifact, load_artifact
from pilothouse.predict.trees import Ensemble
from pilothouse.scenarios import load
from pilothouse.settings import ForecastSettings, Settings
from pilothouse.sim.cluster import SimCluster


def stump(feature: str, low: float, high: float) -> Ensemble:
    """One split at the level: below it one answer, above it another."""
    return Ensemble(
        depth=1,
        bias=0.0,
        feature=np.array([[LIVE.index(feature)]], np.int32),
        threshold=np.array([[1.0]], np.float32),
        missing_left=np.array([[True]]),
        leaf=np.array([[low, high]], np.float32),
        cover=np.array([[100.0, 50.0, 50.0]], np.float32),
    )


@pytest.fixture(scope="module")
def artifact() -> DemandArtifact:
    """Back to the level within the hour, and a tenth to a fifth above it at most."""
    median = tuple(stump("mean_3", 0.01 * step, -0.01 * step) for step in range(1, 5))
    upper = tuple(stump("mean_3", 0.1, 0.1 + 0.02 * step) for step in range(1, 5))
    everything = np.array([[-8.0] * len(LIVE), [8.0] * len(LIVE)], np.float32)
    part = DemandPart(
        ensembles=(median, upper),
        shifts=((0.0,) * 4, (0.01,) * 4),
        ranges=Range.of(everything, LIVE),
    )
    return DemandArtifact(
        name="wanted/1",
        step_seconds=60,
        least_steps=5,
        parts={"nodes": part, "workloads": part},
        card={},
    )


@pytest.fixture
def trained(artifact: DemandArtifact, tmp_path: Path) -> str:
    """Its file; content with a minute, because agents save most right after a start."""
    path = tmp_path / "wanted.json"
    path.write_bytes(replace(artifact, least_steps=1).dump())
    return str(path)


@pytest.fixture(scope="module")
def day() -> list[Snapshot]:
    cluster = SimCluster(load("harbor"), seed=705)
    seen = []
    for _ in range(60):
        cluster.advance(15)
        seen.append(cluster.observe())
    return seen


def forecasts(artifact: DemandArtifact, snapshots: list[Snapshot]) -> list:
    learned = WithDemand(EwmaTrend(ForecastSettings()), artifact)
    return [learned.predict(snapshot) for snapshot in snapshots]


def test_upper_demand_is_never_below_the_median_and_risk_is_untouched(artifact, day) -> None:
    baseline = EwmaTrend(ForecastSettings())
    for snapshot, said in zip(day, forecasts(artifact, day), strict=True):
        plain = baseline.predict(snapshot)
        for table in (said.node_demand, said.workload_demand):
            assert (table.upper_millicores >= table.median_millicores).all()
            assert (table.median_millicores >= 0).all()
        np.testing.assert_array_equal(said.node_risk.risk_permille, plain.node_risk.risk_permille)
        np.testing.assert_array_equal(said.node_demand.abstains, plain.node_demand.abstains)


def test_same_snapshots_give_the_same_demand_and_it_is_not_the_transparent_one(
    artifact, day
) -> None:
    one, two = forecasts(artifact, day)[-1], forecasts(artifact, day)[-1]
    baseline = EwmaTrend(ForecastSettings())
    plain = [baseline.predict(s) for s in day][-1]

    for name in ("node_demand", "workload_demand"):
        mine, again = getattr(one, name), getattr(two, name)
        np.testing.assert_array_equal(mine.upper_millicores, again.upper_millicores)
        assert (mine.upper_millicores != getattr(plain, name).upper_millicores).any()
    assert one.demand_by == artifact.name


def test_without_history_the_transparent_demand_stands_and_the_forecast_says_why(
    artifact, day
) -> None:
    said = forecasts(artifact, day[:10])[-1]
    baseline = EwmaTrend(ForecastSettings())
    plain = [baseline.predict(s) for s in day[:10]][-1]
    notes = {note.scope: note.reason for note in said.abstentions}

    assert "min of history, needs 5 min" in notes["demand of nodes"]
    assert "ewma-trend/1 is used there" in notes["demand of nodes"]
    np.testing.assert_array_equal(
        said.node_demand.upper_millicores, plain.node_demand.upper_millicores
    )
    assert said.attributions == ()


def test_demand_is_relative_so_other_units_change_nothing_but_the_unit(artifact, day) -> None:
    plain = forecasts(artifact, day)[-1].node_demand
    scaled = forecasts(artifact, [strange.units_times_a_thousand(s) for s in day])[-1].node_demand

    known = plain.abstains == 0
    np.testing.assert_allclose(
        scaled.upper_millicores[known], 1000.0 * plain.upper_millicores[known], atol=600, rtol=0.01
    )


def test_rows_unlike_training_are_left_to_the_other_forecaster(artifact, day) -> None:
    def spiking(number: int, s: Snapshot) -> Snapshot:
        used = s.nodes.cpu_used_millicores.copy()
        used[0] = 0 if number < len(day) - 4 else 1_000_000
        return replace(s, nodes=replace(s.nodes, cpu_used_millicores=used))

    odd = [spiking(number, s) for number, s in enumerate(day)]
    said = forecasts(artifact, odd)[-1]
    baseline = EwmaTrend(ForecastSettings())
    plain = [baseline.predict(s) for s in odd][-1]

    assert "unlike training" in " ".join(note.reason for note in said.abstentions)
    np.testing.assert_array_equal(
        said.node_demand.upper_millicores[0], plain.node_demand.upper_millicores[0]
    )


def test_it_drives_efficiency_and_explain_quotes_it(
    artifact, trained: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = str(tmp_path / "run.db")
    run = ["up", "--scenario", "light", "--demand", trained, "--cycles", "12", "--interval", "0"]
    assert main([*run, "--no-serve", "--journal", journal]) == 0
    quoted = [
        (decision.id, proposal)
        for decision in (one.cycle.decision for one in JournalReader(Path(journal)).cycles())
        for proposal, verdict in zip(decision.proposals, decision.verdicts, strict=True)
        if verdict.acts and f"says {artifact.name}" in proposal.reason
    ]
    assert quoted, "learned demand never led to an action"
    decision, proposal = quoted[0]
    capsys.readouterr()
    assert main(["explain", decision, "--journal", journal]) == 0
    told = " ".join(capsys.readouterr().out.split())

    assert f"says {artifact.name}" in told
    assert "of its level" in told
    assert sum(e.unit == "of its level" for e in proposal.evidence) == 3
    assert main(["replay", journal]) == 0


def test_settings_name_it_beside_any_forecaster_of_risk(artifact, trained: str) -> None:
    chosen = ForecastSettings(forecaster="learned", demand=trained)
    both, thresholds = forecaster_of(chosen), with_thresholds(Settings(forecast=chosen))

    assert both.name == f"{load_artifact().name}, {artifact.name}"
    assert thresholds.safety.migrate_risk == load_artifact().thresholds["migrate_risk"]
    assert forecaster_of(ForecastSettings()).name == "ewma-trend/1"


def test_files_of_risk_and_demand_are_not_taken_for_each_other(artifact) -> None:
    with pytest.raises(ArtifactBroken, match="forecasts no demand"):
        DemandArtifact.parse(load_artifact().dump(), "it")
    with pytest.raises(ArtifactBroken, match="forecasts no risk"):
        RiskArtifact.parse(artifact.dump(), "it")
    assert DemandArtifact.parse(artifact.dump(), "it").dump() == artifact.dump()
