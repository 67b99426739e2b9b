# SPDX-License-Identifier: Apache-2.0
"""A policy file is exactly right or refused with the reason."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilothouse import policy
from pilothouse.errors import ArtifactBroken, MissingFile, UnknownName
from pilothouse.policy import Card, safetensors
from pilothouse.policy.artifact import decode
from pilothouse.testing.placement import FOLDER, SHAPE, random_tensors

CARD = (FOLDER / "fixture.json").read_bytes()
WEIGHTS = (FOLDER / "fixture.safetensors").read_bytes()


def refusal(card: bytes = CARD, weights: bytes = WEIGHTS) -> str:
    with pytest.raises(ArtifactBroken) as caught:
        decode(card, weights, "given")
    return str(caught.value)


def card_with(**changes: object) -> bytes:
    return json.dumps(json.loads(CARD) | changes).encode()


def with_tensors(**changes: np.ndarray | None) -> tuple[bytes, bytes]:
    """Card and weights that belong together, after a change to the tensors."""
    import hashlib

    tensors = random_tensors(0) | {k.replace("__", "."): v for k, v in changes.items()}
    data = safetensors.encode({k: v for k, v in tensors.items() if v is not None})
    return card_with(weights_sha256=hashlib.sha256(data).hexdigest()), data


def test_a_written_policy_reads_back_as_the_same_function(tmp_path: Path) -> None:
    card = Card(policy="ee", network=SHAPE, seed=7, reward={"name": "thesis-ee"})
    written = policy.write(tmp_path / "ee", card, random_tensors(7))
    found = policy.read(tmp_path / "ee.json")

    assert found.card == written
    assert found.version == f"ee-{written.weights_sha256[:12]}"
    np.testing.assert_array_equal(
        found.network.encoder[0].weight, random_tensors(7)["encoder.0.weight"]
    )
    assert policy.read(tmp_path).card == written, "a folder with one policy is enough"


def test_writing_refuses_what_reading_would(tmp_path: Path) -> None:
    broken = random_tensors(0) | {"head.1.bias": np.float32([np.nan])}

    with pytest.raises(ArtifactBroken, match="not numbers"):
        policy.write(tmp_path / "ee", Card(policy="ee", network=SHAPE), broken)
    assert list(tmp_path.iterdir()) == []


def test_the_intact_fixture_is_accepted() -> None:
    assert decode(CARD, WEIGHTS, "given").card.policy == "fixture"


@pytest.mark.parametrize("keep", [0, 4, 8, 200, len(WEIGHTS) - 1])
def test_truncated_weights_are_refused(keep: int) -> None:
    assert "cut off" in refusal(weights=WEIGHTS[:keep])


def test_weights_with_something_behind_them_are_refused() -> None:
    assert "3 bytes follow" in refusal(weights=WEIGHTS + b"abc")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_numbers_are_refused(bad: float) -> None:
    bias = np.full(32, bad, np.float32)

    assert '"encoder.1.bias" holds values that are not numbers' in refusal(
        *with_tensors(encoder__1__bias=bias)
    )


def test_weights_that_would_overflow_are_refused() -> None:
    huge = np.full((96, 32), 1e30, np.float32)

    assert "beyond 1e+06" in refusal(*with_tensors(head__0__weight=huge))


def test_a_missing_and_an_unknown_tensor_are_named() -> None:
    assert '"head.1.bias" is missing' in refusal(*with_tensors(head__1__bias=None))
    assert "['other']" in refusal(*with_tensors(other=np.zeros(3, np.float32)))


def test_a_tensor_of_another_size_is_refused() -> None:
    assert "[96, 16], but its card says [96, 32]" in refusal(
        *with_tensors(head__0__weight=np.zeros((96, 16), np.float32))
    )


def test_another_feature_schema_is_refused_naming_both() -> None:
    features = [*policy.NODE_FEATURES[:-1], "disk_share"]
    said = refusal(card=card_with(node_features=features))

    assert "disk_share" in said
    assert "latency_over_hard" in said


@pytest.mark.parametrize(
    "names",
    [
        {"node_features": ("memory", "gpu")},
        {"node_features": ("memory", "gpu"), "pod_features": ("memory", "gpu")},
        {"node_features": ("memory", "disk")},  # of the node alone
        {"pod_features": ("memory", "disk")},  # of the pod alone
        {"node_features": ("memory_requested", "disk_requested")},
    ],
)
def test_a_resource_that_nobody_knows_or_half_of_one_is_refused(
    names: dict[str, tuple[str, str]],
) -> None:
    usual = {"node_features": policy.NODE_FEATURES, "pod_features": policy.POD_FEATURES}
    changed = {
        kind: [name.replace(*words) for name in usual[kind]] for kind, words in names.items()
    }

    assert "with memory or all of them with disk" in refusal(card=card_with(**changed))


def test_another_schema_version_is_refused() -> None:
    assert '"pilothouse.placement/v2"' in refusal(card=card_with(schema="pilothouse.placement/v2"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"scaling": {"latency_ms": 0.0}}, "scaling"),
        ({"scaling": {"disk": 2.0}}, "scaling"),
        ({"network": {"encoder": [18, 32], "head": [32, 1]}}, "3 encodings"),
        ({"network": {"encoder": [9, 32, 32], "head": [96, 32, 1]}}, "9 features"),
        ({"network": {"encoder": [18, 10**9], "head": [3 * 10**9, 1]}}, "wide"),
        ({"network": {"encoder": [18] + [4] * 40, "head": [12, 1]}}, "layers"),
        ({"network": {"encoder": [18, 32], "head": [96, 1], "activation": "tanh"}}, "tanh"),
        ({"seed": "seven"}, "card cannot be read"),
    ],
)
def test_a_card_that_cannot_be_run_is_refused(change: dict[str, object], reason: str) -> None:
    assert reason in refusal(card=card_with(**change))


def test_a_card_of_other_weights_is_refused() -> None:
    assert "but these have" in refusal(card=card_with(weights_sha256="0" * 64))


def test_a_pickle_is_refused_and_never_loaded() -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (pytest.fail, ("the pickle was loaded",))

    assert "it is a pickle" in refusal(weights=pickle.dumps(Trap()))


def test_a_zip_bomb_is_refused_without_expanding_it() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weights", bytes(64 << 20))

    assert "it is a zip archive" in refusal(weights=packed.getvalue())


def test_a_file_larger_than_any_policy_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_bytes(CARD)
    with (tmp_path / "p.safetensors").open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(ArtifactBroken, match="larger than"):
        policy.read(tmp_path / "p")


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "F32", "shape": [2**31, 2**31], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}},
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}},
        {"a": {"dtype": "F32", "shape": [1, 1, 1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "extra": 1}},
        [],
    ],
)
def test_headers_that_claim_what_is_not_there_are_refused(header: object) -> None:
    text = msgspec.json.encode(header)

    assert "is refused" in refusal(weights=struct.pack("<Q", len(text)) + text + bytes(4))


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=400))
def test_no_bytes_do_anything_but_be_refused(data: bytes) -> None:
    refusal(weights=data)
    refusal(card=data)


@settings(max_examples=100, deadline=None)
@given(where=st.integers(0, len(WEIGHTS) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed(where: int, bit: int) -> None:
    changed = bytearray(WEIGHTS)
    changed[where] ^= 1 << bit

    refusal(weights=bytes(changed))


def test_a_missing_half_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_bytes(CARD)

    with pytest.raises(MissingFile, match=r"p\.safetensors"):
        policy.read(tmp_path / "p")


def test_an_unknown_shipped_policy_lists_what_there_is() -> None:
    with pytest.raises(UnknownName, match="Unknown policy"):
        policy.shipped("nonesuch")


def test_every_shipped_policy_can_be_read() -> None:
    for name in policy.shipped_names():
        assert policy.shipped(name).card.policy == name
