# SPDX-License-Identifier: Apache-2.0
"""Suites that any forecaster or proposer must pass, ours or a stranger's.

Subclass one in a test module and say how to make the thing under test:

    class TestMine(ProposerContract):
        def make(self) -> Proposer: ...
"""

from __future__ import annotations

import math

import numpy as np

from pilothouse.domain import Forecast, Proposal, Snapshot, columns
from pilothouse.predict import Forecaster
from pilothouse.propose import Proposer
from pilothouse.testing.builders import a_forecast, a_snapshot, moved


class ForecasterContract:
    """Deterministic, integer, monotone in the horizon, and never surprised by an empty cluster."""

    def make(self) -> Forecaster:
        raise NotImplementedError

    def story(self, cycles: int = 8) -> list[Snapshot]:
        snapshots = [a_snapshot(nodes=5, pods=30, seed=4)]
        for cycle in range(cycles - 1):
            snapshots.append(moved(snapshots[-1], seed=cycle))
        return snapshots

    def test_same_history_gives_the_same_forecast(self) -> None:
        first, second = self.make(), self.make()
        for snapshot in self.story():
            assert _numbers(first.predict(snapshot)) == _numbers(second.predict(snapshot))

    def test_rows_are_those_of_the_snapshot(self) -> None:
        forecaster = self.make()
        for snapshot in self.story():
            forecast = forecaster.predict(snapshot)
            assert forecast.made_seconds == snapshot.taken_seconds
            assert (forecast.node_risk.uid == snapshot.nodes.uid).all()
            assert (forecast.pod_risk.uid == snapshot.pods.uid).all()
            assert (forecast.workload_demand.uid == snapshot.workloads.uid).all()

    def test_risk_is_a_permille_that_never_falls_with_the_horizon(self) -> None:
        forecaster = self.make()
        for snapshot in self.story():
            forecast = forecaster.predict(snapshot)
            for table in (forecast.node_risk, forecast.pod_risk, forecast.workload_risk):
                assert table.risk_permille.dtype == np.int32
                assert ((table.risk_permille >= 0) & (table.risk_permille <= 1000)).all()
                assert (np.diff(table.risk_permille, axis=1) >= 0).all()

    def test_upper_demand_is_never_below_the_median(self) -> None:
        forecaster = self.make()
        for snapshot in self.story():
            forecast = forecaster.predict(snapshot)
            for table in (forecast.node_demand, forecast.workload_demand):
                assert (table.upper_millicores >= table.median_millicores).all()
                assert (table.median_millicores >= 0).all()

    def test_an_empty_cluster_has_an_empty_forecast(self) -> None:
        forecast = self.make().predict(a_snapshot(nodes=0, pods=0, workloads=0))
        assert len(forecast.node_risk) == len(forecast.pod_risk) == 0

    def test_it_abstains_before_it_has_any_history(self) -> None:
        forecast = self.make().predict(self.story()[0])
        assert forecast.abstentions
        assert (forecast.node_risk.abstains == 1).all()


class ProposerContract:
    """Pure, deterministic, finite, and never silent."""

    def make(self) -> Proposer:
        raise NotImplementedError

    def test_same_view_gives_the_same_wishes(self) -> None:
        for snapshot, forecast in _views():
            first = self.make().propose(snapshot, forecast)
            assert list(first) == list(self.make().propose(snapshot, forecast))

    def test_it_answers_every_cycle(self) -> None:
        agent = self.make()
        for snapshot, forecast in _views():
            assert len(agent.propose(snapshot, forecast)) >= 1

    def test_it_leaves_the_snapshot_as_it_was(self) -> None:
        snapshot, forecast = _views()[1]
        before = {name: column.tolist() for name, column in columns(snapshot.pods).items()}
        self.make().propose(snapshot, forecast)
        after = {name: column.tolist() for name, column in columns(snapshot.pods).items()}
        assert before == after

    def test_every_number_is_finite_and_every_score_a_share(self) -> None:
        agent = self.make()
        for snapshot, forecast in _views():
            for proposal in agent.propose(snapshot, forecast):
                _assert_sound(proposal, agent)

    def test_an_empty_cluster_is_answered_with_a_no_op(self) -> None:
        snapshot = a_snapshot(nodes=0, pods=0, workloads=0)
        answers = self.make().propose(snapshot, a_forecast(snapshot))
        assert [answer.is_noop for answer in answers] == [True]


def _views() -> list[tuple[Snapshot, Forecast]]:
    snapshots = [
        a_snapshot(nodes=1, pods=0, workloads=0),
        a_snapshot(),
        a_snapshot(nodes=12, pods=120, seed=3),
    ]
    return [(snapshot, a_forecast(snapshot)) for snapshot in snapshots]


def _assert_sound(proposal: Proposal, agent: Proposer) -> None:
    assert proposal.agent == agent.name
    assert proposal.label == f"{agent.title}:{proposal.kind.value}"
    assert math.isfinite(proposal.score)
    assert 0 <= proposal.score <= 1
    assert proposal.reason
    for item in proposal.evidence:
        assert math.isfinite(item.value)


def _numbers(forecast: Forecast) -> list[list[int]]:
    risks = (forecast.node_risk, forecast.pod_risk, forecast.workload_risk)
    demands = (forecast.node_demand, forecast.workload_demand)
    return [
        *(table.risk_permille.ravel().tolist() for table in risks),
        *(table.upper_millicores.ravel().tolist() for table in demands),
    ]
