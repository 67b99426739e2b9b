# SPDX-License-Identifier: Apache-2.0
"""The trainer: the same function as is served, right targets, checkpoints, and that it learns."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilothouse import policy
from pilothouse.errors import ArtifactBroken, InvalidSetting, MissingFile
from pilothouse.learn.placement import training
from pilothouse.learn.placement.chooser import Learned
from pilothouse.learn.placement.course import Family, draw
from pilothouse.learn.placement.playing import play
from pilothouse.learn.placement.presets import THESIS, Settings
from pilothouse.learn.placement.rewards import named
from pilothouse.learn.placement.scalars import Scalars, masked_crc
from pilothouse.learn.placement.trainer import (
    Trainer,
    Transition,
    Weights,
    _compiled,
    best,
    initial,
    q_values,
    wanted,
)
from pilothouse.learn.placement.world import FEASIBLE, Sight
from pilothouse.policy.features import NODE_FEATURES, POD_FEATURES

pytestmark = pytest.mark.timeout(600)  # compiling takes long on a busy machine

FIXTURES = Path(__file__).parents[3] / "api" / "fixtures" / "placement"
TINY = replace(
    THESIS,
    steps=128,
    batch=64,
    train_every=1,
    updates=1,
    learning_starts=8,
    target_every=50,
    buffer=1280,
    courses=64,
    encoder=(16,),
    head=(16,),
)


def a_sight(seed: int, batch: int = 4, nodes: int = 5) -> Sight:
    dice = np.random.default_rng(seed)
    seen = dice.uniform(0, 1, (batch, nodes, len(NODE_FEATURES))).astype(np.float32)
    seen[..., FEASIBLE] = dice.integers(0, 2, (batch, nodes))
    pod = dice.uniform(0, 1, (batch, len(POD_FEATURES))).astype(np.float32)
    return Sight(jnp.asarray(seen), jnp.asarray(pod), jnp.ones((batch, nodes), bool))


def weights_of(tensors: dict[str, np.ndarray]) -> Weights:
    parts: Weights = {"encoder": [], "head": []}
    for part, layers in parts.items():
        while f"{part}.{len(layers)}.weight" in tensors:
            k = len(layers)
            layers.append((tensors[f"{part}.{k}.weight"], tensors[f"{part}.{k}.bias"]))
    return parts


def test_jax_and_numpy_give_the_same_values_on_the_golden_fixtures() -> None:
    served = policy.read(FIXTURES / "fixture")
    weights: Weights = {
        "encoder": [(jnp.asarray(x.weight), jnp.asarray(x.bias)) for x in served.network.encoder],
        "head": [(jnp.asarray(x.weight), jnp.asarray(x.bias)) for x in served.network.head],
    }
    cases = json.loads((FIXTURES / "cases.json").read_text())
    assert cases
    for case in cases:
        features = np.asarray(case["features"], np.float32)
        nodes, pod = features[:, : len(NODE_FEATURES)], features[0, len(NODE_FEATURES) :]
        sight = Sight(nodes[None], pod[None], jnp.ones((1, len(nodes)), bool))
        ours = np.asarray(q_values(weights, sight))[0]
        np.testing.assert_allclose(ours, case["q"], rtol=1e-4, atol=1e-5)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_permuting_nodes_permutes_values_and_padding_changes_none(seed: int) -> None:
    sight = a_sight(seed)
    weights = initial(jax.random.PRNGKey(seed), TINY)
    order = np.random.default_rng(seed).permutation(5)
    plain = np.asarray(q_values(weights, sight))

    moved = q_values(weights, Sight(sight.nodes[:, order], sight.pod, sight.valid))
    padded = q_values(
        weights,
        Sight(
            jnp.concatenate([sight.nodes, jnp.full_like(sight.nodes, 7.0)], axis=1),
            sight.pod,
            jnp.concatenate([sight.valid, ~sight.valid], axis=1),
        ),
    )

    np.testing.assert_allclose(np.asarray(moved), plain[:, order], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.asarray(padded)[:, :5], plain, rtol=1e-4, atol=1e-6)


def test_best_is_among_the_feasible_even_when_all_values_are_very_low() -> None:
    q = jnp.array([[5.0, -1e30, -2e30]])

    assert int(best(q, jnp.array([[False, True, True]]))[0]) == 1


def a_batch(after: Sight, ended: bool) -> Transition:
    many = after.pod.shape[0]
    return Transition(
        sight=a_sight(1, many),
        choice=jnp.zeros(many, int),
        reward=jnp.full(many, 2.0),
        ended=jnp.full(many, ended),
        counts=jnp.ones(many, bool),
        after=after,
    )


def test_target_values_the_learners_choice_of_the_next_pods_feasible_nodes() -> None:
    after = a_sight(2)._replace()
    after = after._replace(nodes=after.nodes.at[:, :2, FEASIBLE].set(1.0))
    learner, target = (initial(jax.random.PRNGKey(k), TINY) for k in (1, 2))
    picked = best(q_values(learner, after), after.feasible)
    expected = 2.0 + 0.9 * jnp.take_along_axis(q_values(target, after), picked[:, None], 1)[:, 0]

    goal = wanted(learner, target, a_batch(after, ended=False), 0.9)

    np.testing.assert_allclose(np.asarray(goal), np.asarray(expected), rtol=1e-5)
    greedy = 2.0 + 0.9 * jnp.where(after.feasible, q_values(target, after), -jnp.inf).max(axis=1)
    assert (np.asarray(goal) != np.asarray(greedy)).any()  # not the plain DQN target


def test_next_pod_that_fits_nowhere_and_an_ended_episode_are_worth_nothing() -> None:
    weights = initial(jax.random.PRNGKey(1), TINY)
    after = a_sight(3)
    nowhere = after._replace(nodes=after.nodes.at[..., FEASIBLE].set(0.0))

    assert np.asarray(wanted(weights, weights, a_batch(nowhere, False), 0.9)) == pytest.approx(2.0)
    assert np.asarray(wanted(weights, weights, a_batch(after, True), 0.9)) == pytest.approx(2.0)


@pytest.fixture(scope="module")
def trained() -> Trainer:
    trainer = Trainer(TINY, named("nearby"), (1, 2))
    for _ in trainer.run():
        pass
    return trainer


def test_resumed_training_reaches_identical_weights(trained: Trainer, tmp_path: Path) -> None:
    first = Trainer(TINY, named("nearby"), (1, 2))
    for _ in islice(first.run(), 3):
        pass
    first.save(tmp_path / "checkpoint.npz")
    second = Trainer(TINY, named("nearby"), (1, 2))
    second.restore(tmp_path / "checkpoint.npz")
    rest = list(second.run())

    assert len(rest) == Trainer.CHUNKS - 3
    for index in (0, 1):
        for name, tensor in trained.weights(index).items():
            np.testing.assert_array_equal(second.weights(index)[name], tensor)


def test_training_again_gives_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for again in ("first", "second"):
        _compiled.cache_clear()  # the second is compiled again too
        made = training.train(
            "el-rl", TINY, named("nearby"), seeds=(1, 2), out=tmp_path / again, command="the same"
        )
        names = (".json", ".safetensors")
        written.append([made.best.with_suffix(name).read_bytes() for name in names])

    assert written[0] == written[1]
    card = policy.read(tmp_path / "first" / "el-rl").card
    assert card.command == "the same"
    assert "jaxlib" in card.made_with


def test_checkpoint_of_another_run_is_refused(trained: Trainer, tmp_path: Path) -> None:
    trained.save(tmp_path / "checkpoint.npz")

    with pytest.raises(ArtifactBroken, match="other settings"):
        Trainer(TINY, named("packing"), (1, 2)).restore(tmp_path / "checkpoint.npz")
    with pytest.raises(MissingFile, match="no checkpoint"):
        Trainer(TINY, named("packing"), (1,)).restore(tmp_path / "none.npz")
    (tmp_path / "bad.npz").write_bytes(b"PK not a checkpoint")
    with pytest.raises(ArtifactBroken, match="cannot be read"):
        Trainer(TINY, named("packing"), (1,)).restore(tmp_path / "bad.npz")


def test_seeds_trained_together_differ(trained: Trainer) -> None:
    one, two = trained.weights(0), trained.weights(1)

    assert any((one[name] != two[name]).any() for name in one)


def test_even_a_tiny_training_keeps_limits_better_than_chance(trained: Trainer) -> None:
    courses = draw(Family(nodes=(3, 3), steps=30), seed=77, count=64)
    fresh = Trainer(TINY, named("nearby"), (1, 2))
    before = [play(courses, Learned("x", fresh.network(k))) for k in (0, 1)]
    after = [play(courses, Learned("x", trained.network(k))) for k in (0, 1)]

    gained = [a.share(a.in_hard) - b.share(b.in_hard) for a, b in zip(after, before, strict=True)]
    assert np.mean(gained) > 0.1


def test_settings_that_cannot_be_played_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="envs must divide"):
        replace(THESIS, envs=7)
    with pytest.raises(InvalidSetting, match="share of the steps"):
        replace(THESIS, stages=(3, 8))
    assert isinstance(THESIS, Settings)


def test_scalars_are_framed_as_tensorboard_reads_them(tmp_path: Path) -> None:
    with Scalars(tmp_path) as scalars:
        scalars.add(300, {"td_loss": 0.5})
    data = scalars.path.read_bytes()

    assert (
        masked_crc(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) % 2**32
    )
    records = []
    while data:
        length = int.from_bytes(data[:8], "little")
        assert int.from_bytes(data[8:12], "little") == masked_crc(data[:8])
        event = data[12 : 12 + length]
        assert int.from_bytes(data[12 + length : 16 + length], "little") == masked_crc(event)
        records.append(event)
        data = data[16 + length :]
    assert b"brain.Event:2" in records[0]
    assert b"td_loss" in records[1]
