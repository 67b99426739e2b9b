# SPDX-License-Identifier: Apache-2.0
"""From Q values to a choice, to scores of 0..100 and to an extender's priorities of 0..10.

Only feasible nodes take part. Masks are ``where`` with the smallest finite number, so that no
arithmetic on a masked value can become NaN.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pilothouse.policy.network import Flags, Floats

TIE = 1e-6  # Q values this close are equal
LEAST = np.finfo(np.float32).min
MOST_SCORE = 100
MOST_RANK = 10
Integers = NDArray[np.int64]


def choose(q: Floats, feasible: Flags) -> Integers:
    """Index of the best feasible node (...); the first of equals, and -1 where there is none."""
    masked = np.where(feasible, q, LEAST)
    best = masked.max(axis=-1, keepdims=True, initial=LEAST)
    first: Integers = np.argmax((masked >= best - TIE) & feasible, axis=-1)
    return np.where(feasible.any(axis=-1), first, -1)


def to_scores(q: Floats, feasible: Flags) -> Integers:
    """Scores (..., nodes) between the least and the best feasible Q.

    Only the best and its equals get 100: rounding a near miss up would make the scheduler toss a
    coin between the two.
    """
    low = np.where(feasible, q, np.float32(np.inf)).min(axis=-1, keepdims=True, initial=np.inf)
    high = np.where(feasible, q, LEAST).max(axis=-1, keepdims=True, initial=LEAST)
    spread = np.where(np.isfinite(low), high - low, 0)
    flat = spread <= TIE
    share = np.where(feasible, q - low, 0) / np.where(flat, 1, spread)
    scores = np.where(q >= high - TIE, MOST_SCORE, np.minimum(np.floor(share * MOST_SCORE), 99))
    return np.where(feasible, scores, 0).astype(np.int64)


def to_ranks(q: Floats, feasible: Flags) -> Integers:
    """Priorities (nodes,) of 0..10 by rank: what an extender may answer; equals share one.

    Only the best and its equals get 10, for the reason that ``to_scores`` gives.
    """
    ranks = np.zeros(q.shape, np.int64)
    order = np.unique(q[feasible])
    if order.size:
        place = np.searchsorted(order, q[feasible])
        last = max(order.size - 1, 1)
        below = np.minimum(place * MOST_RANK // last, MOST_RANK - 1)
        ranks[feasible] = np.where(q[feasible] >= order[-1] - TIE, MOST_RANK, below)
    return ranks
