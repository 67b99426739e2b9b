# SPDX-License-Identifier: Apache-2.0
"""The trainer: the same function as is served, right targets, checkpoints, and that it learns."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

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
from pilothouse.learn.placement.practice import one_at_a_time
from pilothouse.learn.placement.presets import THESIS, Settings
from pilothouse.learn.placement.rewards import named
from pilothouse.learn.placement.scalars import Scalars, masked_crc
from pilothouse.learn.placement.trainer import (
    Progress,
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


def test_first_weights_can_be_drawn_as_pytorch_draws_them() -> None:
    drawn = initial(jax.random.PRNGKey(1), replace(TINY, initialization="uniform"))

    for weight, bias in [*drawn["encoder"], *drawn["head"]]:
        most = weight.shape[0] ** -0.5
        assert float(jnp.abs(weight).max()) <= most
        assert 0 < float(jnp.abs(bias).max()) <= most
    weight = drawn["encoder"][0][0]
    assert float(weight.std()) == pytest.approx(weight.shape[0] ** -0.5 / 3**0.5, rel=0.2)


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


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, list[Progress]]:
    """The same training in two folders, and what each told on its way."""
    told: dict[Path, list[Progress]] = {}
    for again in ("first", "second"):
        _compiled.cache_clear()  # the second is compiled again too
        out, own = tmp_path_factory.mktemp(again), []

        def hear(progress: Progress, total: int, own: list[Progress] = own) -> None:
            own.append(progress)

        reward = named("nearby")
        training.train("el-rl", TINY, reward, seeds=(1, 2), out=out, command="the same", told=hear)
        told[out] = own
    return told


def test_training_again_gives_the_same_bytes(twice: dict[Path, list[Progress]]) -> None:
    first, second = twice

    for name in ("el-rl.json", "el-rl.safetensors"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    card = policy.read(first / "el-rl").card
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


def test_thesis_preset_has_the_thesis_hyper_parameters_but_for_two() -> None:
    own = {
        "steps": 2_000,
        "learning_rate": 2.5e-3,
        "learning_rate_end": 2.5e-3,
        "learning_starts": 300,
        "exploration_fraction": 0.3,
        "batch": 128,
        "train_every": 10,
        "buffer": 10_000,
        "gamma": 0.99,
        "target_every": 500,
        "epsilon_start": 1.0,
        "epsilon_end": 0.05,
        "stages": (3,),
    }
    assert {name: getattr(THESIS, name) for name in own} == own
    assert (THESIS.envs, THESIS.updates) == (10, 64)  # the thesis: 1 and 1
    live = one_at_a_time(THESIS, None)
    assert (live.envs, live.updates) == (1, 1)


def test_settings_that_cannot_be_played_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="envs must divide"):
        replace(THESIS, envs=7)
    with pytest.raises(InvalidSetting, match="share of the steps"):
        replace(THESIS, stages=(3, 8))
    assert isinstance(THESIS, Settings)


def test_training_writes_its_curves_for_tensorboard(twice: dict[Path, list[Progress]]) -> None:
    out, told = next(iter(twice.items()))
    (written,) = (out / "scalars").glob("events.out.tfevents.*")
    head, *points = events(written)

    assert head == (0, {})
    assert [step for step, _ in points] == [progress.step for progress in told]
    for (_, point), progress in zip(points, told, strict=True):
        expected = {"epsilon": progress.epsilon, "steps_per_second": progress.steps_per_second}
        for index, seed in enumerate((1, 2)):
            expected[f"td_loss/seed-{seed}"] = progress.td_loss[index]
            expected[f"q_values/seed-{seed}"] = progress.q_values[index]
            expected[f"episodic_return/seed-{seed}"] = progress.episodic_return[index]
        assert point == pytest.approx(expected, rel=1e-6)
    last = told[-1]
    assert (last.step, last.epsilon) == (TINY.steps, pytest.approx(TINY.epsilon_end))
    assert last.steps_per_second > 0
    assert all(loss > 0 for loss in last.td_loss)
    assert all(value < 0 for value in last.q_values + last.episodic_return)  # they are regrets


def test_curves_of_one_seed_have_the_plain_names() -> None:
    five = {"td_loss": (0.5,), "q_values": (-1.0,), "episodic_return": (-2.0,)}
    progress = Progress(step=8, epsilon=0.3, steps_per_second=100.0, **five)

    assert training._curves(progress, (7,)) == {
        "td_loss": 0.5,
        "q_values": -1.0,
        "episodic_return": -2.0,
        "epsilon": 0.3,
        "steps_per_second": 100.0,
    }


def test_scalars_are_framed_as_tensorboard_reads_them(tmp_path: Path) -> None:
    with Scalars(tmp_path) as scalars:
        scalars.add(300, {"td_loss": 0.5, "epsilon": 0.25})

    assert (
        masked_crc(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) % 2**32
    )
    assert b"brain.Event:2" in scalars.path.read_bytes()
    assert events(scalars.path) == [(0, {}), (300, {"td_loss": 0.5, "epsilon": 0.25})]


def events(path: Path) -> list[tuple[int, dict[str, float]]]:
    """Step and scalars of every record, read as the record format and its messages are defined."""
    data, found = path.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        assert int.from_bytes(data[8:12], "little") == masked_crc(data[:8])
        event = data[12 : 12 + length]
        assert int.from_bytes(data[12 + length : 16 + length], "little") == masked_crc(event)
        of = fields_of(event)
        values = [fields_of(value) for summary in of.get(5, []) for value in fields_of(summary)[1]]
        scalars = {value[1][0].decode(): struct.unpack("<f", value[2][0])[0] for value in values}
        found.append((of.get(2, [0])[0], scalars))
        data = data[16 + length :]
    return found


def fields_of(message: bytes) -> dict[int, list[Any]]:
    """The fields of a protocol-buffer message by number; fixed and nested ones as bytes."""
    found: dict[int, list[Any]] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = message[at], at + 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            found.setdefault(number, []).append(varint())
            continue
        many = {1: 8, 5: 4}.get(kind) or varint()
        found.setdefault(number, []).append(message[at : at + many])
        at += many
    return found
