# SPDX-License-Identifier: Apache-2.0
"""Which scheduler places pods in the lab: arms, and nodes that are lost and join."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from pilothouse.cli.placement_live import LabStage
from pilothouse.errors import LabUnavailable, UnknownName
from pilothouse.lab import arms, placement
from pilothouse.lab.build import Binaries
from pilothouse.lab.component import Site
from pilothouse.lab.lab import PORTS
from pilothouse.lab.layout import Layout, Worker
from pilothouse.learn.placement import comparing


class FakeLab:
    """Three workers whose kubelets register them when they start."""

    def __init__(self, scheduler: str = "pilothouse") -> None:
        self.nodes = ["worker-1", "worker-2", "worker-3"]
        self.done: list[str] = []
        self.planned = SimpleNamespace(scheduler=scheduler, ports={})

    def workers(self) -> list[Worker]:
        return [Worker(number=n, cpu_millicores=500, memory_mib=512) for n in (1, 2, 3)]

    def kubectl(self, *words: str) -> str:
        if words[0] == "delete":
            self.nodes.remove(words[2])
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        return json.dumps(
            {"items": [{"metadata": {"name": n}, "status": ready} for n in self.nodes]}
        )

    def kill(self, name: str) -> None:
        self.done.append(f"kill {name}")

    def restart(self, name: str) -> None:
        self.done.append(f"restart {name}")
        self.nodes.append(name.removeprefix("kubelet-"))


def test_a_lost_worker_s_kubelet_is_dead_and_one_that_joins_registers_again() -> None:
    lab: Any = FakeLab()

    arms.keep(lab, ["worker-1", "worker-2"])
    assert lab.nodes == ["worker-1", "worker-2"]
    arms.keep(lab, ["worker-2", "worker-3"])
    assert sorted(lab.nodes) == ["worker-2", "worker-3"]
    assert lab.done == [
        "kill kubelet-worker-3",
        "kill kubelet-worker-1",
        "restart kubelet-worker-3",
    ]


def test_unknown_arms_and_labs_without_probes_are_refused() -> None:
    lab: Any = FakeLab()
    with pytest.raises(UnknownName, match="most-allocated"):
        arms.use(lab, "most-alocated")
    stock: Any = FakeLab(scheduler="stock")
    with pytest.raises(LabUnavailable, match="--scheduler pilothouse"):
        arms.use(stock, "default")


def test_every_arm_of_ours_has_a_shipped_profile() -> None:
    ours = {arm.profile for arm in arms.ARMS.values() if arm.policy}

    assert ours <= set(placement.profile_names())
    assert arms.ARMS["hybrid"].words == "profile hybrid, policy el-rl"


def profile_of(name: str, folder: Path) -> dict[str, Any]:
    """What the stock scheduler is told for this arm."""
    site = Site(
        layout=Layout(folder),
        binaries=Binaries(folder=folder / "bin", origin={}),
        ports={name: 20_000 + i for i, name in enumerate(PORTS)},
    )
    command = arms._scheduler(site, arms.ARMS[name]).command
    path = next(word.partition("=")[2] for word in command if word.startswith("--config="))
    (profile,) = yaml.safe_load(Path(path).read_text())["profiles"]
    return dict(profile)


def test_the_stock_scheduler_that_packs_changes_one_thing(tmp_path: Path) -> None:
    profile = profile_of("most-allocated", tmp_path)

    assert set(profile) == {"schedulerName", "pluginConfig"}
    (fit,) = profile["pluginConfig"]
    assert fit["args"]["scoringStrategy"]["type"] == "MostAllocated"


def test_best_fit_scores_by_the_room_that_is_left_and_by_nothing_else(tmp_path: Path) -> None:
    profile = profile_of("best-fit", tmp_path)

    assert profile["plugins"] == {
        "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}
    }
    (fit,) = profile["pluginConfig"]
    strategy = fit["args"]["scoringStrategy"]
    assert strategy["type"] == "RequestedToCapacityRatio"
    assert {one["name"]: one["weight"] for one in strategy["resources"]} == {"cpu": 1, "memory": 1}
    empty, full = strategy["requestedToCapacityRatio"]["shape"]
    assert (empty["utilization"], full["utilization"]) == (0, 100)
    assert empty["score"] < full["score"], "the fuller, the better"


def test_every_usual_arm_is_a_scheduler_of_the_lab_or_a_rule_bound_by_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = []
    monkeypatch.setattr(arms, "use", lambda lab, name: used.append(name) or arms.ARMS[name])
    stage: Any = LabStage(FakeLab(), SimpleNamespace())  # type: ignore[arg-type]
    entered = {name: stage.enter(name) for name in comparing.USUAL_ARMS.split(",")}

    assert [name for name, arm in entered.items() if not arm.scheduler] == ["random", "heuristic"]
    assert used == [name for name, arm in entered.items() if arm.scheduler]
    assert entered["best-fit"].words.startswith("profile stock, nothing but NodeResourcesFit")
