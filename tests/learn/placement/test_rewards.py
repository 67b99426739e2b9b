# SPDX-License-Identifier: Apache-2.0
"""What a placement is worth, by hand; thesis presets with their deviations; reward files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pilothouse.errors import InvalidSetting, MissingFile, UnknownName
from pilothouse.learn.placement.placed import Placed, Resource
from pilothouse.learn.placement.rewards import find, named, worth
from pilothouse.learn.placement.rewards.components import COMPONENTS


def a_placement(choice: int | None, **given: Any) -> Placed:
    """Three equal nodes of 4 cores and 4 GiB; one pod of 1 core and 1 GiB."""
    values: dict[str, Any] = {
        "exists": [1, 1, 1],
        "feasible": [1, 1, 1],
        "counted": [0, 0, 0],
        "cpu": [0, 0, 0],
        "latency_ms": [10, 25, 40],
    } | given
    nodes = len(values["exists"])

    def row(key: str, default: int) -> np.ndarray:
        return np.array([values.get(key, [default] * nodes)])

    return Placed(
        exists=row("exists", 1).astype(bool),
        feasible=row("feasible", 1).astype(bool),
        chosen=np.array([[n == choice for n in range(nodes)]]),
        counted=row("counted", 0),
        pods=row("counted", 0),
        pod_capacity=row("pod_capacity", 110),
        cpu=row("cpu", 0),
        cpu_room=row("cpu_room", 4000),
        memory=row("memory", 0),
        memory_room=row("memory_room", 4096),
        disk=row("disk", 0),
        disk_room=row("disk_room", 10_240),
        idle_permille=row("idle_permille", 500),
        latency_ms=row("latency_ms", 10),
        pod_cpu=np.array([1000]),
        pod_memory=np.array([1024]),
        pod_disk=np.array([1024]),
        soft_ms=np.array([values.get("soft_ms", 20)]),
        hard_ms=np.array([values.get("hard_ms", 30)]),
    )


def value(name: str, placed: Placed, resource: str = "requests") -> tuple[float, bool]:
    reward, ends = worth(named(name, resource), placed)
    return float(reward[0]), bool(ends[0])


def part(name: str, placed: Placed, resource: Resource = "requests") -> float:
    return float(COMPONENTS[name](placed, resource)[0])


BUSY = {"counted": [2, 1, 0], "cpu": [2000, 1000, 0], "memory": [2048, 1024, 0]}


def test_thesis_ee_pays_for_unused_nodes_after_the_placement() -> None:
    assert value("thesis-ee", a_placement(0, **BUSY)) == (5.0, False)  # 1 unused of N - 1 = 2


def test_thesis_ee_ends_when_the_choice_is_not_the_most_loaded() -> None:
    assert value("thesis-ee", a_placement(1, **BUSY)) == (0.0, True)


def test_thesis_ee_takes_ties_and_looks_at_feasible_nodes_only() -> None:
    assert value("thesis-ee", a_placement(2)) == (10.0, False)
    full = a_placement(1, feasible=[0, 1, 1], **BUSY)
    assert value("thesis-ee", full)[1] is False


def test_thesis_ee_gives_nothing_on_a_single_node() -> None:
    assert value("thesis-ee", a_placement(0, exists=[1, 0, 0], feasible=[1, 0, 0])) == (0.0, False)


def test_thesis_lb_pays_the_least_loaded_and_ends_on_the_most_loaded() -> None:
    assert value("thesis-lb", a_placement(2, **BUSY)) == (10.0, False)
    assert value("thesis-lb", a_placement(1, **BUSY)) == (0.0, False)
    assert value("thesis-lb", a_placement(0, **BUSY)) == (-1.0, True)


def test_thesis_el_rl_adds_unused_density_and_latency() -> None:
    near = value("thesis-el-rl", a_placement(0, **BUSY))
    between = value("thesis-el-rl", a_placement(1, **BUSY))
    far = value("thesis-el-rl", a_placement(2, **BUSY))

    assert near == (pytest.approx(1 / 3 + 2 / 50 + 1.0), False)
    assert between == (pytest.approx(1 / 3 + 2 / 50 + 0.5), False)
    assert far == (pytest.approx(0 + 4 / 3 / 50 + 0.0), True)


def test_thesis_el_rl_forgives_a_pod_without_limits() -> None:
    reward, ends = value("thesis-el-rl", a_placement(2, soft_ms=0, hard_ms=0, **BUSY))

    assert reward == pytest.approx(4 / 3 / 50 + 1.0)
    assert not ends


def test_waking_a_node_costs_only_while_a_used_one_is_feasible() -> None:
    assert part("new-node", a_placement(2, **BUSY)) == -1
    assert part("new-node", a_placement(0, **BUSY)) == 0
    assert part("new-node", a_placement(2, feasible=[0, 0, 1], **BUSY)) == 0


def test_snug_prefers_the_fullest_used_node() -> None:
    assert part("snug", a_placement(0, **BUSY)) == 0
    assert part("snug", a_placement(1, **BUSY)) == pytest.approx(-0.25)


def test_roomy_prefers_the_largest_of_the_unused() -> None:
    rooms = {"cpu_room": [4000, 8000, 4000], "memory_room": [4096, 8192, 4096]}
    assert part("roomy", a_placement(1, **rooms)) == 0
    assert part("roomy", a_placement(0, **rooms)) == pytest.approx(-0.5)


def test_near_regrets_look_only_at_nodes_that_keep_the_limits_best() -> None:
    """The large node is too far: compared with it, every choice that keeps the limit would pay."""
    rooms = {"cpu_room": [4000, 8000, 4000], "memory_room": [4096, 8192, 4096]}
    latency = {"latency_ms": [10, 40, 10], "soft_ms": 20, "hard_ms": 30}
    assert part("near-roomy", a_placement(0, **rooms, **latency)) == 0
    assert part("roomy", a_placement(0, **rooms, **latency)) == pytest.approx(-0.5)
    assert part("near-roomy", a_placement(0, **rooms, soft_ms=0, hard_ms=0)) == pytest.approx(-0.5)
    used_but_far = {"counted": [0, 2, 0], "cpu": [0, 2000, 0], "memory": [0, 2048, 0]}
    assert part("near-new-node", a_placement(0, **used_but_far, **latency)) == 0
    assert part("new-node", a_placement(0, **used_but_far, **latency)) == -1


def test_near_regrets_leave_a_choice_outside_to_the_limit() -> None:
    far = a_placement(0, latency_ms=[40, 10, 10], soft_ms=20, hard_ms=30, **BUSY)
    assert [part(f"near-{name}", far) for name in ("new-node", "snug", "roomy")] == [0, 0, 0]
    assert part("hard-limit", far) == -1
    nobody = a_placement(1, latency_ms=[40, 40, 40], soft_ms=20, hard_ms=30, **BUSY)
    assert part("near-snug", nobody) == part("snug", nobody) == pytest.approx(-0.25)


def test_level_is_the_regret_against_the_least_loaded() -> None:
    assert part("level", a_placement(2, **BUSY)) == 0
    assert part("level", a_placement(0, **BUSY)) == pytest.approx(-0.5)


def test_limits_cost_only_where_a_feasible_node_keeps_them() -> None:
    assert part("hard-limit", a_placement(2)) == -1
    assert part("hard-limit", a_placement(2, feasible=[0, 0, 1])) == 0
    assert part("soft-limit", a_placement(1)) == -1
    assert part("soft-limit", a_placement(0)) == 0


def test_unknown_latency_breaks_a_limit_and_keeps_none() -> None:
    assert part("hard-limit", a_placement(1, latency_ms=[10, -1, 40])) == -1
    assert part("hard-limit", a_placement(1, latency_ms=[10, -1, 40], hard_ms=0)) == 0


def test_nothing_placed_is_worth_nothing() -> None:
    for name in ("packing", "balancing", "nearby", "thesis-ee", "thesis-lb", "thesis-el-rl"):
        assert value(name, a_placement(None, feasible=[0, 0, 0])) == (0.0, False)


def test_reward_on_another_resource_sees_that_resource() -> None:
    uneven = {"cpu": [3000, 0, 0], "memory": [0, 2048, 0]}
    assert value("thesis-lb", a_placement(1, **uneven), "cpu")[0] == 10.0
    assert value("thesis-lb", a_placement(1, **uneven), "memory") == (-1.0, True)


def test_reward_file_is_a_weighted_sum_of_components(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("resource: cpu\ncomponents:\n  new-node: 2\n  hard-limit: 0.5\n")

    reward = find(str(file))

    assert float(worth(reward, a_placement(2, **BUSY))[0][0]) == pytest.approx(-2.5)
    assert reward.card()["name"] == "mine"


def test_reward_file_that_names_no_resource_takes_the_given_one(tmp_path: Path) -> None:
    silent, telling = tmp_path / "silent.yaml", tmp_path / "telling.yaml"
    silent.write_text("components: {new-node: 1}\n")
    telling.write_text("resource: cpu\ncomponents: {new-node: 1}\n")

    assert find(str(silent)).resource == "requests"
    assert find(str(silent), "memory").resource == "memory"
    assert find(str(telling)).resource == "cpu"
    with pytest.raises(UnknownName, match='Unknown resource "dsk"'):
        find(str(silent), "dsk")


def test_any_file_is_a_reward_file_but_a_known_name_stays_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("night-shift", "packing"):
        Path(name).write_text("components: {idle-power: 1}\n")

    assert find("night-shift").card()["components"] == {"idle-power": 1.0}
    assert find("packing") == named("packing")
    assert find("./packing").card()["components"] == {"idle-power": 1.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("components:\n  new-nod: 1\n", 'Did you mean "new-node"'),
        ("components: {}\n", "needs components"),
        ("weights: {new-node: 1}\n", "unknown keys: weights"),
        ("components: {new-node: much}\n", "must be a number"),
        ("components: {new-node: .nan}\n", "must be a number"),
        ("resource: disc\ncomponents: {new-node: 1}\n", "Unknown resource"),
        ("[1, 2]\n", "must be a mapping"),
        ("a: [\n", "is not YAML"),
    ],
)
def test_wrong_reward_file_is_refused_with_the_reason(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)

    with pytest.raises((InvalidSetting, UnknownName), match=message):
        find(str(file))


def test_missing_reward_file_is_named() -> None:
    with pytest.raises(MissingFile, match=r"nowhere\.yaml"):
        find("nowhere.yaml")


def test_disk_is_a_resource_that_pods_fill() -> None:
    emptier, fuller = (a_placement(choice, disk=[0, 8192, 0]) for choice in (0, 1))

    assert part("level", emptier, "disk") == 0.0
    assert part("level", fuller, "disk") == pytest.approx(-0.8)
    assert value("thesis-ee", fuller, "disk") == (10.0, False)
    assert value("thesis-ee", emptier, "disk") == (0.0, True)
