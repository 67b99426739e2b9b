# SPDX-License-Identifier: Apache-2.0
"""The thesis's tests side by side: figures, what was changed, and a real cluster's stand-in."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from pilothouse.errors import InvalidSetting
from pilothouse.lab import placement
from pilothouse.learn.placement import comparing, reproducing, thesis_tests
from pilothouse.learn.placement.chooser import HEURISTICS, Hybrid
from pilothouse.learn.placement.comparing_live import LiveArm, as_it_is, compare_live
from pilothouse.learn.placement.playing import play
from pilothouse.learn.placement.thesis_tests import PRESETS, Trial
from tests.learn.placement.standin import StandIn, stand_in

pytestmark = pytest.mark.timeout(600)


def a_cluster(*, cores: int = 1) -> StandIn:
    course = thesis_tests.courses(Trial(node_cores=cores), 1)
    cluster = stand_in(course)
    for name, machine in cluster.nodes.items():
        cluster.nodes[name] = replace(machine, cpu_requested=0, memory_requested=0, pods=0)
    return cluster


def test_thesis_preset_repeats_five_hundred_times_and_waits() -> None:
    trial = Trial(test=1, **PRESETS["thesis"])

    assert trial.steps == 15_000
    assert trial.waits
    assert [trial.seconds_before(step) for step in (0, 1, 30)] == [0.0, 3.0, 28.0]
    rolling = Trial(test=2)
    assert [rolling.seconds_before(step) for step in (0, 30, 31)] == [0.0, 2.0, 4.0]


def test_pods_that_do_not_fit_one_node_are_scaled_and_that_is_said() -> None:
    trial = Trial().fitted(2000, 4096)

    assert trial.pods * trial.cpu_millicores <= 2000
    assert trial.memory_mib == 64
    assert "scaled to 63m" in trial.deviations()[0]
    assert Trial().fitted(8000, 4096).deviations() == []
    assert "5 times" in Trial(latency_factor=5).deviations()[0]
    assert "Pods ask for 500m" in Trial(cpu_millicores=500).deviations()[0]
    assert "limits are 10 and 40 ms" in Trial(soft_ms=10, hard_ms=40).deviations()[0]
    with pytest.raises(InvalidSetting, match="Ask for fewer with --pods"):
        Trial().fitted(10, 4096)


def test_a_live_comparison_names_profiles_and_meets_the_same_courses() -> None:
    cluster, moved = a_cluster(), []
    cluster.picks = "worker-2"  # what its scheduler does with everything

    def move(wanted: dict[str, float]) -> None:
        moved.append(wanted)
        cluster.latency = {node: float(ms) for node, ms in wanted.items()}

    trial = Trial(test=2, pods=4, replacements=8)
    made = compare_live(
        trial,
        ("default", "heuristic"),
        cluster,  # type: ignore[arg-type]
        seeds=2,
        enter=as_it_is,
        set_latency=move,
    )
    rows = {(r.arm, r.figure): r for r in made.rows}

    assert made.where == "on a real cluster"
    assert made.profiles == {
        "default": "scheduler default-scheduler of the cluster",
        "heuristic": "no scheduler: bound by the rule itself",
    }
    assert "Requests are scaled" in made.notes[0]
    assert rows["default", "used nodes"].mean == 1.0
    assert rows["heuristic", "soft violations, %"].mean == 0.0
    assert rows["default", "soft violations, %"].mean > 50
    assert moved[:3] == moved[6:9], "each arm meets the same latencies"
    assert cluster.pods == {}, "nothing is left"


def test_nodes_move_on_a_cluster_as_told(tmp_path: Path) -> None:
    cluster = a_cluster()
    spare = cluster.nodes.pop("worker-3")

    class Swap:
        def gather(self) -> None:
            assert list(cluster.nodes) == ["worker-1", "worker-2"]

        def swap(self) -> None:
            del cluster.nodes["worker-1"]
            cluster.nodes["worker-3"] = spare

    def move(wanted: dict[str, float]) -> None:
        cluster.latency |= {node: float(ms) for node, ms in wanted.items()}

    trial = Trial(test=2, pods=3, replacements=5, nodes_move=True)
    made = compare_live(
        trial,
        ("near-used-first",),
        cluster,  # type: ignore[arg-type]
        seeds=1,
        enter=as_it_is,
        set_latency=move,
        nodes=Swap(),
    )
    chosen = made.played["near-used-first"].node[:, 0]

    assert made.changes == (trial.lost_at,)
    assert (chosen[: trial.lost_at] == 0).all()
    assert (chosen[trial.lost_at :] == 2).all()
    assert len(chosen) > trial.steps
    paths = [p for plot in comparing.plots_of(made) for p in comparing.write_plot(plot, tmp_path)]
    assert len(paths) == 4


def test_waits_are_the_thesis_s_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    cluster = a_cluster()
    cluster.picks = "worker-1"
    arm = LiveArm(words="stock")
    for waits in (False, True):
        trial = Trial(test=1, pods=2, cycles=1, waits=waits)
        compare_live(trial, ("x",), cluster, seeds=1, enter=lambda _: arm)  # type: ignore[arg-type]

    assert waited == [0.0, 3.0, 28.0]


def test_a_csv_has_raw_values_averages_and_change_points(tmp_path: Path) -> None:
    curve = np.array([1.0, np.nan, 3.0])
    plot = comparing.Plot(name="x", title="x", unit="ms", curves={"a": curve}, changes=(2,))
    written = comparing.write_plot(plot, tmp_path)
    rows = list(csv.reader(written[0].read_text().splitlines()))

    assert rows == [
        ["step", "a", "a (average of 10)", "change"],
        ["0", "1", "1", "0"],
        ["1", "", "1", "0"],
        ["2", "3", "2", "1"],
    ]


def test_every_figure_is_written_step_by_step(tmp_path: Path) -> None:
    trial = Trial(test=2, pods=3, replacements=6)
    made = comparing.compare(trial, ("default", "el-rl"), seeds=3)
    path = comparing.write_steps(made, tmp_path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    means = {(row.arm, row.figure): row.mean for row in made.rows}

    assert list(rows[0]) == ["step", "arm", *comparing.FIGURES, "change"]
    assert len(rows) == 2 * trial.steps
    for arm in ("default", "el-rl"):
        own = [row for row in rows if row["arm"] == arm]
        assert [int(row["step"]) for row in own if row["change"] == "1"] == list(trial.changes)
        for figure in comparing.FIGURES:
            values = [float(row[figure]) for row in own]
            told = sum(values) if figure == comparing.ENERGY else sum(values) / len(values)
            assert told == pytest.approx(means[arm, figure], rel=1e-2, abs=1e-2), figure
    assert means["default", "hard violations, %"] > 0
    assert means["el-rl", comparing.ENERGY] > 0
    assert comparing.NOTHING_PENDS in made.notes


def test_courses_that_end_before_others_count_nothing_afterwards(tmp_path: Path) -> None:
    trial = Trial(test=2, nodes_move=True)
    made = comparing.compare(trial, ("least-allocated", "most-allocated"), seeds=6)
    played, courses = made.played["least-allocated"], thesis_tests.courses(trial, 6)
    ended = np.isfinite(played.active).sum(axis=0)

    assert ended.min() < ended.max(), "the control: some courses end before others"
    for course in range(6):
        own = slice(course, course + 1)
        alone = play(courses.rows(own), HEURISTICS["least-allocated"])
        for name in ("active", "watts", "latency_ms", "hopeless"):
            told = getattr(played, name)[: ended[course], own]
            np.testing.assert_array_equal(told, getattr(alone, name))
            assert np.isnan(getattr(played, name)[ended[course] :, own]).all()
    for plot in comparing.plots_of(made):
        lengths = {len(curve) for curve in plot.curves.values()}
        assert len(lengths) > 1, "the control: some arms place more often than others"
        written = comparing.write_plot(plot, tmp_path)
        rows = list(csv.reader(written[0].read_text().splitlines()))
        assert len(rows) == 1 + max(lengths)
        assert "" in rows[-1], "a short curve leaves its cells empty"
    assert made.changes == (trial.changes[0], trial.lost_at)


def test_curves_that_are_equal_share_a_line_and_its_name() -> None:
    one = np.array([1.0, np.nan])
    curves = {"a": one, "b": one + 1, "c": one.copy(), "d": np.array([1.0])}

    assert comparing._alike(curves) == [["a", "c"], ["b"], ["d"]]


def test_versions_name_the_program_its_libraries_and_every_policy() -> None:
    found = reproducing.versions()

    assert {"pilothouse", "python", "numpy", "jax", "policy ee", "policy el-rl"} <= set(found)
    assert found["policy ee"].startswith("ee-")


def test_hybrid_is_simulated_with_the_weight_of_its_profile() -> None:
    document = yaml.safe_load((placement.profiles() / "hybrid.yaml").read_text())
    plugins = document["profiles"][0]["plugins"]
    (own,) = (e for e in plugins["multiPoint"]["enabled"] if e["name"] == placement.PLUGIN)
    hybrid = comparing.chooser_of("hybrid")

    assert isinstance(hybrid, Hybrid)
    assert hybrid.weight == own["weight"]
    assert set(plugins) == {"multiPoint"}  # every default scorer stays, as in the simulation
