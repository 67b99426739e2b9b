# SPDX-License-Identifier: Apache-2.0
"""A policy trained on a resource sees that resource and balances it better than all others do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pilothouse import policy
from pilothouse.cli import main
from pilothouse.errors import InvalidSetting
from pilothouse.learn.placement import judging
from pilothouse.learn.placement.chooser import Chooser, Learned, heuristic
from pilothouse.learn.placement.course import Family, draw
from pilothouse.learn.placement.environment import PlacePods
from pilothouse.learn.placement.learner import Learner
from pilothouse.learn.placement.placed import RESOURCES, Resource, beside_cpu
from pilothouse.learn.placement.playing import play
from pilothouse.learn.placement.presets import PRESETS, THESIS
from pilothouse.learn.placement.reporting import evaluate
from pilothouse.learn.placement.rewards import named
from pilothouse.learn.placement.rewards.shuffled import Shuffled
from pilothouse.policy import Policy
from pilothouse.policy.features import NODE_FEATURES, BesideCPU
from pilothouse.testing.placement import random_policy

pytestmark = pytest.mark.timeout(600)  # compiling takes long on a busy machine

SINGLE = tuple(resource for resource in RESOURCES if resource != "requests")
TINY = replace(
    THESIS,
    steps=256,
    batch=64,
    train_every=1,
    updates=1,
    gamma=0.8,
    learning_starts=8,
    target_every=50,
    buffer=1280,
    courses=64,
    encoder=(16,),
    head=(16,),
)
HELD_OUT = Family(nodes=(3, 3), steps=30)  # its pods' disk has nothing to do with their CPU
Spreads = dict[Resource, float]


def played(chooser: Chooser) -> Spreads:
    """Most minus least load share by resource, mean over held-out courses and their steps."""
    courses = draw(HELD_OUT, seed=77, count=48)
    return {r: float(play(courses, chooser, resource=r).mean_spread().mean()) for r in SINGLE}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[Resource, Policy]:
    """What the command makes for each resource, with few steps."""
    out = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, "thesis", TINY)
        for resource in SINGLE:
            words = f"train placement --policy lb --preset thesis --json --resource {resource}"
            assert main([*words.split(), "--out", str(out / resource)]) == 0
    return {resource: policy.read(out / resource / "lb") for resource in SINGLE}


def test_each_policy_balances_its_own_resource_best(trained: dict[Resource, Policy]) -> None:
    spreads = {name: played(Learned(name, made.network)) for name, made in trained.items()}

    for resource in SINGLE:
        own = spreads[resource][resource]
        others = [spreads[other][resource] for other in SINGLE if other != resource]
        assert own < 0.95 * min(others), (resource, spreads)


def test_on_disk_it_beats_the_rule_that_looks_at_cpu_and_memory(
    trained: dict[Resource, Policy],
) -> None:
    rule = played(heuristic("least-allocated"))

    assert played(Learned("disk", trained["disk"].network))["disk"] < 0.8 * rule["disk"]


def test_the_same_network_shown_memory_does_not_balance_disk(
    trained: dict[Resource, Policy],
) -> None:
    blind = replace(trained["disk"].network, beside_cpu="memory")
    rule = played(heuristic("least-allocated"))

    assert played(Learned("blind", blind))["disk"] > 0.95 * rule["disk"]


def test_the_card_says_what_the_policy_sees(trained: dict[Resource, Policy]) -> None:
    for resource, made in trained.items():
        assert made.card.reward["resource"] == resource
        assert made.card.beside_cpu == made.network.beside_cpu == beside_cpu(resource)
        assert ("disk_after_share" in made.card.features) == (resource == "disk")
        assert ("memory_after_share" in made.card.features) == (resource != "disk")
        assert f"--resource {resource}" in made.card.command


def test_each_policy_is_judged_by_its_own_resource(trained: dict[Resource, Policy]) -> None:
    for resource, made in trained.items():
        lines = made.card.measured["validation, simulated"]
        against = {line["what"]: line["value"] for line in lines}

        assert f"max-min {resource} share against least allocated, paired bound" in against
    told = evaluate(trained["disk"], "lb", nodes=(3, 3), episodes=16, seed=5)
    spread = {row[0]: float(row[3]) for row in told["table"][1:]}
    assert told["load"] == "disk"
    assert "max-min disk share" in told["lines"][0]["what"]
    assert spread["lb"] < spread["most-allocated"], "the rules are measured on disk too"
    assert spread["least-allocated"] < 0.8 * spread["default"], "and this one looks at it"


@pytest.mark.parametrize("rule", judging.LEVELERS)
def test_the_rule_that_levels_a_resource_is_the_least_spread_on_it(rule: str) -> None:
    spreads = {r: played(heuristic(rule, r)) for r in SINGLE}

    for resource in SINGLE:
        assert min(SINGLE, key=lambda own: spreads[own][resource]) == resource, spreads
    assert heuristic("best-fit", "disk") is heuristic("best-fit"), "it is about room, not load"


def test_what_a_reward_is_about_is_seen_in_the_environment_too() -> None:
    after = NODE_FEATURES.index("memory_after_share")
    seen = {}
    for resource in ("memory", "disk"):
        env = PlacePods(max_nodes=4, resource=resource)
        observation, _ = env.reset(seed=3)
        seen[resource] = observation["nodes"]
    there = seen["memory"][:, NODE_FEATURES.index("cpu_after_share")] > 0

    same = [place for place, name in enumerate(NODE_FEATURES) if "memory" not in name]
    np.testing.assert_array_equal(seen["memory"][:, same], seen["disk"][:, same])
    assert (seen["memory"][there, after] != seen["disk"][there, after]).all()
    assert beside_cpu(Shuffled(named("balancing", "disk")).resource) == "disk"


@pytest.mark.parametrize(("start", "shown"), [("disk", "memory"), ("memory", "disk")])
def test_a_policy_is_not_trained_on_what_it_does_not_see(
    start: BesideCPU, shown: BesideCPU, tmp_path: Path
) -> None:
    before = random_policy(tmp_path, beside_cpu=start)

    with pytest.raises(InvalidSetting, match=f"sees {start} beside CPU"):
        Learner(TINY, width=3, seed=1, start=before, beside_cpu=shown)


def test_what_is_trained_further_still_sees_what_it_saw(tmp_path: Path) -> None:
    before = random_policy(tmp_path, beside_cpu="disk")
    again = Learner(TINY, width=3, seed=1, start=before, beside_cpu="disk")

    assert again.network().beside_cpu == "disk"
    assert again.card("x", named("balancing"), nodes=3, measured={}).beside_cpu == "disk"
