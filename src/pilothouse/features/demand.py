# SPDX-License-Identifier: Apache-2.0
"""How much CPU workloads want and have, computed alike for forecasters and agents."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import Snapshot, WorkloadKind


def workload_demand_millicores(snapshot: Snapshot) -> NDArray[np.int64]:
    """What each workload wants now: offered load of a service, measured use of a batch.

    A saturated or throttled service uses less than it is asked for, so its use would hide demand.
    """
    pods, workloads = snapshot.pods, snapshot.workloads
    count = len(workloads)
    used = np.bincount(pods.workload, weights=pods.cpu_used_millicores, minlength=count)
    offered = (
        workloads.load_permille.astype(np.int64)
        * workloads.replicas_baseline
        * request_per_pod_millicores(snapshot)
        // 1000
    )
    service = workloads.kind == WorkloadKind.SERVICE
    return np.where(service, offered, used.astype(np.int64)).astype(np.int64)


def request_per_pod_millicores(snapshot: Snapshot) -> NDArray[np.int64]:
    """Mean CPU request of a workload's pods, 0 for one without pods."""
    pods, count = snapshot.pods, len(snapshot.workloads)
    total = np.bincount(pods.workload, weights=pods.cpu_request_millicores, minlength=count)
    number = np.bincount(pods.workload, minlength=count)
    return (total // np.maximum(number, 1)).astype(np.int64)


# Beyond three quarters of what it may use, an open queue's latency runs away.
KNEE_PERMILLE = 750


def capacity_millicores(snapshot: Snapshot) -> NDArray[np.int64]:
    """What the wanted replicas of each workload carry well: requests, or limits up to the knee."""
    pods, count = snapshot.pods, len(snapshot.workloads)
    limits = np.bincount(pods.workload, weights=pods.cpu_limit_millicores, minlength=count)
    number = np.maximum(np.bincount(pods.workload, minlength=count), 1)
    by_limit = (limits // number).astype(np.int64) * KNEE_PERMILLE // 1000
    per_pod = np.maximum(request_per_pod_millicores(snapshot), by_limit)
    return snapshot.workloads.replicas_desired.astype(np.int64) * per_pod
