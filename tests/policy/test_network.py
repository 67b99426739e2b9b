# SPDX-License-Identifier: Apache-2.0
"""The set network: order and padding of the nodes never matter."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilothouse import policy
from pilothouse.policy import Nodes, Pods
from pilothouse.policy.features import MOST_SHARE, seeing
from pilothouse.policy.network import Layer, Network
from pilothouse.testing.placement import (
    FOLDER,
    GOLDEN,
    NODE_COLUMNS,
    golden_case,
    random_tensors,
    random_world,
    write_golden,
)

NETWORK = policy.read(FOLDER / "fixture").network


def q_of(seed: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    features = policy.build(*random_world(np.random.default_rng(seed), nodes))
    return features, NETWORK(features)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(1, 60))
def test_permuting_nodes_permutes_scores(seed: int, nodes: int) -> None:
    features, q = q_of(seed, nodes)
    order = np.random.default_rng(seed).permutation(nodes)

    np.testing.assert_allclose(NETWORK(features[order]), q[order], rtol=1e-5, atol=1e-6)


def test_a_network_over_the_flat_vector_would_not_pass_the_permutation_test() -> None:
    features, _ = q_of(3, 8)
    random = np.random.default_rng(0)
    flat = random.normal(size=(features.size, 8)).astype(np.float32)
    order = np.roll(np.arange(8), 1)

    scores, permuted = features.ravel() @ flat, features[order].ravel() @ flat
    assert not np.allclose(permuted, scores[order], rtol=1e-3)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), nodes=st.integers(1, 40), padding=st.integers(1, 90))
def test_padding_never_changes_a_score(seed: int, nodes: int, padding: int) -> None:
    features, q = q_of(seed, nodes)
    garbage = np.random.default_rng(seed).normal(0, 50, (padding, features.shape[1]))
    padded = np.concatenate([features, garbage.astype(np.float32)])
    valid = np.arange(nodes + padding) < nodes

    np.testing.assert_allclose(NETWORK(padded, valid)[:nodes], q, rtol=1e-5, atol=1e-6)
    # The control: without the mask the same padding does change them.
    assert not np.allclose(NETWORK(padded)[:nodes], q, rtol=1e-3)


def test_a_batch_gives_what_its_rows_give_alone() -> None:
    rows = [q_of(seed, 12) for seed in range(16)]
    together = NETWORK(np.stack([features for features, _ in rows]))

    for row, (_, q) in zip(together, rows, strict=True):
        np.testing.assert_allclose(row, q, rtol=1e-5, atol=1e-6)


def test_other_nodes_matter_through_the_pool() -> None:
    features, q = q_of(5, 6)
    busier = features.copy()
    busier[1:, :5] += 0.5

    assert not np.allclose(NETWORK(busier)[0], q[0], rtol=1e-4)


def test_the_mean_of_five_thousand_nodes_keeps_its_digits() -> None:
    features, _ = q_of(9, 5000)
    exact = Network(
        encoder=tuple(_double(layer) for layer in NETWORK.encoder),
        head=tuple(_double(layer) for layer in NETWORK.head),
        scale=NETWORK.scale,
    )

    np.testing.assert_allclose(NETWORK(features), exact(features), rtol=1e-4, atol=1e-5)


def _double(layer: Layer) -> Layer:
    return Layer(layer.weight.astype(np.float64), layer.bias.astype(np.float64))  # type: ignore[arg-type]


def test_no_nodes_give_no_scores() -> None:
    assert NETWORK(np.zeros((0, 18), np.float32)).shape == (0,)


@pytest.mark.parametrize("name", list(GOLDEN))
def test_golden_cases_are_what_the_code_gives(name: str) -> None:
    network = policy.read(FOLDER / name).network
    for case in json.loads((FOLDER / GOLDEN[name][1]).read_text()):
        now = golden_case(network, case["seed"], len(case["q"]))
        assert now["nodes"] == case["nodes"]
        assert now["pod"] == case["pod"]
        np.testing.assert_allclose(now["features"], case["features"], rtol=1e-6)
        np.testing.assert_allclose(now["q"], case["q"], rtol=1e-4)
        assert now["choice"] == case["choice"]
        assert now["scores"] == case["scores"]


def test_golden_fixtures_can_be_made_again(tmp_path: Path) -> None:
    write_golden(tmp_path)

    made = [file for name in GOLDEN for file in (f"{name}.json", f"{name}.safetensors")]
    for name in made:
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


def test_random_weights_depend_on_the_seed() -> None:
    one, other = random_tensors(1), random_tensors(2)

    assert not np.array_equal(one["head.0.weight"], other["head.0.weight"])


def test_features_are_shares_with_flags_for_what_is_unknown() -> None:
    nodes = Nodes(
        pods=[11, 0],
        pod_capacity=[110, 0],
        cpu_requested=[1000, 0],
        cpu_allocatable=[4000, 2000],
        memory_requested=[512, 0],
        memory_allocatable=[1024, 1024],
        active=[True, False],
        latency_ms=[30.0, np.nan],
        idle_power_share=[0.25, np.nan],
        feasible=[True, True],
    )
    pod = Pods(cpu_request=1000, memory_request=256, soft_limit_ms=20.0, hard_limit_ms=np.nan)

    first, second = (
        dict(zip(policy.FEATURES, row, strict=True)) for row in policy.build(nodes, pod)
    )
    assert first["pods_share"] == pytest.approx(0.1)
    assert first["cpu_after_share"] == 0.5
    assert first["memory_after_share"] == 0.75
    assert first["latency_over_soft"] == 0.5
    assert (first["latency_over_hard"], first["has_hard"]) == (0.0, 0.0)
    assert first["cpu_request_share"] == 0.25
    assert second["pods_share"] == 1.0, "no room for pods is full, not empty"
    assert (second["latency_ms"], second["latency_known"]) == (0.0, 0.0)
    assert second["latency_over_soft"] == 0.0
    assert second["idle_power_share"] == 0.5


def test_disk_takes_the_place_of_memory_and_of_nothing_else() -> None:
    world, pod = random_world(np.random.default_rng(3), 5)
    pod = replace(pod, disk_request=512)
    on_memory, on_disk = policy.build(world, pod), policy.build(world, pod, beside_cpu="disk")
    as_memory = policy.build(
        replace(
            world,
            memory_requested=world.disk_requested,
            memory_allocatable=world.disk_allocatable,
        ),
        replace(pod, memory_request=512),
    )
    named = seeing(policy.FEATURES, "disk")

    np.testing.assert_array_equal(on_disk, as_memory)
    differs = (on_memory != on_disk).any(axis=0)
    assert {name for name, other in zip(named, differs, strict=True) if other} == {
        "disk_requested_share",
        "disk_after_share",
        "disk_request_share",
    }
    assert seeing(policy.FEATURES, "memory") == policy.FEATURES


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308, -1e308, 0.0, -1.0])
def test_features_stay_finite_whatever_the_columns_hold(bad: float) -> None:
    world, _ = random_world(np.random.default_rng(1), 4)
    for name in ("latency_ms", "idle_power_share"):
        columns = {column: getattr(world, column) for column in NODE_COLUMNS}
        nodes = Nodes(**columns | {name: np.full(4, bad)})
        limits = Pods(cpu_request=1, memory_request=1, soft_limit_ms=bad, hard_limit_ms=bad)
        features = policy.build(nodes, limits)
        assert np.isfinite(features).all()
        assert np.isfinite(NETWORK(features)).all()


@pytest.mark.parametrize("tiny", [5e-324, 1e-310])
def test_next_to_nothing_is_full_and_too_far_without_a_warning(tiny: float) -> None:
    nodes, pod = random_world(np.random.default_rng(1), 3)
    least = np.full(3, tiny)
    nodes = replace(nodes, cpu_allocatable=least, memory_allocatable=least, latency_ms=least + 10)
    pod = replace(
        pod, cpu_request=10.0, memory_request=10.0, soft_limit_ms=tiny, hard_limit_ms=tiny
    )
    features = policy.build(nodes, pod)
    first = dict(zip(policy.FEATURES, features[0], strict=True))

    assert np.isfinite(features).all()
    assert first["latency_over_soft"] == first["latency_over_hard"] == 1
    assert [v for k, v in first.items() if k.endswith("_after_share")] == [MOST_SHARE] * 2, first
