# SPDX-License-Identifier: Apache-2.0
"""Which samples of usage can be true at all.

A source may be wrong by a factor of a thousand (somebody's unit), may come from the future
(somebody's clock), or may be about nothing we know. What cannot be true is left out, so its object
shows as not measured, which everybody downstream takes for a reason to do less.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pilothouse.clients.metrics import Sample, Usage
from pilothouse.clients.quantity import mebibytes, millicores
from pilothouse.clients.resources import Node

# Short bursts above the nominal size are measured on real machines; tenfold ones are not.
CPU_FACTOR, CPU_SLACK_MILLICORES = 1.5, 500
MEMORY_FACTOR, MEMORY_SLACK_MIB = 1.1, 64
AHEAD_SECONDS = 60.0  # how far two honest clocks may be apart


def credible(usage: Usage, nodes: Iterable[Node], now: float) -> Usage:
    """The same usage without what cannot be true."""
    sizes = {node.metadata.name: _most(node) for node in nodes}
    largest = (
        max((cpu for cpu, _ in sizes.values()), default=0.0),
        max((memory for _, memory in sizes.values()), default=0.0),
    )
    return replace(
        usage,
        nodes={
            name: sample
            for name, sample in usage.nodes.items()
            if name in sizes and _fits(sample, sizes[name], now)
        },
        pods={key: sample for key, sample in usage.pods.items() if _fits(sample, largest, now)},
    )


def _most(node: Node) -> tuple[float, float]:
    """Millicores and MiB above which nobody believes a figure about this node."""
    size = node.status.capacity or node.status.allocatable
    cpu, memory = millicores(size.get("cpu", "0")), mebibytes(size.get("memory", "0"))
    return (
        CPU_FACTOR * cpu + CPU_SLACK_MILLICORES,
        MEMORY_FACTOR * memory + MEMORY_SLACK_MIB,
    )


def _fits(sample: Sample, most: tuple[float, float], now: float) -> bool:
    return (
        0 <= sample.cpu_millicores <= most[0]
        and 0 <= sample.memory_mib <= most[1]
        and sample.at <= now + AHEAD_SECONDS
    )
