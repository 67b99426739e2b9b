# SPDX-License-Identifier: Apache-2.0
"""Why a policy scores a node as it does: what each objective contributed, and what would flip it.

Both are answers of the very network that decided, given other inputs, with the rest of the cluster
(the pool) held as it was. A contribution is what a node's Q value gains or loses because its
features of one objective differ from the average candidate's. A flip is the nearest value of one
feature at which the choice would have been another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilothouse.policy.features import FEATURES, MOST_MS
from pilothouse.policy.network import Flags, Floats, Network

OBJECTIVES: dict[str, tuple[str, ...]] = {
    "load": (
        "pods_share",
        "cpu_requested_share",
        "memory_requested_share",
        "cpu_after_share",
        "memory_after_share",
    ),
    "energy": ("active", "idle_power_share"),
    "latency": ("latency_ms", "latency_known", "latency_over_soft", "latency_over_hard"),
}
_AT = {name: place for place, name in enumerate(FEATURES)}
_STEPS = 41
_LATENCIES_MS = np.concatenate([np.linspace(0, 100, _STEPS), [150, 200, 300, 500, 1000]])
_SHARES = np.linspace(0, 1, _STEPS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """The nearest value of one feature of one node that changes whether it is chosen."""

    feature: str  # "latency_ms" or "cpu_requested_share"
    now: float
    then: float


def contributions(
    network: Network, features: Floats, pooled: Floats, candidates: Flags
) -> dict[str, NDArray[np.float32]]:
    """Each objective's share of every node's Q value (nodes,), against the average candidate."""
    q = network.judge(network.encode(features), pooled)
    average = features[candidates].mean(axis=0) if candidates.any() else features.mean(axis=0)
    found = {}
    for objective, names in OBJECTIVES.items():
        columns = [_AT[name] for name in names]
        plain = features.copy()
        plain[:, columns] = average[columns]
        found[objective] = q - network.judge(network.encode(plain), pooled)
    return found


def flip(network: Network, row: Floats, pooled: Floats, rival_q: float) -> Flip | None:
    """What one feature of a node had to be for it to lose against (or win over) its rival."""
    wins = bool(network.judge(network.encode(row[np.newaxis]), pooled)[0] > rival_q)
    nearest: Flip | None = None
    least = np.inf
    for name, values, span in (
        ("latency_ms", _LATENCIES_MS, 100.0),
        ("cpu_requested_share", _SHARES, 1.0),
    ):
        if name == "latency_ms" and not row[_AT["latency_known"]]:
            continue
        variants = _variants(row, name, values)
        q = network.judge(network.encode(variants), pooled)
        other = (q > rival_q) != wins
        distance = np.where(other, np.abs(values - row[_AT[name]]) / span, np.inf)
        best = int(np.argmin(distance))
        if distance[best] < least:
            least = distance[best]
            nearest = Flip(feature=name, now=float(row[_AT[name]]), then=float(values[best]))
    return nearest


def _variants(row: Floats, name: str, values: NDArray[np.float64]) -> Floats:
    """The node with other values of one feature, and with what follows from it."""
    made = np.repeat(row[np.newaxis].astype(np.float64), len(values), axis=0)
    if name == "latency_ms":
        made[:, _AT[name]] = np.minimum(values, MOST_MS)
        for limit in ("soft", "hard"):
            given = row[_AT[f"{limit}_limit_ms"]]
            if row[_AT[f"has_{limit}"]] and given > 0:
                made[:, _AT[f"latency_over_{limit}"]] = np.clip((values - given) / given, -1, 1)
    else:
        ask = row[_AT["cpu_after_share"]] - row[_AT["cpu_requested_share"]]
        made[:, _AT["cpu_requested_share"]] = values
        made[:, _AT["cpu_after_share"]] = values + ask
    return made.astype(np.float32)
