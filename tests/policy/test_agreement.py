# SPDX-License-Identifier: Apache-2.0
"""JAX, NumPy and Go are one function, for every policy that ships: the same values and choices.

Shipped networks are narrower than what the scheduler works on at once, so their padding matters as
much as their weights. JAX and NumPy see clusters padded with noise to one width, Go each alone.
Each chooses by its own values and its own code: in Go that is every node that scores 100.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import permutations
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from pilothouse import policy
from pilothouse.learn.placement.learner import weights_of
from pilothouse.learn.placement.trainer import best, q_values
from pilothouse.learn.placement.world import Sight
from pilothouse.policy import NODE_FEATURES, Network, Nodes, Pods
from pilothouse.policy.choice import MOST_SCORE
from pilothouse.policy.features import BesideCPU
from pilothouse.testing.placement import (
    FOLDER,
    GOLDEN,
    NODE_COLUMNS,
    POD_COLUMNS,
    random_policy,
    random_world,
)

pytestmark = pytest.mark.timeout(300)  # compiling takes long on a busy machine

CASES = 10_000
CLOSE = 2e-4
LEAST = np.finfo(np.float32).min
SIZES = (1, 2, 3, 5, 7, 17, 31, 61, 67, 131)  # around the scheduler's groups of 4 and blocks of 64
SPARE = 3  # the widest cluster is padded too
ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "src" / "pilothouse" / "policy" / "shipped"
FIXTURES = {name: FOLDER / name for name in GOLDEN}
STEMS = FIXTURES | {name: SHIPPED / name for name in policy.shipped_names()}
every_policy = pytest.mark.parametrize("stem", list(STEMS.values()), ids=list(STEMS))

Floats = NDArray[np.float32]
World = tuple[Nodes, Pods]


@pytest.fixture(scope="module")
def scores_in_go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None:
        if os.environ.get("CI"):
            pytest.fail("This machine must have Go: the scheduler cannot be compared without it.")
        pytest.skip("There is no go command, so the scheduler cannot be compared.")
    built = tmp_path_factory.mktemp("go") / "policy-scores"
    # The lab's flags, so that the build shares its cache.
    flags = {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly -trimpath"}
    command = ["go", "build", "-buildvcs=false", "-o", str(built), "./cmd/policy-scores"]
    subprocess.run(command, cwd=ROOT / "scheduler", env=os.environ | flags, check=True)
    return built


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clusters:
    """Clusters of many sizes, alone and padded to one width."""

    worlds: Sequence[World]
    beside_cpu: BesideCPU  # what the features show
    features: Floats  # (cases, width, features); noise where there is no node
    valid: NDArray[np.bool_]  # (cases, width)
    feasible: NDArray[np.bool_]


def clusters_of(worlds: Sequence[World], beside_cpu: BesideCPU) -> Clusters:
    alone = [policy.build(*world, beside_cpu=beside_cpu) for world in worlds]
    width = max(map(len, alone)) + SPARE
    shape = len(alone), width, alone[0].shape[1]
    features = np.random.default_rng(5).normal(0, 50, shape).astype(np.float32)
    valid, feasible = np.zeros(shape[:2], np.bool_), np.zeros(shape[:2], np.bool_)
    for case, (own, (nodes, _)) in enumerate(zip(alone, worlds, strict=True)):
        features[case, : len(own)] = own
        valid[case, : len(own)] = True
        feasible[case, : len(own)] = nodes.feasible
    return Clusters(
        worlds=worlds, beside_cpu=beside_cpu, features=features, valid=valid, feasible=feasible
    )


def seen_by(stem: Path, worlds: Sequence[World]) -> Clusters:
    return clusters_of(worlds, policy.read(stem).card.beside_cpu)


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    random = np.random.default_rng(11)
    return [random_world(random, size) for size in SIZES * 30]


@pytest.fixture
def some(stem: Path, worlds: list[World]) -> Clusters:
    return seen_by(stem, worlds)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Answer:
    """What one implementation makes of the clusters."""

    values: Floats  # (cases, width)
    choice: NDArray[np.bool_]  # (cases, width); several are set where they are equals


def one_of(choice: NDArray[np.int64], asked: Clusters) -> NDArray[np.bool_]:
    chosen = np.arange(asked.valid.shape[1]) == np.asarray(choice)[:, None]
    return chosen & asked.feasible.any(axis=1, keepdims=True)


def in_jax(network: Network, asked: Clusters) -> Answer:
    nodes, pod = np.split(asked.features, [len(NODE_FEATURES)], axis=-1)
    sight = Sight(jnp.asarray(nodes), jnp.asarray(pod[:, 0]), jnp.asarray(asked.valid))
    values = q_values(weights_of(network), sight)
    choice = one_of(np.asarray(best(values, asked.feasible)), asked)
    return Answer(values=np.asarray(values), choice=choice)


def in_numpy(network: Network, asked: Clusters) -> Answer:
    return by_numpy(network(asked.features, asked.valid), asked)


def by_numpy(values: Floats, asked: Clusters) -> Answer:
    return Answer(values=values, choice=one_of(policy.choose(values, asked.feasible), asked))


def in_go(program: Path, stem: Path, asked: Clusters) -> Answer:
    files = [f"{stem}.json", f"{stem}.safetensors"]
    given = b"".join(packed(*world) for world in asked.worlds)
    done = subprocess.run([program, *files], input=given, capture_output=True, check=True)
    told = np.frombuffer(done.stdout, [("value", "<f4"), ("score", "<i4")])
    values, choice = np.zeros(asked.valid.shape, np.float32), np.zeros_like(asked.valid)
    values[asked.valid] = told["value"]  # fails unless it is one per node
    choice[asked.valid] = told["score"] == MOST_SCORE
    return Answer(values=values, choice=choice)


def packed(nodes: Nodes, pod: Pods) -> bytes:
    columns = [np.asarray(getattr(nodes, name), np.float64) for name in NODE_COLUMNS]
    asks = [float(getattr(pod, name)) for name in POD_COLUMNS]
    rows = np.stack(columns, axis=-1)
    return struct.pack("<I5d", len(rows), *asks) + rows.astype("<f8").tobytes()


def in_all(program: Path, stem: Path, asked: Clusters) -> dict[str, Answer]:
    network = policy.read(stem).network
    return {
        "JAX": in_jax(network, asked),
        "NumPy": in_numpy(network, asked),
        "Go": in_go(program, stem, asked),
    }


def same_values(these: Floats, those: Floats, words: str) -> None:
    np.testing.assert_allclose(these, those, rtol=1e-4, atol=1e-5, err_msg=words)


def agree(answers: dict[str, Answer], asked: Clusters) -> int:
    """Same values, no choice that another finds worse; how many choices were clear."""
    some = asked.feasible.any(axis=1)
    several = asked.feasible.sum(axis=1) > 1
    clear = np.zeros(len(some), np.bool_)
    for name, answer in answers.items():
        assert (answer.choice.any(axis=1) == some).all(), f"{name} chooses where it can, only there"
        assert not (answer.choice & ~asked.feasible).any(), f"{name} chose what is not feasible"
    for one, other in permutations(answers, 2):
        values, theirs = answers[one].values, answers[other]
        same_values(values[asked.valid], theirs.values[asked.valid], f"{one} and {other}")
        masked = np.where(asked.feasible, values, LEAST).astype(np.float64)
        second, top = np.sort(masked, axis=1)[:, -2:].T
        worst = np.where(theirs.choice, masked, np.inf).min(axis=1)
        assert (top - worst <= CLOSE)[some].all(), f"{other} chose what {one} finds worse"
        clear = several & (top - second > CLOSE)
        same = (answers[one].choice == theirs.choice).all(axis=1)
        assert same[clear].all(), f"{one} and {other} chose otherwise where it was clear"
    return int(clear.sum())


@every_policy
def test_values_and_choices_are_the_same_in_jax_numpy_and_go(
    scores_in_go: Path, stem: Path, some: Clusters
) -> None:
    answers = in_all(scores_in_go, stem, some)

    assert agree(answers, some) > len(some.worlds) / 3, "many cases must have a clear winner"
    network = policy.read(stem).network
    for case, world in enumerate(some.worlds):
        alone = network(policy.build(*world, beside_cpu=some.beside_cpu))
        same_values(answers["NumPy"].values[case, : len(alone)], alone, "padding changed a value")


@pytest.mark.slow
def test_choices_are_the_same_on_ten_thousand_clusters(scores_in_go: Path) -> None:
    random = np.random.default_rng(20)
    worlds = [random_world(random, int(random.integers(1, 24))) for _ in range(CASES)]
    for name, stem in STEMS.items():
        many = seen_by(stem, worlds)
        clear = agree(in_all(scores_in_go, stem, many), many)
        assert clear > CASES / 2, f"most cases must have a clear winner for {name}"


@every_policy
def test_permuting_nodes_permutes_the_values_of_all_three(
    scores_in_go: Path, stem: Path, some: Clusters
) -> None:
    random = np.random.default_rng(8)
    orders = [random.permutation(len(np.asarray(nodes.pods))) for nodes, _ in some.worlds]
    moved = clusters_of(
        [
            (Nodes(**{f.name: np.asarray(getattr(nodes, f.name))[order] for f in fields(Nodes)}), p)
            for (nodes, p), order in zip(some.worlds, orders, strict=True)
        ],
        some.beside_cpu,
    )
    before, after = in_all(scores_in_go, stem, some), in_all(scores_in_go, stem, moved)

    for name, answer in after.items():
        for case, order in enumerate(orders):
            moved_back = before[name].values[case, order]
            same_values(answer.values[case, : len(order)], moved_back, name)


@pytest.mark.parametrize("stem", [FOLDER / "fixture"], ids=["fixture"])
def test_other_weights_would_be_noticed(scores_in_go: Path, tmp_path: Path, some: Clusters) -> None:
    random_policy(tmp_path, seed=1)
    ours = in_numpy(policy.read(STEMS["fixture"]).network, some)
    theirs = in_go(scores_in_go, tmp_path / "fixture", some)

    with pytest.raises(AssertionError):
        agree({"JAX": ours, "NumPy": ours, "Go": theirs}, some)


@pytest.mark.parametrize("stem", [FOLDER / "disk"], ids=["disk"])
def test_memory_where_disk_belongs_would_be_noticed(
    scores_in_go: Path, stem: Path, some: Clusters, worlds: list[World]
) -> None:
    wrong = in_numpy(policy.read(stem).network, clusters_of(worlds, "memory"))
    theirs = in_go(scores_in_go, stem, some)

    with pytest.raises(AssertionError):
        agree({"JAX": wrong, "NumPy": wrong, "Go": theirs}, some)


@every_policy
def test_padding_that_counts_would_be_noticed(stem: Path, some: Clusters) -> None:
    network = policy.read(stem).network
    ours = in_numpy(network, some)
    wrong = by_numpy(network(some.features, np.ones_like(some.valid)), some)

    with pytest.raises(AssertionError, match="NumPy"):
        agree({"JAX": ours, "NumPy": wrong, "Go": ours}, some)


@pytest.mark.parametrize("stem", [FOLDER / "fixture"], ids=["fixture"])
@pytest.mark.parametrize("name", ["JAX", "NumPy", "Go"])
def test_a_choice_of_its_own_would_be_noticed_though_the_values_are_the_same(
    scores_in_go: Path, stem: Path, some: Clusters, name: str
) -> None:
    answers = in_all(scores_in_go, stem, some)
    ours = answers[name]
    worst = np.where(some.feasible, ours.values, np.inf).argmin(axis=1)
    case = int(some.feasible.sum(axis=1).argmax())
    choice = ours.choice.copy()
    choice[case] = one_of(worst, some)[case]

    with pytest.raises(AssertionError, match=f"{name}.* chose"):
        agree(answers | {name: replace(ours, choice=choice)}, some)
    choice[case] = ours.choice[case] | one_of(worst, some)[case]
    with pytest.raises(AssertionError, match=f"{name}.* chose"):
        agree(answers | {name: replace(ours, choice=choice)}, some)
    choice[case] = False
    with pytest.raises(AssertionError, match=f"{name} chooses"):
        agree(answers | {name: replace(ours, choice=choice)}, some)
