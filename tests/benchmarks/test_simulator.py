# SPDX-License-Identifier: Apache-2.0
"""The short form of benchmarks/simulator.

The ratio asserted here is a guard against regressions on a busy machine, far below the fifty that
the full form asks for and does not reach; see its README.
"""

from __future__ import annotations

import pytest

from benchmarks.simulator.speed import check_batch, check_peers, compare, large

GUARD = 20.0


@pytest.mark.parametrize("pods", [200, 640])
def test_both_peers_give_the_same_numbers_under_churn(pods):
    check_peers(pods, seeds=1, ticks=60)


def test_clusters_of_a_batch_equal_their_single_runs():
    check_batch(200, ticks=25, batch=8)


def test_batch_is_much_faster_than_the_plain_python_peer(capsys):
    comparison = compare(640, repeats=3, ticks=10)
    with capsys.disabled():
        print(f"\n{comparison.ratio:.0f} times the peer's cluster-ticks per CPU second", end="")
    assert comparison.ratio >= GUARD


def test_step_of_a_large_cluster_stays_within_its_limit():
    assert large(5_000, 50_000, ticks=3).median_ms <= 200
