# SPDX-License-Identifier: Apache-2.0
"""From Q values to a choice, a score and a rank."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pilothouse.policy import choose, to_ranks, to_scores

QS = arrays(np.float32, st.integers(1, 30), elements=st.floats(-1e6, 1e6, width=32))


def flags(*values: int) -> np.ndarray:
    return np.asarray(values, np.bool_)


def test_an_infeasible_node_is_never_chosen_however_high_its_q() -> None:
    q = np.float32([1.0, 9.0, 2.0])

    assert choose(q, flags(1, 0, 1)) == 2


def test_the_first_of_equals_is_chosen() -> None:
    assert choose(np.float32([0.0, 1.0, 1.0 + 5e-7]), flags(1, 1, 1)) == 1


def test_nothing_is_chosen_when_nothing_is_feasible() -> None:
    assert choose(np.float32([1.0, 2.0]), flags(0, 0)) == -1


def test_a_batch_is_chosen_row_by_row() -> None:
    q = np.float32([[1, 2], [3, 0]])

    assert choose(q, np.ones((2, 2), np.bool_)).tolist() == [1, 0]


def test_scores_span_zero_to_a_hundred() -> None:
    assert to_scores(np.float32([-1, 0, 1, 5]), flags(1, 1, 1, 0)).tolist() == [0, 50, 100, 0]


def test_equals_all_score_a_hundred() -> None:
    assert to_scores(np.float32([2, 2]), flags(1, 1)).tolist() == [100, 100]


def test_a_near_miss_does_not_score_as_high_as_the_best() -> None:
    assert to_scores(np.float32([0, 0.9999, 1]), flags(1, 1, 1)).tolist() == [0, 99, 100]


@given(q=QS)
def test_the_choice_scores_a_hundred_and_nothing_is_out_of_range(q: np.ndarray) -> None:
    everywhere = np.ones(q.shape, np.bool_)
    scores, ranks = to_scores(q, everywhere), to_ranks(q, everywhere)

    assert scores[choose(q, everywhere)] == 100
    assert ranks[choose(q, everywhere)] >= ranks.max() - 1  # equal within the tie, not bit by bit
    assert scores.min() >= 0
    assert scores.max() <= 100
    assert ranks.min() >= 0
    assert ranks.max() == 10


def test_ranks_follow_the_order_and_skip_infeasible_nodes() -> None:
    assert to_ranks(np.float32([3, 1, 2, 9]), flags(1, 1, 1, 0)).tolist() == [10, 0, 5, 0]


def test_only_the_best_of_many_nodes_has_the_highest_rank() -> None:
    ranks = to_ranks(np.arange(100, dtype=np.float32), np.ones(100, np.bool_))
    assert (ranks == 10).sum() == 1
    assert ranks[99] == 10
    assert ranks.min() == 0
