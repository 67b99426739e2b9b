# SPDX-License-Identifier: Apache-2.0
"""How far a value may go, measured from what its owner set and not from our last step."""

from __future__ import annotations

import math

from pilothouse.domain import Verb, Verdict
from pilothouse.guard.case import Case, refuse


def cpu_stays_above_floor(case: Case) -> Verdict | None:
    share = case.settings.guard.cpu_floor_share
    for write in case.plan.writes:
        if write.verb is not Verb.CPU_LIMIT:
            continue
        owners = case.ledger.owners_value(write)
        if owners <= 0:
            return refuse("cpu-floor", f"{write.target.short} has no CPU limit to change")
        if write.value > owners or write.value < math.ceil(owners * share):
            return refuse(
                "cpu-floor",
                f"CPU limit {write.value} m of {write.target.short} would leave "
                f"{math.ceil(owners * share)} to {owners} m ({share:.2f} of what its owner set)",
                used=write.value,
                allowed=math.ceil(owners * share),
            )
    return None


def memory_stays_above_floor(case: Case) -> Verdict | None:
    factor, pods = case.settings.guard.memory_floor_factor, case.view.snapshot.pods
    for write in case.plan.writes:
        row = case.view.snapshot.find(write.target) if write.verb is Verb.MEMORY_REQUEST else None
        if row is None:
            continue
        peak = max(int(pods.memory_peak_mib[row]), int(pods.memory_used_mib[row]))
        floor = math.ceil(peak * factor)
        if write.value < max(floor, 1):
            return refuse(
                "memory-floor",
                f"memory request {write.value} MiB of {write.target.short} is below {floor} MiB, "
                f"{factor:.2f} times its peak of {peak} MiB",
                used=write.value,
                allowed=floor,
            )
    return None


def clock_stays_above_floor(case: Case) -> Verdict | None:
    floor = math.ceil(1000 * case.settings.guard.frequency_floor)
    for write in case.plan.writes:
        if write.verb is Verb.FREQUENCY and not floor <= write.value <= 1000:
            return refuse(
                "frequency-floor",
                f"{write.value} per mille of the clock of {write.target.short}, "
                f"allowed are {floor} to 1000",
                used=write.value,
                allowed=floor,
            )
    return None


def replicas_stay_within_factor(case: Case) -> Verdict | None:
    factor, workloads = case.settings.guard.replica_factor, case.view.snapshot.workloads
    for write in case.plan.writes:
        row = case.view.snapshot.find(write.target) if write.verb is Verb.SCALE else None
        if row is None:
            continue
        declared = int(workloads.replicas_baseline[row])
        # An autoscaler may have gone below what was declared: adding to that takes nothing away.
        least, most = min(declared, write.original), int(declared * factor)
        if not least <= write.value <= most:
            return refuse(
                "replica-factor",
                f"{write.value} replicas of {write.target.short}, allowed are {least} to "
                f"{most} ({factor:g} times what its owner declared)",
                used=write.value,
                allowed=most,
            )
    return None
