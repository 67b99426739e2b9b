# SPDX-License-Identifier: Apache-2.0
"""NumPy and Go are one function: the same choice on ten thousand random clusters."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pilothouse import policy
from pilothouse.policy import Nodes, Pods
from pilothouse.testing.placement import FOLDER, NODE_COLUMNS, POD_COLUMNS, random_world

CASES = 10_000
CLOSE = 2e-4
SCHEDULER = Path(__file__).parents[2] / "scheduler"


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
    subprocess.run(command, cwd=SCHEDULER, env=os.environ | flags, check=True)
    return built


def packed(nodes: Nodes, pod: Pods) -> bytes:
    columns = [np.asarray(getattr(nodes, name), np.float64) for name in NODE_COLUMNS]
    asks = [float(getattr(pod, name)) for name in POD_COLUMNS]
    rows = np.stack(columns, axis=-1)
    return struct.pack("<I4d", len(rows), *asks) + rows.astype("<f8").tobytes()


@pytest.mark.slow
def test_go_chooses_what_numpy_chooses_on_ten_thousand_clusters(scores_in_go: Path) -> None:
    random = np.random.default_rng(20)
    worlds = [random_world(random, int(random.integers(1, 24))) for _ in range(CASES)]
    files = [str(FOLDER / "fixture.json"), str(FOLDER / "fixture.safetensors")]
    asked = b"".join(packed(*world) for world in worlds)
    done = subprocess.run([scores_in_go, *files], input=asked, capture_output=True, check=True)
    answers = np.frombuffer(done.stdout, "<f4")
    network = policy.read(FOLDER / "fixture").network

    start, compared = 0, 0
    for nodes, pod in worlds:
        ours = network(policy.build(nodes, pod))
        theirs = answers[start : start + len(ours)]
        start += len(ours)
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)
        feasible = np.asarray(nodes.feasible, np.bool_)
        if not feasible.any():
            continue
        here, there = int(policy.choose(ours, feasible)), int(policy.choose(theirs, feasible))
        assert ours[feasible].max() - ours[there] <= CLOSE
        assert theirs[feasible].max() - theirs[here] <= CLOSE
        best = np.sort(ours[feasible])
        if len(best) > 1 and best[-1] - best[-2] > CLOSE:
            assert here == there
            compared += 1
    assert start == len(answers)
    assert compared > CASES / 2, "most cases must have a clear winner"


def test_other_weights_would_be_noticed(scores_in_go: Path, tmp_path: Path) -> None:
    from pilothouse.testing.placement import random_policy

    random_policy(tmp_path, seed=1)
    nodes, pod = random_world(np.random.default_rng(3), 8)
    files = [str(tmp_path / "fixture.json"), str(tmp_path / "fixture.safetensors")]
    done = subprocess.run(
        [scores_in_go, *files], input=packed(nodes, pod), capture_output=True, check=True
    )
    ours = policy.read(FOLDER / "fixture").network(policy.build(nodes, pod))

    assert not np.allclose(np.frombuffer(done.stdout, "<f4"), ours, rtol=1e-2)
