# SPDX-License-Identifier: Apache-2.0
"""Whoever is moved must fit elsewhere, and what remains must carry the cluster.

The fit check knows requests, taints, readiness and power. It does not know node selectors or
spread: pods that need those are expected to be marked as not evictable by whoever observes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import ActionKind, Verb, Verdict, WorkloadKind
from pilothouse.guard.case import Case, refuse
from pilothouse.guard.ledger import taken_by

REPLACED_SECONDS = 60  # until the replacement of an evicted pod answers, mostly
MOST_PODS_FITTED = 500  # a node never hosts more; beyond this the answer is no


def sleep_needs_an_empty_node(case: Case) -> Verdict | None:
    """A bare sleep of a node with pods is refused, and so is a drain that cannot empty it."""
    snapshot = case.view.snapshot
    for write in case.plan.writes:
        sleeps = write.verb is Verb.POWER and write.value == 0
        empties = write.verb is Verb.DRAIN and write.value == 2
        row = snapshot.find(write.target) if sleeps or empties else None
        if row is None:
            continue
        rows = case.view.residents(row)
        stays = rows if sleeps else rows[snapshot.pods.evictable[rows] != 1]
        if len(stays):
            return refuse(
                "sleep-needs-drain",
                f"{len(stays)} pods would still be on {write.target.short} when it sleeps",
                used=len(stays),
                allowed=0,
            )
    return None


def zone_keeps_a_node(case: Case) -> Verdict | None:
    leaving = _leaving(case)
    if not leaving:
        return None
    zone = case.view.snapshot.nodes.zone
    stay = _staying(case, leaving)
    for row in leaving:
        same = stay & (zone == zone[row])
        if case.view.open_nodes[row] and not same.any():
            name = case.view.snapshot.zones.names[zone[row]]
            node = case.view.snapshot.nodes.names[row]
            return refuse(
                "last-in-zone", f"{node} is the last node in zone {name}", used=1, allowed=0
            )
    return _requests_fit(case, stay)


def _requests_fit(case: Case, stay: NDArray[np.bool_]) -> Verdict | None:
    if case.proposal.kind is not ActionKind.POWER_STATE:
        return None  # a failing node leaves whether or not we help; fit is checked pod by pod
    nodes = case.view.snapshot.nodes
    has = int(nodes.cpu_capacity_millicores[stay].sum(dtype=np.int64))
    alive = (nodes.ready == 1) & (nodes.pods > 0)
    needed = int(nodes.cpu_requested_millicores[alive].sum(dtype=np.int64))
    needed += case.view.waiting_millicores
    if needed <= has:
        return None
    return refuse(
        "awake-capacity",
        f"requests of {needed} m CPU would meet {has} m on the nodes that stay awake",
        used=needed,
        allowed=has,
    )


def _leaving(case: Case) -> list[int]:
    rows = []
    for write in case.plan.writes:
        out = (write.verb is Verb.DRAIN and write.value > 0) or (
            write.verb is Verb.POWER and write.value == 0
        )
        out = out or (write.verb is Verb.TAINT and write.value == 1)
        row = case.view.snapshot.find(write.target) if out else None
        if row is not None and row not in rows:
            rows.append(row)
    return rows


def _staying(case: Case, leaving: list[int]) -> NDArray[np.bool_]:
    stay = case.view.open_nodes.copy()
    stay[leaving] = False
    for ref in case.tally.granted_out:
        row = case.view.snapshot.find(ref)
        if row is not None:
            stay[row] = False
    return stay


def disruption_budget_holds(case: Case) -> Verdict | None:
    """Evictions one by one keep the minimum, whatever else takes pods of the same workload away
    before their replacements answer; a drain is paced by the backend."""
    snapshot, workloads = case.view.snapshot, case.view.snapshot.workloads
    evictions = [write for write in case.plan.writes if write.verb is Verb.EVICT]
    if case.plan.nodes or not evictions:
        return None  # moving a node's pods: the backend refuses the one that would break it
    # Granted in this cycle, or taken back with an action of ours that ends now or very soon.
    going = case.tally.granted_taken + taken_by(
        case.ledger.ending(case.now + REPLACED_SECONDS), snapshot
    )
    for owner, count in taken_by(evictions, snapshot).items():
        ready, least = int(workloads.replicas_ready[owner]), int(workloads.min_available[owner])
        # Ready beyond what is wanted: a scale-down has begun, or a rollout is on its way.
        surplus = max(ready - int(workloads.replicas_desired[owner]), 0)
        leave = going[owner] + surplus
        if leave and workloads.kind[owner] == WorkloadKind.SERVICE:
            least = max(least, 1)  # its owner may let one be evicted, and did not mean the others
        if ready - leave - count < least:
            name = snapshot.workload_ref(owner).short
            besides = f", of which {leave} may leave," if leave else ""
            return refuse(
                "disruption-budget",
                f"{name} has {ready} ready{besides} and needs {least}",
                used=float(ready - leave - count),
                allowed=float(least),
            )
    return None


def pods_are_old_enough(case: Case) -> Verdict | None:
    """A pod that just arrived is not sent away again, unless its node is failing."""
    snapshot, least = case.view.snapshot, case.settings.guard.minimum_pod_age_seconds
    rows: list[int] = []
    for write in case.plan.writes:
        row = snapshot.find(write.target)
        if row is None:
            continue
        if write.verb is Verb.EVICT and len(case.plan.nodes) == 0:
            rows.append(row)
        elif write.verb is Verb.DRAIN and write.value == 2:
            rows.extend(case.view.residents(row).tolist())
    for row in rows:
        age = case.now - int(snapshot.pods.created_seconds[row])
        if age < least:
            return refuse(
                "pod-age",
                f"{snapshot.pod_ref(row).short} is {age} s old and is not moved before {least} s",
                used=age,
                allowed=least,
                free_at=case.now + least - age,
            )
    return None


def moved_pods_fit_elsewhere(case: Case) -> Verdict | None:
    if not case.moves_pods:
        return None
    pods = _moved(case)
    if len(pods) > MOST_PODS_FITTED:
        return refuse("fit", f"{len(pods)} pods at once", used=len(pods), allowed=MOST_PODS_FITTED)
    misfit = _first_misfit(case, pods)
    if misfit is None:
        return None
    p = case.view.snapshot.pods
    return refuse(
        "fit",
        f"{case.view.snapshot.pod_ref(misfit).short} ({p.cpu_request_millicores[misfit]} m CPU, "
        f"{p.memory_request_mib[misfit]} MiB) fits on no other open node "
        f"together with the {len(pods) - 1} moved beside it",
    )


def _moved(case: Case) -> NDArray[np.intp]:
    snapshot, rows = case.view.snapshot, []
    for write in case.plan.writes:
        row = snapshot.find(write.target)
        if row is None:
            continue
        if write.verb is Verb.EVICT:
            rows.append(row)
        elif write.verb is Verb.DRAIN and write.value:
            here = case.view.residents(row)
            leave = snapshot.pods.evictable[here] == 1
            if case.settings.act.stepwise:  # what is protected stays where it is
                leave &= ~case.view.pod_protected[here]
            rows.extend(here[leave].tolist())
    return np.array(sorted(set(rows)), np.intp)


def _first_misfit(case: Case, pods: NDArray[np.intp]) -> int | None:
    """Largest first onto the first open node with room; None when all fit."""
    table = case.view.snapshot.pods
    stay = _staying(case, _leaving(case))
    nodes = np.flatnonzero(stay)
    cpu, memory = (free[nodes].copy() for free in case.view.free)
    order = np.lexsort((pods, -table.memory_request_mib[pods], -table.cpu_request_millicores[pods]))
    for pod in pods[order].tolist():
        wanted, size = int(table.cpu_request_millicores[pod]), int(table.memory_request_mib[pod])
        room = (cpu >= wanted) & (memory >= size) & (nodes != table.node[pod])
        if not room.any():
            return int(pod)
        spot = int(np.argmax(room))
        cpu[spot] -= wanted
        memory[spot] -= size
    return None


def replica_fits(case: Case) -> Verdict | None:
    """A replica nobody has room for only lengthens the queue."""
    snapshot = case.view.snapshot
    for write in case.plan.writes:
        row = snapshot.find(write.target) if write.verb is Verb.SCALE else None
        if row is None or write.value <= write.original:
            continue
        sample = np.flatnonzero(snapshot.pods.workload == row)
        if not len(sample):
            continue
        wanted = int(snapshot.pods.cpu_request_millicores[sample].max())
        size = int(snapshot.pods.memory_request_mib[sample].max())
        cpu, memory = case.view.free
        room = _staying(case, []) & (cpu >= wanted) & (memory >= size)
        if write.avoid:
            room &= snapshot.nodes.names != write.avoid
        if not room.any():
            return refuse(
                "fit",
                f"another replica of {write.target.short} ({wanted} m CPU, {size} MiB) "
                "fits on no open node",
            )
    return None
