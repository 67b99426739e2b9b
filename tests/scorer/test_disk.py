# SPDX-License-Identifier: Apache-2.0
"""A policy on disk is served disk, by that name; what does not fit on disk is no candidate."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilothouse.policy import FEATURES
from pilothouse.policy.features import seeing
from pilothouse.scorer.board import PolicySource
from pilothouse.testing.placement import FOLDER
from tests.scorer.test_scorer import Scorer, a_machine


@pytest.fixture
def scorer(tmp_path: Path) -> Scorer:
    made = Scorer(tmp_path)
    made.view.rows = [
        a_machine("roomy", disk_requested=1_000, disk_allocatable=10_000),
        a_machine("full", disk_requested=9_000, disk_allocatable=10_000),
        a_machine("silent"),  # its kubelet reports no disk
    ]
    made.board.load(PolicySource(str(FOLDER / "disk")))
    return made


def test_a_policy_on_disk_sees_disk_and_calls_it_so(scorer: Scorer) -> None:
    said = scorer.suggest(cpu_millicores=100, memory_mib=64, disk_mib=500)
    rows = {row["node"]: row["features"] for row in said["nodes"]}

    assert list(rows["roomy"]) == list(seeing(FEATURES, "disk"))
    assert rows["roomy"]["disk_requested_share"] == pytest.approx(0.1)
    assert rows["roomy"]["disk_after_share"] == pytest.approx(0.15)
    assert rows["roomy"]["disk_request_share"] == pytest.approx(0.05)
    assert rows["full"]["disk_requested_share"] == pytest.approx(0.9)
    assert rows["silent"]["disk_requested_share"] == 1.0, "it offers none, so it is full"


def test_what_would_have_flipped_it_is_called_disk_too(scorer: Scorer) -> None:
    flips = [
        flip
        for cpu in (0, 500, 1000, 2000)
        for row in scorer.suggest(cpu_millicores=cpu, memory_mib=64, disk_mib=500)["nodes"]
        for flip in row["flips"]
    ]
    disk = [flip for flip in flips if flip["feature"] == "disk_requested_share"]

    assert disk, "no case turns on disk, so none says anything"
    assert all("a disk request share of" in flip["sentence"] for flip in disk)
    assert not [flip for flip in flips if "memory" in flip["feature"] + flip["sentence"]]


def test_other_policies_are_served_memory_as_before(scorer: Scorer) -> None:
    scorer.board.load(PolicySource(str(FOLDER / "fixture")))
    said = scorer.suggest(cpu_millicores=100, memory_mib=1024, disk_mib=500)

    assert list(said["nodes"][0]["features"]) == list(FEATURES)
    assert said["nodes"][0]["features"]["memory_after_share"] == pytest.approx(0.25)


@pytest.mark.parametrize("policy", ["disk", "fixture"])
def test_a_node_without_the_disk_that_a_pod_asks_for_is_no_candidate(
    scorer: Scorer, policy: str
) -> None:
    scorer.board.load(PolicySource(str(FOLDER / policy)))

    def feasible(disk_mib: float) -> list[bool]:
        said = scorer.suggest(cpu_millicores=100, memory_mib=64, disk_mib=disk_mib)
        return [row["feasible"] for row in said["nodes"]]

    assert feasible(0) == [True, True, True]
    assert feasible(1_000) == [True, True, False]
    assert feasible(1_001) == [True, False, False]


def test_disk_may_be_brought_along(scorer: Scorer) -> None:
    body = {
        "pod": {"disk_mib": 100},
        "nodes": [{"name": "roomy", "disk_requested": 400, "disk_allocatable": 1000}],
    }
    said = scorer.call("POST", "/v1/suggestions", json=body).json()

    assert said["nodes"][0]["features"]["disk_after_share"] == pytest.approx(0.5)
