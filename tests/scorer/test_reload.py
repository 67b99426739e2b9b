# SPDX-License-Identifier: Apache-2.0
"""New weights are taken while the scorer serves; files that are no policy are refused."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pilothouse.policy import NODE_FEATURES, safetensors
from pilothouse.scorer.board import PolicySource
from pilothouse.scorer.watch import Chores
from pilothouse.testing.placement import random_policy, random_tensors
from tests.scorer.test_scorer import Scorer

NAME = "mine"


def weights(folder: Path) -> Path:
    return folder / f"{NAME}.safetensors"


def change_card(folder: Path, **changes: Any) -> None:
    card = folder / f"{NAME}.json"
    card.write_text(json.dumps(json.loads(card.read_text()) | changes))


def cut_off(folder: Path) -> None:
    weights(folder).write_bytes(weights(folder).read_bytes()[:-8])


def no_numbers(folder: Path) -> None:
    tensors = random_tensors(3) | {"head.1.bias": np.float32([np.nan])}
    data = safetensors.encode(tensors)
    weights(folder).write_bytes(data)
    change_card(folder, weights_sha256=hashlib.sha256(data).hexdigest())


def other_features(folder: Path) -> None:
    change_card(folder, node_features=[*NODE_FEATURES[:-1], "disk_share"])


class Trap:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (pytest.fail, ("the pickle was loaded",))


def a_pickle(folder: Path) -> None:
    weights(folder).write_bytes(pickle.dumps(Trap()))


def a_zip_bomb(folder: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weights", bytes(32 << 20))
    weights(folder).write_bytes(packed.getvalue())


class Reloading:
    """A scorer that watches a policy of its own, which it has loaded."""

    def __init__(self, folder: Path) -> None:
        random_policy(folder, seed=1, name=NAME)
        self.scorer = Scorer(folder)
        self.chores = Chores(
            self.scorer.parts,
            self.scorer.app.state.metrics,
            source=PolicySource(str(folder / NAME)),
            watching=None,
            probe_port=0,
        )
        self.chores.reload()

    def serves(self) -> tuple[Any, ...]:
        """What callers and the plugin get, as far as it comes from the policy."""
        table = self.scorer.call("GET", "/v1/table").json()["policy"]
        said = self.scorer.suggest(cpu_millicores=100, memory_mib=64, soft_limit_ms=20)
        return said, table["version"], table["weights"]

    def says(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.scorer.call("GET", "/v1/policy").json()
        return answer

    def count(self, result: str) -> float:
        name = f'pilothouse_scorer_reloads_total{{result="{result}"}} '
        lines = self.scorer.call("GET", "/metrics").text.splitlines()
        return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (cut_off, "cut off"),
        (no_numbers, '"head.1.bias" holds values that are not numbers'),
        (other_features, "disk_share"),
        (a_pickle, "it is a pickle"),
        (a_zip_bomb, "it is a zip archive"),
    ],
)
def test_a_file_that_is_no_policy_is_refused_with_the_reason_and_the_one_before_serves_on(
    tmp_path: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    reloading = Reloading(tmp_path)
    version, before = reloading.says()["version"], reloading.serves()
    spoil(tmp_path)
    reloading.chores.reload()
    said = reloading.says()

    assert version.startswith(f"{NAME}-")
    assert said["version"] == version
    assert "is refused" in said["last_reload"]
    assert reason in said["last_reload"]
    assert f"{version} stays" in said["last_reload"]
    assert (reloading.count("loaded"), reloading.count("refused")) == (1, 1)
    assert reloading.serves() == before
    assert reloading.scorer.call("GET", "/readyz").status_code == 200

    random_policy(tmp_path, seed=2, name=NAME)
    reloading.chores.reload()
    assert reloading.says()["version"] not in (None, version)
    assert reloading.serves() != before
    assert (reloading.count("loaded"), reloading.count("refused")) == (2, 1)


def test_an_unchanged_policy_file_is_not_read_again(tmp_path: Path) -> None:
    random_policy(tmp_path, name="mine")
    source = PolicySource(str(tmp_path / "mine"))

    assert [source.changed(), source.changed()] == [True, False]


@pytest.mark.parametrize(("name", "given"), [("mine", "."), ("mine.v2", "mine.v2")])
def test_a_policy_in_a_folder_or_with_a_dot_in_its_name_is_reloaded_too(
    tmp_path: Path, name: str, given: str
) -> None:
    random_policy(tmp_path, name=name)
    source = PolicySource(str(tmp_path / given))
    assert [source.changed(), source.changed()] == [True, False]

    before = source.read().version
    random_policy(tmp_path, seed=2, name=name)
    assert source.changed()
    assert source.read().version != before
