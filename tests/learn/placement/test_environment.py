# SPDX-License-Identifier: Apache-2.0
"""``PlacePods-v1``: what Gymnasium expects, masks, penalties and ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import pilothouse.learn.placement.environment as placing
from pilothouse.errors import InvalidSetting
from pilothouse.learn.placement.cluster import Place
from pilothouse.learn.placement.course import Family, draw
from pilothouse.learn.placement.environment import ID, PENALTY, PlacePods, PlacePodsVector
from pilothouse.learn.placement.rewards import REWARDS


@pytest.mark.parametrize("reward", sorted(REWARDS))
def test_environment_passes_gymnasiums_own_check(reward: str) -> None:
    env = gymnasium.make(ID, reward=reward, max_nodes=5)

    check_env(env.unwrapped, skip_render_check=True)


def test_same_seed_gives_the_same_episode() -> None:
    runs = [_episode(PlacePods(max_nodes=6), seed=4) for _ in range(2)]

    assert runs[0] == runs[1]
    assert runs[0] != _episode(PlacePods(max_nodes=6), seed=5)


def _episode(env: PlacePods, seed: int) -> list[float]:
    _, info = env.reset(seed=seed)
    values = []
    for _ in range(30):
        _, value, _, _, info = env.step(int(np.argmax(info["action_mask"])))
        values.append(value)
    return values


def test_infeasible_action_leaves_the_pod_pending_and_costs_the_penalty() -> None:
    env = PlacePods(max_nodes=8, family=Family(nodes=(3, 3), steps=12))
    before, info = env.reset(seed=1)

    after, value, terminated, truncated, info = env.step(7)

    assert value == PENALTY
    assert info["invalid"]
    assert not terminated
    assert not truncated
    np.testing.assert_array_equal(before["pod"], after["pod"])
    np.testing.assert_array_equal(before["nodes"], after["nodes"])


def test_agent_that_never_places_runs_out_of_time() -> None:
    env = PlacePods(max_nodes=8, family=Family(nodes=(3, 3), steps=4))
    env.reset(seed=1)

    ends = [env.step(7)[2:4] for _ in range(placing.PATIENCE * 4)]

    assert ends[-1] == (False, True)
    assert not any(end[1] for end in ends[:-1])


def test_end_of_a_course_is_a_truncation() -> None:
    env = PlacePods(max_nodes=3, family=Family(nodes=(3, 3), steps=5, load_percent=(10, 20)))
    _, info = env.reset(seed=3)
    ends = []
    for _ in range(5):
        *_, terminated, truncated, info = env.step(int(np.argmax(info["action_mask"])))
        ends.append((terminated, truncated))

    assert ends == [(False, False)] * 4 + [(False, True)]


def test_thesis_reward_terminates_on_a_poor_choice_and_ours_does_not() -> None:
    ended = {}
    for reward in ("thesis-ee", "packing"):
        env = PlacePods(max_nodes=3, reward=reward, family=Family(nodes=(3, 3), steps=12))
        _, info = env.reset(seed=2)
        ended[reward] = False
        for turn in range(11):
            feasible = np.flatnonzero(info["action_mask"])
            *_, terminated, _, info = env.step(int(feasible[turn % len(feasible)]))
            ended[reward] |= terminated

    assert ended == {"thesis-ee": True, "packing": False}


def test_batch_steps_as_single_environments_do() -> None:
    courses = draw(Family(nodes=(3, 6), steps=10), seed=8, count=1)
    settings: dict[str, Any] = {"max_nodes": 6, "courses": courses}
    one, many = PlacePods(**settings), PlacePodsVector(3, **settings)
    _, info = one.reset(seed=1)
    many.reset(seed=1)

    for _ in range(9):
        action = int(np.flatnonzero(info["action_mask"])[-1])
        seen, value, _, truncated, info = one.step(action)
        batch, values, _, ends, _infos = many.step(np.full(3, action))
        for name, array in seen.items():
            for row in range(3):
                np.testing.assert_array_equal(batch[name][row], array)
        np.testing.assert_allclose(values, value)
        assert (ends == truncated).all()


def test_finished_clusters_of_a_batch_begin_anew_at_their_next_step() -> None:
    envs = PlacePodsVector(
        2, max_nodes=3, family=Family(nodes=(3, 3), steps=3, load_percent=(5, 9))
    )
    _, infos = envs.reset(seed=0)
    ends, values = [], []
    for _ in range(8):
        _, value, _, truncated, infos = envs.step(infos["action_mask"].argmax(axis=1))
        ends.append(truncated[0])
        values.append(value[0])

    assert ends == [False, False, True, False, False, False, True, False]
    assert values[3] == 0.0


def test_gymnasium_makes_the_vector_form() -> None:
    envs = gymnasium.make_vec(ID, num_envs=4, vectorization_mode="vector_entry_point", max_nodes=4)

    seen, _ = envs.reset(seed=1)

    assert seen["nodes"].shape[:2] == (4, 4)
    assert seen in envs.observation_space


def test_a_live_backend_needs_a_cluster_and_a_cluster_a_live_backend(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="belong together"):
        PlacePods(backend="live")
    with pytest.raises(InvalidSetting, match="belong together"):
        PlacePods(cluster=Place(kubeconfig=tmp_path / "kubeconfig"))


def test_a_batch_of_real_clusters_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="One real cluster is one environment"):
        PlacePodsVector(2, backend="live")
