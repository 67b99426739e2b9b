# SPDX-License-Identifier: Apache-2.0
"""The transparent baseline: what it sees coming, what it does not fall for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pilothouse.domain import Driver, Forecast, Snapshot, horizon_column
from pilothouse.predict import EwmaTrend, Forecaster
from pilothouse.settings import ForecastSettings
from pilothouse.testing.builders import a_snapshot, moved, with_node, with_pod
from pilothouse.testing.contracts import ForecasterContract

FIFTEEN = horizon_column(900)
Change = Callable[[Snapshot, int], Snapshot]


class TestContract(ForecasterContract):
    def make(self) -> Forecaster:
        return EwmaTrend(ForecastSettings())


def watch(
    change: Change, cycles: int, forecaster: EwmaTrend | None = None, *, every: int = 15
) -> list[Forecast]:
    """Forecasts of a calm cluster to which something happens."""
    forecaster = forecaster or EwmaTrend(ForecastSettings())
    snapshot = a_snapshot(nodes=4, pods=24, taken_seconds=600)
    forecasts = []
    for cycle in range(cycles):
        forecasts.append(forecaster.predict(change(snapshot, cycle)))
        later = snapshot.taken_seconds + every
        snapshot = replace(snapshot, taken_seconds=later)
    return forecasts


def risks(forecasts: list[Forecast], row: int = 0) -> list[int]:
    return [int(f.node_risk.risk_permille[row, FIFTEEN]) for f in forecasts]


def degrading(snapshot: Snapshot, cycle: int) -> Snapshot:
    """Dies at cycle 40 (ten minutes): errors and lag rise on a straight line."""
    level = min(cycle / 40, 1.0)
    return with_node(
        snapshot, 0, errors_per_minute=int(42 * level), heartbeat_lag_ms=int(24_000 * level)
    )


def test_a_degrading_node_passes_every_threshold_minutes_before_it_dies() -> None:
    seen = risks(watch(degrading, 40))
    crossed = [next(i for i, risk in enumerate(seen) if risk >= bar) for bar in (500, 700, 830)]
    assert crossed == sorted(crossed)
    assert crossed[1] * 15 <= 600 - 240
    assert crossed[2] * 15 <= 600 - 180


def test_the_calm_neighbors_of_a_degrading_node_stay_calm() -> None:
    assert max(risks(watch(degrading, 40), row=1)) < 100


def test_a_short_blip_never_reaches_the_migrate_threshold() -> None:
    def blip(snapshot: Snapshot, cycle: int) -> Snapshot:
        if cycle not in (20, 21):
            return snapshot
        return with_node(snapshot, 0, errors_per_minute=18, heartbeat_lag_ms=9_000)

    assert max(risks(watch(blip, 60))) < 700


def silent(rows: tuple[int, ...], since: int) -> Change:
    """No heartbeat of these nodes any more: each look finds it later by the time in between."""

    def change(snapshot: Snapshot, cycle: int) -> Snapshot:
        for row in rows if cycle >= since else ():
            snapshot = with_node(snapshot, row, heartbeat_lag_ms=5_000 * (cycle - since))
        return snapshot

    return change


def test_a_silent_node_is_left_before_kubernetes_gives_it_up() -> None:
    """Kubelets renew every 10 s and are given up after 50 s, which is a lag of 40 s."""
    seen = risks(watch(silent((0,), 24), 36, every=5))
    left_at = next(i for i, risk in enumerate(seen) if risk >= 700)
    assert max(seen[:25]) < 100
    assert 5 * (left_at - 24) <= 15


def test_silence_of_most_nodes_is_nobodys_fault_of_theirs() -> None:
    seen = watch(silent((0, 1, 2), 24), 28, every=5)
    assert max(risks(seen)) < 500


def test_silence_that_ends_is_forgotten() -> None:
    def pause(snapshot: Snapshot, cycle: int) -> Snapshot:
        return silent((0,), 24)(snapshot, cycle) if cycle < 27 else snapshot

    seen = risks(watch(pause, 40, every=5))
    assert max(seen) < 700
    assert seen[-1] < 180


def test_risk_falls_again_after_a_false_alarm() -> None:
    def alarm(snapshot: Snapshot, cycle: int) -> Snapshot:
        level = max(0.0, 1 - abs(cycle - 20) / 20) * 0.6
        return with_node(
            snapshot, 0, errors_per_minute=int(42 * level), heartbeat_lag_ms=int(24_000 * level)
        )

    assert risks(watch(alarm, 80))[-1] < 100


def test_more_errors_never_lower_the_risk() -> None:
    def steady(errors: int) -> Change:
        return lambda snapshot, _: with_node(snapshot, 0, errors_per_minute=errors)

    last = [risks(watch(steady(errors), 12))[-1] for errors in range(0, 40, 4)]
    assert last == sorted(last)


def test_an_unready_node_is_certain_and_names_how_long() -> None:
    def lost(snapshot: Snapshot, cycle: int) -> Snapshot:
        return with_node(snapshot, 0, ready=0, age_seconds=300) if cycle >= 10 else snapshot

    last = watch(lost, 14)[-1]
    assert risks([last]) == [1000]
    assert last.node_risk.driver[0] == Driver.UNREADY
    assert last.node_risk.driver_value[0] == 4 * 15 - 0
    assert last.node_risk.abstains[0] == 0


def test_it_abstains_for_a_node_whose_usage_is_stale() -> None:
    def stale(snapshot: Snapshot, cycle: int) -> Snapshot:
        return with_node(snapshot, 0, age_seconds=90, errors_per_minute=40)

    last = watch(stale, 20)[-1]
    assert last.node_risk.abstains[0] == 1
    assert risks([last]) == [0]


def test_a_leak_is_seen_before_the_limit_is_reached() -> None:
    def leak(snapshot: Snapshot, cycle: int) -> Snapshot:
        limit = int(snapshot.pods.memory_limit_mib[3])
        return with_pod(snapshot, 3, memory_used_mib=limit // 2 + limit * cycle // 80)

    last = watch(leak, 24)[-1]  # six of ten minutes
    assert last.pod_risk.risk_permille[3, FIFTEEN] >= 830
    assert last.pod_risk.driver[3] == Driver.MEMORY_GROWTH
    assert last.pod_risk.driver_value[3] > 0


def test_a_crash_fades_and_does_not_keep_a_pod_at_risk_for_ever() -> None:
    def crash(snapshot: Snapshot, cycle: int) -> Snapshot:
        return with_pod(snapshot, 2, restarts=3 if cycle >= 10 else 0)

    seen = [int(f.pod_risk.risk_permille[2, FIFTEEN]) for f in watch(crash, 160)]
    assert max(seen) >= 700
    assert seen[-1] < 50


def test_an_old_restart_counter_is_not_a_risk() -> None:
    last = watch(lambda snapshot, _: with_pod(snapshot, 2, restarts=40), 12)[-1]
    assert last.pod_risk.risk_permille[2, FIFTEEN] == 0


def test_growing_demand_is_forecast_above_what_is_used_now() -> None:
    def ramp(snapshot: Snapshot, cycle: int) -> Snapshot:
        return with_node(snapshot, 0, cpu_used_millicores=2_000 + 100 * cycle)

    last = watch(ramp, 20)[-1]
    assert last.node_demand.median_millicores[0, FIFTEEN] > 3_900 + 500
    assert last.node_demand.upper_millicores[0, FIFTEEN] < 3 * 3_900


def test_a_clock_that_goes_back_starts_history_anew() -> None:
    forecaster = EwmaTrend(ForecastSettings())
    watch(degrading, 20, forecaster)
    again = forecaster.predict(a_snapshot(nodes=4, pods=24, taken_seconds=10))
    assert again.abstentions
    assert again.node_risk.risk_permille.max() == 0


def test_rows_keep_their_history_when_others_come_and_go() -> None:
    forecaster = EwmaTrend(ForecastSettings())
    snapshot = a_snapshot(nodes=4, pods=40)
    for cycle in range(10):
        forecast = forecaster.predict(snapshot)
        snapshot = moved(snapshot, seed=cycle, replaced_permille=200)
    young = forecast.pod_risk.abstains == 1
    assert young.any()
    assert not young.all()
    assert np.all(forecast.pod_risk.risk_permille[young] == 0)
