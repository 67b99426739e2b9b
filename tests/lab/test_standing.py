# SPDX-License-Identifier: Apache-2.0
"""A second ``lab up``: what it changes in a lab that stands, and what it refuses."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from pilothouse.errors import ArtifactBroken, LabUnavailable, MissingFile, UnknownName
from pilothouse.lab import Lab, Wish, arms, machine, placement, process, reaper
from pilothouse.lab.build import Binaries
from pilothouse.lab.component import Component
from pilothouse.lab.lab import PORTS
from pilothouse.lab.ledger import Planned, Ready, Started
from pilothouse.lab.reaper import Leftovers

SHIPPED = resources.files("pilothouse.policy") / "shipped"


class StandingLab(Lab):
    """A lab whose processes are only written down."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.done: list[str] = []

    def build(self, **_given: Any) -> Binaries:
        return Binaries(folder=self.layout.binaries, origin={})

    def kill(self, name: str) -> None:
        self.done.append(f"kill {name}")

    def start(self, component: Component) -> None:
        self.done.append(f"start {component.name}")
        command = list(component.command)
        self.ledger.append(Started(name=component.name, command=command, pid=1, ticks=1))

    def _wait_alone(self, name: str, done: Any) -> None:
        self.done.append(f"wait for {name}")

    def option(self, component: str, name: str) -> str:
        """What a component was last started with."""
        words = self.component(component).command
        return next(word.partition("=")[2] for word in words if word.startswith(f"--{name}="))


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandingLab:
    monkeypatch.setattr(machine, "require", lambda **_given: None)
    monkeypatch.setattr(reaper, "find", lambda _layout: Leftovers(processes=[1]))
    monkeypatch.setattr(process, "state", lambda _pid, _ticks: "running")
    monkeypatch.setattr(arms, "SETTLE_SECONDS", 0.0)
    standing = StandingLab(tmp_path / "lab")
    standing.ledger.append(
        Planned(
            workers=3,
            worker_cpu_millicores=500,
            worker_memory_mib=512,
            fake_nodes=0,
            prometheus=False,
            ports={name: 20_000 + at for at, name in enumerate(PORTS)},
            origin={},
            scheduler="pilothouse",
            policy="el-rl",
            profile="el-rl",
        )
    )
    standing.ledger.append(Ready(seconds=1.0))
    return standing


def ours(**changes: Any) -> Wish:
    return Wish(scheduler="pilothouse", **changes)


def profile_in_force(lab: StandingLab) -> Any:
    return _plugins(Path(lab.option("kube-scheduler", "config")))


def shipped_profile(name: str) -> Any:
    return _plugins(placement.profiles() / f"{name}.yaml")


def _plugins(path: Path) -> Any:
    return yaml.safe_load(path.read_text())["profiles"][0]["plugins"]


@pytest.mark.parametrize("wish", [ours(), ours(policy="el-rl"), ours(profile="el-rl")])
def test_what_stands_already_is_left_alone(lab: StandingLab, wish: Wish) -> None:
    lab.up(wish)

    assert lab.done == []


def test_another_policy_is_served_from_then_on(lab: StandingLab) -> None:
    lab.up(ours(policy="lb"))

    assert lab.option("scorer", "policy") == "lb"
    assert profile_in_force(lab) == shipped_profile("lb"), "the profile goes with the policy"
    assert lab.done == [
        "kill kube-scheduler",
        "kill scorer",
        "start scorer",
        "wait for scorer",
        "start kube-scheduler",
        "wait for kube-scheduler",
    ]
    assert lab.planned is not None
    assert (lab.planned.policy, lab.planned.profile) == ("lb", "lb")
    lab.done.clear()
    lab.up(ours())
    assert lab.done == [], "who asks for nothing else keeps it"


def test_another_profile_leaves_the_policy(lab: StandingLab) -> None:
    lab.up(ours(profile="isolated"))

    assert lab.option("scorer", "policy") == "el-rl"
    assert profile_in_force(lab) == shipped_profile("isolated") != shipped_profile("el-rl")


def test_an_arm_of_a_comparison_is_known_as_what_stands(lab: StandingLab) -> None:
    arms.use(lab, "default")
    assert lab.planned is not None
    assert (lab.planned.policy, lab.planned.profile) == ("el-rl", "stock")
    assert "kill scorer" not in lab.done, "the stock scheduler asks nobody"
    lab.done.clear()

    lab.up(ours())

    assert "start kube-scheduler" in lab.done, "the learned one is asked for, the stock one stood"
    assert profile_in_force(lab) == shipped_profile("el-rl")


def own_policy(folder: Path, name: str = "mine") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in ("json", "safetensors"):
        (folder / f"{name}.{suffix}").write_bytes((SHIPPED / f"ee.{suffix}").read_bytes())
    return folder / f"{name}.json"


@pytest.mark.parametrize("given", ["runs/mine.json", "runs/mine", "./runs"])
def test_a_relative_policy_is_found_from_where_the_command_was_given(
    lab: StandingLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    own_policy(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)

    lab.up(ours(policy=given))

    assert lab.option("scorer", "policy") == str(tmp_path / given)
    assert profile_in_force(lab) == shipped_profile("el-rl"), "it has none of its own name"
    lab.done.clear()
    lab.up(ours(policy=given))
    assert lab.done == [], "the same file again"


def test_a_policy_file_of_an_arm_may_be_relative_too(
    lab: StandingLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_policy(tmp_path / "runs")
    monkeypatch.chdir(tmp_path)

    arms.use(lab, "ee", policy="runs/mine.json")

    assert lab.option("scorer", "policy") == str(tmp_path / "runs/mine.json")


def test_policies_that_cannot_be_run_are_refused_before_anything_is_touched(
    lab: StandingLab, tmp_path: Path
) -> None:
    broken = own_policy(tmp_path)
    shutil.copy(broken, broken.with_suffix(".safetensors"))
    for given, error in (
        (str(broken), ArtifactBroken),
        (str(tmp_path / "none.json"), MissingFile),
        ("el-lr", UnknownName),
    ):
        with pytest.raises(error):
            lab.up(ours(policy=given))
    assert lab.done == []


@pytest.mark.parametrize(
    "wish",
    [
        Wish(),  # the stock scheduler
        ours(workers=2),
        ours(prometheus=True),
        ours(worker_cpu_millicores=700),
        ours(worker_memory_mib=700),
    ],
)
def test_what_cannot_be_changed_in_a_lab_that_stands_is_refused(
    lab: StandingLab, wish: Wish
) -> None:
    with pytest.raises(LabUnavailable, match="pilothouse lab down"):
        lab.up(wish)
    assert lab.done == []


def test_profiles_are_checked_before_anything_is_made() -> None:
    with pytest.raises(UnknownName, match="el-rl"):
        ours(profile="el-lr").check()
    with pytest.raises(LabUnavailable, match="takes no --profile"):
        Wish(profile="el-rl").check()
