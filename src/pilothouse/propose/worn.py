# SPDX-License-Identifier: Apache-2.0
"""Pods that had better be started anew, while a sibling answers for them.

There are two ways for memory to wear a pod out. One leaked up to its limit and stays there: it
reclaims memory more than it works, and slows its service until somebody starts it anew. Another
still leaks: the kernel will kill it, and with it every request it is at. Both are asked to move as
pods, which is an eviction: new requests go elsewhere first, open ones are finished, and whatever
takes its place is fresh.

One pod of each service in a cycle, the fullest, and only where a ready one can be spared.
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
    horizon_column,
)
from pilothouse.features.population import Mask, Population
from pilothouse.propose.voice import Voice, driven_by, moved_by, says, share
from pilothouse.settings import SafetySettings

SOON_SECONDS = 300
SERVICES = 4  # looked at closely in one cycle
FULL_SHARE = 0.88  # of its limit: from here on a runtime mostly reclaims memory
OUTLIER = 1.25  # times what its siblings hold on average: leaked, not loaded
# Of its limit, before a leak counts: a fast one is full a few scrapes later, a slow one is asked
# for by its risk alone, minutes before its end.
LEAKED_SHARE = 0.6
# Replicas that the owner declared. A service of more carries what one killed pod drops, and two
# short bridges are worth more to it than one and a restart, which cost the same budget: with 5 to
# 13 replicas objectives were broken for 63 s longer in 40 min of memory-growth (simulated).
FEW = 3
Shares = NDArray[np.float64]


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

    @property
    def _snapshot(self) -> Snapshot:
        return self._population.snapshot

    def wishes(self) -> Iterator[Proposal]:
        """The fullest worn pod of each service, fullest first."""
        pods, workloads = self._snapshot.pods, self._snapshot.workloads
        leaking = self._leaking()
        worn = (self._stuck() | leaking) & self._population.movable
        worn &= (pods.phase == Phase.RUNNING) & (pods.memory_limit_mib > 0)
        spare = workloads.replicas_ready > np.maximum(workloads.min_available, 1)
        spare &= workloads.kind == WorkloadKind.SERVICE
        rows = np.flatnonzero(worn & spare[pods.workload])
        rows = rows[np.argsort(-self._held[rows], kind="stable")]
        _, fullest = np.unique(pods.workload[rows], return_index=True)
        for row in rows[np.sort(fullest)][:SERVICES].tolist():
            yield self._leaking_wish(row) if leaking[row] else self._stuck_wish(row)

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
        """(pods,) killed soon by their own growth, in a service of few that has an extra replica
        and misses nobody: what was evicted before is back."""
        pods, workloads, table = (
            self._snapshot.pods,
            self._snapshot.workloads,
            self._forecast.pod_risk,
        )
        doomed = (table.abstains == 0) & (table.driver == Driver.MEMORY_GROWTH)
        doomed &= self._soon >= 1000 * self._settings.migrate_risk
        ready = workloads.replicas_ready
        bridged = (ready > workloads.replicas_baseline) & (ready >= workloads.replicas_desired)
        bridged &= workloads.replicas_baseline <= FEW
        mask: Mask = doomed & (self._held >= LEAKED_SHARE) & bridged[pods.workload]
        return mask

    def _leaking_wish(self, row: int) -> Proposal:
        risk, needs = int(self._soon[row]), self._settings.migrate_risk
        owner = int(self._snapshot.pods.workload[row])
        others = int(self._snapshot.workloads.replicas_ready[owner]) - 1
        moved = moved_by(self._forecast, "pods", int(self._snapshot.pods.uid[row]))
        driver = driven_by(self._forecast.pod_risk, row, moved)
        return self._wish(
            row,
            score=risk / 1000,
            needs=LEAKED_SHARE,
            why=f"and is killed within {SOON_SECONDS // 60} min with probability {share(risk)} "
            f"(needs {needs:.2f}){says(self._forecast, moved)}: {driver}: start it anew, "
            f"{self._snapshot.workload_ref(owner).short} has {others} more ready",
            evidence=(
                Evidence(f"risk {SOON_SECONDS // 60} min", risk / 1000, "", needs),
                Evidence("other ready replicas", float(others), "", 1.0),
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
