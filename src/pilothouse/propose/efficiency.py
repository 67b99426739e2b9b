# SPDX-License-Identifier: Apache-2.0
"""Agent B: nothing idles.

Looks for the node with the least upper demand over its capacity. Far below use it sleeps it (after
a drain, and only while the rest keeps room to spare), less far it lowers the clock, and where only
memory is over-asked for it asks for less.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import (
    ActionKind,
    Evidence,
    Forecast,
    Phase,
    Proposal,
    Snapshot,
    horizon_column,
)
from pilothouse.domain.proposal import Scalar
from pilothouse.features.population import Population
from pilothouse.propose.voice import Voice, moved_by, says
from pilothouse.settings import Settings

HORIZON_SECONDS = 900
FULL_CLOCK = 1000
GIVE_BACK_SHARE = 0.60  # of the slowed CPU: twice what slowing down was allowed at
GIVE_BACK_NODES = 3
SLOW_CANDIDATES = 4
SLOWED_SHARE = 0.25  # of the nodes: new pods land on the idlest, so not all of those may be slow


class Efficiency:
    """Sleep, slow down, shrink: the best node of each, best first."""

    name = "efficiency"
    title = "AgentB"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> Sequence[Proposal]:
        voice = Voice(self.name, self.title, forecast.made_seconds)
        case = _Case(self._settings, snapshot, forecast, voice)
        wishes = [*case.give_back(), *case.sleep(), *case.slow_down(), *case.shrink()]
        return wishes or [case.nothing()]


class _Case:
    def __init__(
        self, settings: Settings, snapshot: Snapshot, forecast: Forecast, voice: Voice
    ) -> None:
        self.settings, self.voice = settings.efficiency, voice
        self.guard = settings.guard
        self.snapshot, self.forecast = snapshot, forecast
        self.population = Population(snapshot, settings.guard.protected_priority)
        nodes, demand = snapshot.nodes, forecast.node_demand
        column = horizon_column(HORIZON_SECONDS)
        capacity = np.maximum(nodes.cpu_capacity_millicores, 1)
        self.share: NDArray[np.float64] = demand.upper_millicores[:, column] / capacity
        risk = forecast.node_risk
        calm = risk.risk_permille[:, column] < 1000 * settings.safety.throttle_risk
        self.known = self.population.takes_pods & (demand.abstains == 0)
        self.usable = self.known & calm

    def give_back(self) -> Iterator[Proposal]:
        """A slowed node that is needed after all gets its clock back."""
        nodes = self.snapshot.nodes
        slowed = (nodes.frequency_permille < FULL_CLOCK) & self.known
        left = self.share * FULL_CLOCK / np.maximum(nodes.frequency_permille, 1)
        hurt = self._hosts_broken_service()
        # Whoever waits is placed on the idlest node next.
        needed = self.snapshot.interpreted.queue_length > 0
        rows = np.flatnonzero(slowed & ((left > GIVE_BACK_SHARE) | hurt | needed))
        for row in rows[np.argsort(-left[rows], kind="stable")][:GIVE_BACK_NODES].tolist():
            target = self.snapshot.node_ref(row)
            why = ", a service on it is outside its objective" if hurt[row] else ""
            why = why or (", pods wait" if needed else "")
            yield self.voice.wants(
                ActionKind.DVFS,
                target,
                score=min(float(left[row]), 1.0),
                priority=0,
                reason=f"{target.short} will want {left[row]:.2f} of its slowed CPU (p95, 15 min; "
                f"needs > {GIVE_BACK_SHARE:.2f}){why}: full clock",
                evidence=(
                    Evidence("p95 share", round(float(left[row]), 4), "", GIVE_BACK_SHARE),
                    Evidence("clock", float(nodes.frequency_permille[row]), "per mille"),
                ),
                payload={"frequency_permille": FULL_CLOCK},
                otherwise=f"below {GIVE_BACK_SHARE:.2f} the clock would have stayed low",
            )

    def _hosts_broken_service(self) -> NDArray[np.bool_]:
        broken = self.snapshot.workloads.in_violation == 1
        hosted = self.population.count_by_node(broken[self.snapshot.pods.workload])
        return hosted > 0

    @property
    def _quiet(self) -> bool:
        """Nobody waits, nobody is hurt: the only time to save."""
        seen = self.snapshot.interpreted
        return not (seen.queue_length or seen.failed_pods or seen.violations)

    def sleep(self) -> Iterator[Proposal]:
        s = self.settings
        if not self._quiet or self.snapshot.interpreted.unschedulable:
            return
        stuck = self.population.count_by_node(~self.population.movable)
        few = self.snapshot.nodes.pods <= s.sleep_moves
        rows = np.flatnonzero(self.usable & (self.share < s.sleep_demand) & (stuck == 0) & few)
        pods = self.snapshot.nodes.pods[rows]
        # Empty nodes first, then those with the fewest pods to move, then the idlest.
        for row in rows[np.lexsort((self.share[rows], pods))].tolist():
            spare = self._spare_without(row)
            if spare >= s.spare_share and self._zone_keeps_a_node(row):
                yield self._wish(
                    ActionKind.POWER_STATE,
                    row,
                    s.sleep_demand,
                    0,
                    {"state": "asleep", "drain": True},
                    f", the rest keeps {spare:.2f} free (needs {s.spare_share:.2f})",
                    f"above {s.sleep_demand:.2f} the choice would have been: slow down",
                )
                return

    def _spare_without(self, row: int) -> float:
        """Free share of CPU or memory, whichever is less, on the nodes that would remain."""
        nodes, rest = self.snapshot.nodes, self.population.takes_pods.copy()
        rest[row] = False
        free = 1.0
        for asked, has in (
            (nodes.cpu_requested_millicores, nodes.cpu_capacity_millicores),
            (nodes.memory_requested_mib, nodes.memory_capacity_mib),
        ):
            total = int(has[rest].sum(dtype=np.int64))
            needed = int(asked[rest].sum(dtype=np.int64)) + int(asked[row])
            free = min(free, 1.0 - needed / total) if total else 0.0
        return free

    def _zone_keeps_a_node(self, row: int) -> bool:
        zone = self.snapshot.nodes.zone
        return int((self.population.takes_pods & (zone == zone[row])).sum()) > 1

    def slow_down(self) -> Iterator[Proposal]:
        s = self.settings
        if self.snapshot.interpreted.queue_length:
            return
        full = self.snapshot.nodes.frequency_permille >= FULL_CLOCK
        if (self.known & ~full).sum() >= SLOWED_SHARE * self.known.sum():
            return
        busy = self.snapshot.nodes.cpu_used_millicores > 0
        fit = self.usable & full & busy & ~self._hosts_broken_service()
        rows = np.flatnonzero(fit & (self.share < s.dvfs_demand))
        frequency = round(1000 * s.dvfs_frequency)
        # More than one, because the first choice may be resting from an earlier change.
        for row in rows[np.argsort(self.share[rows], kind="stable")][:SLOW_CANDIDATES].tolist():
            yield self._wish(
                ActionKind.DVFS,
                row,
                s.dvfs_demand,
                1,
                {"frequency_permille": frequency},
                f": {frequency} per mille of the clock is enough",
                f"above {s.dvfs_demand:.2f} the choice would have been: shrink memory requests",
            )

    def shrink(self) -> Iterator[Proposal]:
        s = self.settings
        fat = self._over_asking()
        row = self._least(self.usable & (fat > 0) & (self.share < s.balloon_demand))
        if row is not None:
            yield self._wish(
                ActionKind.MEMORY_BALLOON,
                row,
                s.balloon_demand,
                2,
                {"factor": s.balloon_factor},
                f": {int(fat[row])} pods ask for far more memory than they ever used",
                f"above {s.balloon_demand:.2f} the choice would have been: nothing",
            )

    def _over_asking(self) -> NDArray[np.int64]:
        """(nodes,) pods whose request could fall by the factor and stay above the floor."""
        pods = self.snapshot.pods
        floor = np.maximum(pods.memory_peak_mib, pods.memory_used_mib)
        floor = floor * self.guard.memory_floor_factor
        after = pods.memory_request_mib * self.settings.balloon_factor
        settled = (pods.phase == Phase.RUNNING) & (
            self.snapshot.taken_seconds - pods.since_seconds >= self.guard.window_seconds
        )
        return self.population.count_by_node(
            (after >= floor) & (after >= 64) & settled & self.population.movable
        )

    def _least(self, mask: NDArray[np.bool_]) -> int | None:
        rows = np.flatnonzero(mask)
        return int(rows[np.argmin(self.share[rows])]) if len(rows) else None

    def _wish(
        self,
        kind: ActionKind,
        row: int,
        below: float,
        priority: int,
        payload: dict[str, Scalar],
        tail: str,
        otherwise: str,
    ) -> Proposal:
        target, demand = self.snapshot.node_ref(row), float(self.share[row])
        moved = moved_by(self.forecast, "demand of nodes", int(self.snapshot.nodes.uid[row]))
        return self.voice.wants(
            kind,
            target,
            score=1.0 - demand,
            priority=priority,
            reason=f"{target.short} will want {demand:.2f} of its CPU (p95, 15 min; "
            f"needs < {below:.2f}){says(self.forecast.demand_by, moved)}{tail}",
            evidence=(
                Evidence("p95 demand share 15 min", round(demand, 4), "", below),
                Evidence("pods", float(self.snapshot.nodes.pods[row])),
                Evidence("power", float(self.snapshot.nodes.power_watts[row]), "W"),
                *moved,
            ),
            payload=payload,
            otherwise=otherwise,
        )

    def nothing(self) -> Proposal:
        row = self._least(self.known)
        if row is None:
            unsure = "; ".join(a.reason for a in self.forecast.abstentions) or "no node is known"
            return self.voice.wants_nothing(
                self.snapshot.cluster_ref, score=0.0, reason=f"no forecast: {unsure}", evidence=()
            )
        demand, needs = float(self.share[row]), self.settings.balloon_demand
        target = self.snapshot.node_ref(row)
        known = "nothing left to save there" if demand < needs else f"needs < {needs:.2f}"
        return self.voice.wants_nothing(
            target,
            score=1.0 - demand,
            reason=f"lowest demand {target.short} {demand:.2f} ({known})",
            evidence=(Evidence("p95 demand share 15 min", round(demand, 4), "", needs),),
        )
