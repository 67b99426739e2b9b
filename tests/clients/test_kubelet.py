# SPDX-License-Identifier: Apache-2.0
"""A kubelet's text as readings."""

from __future__ import annotations

from pilothouse.clients.kubelet import Reading, parse

TEXT = """\
# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 12.5 1700000000500
node_memory_working_set_bytes 1.048576e+06 1700000000500
pod_cpu_usage_seconds_total{namespace="shop",pod="cart"} 3 1700000001000
pod_memory_working_set_bytes{namespace="shop",pod="cart"} 2.097152e+06 1700000001000
pod_cpu_usage_seconds_total{namespace="shop",pod="no-memory"} 3 1700000001000
pod_cpu_usage_seconds_total{namespace="shop",pod="lies"} NaN 1700000001000
pod_memory_working_set_bytes{namespace="shop",pod="lies"} 1 1700000001000
this is not a line
"""


def test_nodes_and_pods_are_read_with_their_own_times() -> None:
    assert parse(TEXT, "n1", now=5.0) == {
        ("", "n1"): Reading(12.5, 2**20, 1_700_000_000.5),
        ("shop", "cart"): Reading(3.0, 2.0 * 2**20, 1_700_000_001.0),
    }


def test_reading_without_a_time_is_from_now() -> None:
    text = "node_cpu_usage_seconds_total 1\nnode_memory_working_set_bytes 2\n"
    assert parse(text, "n1", now=5.0) == {("", "n1"): Reading(1.0, 2.0, 5.0)}
