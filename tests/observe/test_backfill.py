# SPDX-License-Identifier: Apache-2.0
"""The past, as far as Prometheus knows it, warms a forecaster up."""

from __future__ import annotations

import asyncio
from typing import Any

from pilothouse.clients.metrics import Sample
from pilothouse.clients.prometheus import Answer, Row
from pilothouse.domain import Snapshot
from pilothouse.observe import backfill
from pilothouse.predict import forecaster_of
from pilothouse.settings import ObserveSettings, Settings
from pilothouse.testing.builders import a_snapshot


def a_past(now: Snapshot, seconds: int) -> list[Snapshot]:
    steps = [now.taken_seconds - seconds + 15 * i for i in range(seconds // 15)]
    samples = [Sample(cpu_millicores=100 + i, memory_mib=50, at=0.0) for i in range(len(steps))]
    nodes = {str(name): list(samples) for name in now.nodes.names}
    return backfill.past(now, steps, nodes, {})


def test_forecasts_abstain_without_a_past_and_say_until_when() -> None:
    now = a_snapshot()
    (abstention,) = forecaster_of(Settings().forecast).predict(now).abstentions
    assert abstention.until_seconds == now.taken_seconds + Settings().forecast.warmup_seconds


def test_forecasts_are_ready_at_once_with_a_past() -> None:
    now = a_snapshot()
    forecaster = forecaster_of(Settings().forecast)
    for snapshot in a_past(now, 120):
        forecaster.predict(snapshot)
    forecast = forecaster.predict(now)
    assert not forecast.abstentions
    assert not forecast.node_demand.abstains.any()


def test_past_has_the_usage_of_then_and_no_pod_that_is_younger() -> None:
    now = a_snapshot()
    young = int(now.pods.created_seconds.max())
    seen = a_past(now, now.taken_seconds)
    assert [s.taken_seconds for s in seen] == sorted(s.taken_seconds for s in seen)
    assert seen[0].nodes.cpu_used_millicores[0] == 100
    assert seen[-1].nodes.cpu_used_millicores[0] == 100 + len(seen) - 1
    for snapshot in seen:
        assert (snapshot.pods.created_seconds <= snapshot.taken_seconds).all()
    assert any(s.taken_seconds < young and len(s.pods) < len(now.pods) for s in seen) or young == 0


def test_steps_that_prometheus_knows_nothing_of_are_left_out() -> None:
    now = a_snapshot()
    steps = [now.taken_seconds - 30, now.taken_seconds - 15]
    known = Sample(cpu_millicores=1, memory_mib=1, at=0.0)
    nodes = {str(now.nodes.names[0]): [None, known]}
    assert [s.taken_seconds for s in backfill.past(now, steps, nodes, {})] == [steps[1]]


class FakePrometheus:
    """Knows one node and one pod, at every step it is asked for."""

    url = "http://prometheus"

    async def history(self, query: str, *, begin: float, end: float, step_seconds: int) -> Answer:
        steps = range(int((end - begin) // step_seconds) + 1)
        points = tuple((round(begin + i * step_seconds, 3), 0.5) for i in steps)
        labels = {"node": "n1", "namespace": "shop", "pod": "cart-x"}
        return Answer(rows=(Row(labels, points),), dropped=0)

    async def close(self) -> None:
        pass


def test_history_is_asked_for_the_whole_stretch() -> None:
    fake: Any = FakePrometheus()
    settings = ObserveSettings(backfill_seconds=60)
    steps, nodes, pods = asyncio.run(backfill.fetch(fake, settings, end=1000.0371))
    assert len(steps) == 4
    assert [s.cpu_millicores for s in nodes["n1"] if s] == [500] * 4
    assert all(pods[("shop", "cart-x")])
