# SPDX-License-Identifier: Apache-2.0
"""Pods that had better be started anew, while a sibling answers for them.

There are two ways for memory to wear a pod out. One leaked up to its limit and stays there: it
reclaims memory more than it works, and slows its service until somebody starts it anew. Another
still leaks: the kernel will kill it, and with it every request it is at. Both are asked to move as
pods, which is an eviction: whatever takes its place is fresh, new requests go elsewhere first, and
a pod that shuts down gracefully finishes its open ones. One that does not drops them either way.

One pod of each service in a cycle, the fullest, and only where others answer meanwhile. A leaking
one only in services that declare one replica and have an extra one of ours; never in autoscaled
ones, where nobody can tell whose the extra one is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import (
    ActionKind,
    Driver,
    Evidence,
    Forecast,
    Phase,
    Proposal,
    Snapshot,
    WorkloadKind,
    WorkloadTable,
    horizon_column,
)
from pilothouse.features.population import Mask, Population
from pilothouse.propose.voice import Voice, driven_by, moved_by, says, share
from pilothouse.settings import SafetySettings

SOON_SECONDS = 300
SERVICES = 2  # in one cycle: wishes for demand and capacity need room beside them
FULL_SHARE = 0.88  # of its limit: from here on a runtime mostly reclaims memory
OUTLIER = 1.25  # times what its siblings hold on average: leaked, not loaded
# Of its limit, before a leak counts: a fast one is full a few scrapes later, a slow one is asked
# for by its risk alone, minutes before its end.
LEAKED_SHARE = 0.6
Shares = NDArray[np.float64]


def stands_alone(workloads: WorkloadTable) -> Mask:
    """(workloads,) whose owner declared one replica, and no autoscaler: a leak that kills it leaves
    nobody.

    A larger service carries what one killed pod drops, and two short bridges are worth more to it
    than one and a restart, which cost the same budget: objectives were broken for 63 ± 25 s longer
    in 40 min of memory-growth with 5 to 13 replicas, 37 ± 48 s with 2 or 3 (simulated).
    """
    mask: Mask = (workloads.replicas_baseline == 1) & (workloads.autoscaled == 0)
    return mask


class WornPods:
    """One snapshot and forecast, as far as pods wear out."""

    def __init__(
        self,
        settings: SafetySettings,
        population: Population,
        forecast: Forecast,
        voice: Voice,
    ) -> None:
        self._settings, self._population = settings, population
        self._forecast, self._voice = forecast, voice
        pods = self._snapshot.pods
        self._held: Shares = pods.memory_used_mib / np.maximum(pods.memory_limit_mib, 1)
        table = forecast.pod_risk
        self._soon = table.risk_permille[:, horizon_column(SOON_SECONDS)]
        doomed = (table.abstains == 0) & (table.driver == Driver.MEMORY_GROWTH)
        self._doomed: Mask = doomed & (self._soon >= 1000 * settings.migrate_risk)

    @property
    def _snapshot(self) -> Snapshot:
        return self._population.snapshot

    def wishes(self) -> Iterator[Proposal]:
        """The fullest worn pod of each service, fullest first."""
        pods, workloads = self._snapshot.pods, self._snapshot.workloads
        leaking = self._leaking()
        worn = (self._stuck() | leaking) & self._population.movable
        worn &= (pods.phase == Phase.RUNNING) & (pods.memory_limit_mib > 0)
        worn &= (workloads.kind == WorkloadKind.SERVICE)[pods.workload]
        worn &= self._others() >= np.maximum(workloads.min_available, 1)[pods.workload]
        rows = np.flatnonzero(worn)
        rows = rows[np.argsort(-self._held[rows], kind="stable")]
        _, fullest = np.unique(pods.workload[rows], return_index=True)
        for row in rows[np.sort(fullest)][:SERVICES].tolist():
            yield self._leaking_wish(row) if leaking[row] else self._stuck_wish(row)

    def _others(self) -> NDArray[np.int64]:
        """(pods,) siblings that answer meanwhile: ready, on a node that takes pods, and not so full
        that the kernel kills them before a replacement is up."""
        pods = self._snapshot.pods
        open_nodes = np.append(self._population.takes_pods, False)  # a pod without a node has -1
        answers = (pods.phase == Phase.RUNNING) & open_nodes[pods.node]
        answers &= ~(self._doomed & (self._held >= FULL_SHARE))
        count = np.bincount(pods.workload[answers], minlength=len(self._snapshot.workloads))
        others: NDArray[np.int64] = count[pods.workload] - answers
        return others

    # Full, and no longer growing.

    def _stuck(self) -> Mask:
        """(pods,) full, fuller than their siblings, and of a service that suffers."""
        pods, workloads = self._snapshot.pods, self._snapshot.workloads
        grows = self._soon >= 1000 * self._settings.throttle_risk
        full = (self._held >= FULL_SHARE) & (self._held >= OUTLIER * self._usual()[pods.workload])
        mask: Mask = full & ~grows & (workloads.in_violation == 1)[pods.workload]
        return mask

    def _usual(self) -> Shares:
        """(workloads,) the mean of what running pods hold. Where all are full it is the load that
        fills them, and a restart would only push the rest over their limit."""
        pods, count = self._snapshot.pods, len(self._snapshot.workloads)
        running = pods.phase == Phase.RUNNING
        owner = pods.workload[running]
        total = np.bincount(owner, self._held[running], minlength=count)
        return total / np.maximum(np.bincount(owner, minlength=count), 1)

    def _stuck_wish(self, row: int) -> Proposal:
        service = self._snapshot.workload_ref(int(self._snapshot.pods.workload[row]))
        return self._wish(
            row,
            score=float(self._held[row]),
            needs=FULL_SHARE,
            why=f"and {service.short} is outside its objective: start it anew",
        )

    # Leaking, and about to be killed.

    def _leaking(self) -> Mask:
        """(pods,) killed soon by their own growth, in a service of one that has an extra replica
        of ours and misses nobody: what was evicted before is back."""
        pods, workloads = self._snapshot.pods, self._snapshot.workloads
        bridged = stands_alone(workloads)
        bridged &= workloads.replicas_desired > workloads.replicas_baseline
        bridged &= workloads.replicas_ready >= workloads.replicas_desired
        mask: Mask = self._doomed & (self._held >= LEAKED_SHARE) & bridged[pods.workload]
        return mask

    def _leaking_wish(self, row: int) -> Proposal:
        risk, needs = int(self._soon[row]), self._settings.migrate_risk
        owner = int(self._snapshot.pods.workload[row])
        others = int(self._others()[row])
        moved = moved_by(self._forecast, "pods", int(self._snapshot.pods.uid[row]))
        driver = driven_by(self._forecast.pod_risk, row, moved)
        who = says(self._forecast.forecaster, moved)
        return self._wish(
            row,
            score=risk / 1000,
            needs=LEAKED_SHARE,
            why=f"and is killed within {SOON_SECONDS // 60} min with probability {share(risk)} "
            f"(needs {needs:.2f}){who}: {driver}: start it anew, "
            f"{self._snapshot.workload_ref(owner).short} has {others} more that answer",
            evidence=(
                Evidence(f"risk {SOON_SECONDS // 60} min", risk / 1000, "", needs),
                Evidence("other replicas that answer", float(others), "", 1.0),
                *moved,
            ),
        )

    def _wish(
        self,
        row: int,
        *,
        score: float,
        needs: float,
        why: str,
        evidence: tuple[Evidence, ...] = (),
    ) -> Proposal:
        target, held = self._snapshot.pod_ref(row), float(self._held[row])
        return self._voice.wants(
            ActionKind.MIGRATE,
            target,
            score=score,
            priority=2,
            reason=f"{target.short} holds {held:.2f} of its memory limit (needs {needs:.2f}) {why}",
            evidence=(
                Evidence("memory over limit", round(held, 3), "", needs),
                Evidence("memory", float(self._snapshot.pods.memory_used_mib[row]), "MiB"),
                *evidence,
            ),
            otherwise=f"below {needs:.2f} the choice would have been: nothing for {target.short}",
        )
