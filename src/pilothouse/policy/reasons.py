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
    """Each objective's share of every node's Q (..., nodes), against the average candidate."""
    q = network.judge(network.encode(features), pooled)
    counted = np.where(candidates.any(axis=-1, keepdims=True), candidates, True)[..., np.newaxis]
    average = (features * counted).sum(axis=-2, keepdims=True) / counted.sum(axis=-2, keepdims=True)
    found = {}
    for objective, names in OBJECTIVES.items():
        columns = [_AT[name] for name in names]
        plain = features.copy()
        plain[..., columns] = average[..., columns]
        found[objective] = q - network.judge(network.encode(plain), pooled)
    return found


def flip(network: Network, row: Floats, pooled: Floats, rival_q: float) -> Flip | None:
    """What one feature of a node had to be for it to lose against (or win over) its rival."""
    return flips(network, row[np.newaxis], pooled[np.newaxis], np.asarray([rival_q], np.float32))[0]


def flips(network: Network, rows: Floats, pooled: Floats, rival_q: Floats) -> list[Flip | None]:
    """The same for many nodes (rows, features), each with a pool and a rival of its own."""
    wins = network.judge(network.encode(rows[:, np.newaxis]), pooled) > rival_q[:, np.newaxis]
    nearest: list[Flip | None] = [None] * len(rows)
    least = np.full(len(rows), np.inf)
    for name, values, span in (
        ("latency_ms", _LATENCIES_MS, 100.0),
        ("cpu_requested_share", _SHARES, 1.0),
    ):
        now = rows[:, _AT[name]]
        q = network.judge(network.encode(_variants(rows, name, values)), pooled)
        other = (q > rival_q[:, np.newaxis]) != wins
        if name == "latency_ms":
            other &= rows[:, [_AT["latency_known"]]] != 0
        distance = np.where(other, np.abs(values - now[:, np.newaxis]) / span, np.inf)
        best = distance.argmin(axis=-1)
        for at in np.flatnonzero(distance.min(axis=-1) < least):
            least[at] = distance[at, best[at]]
            nearest[at] = Flip(feature=name, now=float(now[at]), then=float(values[best[at]]))
    return nearest


def _variants(rows: Floats, name: str, values: NDArray[np.float64]) -> Floats:
    """The nodes with other values of one feature, and with what follows from it."""
    made = np.repeat(rows[:, np.newaxis].astype(np.float64), len(values), axis=1)
    if name == "latency_ms":
        made[..., _AT[name]] = np.minimum(values, MOST_MS)
        for limit in ("soft", "hard"):
            given = rows[:, [_AT[f"{limit}_limit_ms"]]].astype(np.float64)
            limited = (rows[:, [_AT[f"has_{limit}"]]] != 0) & (given > 0)
            over = np.clip((values - given) / np.where(limited, given, 1), -1, 1)
            column = made[..., _AT[f"latency_over_{limit}"]]
            made[..., _AT[f"latency_over_{limit}"]] = np.where(limited, over, column)
    else:
        ask = rows[:, [_AT["cpu_after_share"]]] - rows[:, [_AT["cpu_requested_share"]]]
        made[..., _AT["cpu_requested_share"]] = values
        made[..., _AT["cpu_after_share"]] = values + ask
    return made.astype(np.float32)
