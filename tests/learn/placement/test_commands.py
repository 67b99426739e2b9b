# SPDX-License-Identifier: Apache-2.0
"""Placement from the command line: answers for scripts, and mistakes that are named."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pilothouse.cli import main
from pilothouse.learn.placement import comparing, reproducing, rewards, trainer
from pilothouse.learn.placement.thesis_tests import PRESETS, Trial
from pilothouse.policy import Network, shipped

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("home")]


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


def test_evaluate_answers_with_lines_and_every_heuristic(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [
        "evaluate",
        "placement",
        "--policy",
        "lb",
        "--nodes",
        "3",
        "4",
        "--episodes",
        "6",
        "--json",
    ]
    code, out, _ = answered(capsys, *words)
    report = json.loads(out)

    assert code == 0
    assert report["simulated"] is True
    assert {row[0] for row in report["table"]} >= {"lb", "default", "best-fit", "heuristic"}


def test_compare_writes_plots_tables_and_a_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = "compare placement --test 2 --arms default,el-rl --seeds 2 --pods 5 --json --out"
    code, out, _ = answered(capsys, *words.split(), str(tmp_path))

    assert code == 0
    assert {row["arm"] for row in json.loads(out)["rows"]} == {"default", "el-rl"}
    assert {path.name for path in tmp_path.iterdir()} == {
        "index.html",
        "test2-latency.csv",
        "test2-latency.png",
        "test2-steps.csv",
        "test2-used-nodes.csv",
        "test2-used-nodes.png",
    }


def test_a_compared_pod_asks_for_what_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    words = "compare placement --arms most-allocated --seeds 2 --pods 4 --json"
    _, usual, _ = answered(capsys, *words.split())
    words += " --cpu 4000 --memory 100 --soft 0 --hard 90"
    code, out, _ = answered(capsys, *words.split())
    told = json.loads(out)
    means = {row["figure"]: row["mean"] for row in told["rows"]}

    assert code == 0
    assert means["used nodes"] > 1, "four pods of 4000m do not fit one node of 8 cores"
    assert means["hard violations, %"] == 0, "no latency of the test is beyond 90 ms"
    assert means["soft violations, %"] is None, "there is no soft limit to break"
    assert "4000m and 100 MiB" in told["notes"][0]
    assert "0 and 90 ms" in told["notes"][1]
    before = {row["figure"]: row["mean"] for row in json.loads(usual)["rows"]}
    assert before["used nodes"] == 1
    assert before["hard violations, %"] > 0


def figure(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_thesis_figures_are_drawn_one_plot_and_one_csv_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tiny = {"steps": 8, "train_every": 1, "envs": 2, "batch": 4, "updates": 1, "buffer": 16}
    tiny |= {"learning_starts": 1, "courses": 2, "encoder": (4,), "head": (4,)}
    monkeypatch.setattr(trainer, "THESIS", replace(trainer.THESIS, **tiny))
    # One reward and one training, so that one program is compiled; which policy has which reward
    # is tested elsewhere.
    monkeypatch.setattr(rewards, "OF_POLICY", dict.fromkeys(rewards.OF_POLICY, "thesis-el-rl"))
    every = tmp_path / "every"
    words = f"compare placement --seeds 1 --json --reproduce thesis --out {every}"
    code, out, _ = answered(capsys, *words.split())
    told = json.loads(out)
    assert code == 0
    assert told["simulated"] is True
    assert {Path(path).name for path in told["written"]} == {p.name for p in every.iterdir()}

    page = (every / "index.html").read_text()
    names = [f"figure-5-{number:02d}" for number in range(1, 13)]
    for name in names:
        rows = figure(every / f"{name}.csv")
        curves = set(rows[0]) - {"step", "change"}
        assert len(rows) > 90
        assert {"1", "0"} == {row["change"] for row in rows}, f"{name}: no change point"
        assert all(any(row[curve] for row in rows) for curve in curves), f"{name}: empty"
        assert {f"{c} (average of 10)" for c in curves if "(" not in c} <= curves
        picture = (every / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert len(picture) > 10_000
    assert {p.name for p in every.iterdir()} == {
        "index.html",
        "versions.json",
        *(f"{name}.{kind}" for name in names for kind in ("csv", "png")),
    }
    for node in range(3):  # 5.5 to 5.7: EL-RL puts a cycle's thirty pods on the nearest
        first = figure(every / f"figure-5-{5 + node:02d}.csv")[29]
        assert first[f"node {node}"] == "30"
    assert {"default", "ee", "lb", "el-rl"} <= set(figure(every / "figure-5-09.csv")[0])
    assert {"default", "heuristic", "el-rl"} <= set(figure(every / "figure-5-12.csv")[0])
    made_by = json.loads((every / "versions.json").read_text())
    assert {"pilothouse", "numpy", "jax", "policy el-rl"} <= set(made_by)
    assert all(f"{name}.png" in page for name in names)
    assert all(f"{name} {version}" in page for name, version in made_by.items())


def test_thesis_figures_are_of_the_preset_and_pods_that_are_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trained: list[Trial] = []
    monkeypatch.setitem(PRESETS, "thesis", {"cycles": 9})
    monkeypatch.setattr(comparing, "_write_png", lambda plot, folder: folder / f"{plot.name}.png")
    monkeypatch.setattr(reproducing, "training_plots", lambda t, seeds: trained.append(t) or [])
    words = "compare placement --reproduce thesis --preset thesis --pods 3 --replacements 5"
    words += f" --seeds 1 --hard 25 --out {tmp_path} --json"
    code, out, _ = answered(capsys, *words.split())

    assert code == 0
    assert json.loads(out)["notes"] == [
        "Soft and hard limits are 20 and 25 ms (the thesis's: 20 and 30 ms)."
    ]
    assert [(trial.cycles, trial.pods, trial.hard_ms) for trial in trained] == [(9, 3, 25)]
    for number, steps in ((1, 27), (2, 8), (3, 27), (4, 8), (5, 27), (6, 27), (7, 27), (8, 7)):
        assert len(figure(tmp_path / f"figure-5-{number:02d}.csv")) == steps
    assert len(figure(tmp_path / "figure-5-11.csv")) == 8
    page = (tmp_path / "index.html").read_text()
    assert "9 cycles of test 1" in page
    assert "limits are 20 and 25 ms" in page


def test_cycles_are_spread_over_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    class Still:
        """A trainer that learns nothing."""

        CHUNKS = trainer.Trainer.CHUNKS

        def __init__(self, *_: object) -> None: ...

        def network(self) -> Network:
            return shipped("ee").network

        def run(self) -> Iterator[SimpleNamespace]:
            yield from [SimpleNamespace(epsilon=0.0)] * self.CHUNKS

    monkeypatch.setattr(trainer, "Trainer", Still)
    for cycles, played in ((6, 8 * 3), (40, 40)):
        nodes, _ = reproducing.training_plots(Trial(cycles=cycles, pods=2), 1)
        assert {len(curve) for curve in nodes.curves.values()} == {played * 2}
        assert len(nodes.changes) == 2 * 8


@pytest.mark.parametrize("said", ["memory", "requests"])
def test_resource_that_contradicts_a_reward_file_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, said: str
) -> None:
    file = tmp_path / "night.yaml"
    file.write_text("resource: cpu\ncomponents: {new-node: 1}\n")
    words = f"train placement --policy night --reward {file} --resource {said}"
    code, _, err = answered(capsys, *words.split())

    assert code == 2
    assert f"night.yaml has the resource cpu, but --resource is {said}. Keep one." in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("compare placement --arms defualt", 'Did you mean "default"'),
        ("compare placement --phase later", "Available: testing, training"),
        ("evaluate placement --policy eee", "Unknown policy"),
        ("train placement --policy ee --preset quick", "Available: fast, thesis"),
        ("train placement --policy mine", "Unknown policy"),
        ("train placement --policy ee --resource dsk", 'Did you mean "disk"'),
        ("train placement --policy ee --resource disk --from-journal j", "has no disk"),
        ("train placement --policy ee --live k --from-journal j", "Keep one"),
        ("compare placement --live k --reproduce thesis", "--live plays the tests with"),
        ("compare placement --live k --nodes-move --test 2", "only the lab's workers"),
        ("compare placement --preset slow", "Available: short, thesis"),
        ("compare placement --soft 40", "no larger than --hard"),
        ("compare placement --soft 40 --phase training", "no larger than --hard"),
        ("compare placement --arms ,", "--arms names no arm"),
        ("train placement --policy ee --live k --resume", "--resume is not read with --live"),
        ("train placement --policy ee --live k --seeds 1", "--seeds is not read with --live"),
        *(
            (
                f"train placement --policy ee --from-journal j {given}",
                f"{option} with --from-journal",
            )
            for given, option in (
                ("--seeds 1", "--seeds is not read"),
                ("--steps 9", "--steps is not read"),
                ("--resume", "--resume is not read"),
                ("--resume --steps 9", "--resume and --steps are not read"),
            )
        ),
        (
            "train placement --policy ee --start lb",
            "--start is not read without --live or --from-journal. Leave it out.",
        ),
        *(
            (f"{command} {option} 1", f"{option} is not read without --live")
            for command in ("train placement --policy ee", "compare placement")
            for option in ("--namespace", "--image", "--probe-port")
        ),
        *(
            (f"compare placement {mode} {option}", f"{option.split()[0]} is not read with {mode}")
            for mode, options in (
                (
                    "--reproduce thesis",
                    ("--phase training", "--test 1", "--arms defualt", "--nodes-move"),
                ),
                ("--phase training", ("--policies p", "--nodes-move")),
            )
            for option in options
        ),
        ("compare placement --phase training --arms defualt", 'Did you mean "default"'),
        ("compare placement --phase training --arms default,random", "none learns anything"),
        (
            "compare placement --phase training --replacements 9",
            "--replacements is not read with --test 1",
        ),
        ("compare placement --replacements 9", "--replacements is not read with --test 1"),
    ],
)
def test_mistakes_are_named(capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    code, _, err = answered(capsys, *words.split())

    assert code == 2
    assert message in err
