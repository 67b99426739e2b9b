# SPDX-License-Identifier: Apache-2.0
"""The defaults, pinned: changing one is a decision a reviewer sees here."""

from __future__ import annotations

from pilothouse.settings import Settings, file

DEFAULTS = {
    "run": {
        "cluster": "sim",
        "scenario": "harbor",
        "seed": 0,
        "cycle_seconds": 15,
        "interval_wall_seconds": 1.0,
    },
    "modes": {"default": "enforce", "agents": {}},
    "forecast": {
        "forecaster": "ewma-trend",
        "demand": "ewma-trend",
        "level_half_life_seconds": 60,
        "trend_half_life_seconds": 180,
        "warmup_seconds": 60,
        "stale_seconds": 45,
        "errors_per_minute_alarm": 12,
        "heartbeat_lag_alarm_ms": 8000,
    },
    "safety": {
        "replicate_risk": 0.83,
        "migrate_risk": 0.7,
        "throttle_risk": 0.5,
        "hold_seconds": 1800,
        "workload_horizon_seconds": 300,
        "demand_share": 1.0,
        "wake_share": 0.8,
        "step_back_queue": 80,
        "step_back_pressure": 0.72,
        "throttle_factor": 0.9,
        "pods_per_action": 4,
    },
    "efficiency": {
        "sleep_demand": 0.12,
        "dvfs_demand": 0.3,
        "balloon_demand": 0.45,
        "dvfs_frequency": 0.65,
        "balloon_factor": 0.75,
        "sleep_moves": 0,
        "spare_share": 0.25,
    },
    "admission": {
        "cap_queue": 120,
        "deprioritize_queue": 80,
        "queue_queue": 8,
        "hold_share": 0.8,
        "overloaded_share": 0.5,
        "cap_factor": 0.85,
        "pods_per_action": 8,
        "allow_reject": False,
    },
    "referee": {"preemption": "cluster", "actions_per_cycle": 3},
    "guard": {
        "window_seconds": 600,
        "per_agent": 12,
        "per_workload": 2,
        "per_namespace": 8,
        "per_node": 2,
        "node_share": 0.1,
        "drains_at_once": 1,
        "disturbed_share": 0.05,
        "replica_factor": 2.0,
        "dwell_seconds": 120,
        "reversals": 1,
        "quarantine_seconds": 3600,
        "proposals_per_agent": 64,
        "unready_share": 0.2,
        "stale_seconds": 45,
        "completeness": 0.95,
        "minimum_pod_age_seconds": 120,
        "cpu_floor_share": 0.5,
        "memory_floor_factor": 1.2,
        "frequency_floor": 0.5,
        "gated_namespaces": 2,
        "ttl_seconds": {
            "replicate": 1800,
            "migrate": 1800,
            "throttle": 900,
            "resource_cap": 900,
            "memory_balloon": 1800,
            "power_state": 1800,
            "dvfs": 600,
            "admission": 120,
        },
        "protected_priority": 1000000,
    },
    "act": {"stepwise": False, "power_hook": ""},
    "score": {
        "settle_seconds": 300,
        "forks": True,
        "weights": {"safety": 1.0, "efficiency": 0.6, "admission": 0.8},
    },
    "observe": {
        "usage": "auto",
        "prometheus": "",
        "backfill_seconds": 900,
        "pod_cpu_query": "sum by (namespace, pod) (max by (namespace, pod, container) "
        '(irate(container_cpu_usage_seconds_total{container!="",container!="POD"}[1m])))',
        "pod_memory_query": "sum by (namespace, pod) (max by (namespace, pod, container) "
        '(container_memory_working_set_bytes{container!="",container!="POD"}))',
        "node_cpu_query": "sum by (node) (irate(node_cpu_usage_seconds_total[1m]))",
        "node_memory_query": "max by (node) (node_memory_working_set_bytes)",
        "latency_query": "histogram_quantile(0.95, sum by (namespace, deployment, le) "
        "(rate(workload_request_duration_seconds_bucket[1m])))",
        "stolen_query": 'avg by (node) (irate(node_cpu_seconds_total{mode="steal"}[1m]))',
        "errors_query": "sum by (node) (60 * rate(node_edac_correctable_errors_total[5m]))",
        "node_queries": {
            "cpu_busy_percent": "100 - "
            '(avg(irate(node_cpu_seconds_total{mode="idle", '
            'instance="$address:9100"}[1m])) * 100)',
            "memory_available_gigabytes": "node_memory_MemAvailable_bytes"
            '{instance="$address:9100"} / 1000000000',
            "disk_used_percent": "100 - "
            '(node_filesystem_free_bytes{mountpoint="/run", '
            'instance="$address:9100"} / '
            'node_filesystem_size_bytes{mountpoint="/run", '
            'instance="$address:9100"} * 100)',
            "received_bytes_per_second": "rate(node_network_receive_bytes_total"
            '{instance="$address:9100", device="eth0"}[5m])',
            "established_connections": 'node_netstat_Tcp_CurrEstab{instance="$address:9100"}',
            "pods": 'count(kube_pod_info{node="$node"}) or vector(0)',
        },
        "node_queries_limit": 50,
    },
    "journal": {
        "keyframe_cycles": 50,
        "segment_mib": 256,
        "segment_hours": 24,
        "keep_segments": 16,
        "keep_days": 30,
    },
    "serve": {"host": "127.0.0.1", "port": 8088, "metrics_port": 0},
}


def test_defaults_are_the_pinned_ones() -> None:
    tree = file.to_tree(Settings())

    assert tree.pop("apiVersion") == "pilothouse.dev/v1alpha1"
    assert tree.pop("kind") == "Configuration"
    assert tree == DEFAULTS
