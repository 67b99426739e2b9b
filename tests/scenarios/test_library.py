# SPDX-License-Identifier: Apache-2.0
"""Scenario files: complete, valid, and complaints that say where."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pilothouse.errors import InvalidSetting, MissingFile, UnknownName
from pilothouse.scenarios import Range, StimulusKind, library, load, names
from pilothouse.scenarios.library import parse
from pilothouse.sim.blueprint import draw
from pilothouse.sim.timeline import deal

_GOOD = "description: ok\n"


def test_there_is_a_scenario_for_every_stimulus_and_one_that_mixes_them():
    assert {kind.value for kind in StimulusKind} <= set(names())
    mixed = {s.kind for s in load("harbor").exerciser.stimuli}
    assert len(mixed) >= 9


@pytest.mark.parametrize("name", names())
def test_tuning_and_held_out_ranges_are_apart(name):
    for stimulus in load(name).exerciser.stimuli:
        pairs = [(stimulus.tuning[p], stimulus.held_out[p]) for p in stimulus.tuning]
        assert any(not a.overlaps(b) for a, b in pairs)


@pytest.mark.parametrize("name", names())
def test_no_scenario_names_an_agent_or_a_cycle(name):
    text = (Path(library.__file__).parent / f"{name}.yaml").read_text().lower()
    words = set(re.findall(r"[a-z]+", text))
    assert not words & {"agent", "agents", "safety", "efficiency", "admission", "cycle", "cycles"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("description: x\nwrld: {}\n", 'Unknown key of scenario in file.yaml "wrld". Did you mean'),
        ("world: {}\n", "scenario.description is missing"),
        (_GOOD + "world: {nodes: many}\n", "scenario.world.nodes must be two whole numbers"),
        (_GOOD + "world: {nodes: [9, 3]}\n", "0 <= low <= high, but got [9, 3]"),
        (_GOOD + "world: {zones: -1}\n", "scenario.world.zones must be a whole number"),
        (_GOOD + "world: 3\n", "scenario.world must be a mapping, but got 3"),
        (_GOOD + "exerciser: {stimuli: [{kind: floods}]}\n", '"floods"'),
        ("a: [1\n", "is not valid YAML"),
        (_GOOD + "exerciser: {stimuli: [{kind: idle}]}\n", "must give magnitude"),
        (
            _GOOD + "exerciser: {latency: [{at_seconds: 5, node_ms: []}]}\n",
            "latency[0].node_ms must be one or more latencies of at most 10000 ms, but got []",
        ),
    ],
)
def test_bad_file_is_one_clear_line(text, message):
    with pytest.raises((InvalidSetting, UnknownName)) as caught:
        parse(text, name="file", source="file.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_overlapping_ranges_are_refused():
    text = (
        _GOOD + "exerciser: {stimuli: [{kind: idle,\n"
        "  tuning: {magnitude: [1, 5], duration_seconds: [60, 90]},\n"
        "  held_out: {magnitude: [5, 9], duration_seconds: [60, 90]}}]}\n"
    )
    with pytest.raises(InvalidSetting, match="same values for tuning and held_out"):
        parse(text, name="file", source="file.yaml")


def test_unknown_scenario_and_missing_file_say_what_exists():
    with pytest.raises(UnknownName, match='Did you mean "harbor"'):
        load("habor")
    with pytest.raises(MissingFile, match="Cannot read the scenario"):
        load("./nowhere.yaml")


def test_own_file_can_be_loaded(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("description: mine\nworld: {nodes: 4}\n")
    scenario = load(str(path))
    assert (scenario.name, scenario.world.nodes) == ("mine", Range(4, 4))


def test_held_out_draws_come_from_held_out_ranges():
    scenario = load("cpu-saturation").with_ranges("held-out")
    spans = scenario.exerciser.stimuli[0].held_out["magnitude"]
    for seed in range(5):
        for exercise in deal(draw(scenario, seed), 0, 0).exercises:
            assert spans.low <= exercise.magnitude <= spans.high


def test_every_second_degradation_at_most_is_a_false_alarm():
    scenario = load("node-degradation")
    alarms = real = 0
    for seed in range(20):
        for event in deal(draw(scenario, seed), 0, 0).events:
            alarms += event.value == 2
            real += event.value == 1
    assert alarms > 5
    assert real >= alarms


def test_decks_differ_but_can_be_dealt_again():
    plan = draw(load("harbor"), 1)
    assert deal(plan, 3, 900) == deal(plan, 3, 900)
    assert deal(plan, 3, 900).exercises != deal(plan, 4, 900).exercises
