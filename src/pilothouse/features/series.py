# SPDX-License-Identifier: Apache-2.0
"""What a demand forecaster sees of one series: its recent past, in units of its own level.

Samples come as a matrix, newest first, in steps of one length. Everything is divided by a slow
level, so that a small and a large machine, a share and a millicore look alike; the answer is
multiplied back. What happened a day ago is used where it is known and missing where it is not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]
STEPS = 24  # recent samples looked at
FAR = 8  # blocks of STEPS // 2 older samples, for the slow level

NAMES = (
    *(f"lag_{k}" for k in range(12)),
    "mean_3",
    "mean_6",
    "mean_12",
    "mean_24",
    "spread_6",
    "spread_12",
    "spread_24",
    "range_12",
    "lag_18",
    "lag_23",
    "far_1",
    "far_2",
    "far_4",
    "peak",
    "day_ago",
    "day_ago_next",
    "day_ago_change",
    "level",
    "horizon",
)


HISTORY = STEPS + FAR * STEPS // 2  # steps that are looked at in all
# What a live series has too: no unit, no calendar of a day ago, and nothing of the horizon, so that
# one row of features serves every horizon.
LIVE = tuple(
    n for n in NAMES if n not in ("peak", "level", "horizon") and not n.startswith("day_ago")
)
_LIVE_COLUMNS = [NAMES.index(n) for n in LIVE]


def live_features(steps: Matrix) -> tuple[Matrix, NDArray[np.float32]]:
    """(rows, LIVE) and the level, of steps (rows, HISTORY) newest first, NaN where unknown."""
    count = len(steps)
    blocks = steps[:, STEPS:].reshape(count, FAR, STEPS // 2)
    far = mean_known(blocks.reshape(count * FAR, STEPS // 2)).reshape(count, FAR)
    nothing = np.full(count, np.nan, np.float32)
    day_ago = np.full((count, 2), np.nan, np.float32)
    rows, level = demand_features(steps[:, :STEPS], far, nothing, day_ago, 0)
    return rows[:, _LIVE_COLUMNS], level


def mean_known(values: Matrix) -> NDArray[np.float32]:
    """Mean of each row's known values, NaN where there is none."""
    known = np.isfinite(values)
    total = np.where(known, values, np.float32(0)).sum(axis=1)
    count = known.sum(axis=1)
    mean = total / np.maximum(count, 1)
    return np.where(count > 0, mean, np.float32(np.nan)).astype(np.float32)


def level_of(recent: Matrix, far: Matrix) -> NDArray[np.float32]:
    """The slow level everything is divided by; (rows,), above zero."""
    both = np.concatenate([recent, far], axis=1)
    known = np.isfinite(both)
    total = np.where(known, both, np.float32(0)).sum(axis=1)
    mean = total / np.maximum(known.sum(axis=1), 1)
    return np.asarray(np.maximum(mean, 1e-6), np.float32)


def demand_features(
    recent: Matrix,
    far: Matrix,
    peak: NDArray[np.float32],
    day_ago: Matrix,
    horizon_steps: int,
) -> tuple[Matrix, NDArray[np.float32]]:
    """Features of one horizon and the level they are relative to.

    ``recent`` (rows, STEPS) newest first; ``far`` (rows, FAR) means of older blocks; ``peak``
    (rows,) the highest use inside the newest step; ``day_ago`` (rows, 2) the samples one day before
    now and one day before the horizon, NaN where unknown.
    """
    level = level_of(recent, far)
    scaled = recent / level[:, None]
    first = scaled[:, :1]
    # A gap is filled with the newest sample: a flat past says nothing, and nothing is made up.
    filled = np.where(np.isfinite(scaled), scaled, first)
    older = far / level[:, None]
    columns = [
        filled[:, :12],
        filled[:, :3].mean(axis=1, keepdims=True),
        filled[:, :6].mean(axis=1, keepdims=True),
        filled[:, :12].mean(axis=1, keepdims=True),
        filled.mean(axis=1, keepdims=True),
        filled[:, :6].std(axis=1, keepdims=True),
        filled[:, :12].std(axis=1, keepdims=True),
        filled.std(axis=1, keepdims=True),
        np.ptp(filled[:, :12], axis=1)[:, None],
        filled[:, 18:19],
        filled[:, 23:24],
        older[:, 0:1],
        older[:, 1:2],
        older[:, 3:4],
        (peak / level)[:, None],
        day_ago / level[:, None],
        ((day_ago[:, 1] - day_ago[:, 0]) / level)[:, None],
        np.log(level)[:, None],
        np.full((len(level), 1), horizon_steps, np.float32),
    ]
    return np.concatenate(columns, axis=1).astype(np.float32), level
