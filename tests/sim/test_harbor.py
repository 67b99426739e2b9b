# SPDX-License-Identifier: Apache-2.0
"""What the default scenario promises for every seed."""

from __future__ import annotations

import pytest

from pilothouse.scenarios import load
from pilothouse.sim import SimCluster


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_harbor_has_a_bit_of_everything(seed):
    cluster = SimCluster(load("harbor"), seed=seed)
    nearly_idle = easy = False
    longest = worst_errors = killed = dead = unready = 0
    leaking = saturated = False
    for _ in range(300):
        cluster.advance(15)
        seen = cluster.observe()
        awake = seen.interpreted.awake == 1
        demand = 1000 * seen.nodes.cpu_used_millicores // seen.nodes.cpu_capacity_millicores
        nearly_idle |= bool((demand[awake] < 120).any())
        easy |= bool((demand[awake] < 300).any())
        longest = max(longest, seen.interpreted.queue_length)
        worst_errors = max(worst_errors, int(seen.nodes.errors_per_minute.max()))
        killed = max(killed, int(seen.pods.oom_kills.max()))
        dead = max(dead, int((seen.nodes.power == 4).sum()))
        unready = max(unready, int((seen.nodes.ready == 0).sum()))
        kinds = {x.kind.value for x in cluster.stimuli()}
        leaking |= "memory-growth" in kinds
        saturated |= "cpu-saturation" in kinds and seen.interpreted.violations > 0
    assert nearly_idle
    assert easy
    assert 8 <= longest <= 130
    assert worst_errors >= 12
    assert dead >= 1
    assert unready < len(seen.nodes) // 3
    assert leaking
    assert killed >= 1
    assert saturated
    assert 12 <= len(seen.nodes) <= 16
    assert 90 <= len(seen.pods) <= 300
