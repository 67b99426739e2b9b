# SPDX-License-Identifier: Apache-2.0
"""The scheduling benchmark reads histograms right, and misses its bounds when it should."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.scheduling.arms import BROKEN
from benchmarks.scheduling.measure import CYCLE, mean, plugin_calls, quantiles, total
from benchmarks.scheduling.run import HERE, USUAL_ARMS, in_turn, main, not_known
from benchmarks.scheduling.summary import cost, missed, summarize, table, too_wide
from pilothouse import policy
from pilothouse.errors import PilothouseError
from pilothouse.policy import artifact
from pilothouse.testing import impostor

METRICS = """\
scheduler_schedule_attempts_total{profile="d",result="scheduled"} 40
scheduler_schedule_attempts_total{profile="d",result="error"} 2
scheduler_scheduling_algorithm_duration_seconds_sum 0.2
scheduler_scheduling_algorithm_duration_seconds_count 100
scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.001"} 40
scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.002"} 60
scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.004"} 100
scheduler_scheduling_algorithm_duration_seconds_bucket{le="+Inf"} 100
scheduler_plugin_execution_duration_seconds_sum{extension_point="Score",plugin="Ours"} 2
scheduler_plugin_execution_duration_seconds_count{extension_point="Score",plugin="Ours"} 8
scheduler_plugin_execution_duration_seconds_sum{extension_point="Score",plugin="Other"} 9
scheduler_plugin_execution_duration_seconds_count{extension_point="Score",plugin="Other"} 1
scheduler_plugin_execution_duration_seconds_sum{extension_point="PreScore",plugin="Ours"} 1
scheduler_plugin_execution_duration_seconds_count{extension_point="PreScore",plugin="Ours"} 2
pilothouse_scheduler_forward_duration_seconds_bucket{path="scored",le="0.0001"} 50
pilothouse_scheduler_forward_duration_seconds_bucket{path="scored",le="0.001"} 100
pilothouse_scheduler_forward_duration_seconds_bucket{path="scored",le="+Inf"} 100
"""


def runs(arm: str, ratio: float, **changes: Any) -> list[dict[str, Any]]:
    """Four turns of the stock scheduler and of an arm that is so much faster."""
    plain: dict[str, Any] = {
        "errors": 0.0,
        "panics": 0.0,
        "cycle_ms": 2.0,
        "score_ms": 1.0,
        "paths": {},
    }
    plain |= {"cycle_quantiles_ms": {"p50": 1.5, "p99": 6.0}, "plugin_call_ms": {}, "nodes": 100}
    found: list[dict[str, Any]] = []
    for turn in range(4):
        speed = 100.0 + 10 * turn
        stock = plain | {"pods_per_second": speed, "cpu_seconds_per_pod": 0.004, "prescore_ms": {}}
        own = stock | {"pods_per_second": speed * ratio, "prescore_ms": {"p50": 0.1, "p99": 0.5}}
        found += [
            stock | {"arm": "stock", "turn": turn},
            own | {"arm": arm, "turn": turn} | changes,
        ]
    return found


def test_histograms_give_means_and_quantiles_in_milliseconds() -> None:
    assert total(METRICS, "scheduler_schedule_attempts_total", 'result="error"') == 2
    assert mean(METRICS, "scheduler_scheduling_algorithm_duration_seconds") == pytest.approx(2.0)
    found = quantiles(METRICS, "pilothouse_scheduler_forward_duration_seconds")
    assert found == {"p50": pytest.approx(0.1), "p99": pytest.approx(0.982)}
    assert quantiles(METRICS, "nothing_of_that_name") == {}
    assert quantiles(METRICS, CYCLE) == {"p50": pytest.approx(1.5), "p99": pytest.approx(3.95)}
    calls = {"PreScore": pytest.approx(500.0), "Score": pytest.approx(250.0)}
    assert plugin_calls(METRICS, "Ours") == calls
    assert plugin_calls(METRICS, "Nobody") == {}


def test_what_a_cycle_takes_longer_is_against_the_stock_run_of_the_same_turn() -> None:
    found = runs("hybrid", 1.0)
    for run in found:
        own = run["arm"] == "hybrid"
        run["cycle_ms"] = 2.0 + run["turn"] + 0.5 * own
        run["cycle_quantiles_ms"] = {"p50": 1.0 + run["turn"] + 0.25 * own, "p99": 9.0 + own}
        run["plugin_call_ms"] = {"PreScore": float(run["turn"])} if own else {}
    summary = summarize("hybrid", found)

    assert summary["added_cycle_ms"] == pytest.approx(0.5)
    assert summary["added_cycle_p50_ms"] == pytest.approx(0.25)
    assert summary["added_cycle_p99_ms"] == pytest.approx(1.0)
    assert summary["plugin_call_ms"] == {"PreScore": 1.5}
    assert "| 0.500 | 0.250 |" in table({"hybrid": summary})
    older = summarize("plugin", runs("plugin", 1.0, cycle_quantiles_ms={}))
    assert older["added_cycle_p50_ms"] is None
    assert any("more than stock was never measured" in said for said in missed("plugin", older))


def test_a_run_without_arguments_has_every_arm_that_is_held_to_something() -> None:
    assert {"stock", "plugin", *BROKEN} <= set(USUAL_ARMS)


def test_a_ratio_is_of_neighbors() -> None:
    found = summarize("plugin", runs("plugin", 0.97))

    assert found["ratio"] == pytest.approx(0.97)
    assert (found["ratio_low"], found["ratio_high"]) == (pytest.approx(0.97), pytest.approx(0.97))
    assert "| plugin | 4 |" in table({"plugin": found})


def test_ratios_that_differ_from_turn_to_turn_are_not_known_well_enough() -> None:
    found = runs("hung", 1.2)
    for run in found:
        if run["arm"] == "hung" and run["turn"] % 2:
            run["pods_per_second"] *= 1.5
    summary = summarize("hung", found)

    assert summary["mean_ratio"] == pytest.approx(1.2 * 1.5**0.5)
    assert summary["mean_ratio_low"] < summary["mean_ratio"] < summary["mean_ratio_high"]
    assert any("is known to ±" in said for said in missed("hung", summary))


def test_only_arms_that_are_not_known_well_enough_get_more_turns() -> None:
    found = runs("hung", 1.2) + [run for run in runs("slow", 1.1) if run["arm"] == "slow"]
    arms = ["stock", "hung", "slow"]
    assert not_known(arms, found) == []

    for run in found:
        if run["arm"] == "hung" and run["turn"] % 2:
            run["pods_per_second"] *= 1.5
    assert not_known(arms, found) == ["stock", "hung"]


def test_stock_runs_at_both_ends_of_a_turn_and_their_mean_is_what_arms_are_held_to() -> None:
    assert in_turn(["stock", "plugin", "hung"], 0) == ["stock", "plugin", "hung", "stock"]
    assert in_turn(["stock", "plugin", "hung"], 1) == ["stock", "hung", "plugin", "stock"]
    assert in_turn(["plugin", "hung"], 1) == ["hung", "plugin"]

    found = runs("hung", 1.2)
    after = [run | {"pods_per_second": 4 * run["pods_per_second"]} for run in found[::2]]
    assert summarize("hung", found + after)["mean_ratio"] == pytest.approx(1.2 / 2)


def test_runs_that_were_measured_in_another_way_are_not_added_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = json.loads((HERE / "results.json").read_text()) | {"lease_seconds": 40}
    kept = tmp_path / "results.json"
    kept.write_text(json.dumps(old))
    monkeypatch.setattr("sys.argv", ["run", "--resume", "--out", str(kept)])
    with pytest.raises(SystemExit, match="was measured in another way"):
        main()
    assert json.loads(kept.read_text()) == old


def test_turns_are_added_until_the_mean_ratio_is_known() -> None:
    found = runs("hung", 1.2)
    assert too_wide(summarize("hung", found)) is None
    found[1]["pods_per_second"] *= 1.3
    assert too_wide(summarize("hung", found)) == pytest.approx(0.21, abs=0.01)
    assert too_wide(summarize("hung", found[:2])) is not None  # a single pair says nothing


@pytest.mark.parametrize(
    ("arm", "ratio", "changes", "says"),
    [
        ("plugin", 0.94, {}, "ratio 0.940"),
        ("plugin", 1.0, {"cpu_seconds_per_pod": 0.0044}, "CPU per pod 1.100"),
        ("plugin", 1.0, {"prescore_ms": {"p50": 0.5, "p99": 0.6}}, "own median 0.500"),
        ("plugin", 1.0, {"prescore_ms": {"p50": 0.1, "p99": 1.6}}, "own p99 1.600"),
        ("plugin", 1.0, {"prescore_ms": {}}, "never measured"),
        ("plugin", 1.0, {"cycle_quantiles_ms": {"p50": 1.95}}, "more than stock 0.450"),
        ("hung", 1.0, {"plugin_call_ms": {"Score": 0.003, "Reserve": 0.1}}, "own median 0.500"),
        ("hung", 0.89, {}, "needs 0.9"),
        ("garbage", 1.0, {"errors": 1.0}, "4 pods failed"),
        ("garbage", 1.0, {"panics": 1.0}, "4 panics"),
        ("garbage", 1.0, {"garbage": {"huge": 0, "text": 3}}, "never met huge"),
    ],
)
def test_a_missed_bound_is_said(arm: str, ratio: float, changes: Any, says: str) -> None:
    assert missed(arm, summarize(arm, runs(arm, 1.0))) == []
    failed = missed(arm, summarize(arm, runs(arm, ratio, **changes)))
    assert any(says in text for text in failed), failed


def test_a_cost_that_is_only_reported_misses_nothing_but_a_failed_pod_does() -> None:
    slow = summarize("plugin", runs("plugin", 0.5))
    assert missed("plugin", slow)
    assert missed("plugin", slow, reported=True) == []

    slow["errors"] = 1.0
    assert missed("plugin", slow, reported=True) == ["plugin: 1 pods failed"]


def test_short_form_forgives_a_busy_run_and_not_a_slow_plugin() -> None:
    slow = runs("plugin", 1.0, prescore_ms={"p50": 0.1, "p99": 1.6})
    assert not all(cost("plugin", summarize("plugin", slow), room=1.1).values())

    slow[1]["prescore_ms"] = {"p50": 0.1, "p99": 0.5}
    assert all(cost("plugin", summarize("plugin", slow), room=1.1).values())

    long = runs("plugin", 1.0, cycle_quantiles_ms={"p50": 2.0, "p99": 6.0})
    long[1]["cycle_quantiles_ms"] = {"p50": 1.5, "p99": 6.0}  # one good turn saves nobody
    assert not all(cost("plugin", summarize("plugin", long), room=1.1).values())

    costly = runs("plugin", 1.0, cpu_seconds_per_pod=0.0048)
    costly[1]["cpu_seconds_per_pod"] = 0.004
    assert not all(cost("plugin", summarize("plugin", costly), room=1.1).values())

    lucky = runs("plugin", 1.0)  # nor does a stock run that no other comes near fail anybody
    lucky[0]["cycle_quantiles_ms"], lucky[0]["cpu_seconds_per_pod"] = {"p50": 0.5}, 0.002
    assert all(cost("plugin", summarize("plugin", lucky), room=1.1).values())


TABLE = {
    "apiVersion": "pilothouse.dev/v1alpha1",
    "ttlSeconds": 10,
    "latency": {"": {"worker-1": 5.0}},
    "policy": {"version": "v", "card": {}, "weights": ""},
}


def ask(port: int, *, most: int = 1 << 16) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"GET /v1/table HTTP/1.1\r\n\r\n")
        said = b""
        while len(said) < most and (more := connection.recv(65536)):
            said += more
    return said.partition(b"\r\n\r\n")[2]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_an_impostor_behaves_as_told_in_turn() -> None:
    port = free_port()
    good = impostor.answer(json.dumps(TABLE).encode())
    with impostor.impostor(port, impostor.in_turn(good, impostor.hang_up, good)):
        said = [ask(port) for _ in range(3)]
    assert [bool(one) for one in said] == [True, False, True]
    assert threading.active_count() < 20


def test_who_met_which_garbage_is_counted_and_who_met_none_too() -> None:
    met: Counter[str] = Counter()
    kinds = impostor.counted({"text": impostor.answer(b"hello"), "hung": impostor.hang}, met)
    port = free_port()
    with impostor.impostor(port, impostor.in_turn(kinds["text"])):
        ask(port), ask(port)
    assert met == {"text": 2, "hung": 0}
    assert "hung" in met


def test_weights_that_are_no_numbers_are_refused_for_just_that() -> None:
    own = policy.shipped("el-rl")
    table = {"card": json.loads(msgspec.json.encode(own.card)), "version": own.version}
    broken = impostor.without_a_number(table | {"weights": base64.b64encode(own.weights).decode()})
    with pytest.raises(PilothouseError, match="holds values that are not numbers"):
        artifact.decode(
            json.dumps(broken["card"]).encode(), base64.b64decode(broken["weights"]), "broken"
        )


def test_garbage_is_garbage_each_in_its_own_way() -> None:
    found = {}
    for name, behave in impostor.garbage(TABLE).items():
        port = free_port()
        with impostor.impostor(port, behave):
            found[name] = ask(port)
    assert found.keys() >= {"not-a-number", "extreme", "unknown-nodes", "version", "huge"}
    assert b"NaN" in found["not-a-number"]
    assert found["nan-weights"] != found["weights"]
    assert b"1e+308" in found["extreme"]
    assert len(found["huge"]) > 60_000
    assert len(set(found.values())) == len(found)
