# SPDX-License-Identifier: Apache-2.0
"""Kubernetes quantities in the snapshot's units."""

from __future__ import annotations

import pytest

from pilothouse.clients.quantity import LARGEST, mebibytes, millicores
from pilothouse.errors import BackendError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1500m", 1500), ("2", 2000), ("0.5", 500), ("100n", 1), ("0", 0), ("1k", 1_000_000)],
)
def test_processor_quantities_round_up_to_millicores(text: str, expected: int) -> None:
    assert millicores(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1Gi", 1024), ("128974848", 123), ("129e6", 124), ("64Mi", 64), ("1E", LARGEST), ("1M", 1)],
)
def test_memory_quantities_round_up_to_mebibytes(text: str, expected: int) -> None:
    assert mebibytes(text) == expected


@pytest.mark.parametrize("text", ["", "Mi", "1Zi", "<b>", "1 Gi", "--1"])
def test_anything_else_is_the_clusters_error(text: str) -> None:
    with pytest.raises(BackendError, match="is not a quantity"):
        mebibytes(text)
