# SPDX-License-Identifier: Apache-2.0
"""Why a policy scores a node as it does: what each objective contributed, and what would flip it.

Both are answers of the very network that decided, given other inputs, with the rest of the cluster
(the pool) held as it was. A contribution is what a node's Q value gains or loses because its
features of one objective differ from the average candidate's. A flip is the nearest value of one
feature, with what follows from it, at which the choice would have been another. Features that only
follow from others (a share after the pod, how far over a limit) and the pod's own are not varied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pilothouse.policy.choice import TIE
from pilothouse.policy.features import FEATURES, MOST_MS, seeing
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
_AFTER = {"cpu_requested_share": "cpu_after_share", "memory_requested_share": "memory_after_share"}
_AT_ONCE = 256  # nodes whose variants are in memory together


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Knob:
    """A feature of a node that may be turned by itself, and the values it is tried at."""

    feature: str
    values: NDArray[np.float64]
    span: float = 1.0  # of its range, so that distances can be compared


LATENCY = Knob(feature="latency_ms", values=_LATENCIES_MS, span=100.0)
CPU = Knob(feature="cpu_requested_share", values=_SHARES)
KNOBS = (
    LATENCY,
    Knob(feature="latency_known", values=np.zeros(1)),
    CPU,
    Knob(feature="memory_requested_share", values=_SHARES),
    Knob(feature="pods_share", values=_SHARES),
    Knob(feature="idle_power_share", values=_SHARES),
    Knob(feature="active", values=np.asarray([0.0, 1.0])),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """The nearest value of one feature of one node that changes whether it is chosen."""

    feature: str  # of a knob, by the name that the policy's card has for it
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


def flips(
    network: Network, rows: Floats, pooled: Floats, rival_q: Floats, wins: Flags
) -> list[Flip | None]:
    """What latency or CPU share had to be for each node (rows, features) to lose or to win.

    Each node has a rival, which it beat or which beat it, also where both are equally good. The
    pool is one for all or one for each. The nearest flip is given.
    """
    found = every_flip(network, rows, pooled, rival_q, wins, (LATENCY, CPU))
    return [of_row[0] if of_row else None for of_row in found]


def every_flip(
    network: Network,
    rows: Floats,
    pooled: Floats,
    rival_q: Floats,
    wins: Flags,
    knobs: Sequence[Knob] = KNOBS,
) -> list[list[Flip]]:
    """The same for every feature that can flip a node by itself, the nearest first."""
    found: list[list[Flip]] = []
    for start in range(0, len(rows), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        pools = pooled if pooled.ndim == 1 else pooled[part]
        rivals, won = rival_q[part, np.newaxis], wins[part, np.newaxis]
        found += _flips_of(network, rows[part], pools, rivals, won, knobs)
    return found


def _flips_of(
    network: Network,
    rows: Floats,
    pooled: Floats,
    rival_q: Floats,
    wins: Flags,
    knobs: Sequence[Knob],
) -> list[list[Flip]]:
    found: list[list[tuple[float, Flip]]] = [[] for _ in rows]
    latency_known = rows[:, [_AT["latency_known"]]] != 0
    for knob in knobs:
        if knob is LATENCY and not latency_known.any():
            continue
        (feature,) = seeing((knob.feature,), network.beside_cpu)
        now = rows[:, _AT[knob.feature]]
        variants = _variants(rows, knob)
        encoded = network.encode(variants.reshape(-1, len(FEATURES)))
        q = network.judge(encoded.reshape(*variants.shape[:-1], -1), pooled)
        other = np.where(wins, q < rival_q - TIE, q > rival_q + TIE)
        if knob is LATENCY:
            other &= latency_known
        distance = np.where(other, np.abs(knob.values - now[:, np.newaxis]) / knob.span, np.inf)
        best = distance.argmin(axis=-1)
        for at in np.flatnonzero(other.any(axis=-1)):
            then = float(knob.values[best[at]])
            flip = Flip(feature=feature, now=float(now[at]), then=then)
            found[at].append((float(distance[at, best[at]]), flip))
    return [[flip for _, flip in sorted(of_row, key=lambda one: one[0])] for of_row in found]


def _variants(rows: Floats, knob: Knob) -> Floats:
    """The nodes with other values of one feature, and with what follows from it."""
    made = np.repeat(rows[:, np.newaxis], len(knob.values), axis=1)
    made[..., _AT[knob.feature]] = knob.values
    if knob.feature == "latency_ms":
        made[..., _AT[knob.feature]] = np.minimum(knob.values, MOST_MS)
        for limit in ("soft", "hard"):
            given = rows[:, [_AT[f"{limit}_limit_ms"]]].astype(np.float64)
            limited = (rows[:, [_AT[f"has_{limit}"]]] != 0) & (given > 0)
            over = np.clip((knob.values - given) / np.where(limited, given, 1), -1, 1)
            column = made[..., _AT[f"latency_over_{limit}"]]
            made[..., _AT[f"latency_over_{limit}"]] = np.where(limited, over, column)
    elif knob.feature == "latency_known":  # an unknown latency is shown to the network as none
        for name in ("latency_ms", "latency_over_soft", "latency_over_hard"):
            made[..., _AT[name]] = 0
    elif knob.feature in _AFTER:
        after = _AT[_AFTER[knob.feature]]
        ask = rows[:, [after]] - rows[:, [_AT[knob.feature]]]
        made[..., after] = knob.values + ask
    return made
