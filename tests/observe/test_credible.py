# SPDX-License-Identifier: Apache-2.0
"""What cannot be true is not measured."""

from __future__ import annotations

import pytest

from pilothouse.clients.metrics import Sample, Usage
from pilothouse.observe.credible import credible
from tests.observe.test_observer import NOW, a_node

AT = NOW.timestamp()


def sifted(cpu: int, memory: int, *, at: float = AT, node: str = "n1") -> Usage:
    told = Sample(cpu_millicores=cpu, memory_mib=memory, at=at)
    usage = Usage(source="test", nodes={node: told}, pods={("shop", "cart"): told})
    return credible(usage, [a_node("n1")], AT)


def test_usage_within_the_size_of_its_node_is_kept() -> None:
    kept = sifted(1000, 1000)
    assert list(kept.nodes) == ["n1"]
    assert list(kept.pods) == [("shop", "cart")]


@pytest.mark.parametrize(
    ("cpu", "memory", "at"),
    [
        (1_000_000, 1000, AT),
        (1000, 1_000_000, AT),
        (-1, 1000, AT),
        (1000, 1000, AT + 3000),
    ],
    ids=["a thousand times the processor", "a thousand times the memory", "negative", "future"],
)
def test_usage_that_cannot_be_is_left_out(cpu: int, memory: int, at: float) -> None:
    left = sifted(cpu, memory, at=at)
    assert left.nodes == {}
    assert left.pods == {}


def test_usage_of_a_node_that_nobody_knows_is_left_out() -> None:
    assert sifted(1000, 1000, node='"}) or vector(1)#').nodes == {}
