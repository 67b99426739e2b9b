# SPDX-License-Identifier: Apache-2.0
"""A proposal becomes the writes it would cause on this very snapshot.

Pure: nothing is sent. Anything a proposer may have made up (objects, numbers, types) ends in a
plan that says why it is impossible, never in an exception. A drain leaves alone what may not be
moved; where the backend's drain would not (a pod it could evict but we must not), the plan evicts
pod by pod instead. On a live cluster a drain is our own, step by step, and spares them. Inverse
writes carry the value we set, so that they run only while it is ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from pilothouse.act.plans import NoPlanError, back, effects_of, impossible, number, shown
from pilothouse.domain import (
    ActionKind,
    Gate,
    Phase,
    Plan,
    Power,
    Proposal,
    Ref,
    Snapshot,
    Verb,
    WorkloadKind,
    Write,
)
from pilothouse.features.population import Population, Rows
from pilothouse.settings import Settings

REPLICAS_PER_NODE_ACTION = 4  # a node hosts many workloads; the most exposed ones come first
EVICTIONS_PER_ACTION = 8
LOST_PER_ACTION = 64
BALLOONS_PER_ACTION = 8
SMALLEST_MEMORY_MIB = 16
FULL_CLOCK = 1000
DECISIONS = {
    "admit": Gate.OPEN,
    "queue": Gate.QUEUE,
    "deprioritize": Gate.DEPRIORITIZE,
    "reject": Gate.REJECT,
}


def plan(proposal: Proposal, snapshot: Snapshot, settings: Settings) -> Plan:
    """What this proposal would write, or why it can write nothing."""
    return Planner(snapshot, settings).plan(proposal)


class Planner:
    """Plans many proposals against one snapshot."""

    def __init__(
        self, snapshot: Snapshot, settings: Settings, spent: frozenset[str] = frozenset()
    ) -> None:
        """``spent`` names what the guard would refuse now: workloads whose budget is used up and
        fields that rest. A plan that may choose among several objects leaves those out."""
        self._snapshot, self._settings, self._spent = snapshot, settings, spent
        self._population = Population(snapshot, settings.guard.protected_priority)
        self._plans = {
            ActionKind.REPLICATE: self._replicate,
            ActionKind.MIGRATE: self._migrate,
            ActionKind.THROTTLE: self._slow,
            ActionKind.RESOURCE_CAP: self._slow,
            ActionKind.POWER_STATE: self._power,
            ActionKind.DVFS: self._clock,
            ActionKind.MEMORY_BALLOON: self._balloon,
            ActionKind.ADMISSION: self._gate,
        }

    def plan(self, proposal: Proposal) -> Plan:
        make = self._plans.get(proposal.kind)
        if make is None:
            return impossible(f"{proposal.kind} asks for nothing that could be written")
        try:
            return make(proposal)
        except NoPlanError as reason:
            return impossible(str(reason))

    def restore(self, inverse: Iterable[Write]) -> Plan:
        """The inverse of an earlier action, as far as its objects are still the same ones."""
        writes = tuple(write for write in inverse if self._still_there(write))
        if not writes:
            return impossible("every object of the expired action is gone")
        return self._finish(writes, (), disturbs=0)

    def _still_there(self, write: Write) -> bool:
        row = self._snapshot.find(write.target)
        return row is not None and self._uid(write.target, row) == write.uid

    def _uid(self, target: Ref, row: int) -> int:
        s = self._snapshot
        table = {
            "node": s.nodes.uid,
            "pod": s.pods.uid,
            "workload": s.workloads.uid,
            "namespace": s.namespaces.uid,
        }
        return int(table[target.kind][row]) if target.kind in table else -1

    def carry_on(self, node: Ref, *, to_sleep: bool) -> Plan:
        """The next evictions of a drain under way, or the sleep once nothing is left to move."""
        row = self._snapshot.find(node)
        if row is None or not self._snapshot.nodes.ready[row]:
            return impossible(f"{node.short} is gone or does not answer")
        residents = self._population.on_node(row)
        movable = residents[self._population.movable[residents]]
        if len(movable):
            movable = movable[:EVICTIONS_PER_ACTION]
            writes = tuple(self._evict(int(pod)) for pod in movable)
            return self._finish(writes, (), disturbs=len(movable), affected=movable, node=row)
        leaving = self._snapshot.pods.node == row
        if not to_sleep or leaving.any():
            return impossible(f"{node.short} has nothing left that may be moved")
        sleep = self._node_write(Verb.POWER, row, 0, 1)
        return self._finish((sleep,), (back(sleep),), disturbs=0)

    # One method per kind.

    def _replicate(self, proposal: Proposal) -> Plan:
        row, kind = self._target(proposal, "node", "workload")
        if kind == "workload":
            return self._finish(*self._scale_up([row], self._avoid(proposal)), disturbs=0)
        rows = self._exposed_workloads(row)
        if not rows:
            raise NoPlanError(f"{proposal.target.short} hosts no service without an extra replica")
        avoid = proposal.target.name
        return self._finish(*self._scale_up(rows, avoid), disturbs=0, node=row)

    def _avoid(self, proposal: Proposal) -> str:
        avoid = proposal.payload.get("avoid", "")
        if not isinstance(avoid, str):
            raise NoPlanError(f"avoid must be a node's name, but got {shown(avoid)}")
        if avoid and self._snapshot.find(Ref(self._snapshot.cluster, "node", "", avoid)) is None:
            raise NoPlanError(f"avoid names no node of this cluster: {shown(avoid)}")
        return avoid

    def _exposed_workloads(self, node: int) -> list[int]:
        """Services on the node without an extra replica: least redundancy, then priority, first."""
        w = self._snapshot.workloads
        hosted = self._snapshot.pods.workload[self._population.on_node(node)]
        rows, here = np.unique(hosted, return_counts=True)
        keep = (w.kind[rows] == WorkloadKind.SERVICE) & self._population.workload_open[rows]
        keep &= w.replicas_desired[rows] <= w.replicas_baseline[rows]
        rows, here = rows[keep], here[keep]
        left = w.replicas_ready[rows] - here - w.min_available[rows]
        order = np.lexsort((rows, -w.priority[rows], left))
        free = [int(row) for row in rows[order] if not self._is_spent(int(row), "replicas")]
        return free[:REPLICAS_PER_NODE_ACTION]

    def _is_spent(self, workload: int, field: str = "") -> bool:
        ref = str(self._snapshot.workload_ref(workload))
        return ref in self._spent or f"{ref}#{field}" in self._spent

    def _affordable(self, rows: Rows) -> Rows:
        """Pods whose workload still has budget."""
        if not self._spent or not len(rows):
            return rows
        owners = self._snapshot.pods.workload[rows]
        closed = [o for o in np.unique(owners).tolist() if self._is_spent(o)]
        return rows[~np.isin(owners, closed)]

    def _scale_up(
        self, rows: Sequence[int], avoid: str
    ) -> tuple[tuple[Write, ...], tuple[Write, ...]]:
        w, writes, inverse = self._snapshot.workloads, [], []
        for row in rows:
            target, before = self._snapshot.workload_ref(row), int(w.replicas_desired[row])
            uid = int(w.uid[row])
            writes.append(
                Write(
                    verb=Verb.SCALE,
                    target=target,
                    uid=uid,
                    value=before + 1,
                    original=before,
                    avoid=avoid,
                )
            )
            undo = back(writes[-1])
            if w.autoscaled[row]:  # the write raises the autoscaler's floor, which its owner set
                undo = replace(undo, value=int(w.replicas_floor[row]))
            inverse.append(undo)
        closed = self._closed_for_now(avoid)
        return (*closed, *writes), (*inverse, *map(back, closed))

    def _closed_for_now(self, avoid: str) -> tuple[Write, ...]:
        """Where nothing else keeps the new replica off a node, a taint of ours does."""
        row = self._snapshot.find(Ref(self._snapshot.cluster, "node", "", avoid)) if avoid else None
        if row is None or not self._settings.act.stepwise or self._snapshot.nodes.tainted[row]:
            return ()
        return (self._node_write(Verb.AVOID, row, 1, 0),)

    def _migrate(self, proposal: Proposal) -> Plan:
        row, kind = self._target(proposal, "node", "pod")
        if kind == "pod":
            if not self._population.resident[row]:
                raise NoPlanError(f"{proposal.target.short} runs nowhere, so it cannot be moved")
            return self._finish((self._evict(row),), (), disturbs=1)
        power = Power(int(self._snapshot.nodes.power[row]))
        if power in (Power.DRAINING, Power.ASLEEP, Power.BOOTING):
            raise NoPlanError(f"{proposal.target.short} is {power.name.lower()} already")
        residents = self._population.on_node(row)
        evictable = residents[self._snapshot.pods.evictable[residents] == 1]
        movable = evictable[self._population.movable[evictable]]
        if not self._snapshot.nodes.ready[row]:
            return self._leave_behind(row, movable, proposal.target)
        taint = self._taint(row)
        undo = tuple(back(write) for write in taint)
        # Where drains go step by step we choose the pods ourselves, whoever else lives there.
        if self._settings.act.stepwise or len(movable) == len(evictable):
            drain = self._node_write(Verb.DRAIN, row, 1, 0)
            writes, undo = (*taint, drain), (back(drain), *undo)
            return self._finish(writes, undo, disturbs=len(movable), affected=movable, node=row)
        share = self._settings.guard.disturbed_share
        most = max(math.ceil(share * len(self._snapshot.pods)), 1)
        movable = self._affordable(movable)[: min(EVICTIONS_PER_ACTION, most)]
        writes = (*taint, *(self._evict(int(pod)) for pod in movable))
        if not writes:
            raise NoPlanError(f"{proposal.target.short} hosts nothing that may be moved")
        return self._finish(writes, undo, disturbs=len(movable), affected=movable, node=row)

    def _leave_behind(self, row: int, movable: Rows, target: Ref) -> Plan:
        """Pods of a node that no longer answers: evicting them lets their owners replace them at
        once instead of after the cluster's own patience. Nothing is drained, nothing is tainted."""
        movable = self._affordable(movable)[:LOST_PER_ACTION]
        if not len(movable):
            raise NoPlanError(f"{target.short} left nothing behind that may be replaced")
        writes = tuple(self._evict(int(pod)) for pod in movable)
        return self._finish(writes, (), disturbs=len(movable), affected=movable, node=row)

    def _taint(self, row: int) -> tuple[Write, ...]:
        """Our taint, unless somebody keeps pods off already: theirs is not ours to remove."""
        if self._snapshot.nodes.tainted[row]:
            return ()
        return (self._node_write(Verb.TAINT, row, 1, 0),)

    def _evict(self, pod: int) -> Write:
        return Write(
            verb=Verb.EVICT,
            target=self._snapshot.pod_ref(pod),
            uid=int(self._snapshot.pods.uid[pod]),
            value=1,
            original=0,
        )

    def _power(self, proposal: Proposal) -> Plan:
        row, _ = self._target(proposal, "node")
        state = proposal.payload.get("state")
        power = Power(int(self._snapshot.nodes.power[row]))
        if state == "awake":
            return self._wake(row, power, proposal.target)
        if state != "asleep":
            raise NoPlanError(f'state must be "asleep" or "awake", but got {shown(state)}')
        if power is not Power.AWAKE:
            raise NoPlanError(f"{proposal.target.short} is {power.name.lower()} already")
        taint, drain = self._taint(row), self._node_write(Verb.DRAIN, row, 2, 0)
        # Which of the two undoes the sleep depends on how far the drain has come; ``expect`` tells.
        wake = self._node_write(Verb.POWER, row, 1, 0, expect=0)
        undo = (back(drain), wake, *(back(write) for write in taint))
        residents = self._population.on_node(row)
        moved = residents[self._snapshot.pods.evictable[residents] == 1]
        return self._finish((*taint, drain), undo, disturbs=len(moved), affected=moved)

    def _wake(self, row: int, power: Power, target: Ref) -> Plan:
        nodes = self._snapshot.nodes
        if power in (Power.BOOTING, Power.DEAD) or (
            power is Power.AWAKE and not nodes.tainted[row]
        ):
            raise NoPlanError(f"{target.short} is {power.name.lower()} already")
        if power is Power.ASLEEP:
            writes = [self._node_write(Verb.POWER, row, 1, 0)]
        else:
            raise NoPlanError(f"{target.short} is not asleep but {power.name.lower()}")
        if nodes.tainted[row]:
            writes.append(self._node_write(Verb.TAINT, row, 0, 1))
        return self._finish(tuple(writes), (), disturbs=0)

    def _clock(self, proposal: Proposal) -> Plan:
        row, _ = self._target(proposal, "node")
        frequency = round(number(proposal, "frequency_permille", 1, FULL_CLOCK))
        before = int(self._snapshot.nodes.frequency_permille[row])
        if frequency == before:
            raise NoPlanError(f"{proposal.target.short} runs at {before} per mille already")
        write = self._node_write(Verb.FREQUENCY, row, frequency, before)
        undo = () if frequency >= FULL_CLOCK else (back(write),)
        slowed = self._population.on_node(row)  # they stay, but at another speed
        return self._finish((write,), undo, disturbs=0, affected=slowed)

    def _slow(self, proposal: Proposal) -> Plan:
        factor = number(proposal, "factor", 0.0, 1.0)
        pods, s = self._snapshot.pods, self._settings
        rows = self._affordable(self._pods_of(proposal))
        limit = pods.cpu_limit_millicores
        rows = rows[(limit[rows] > 0) & (pods.phase[rows] == Phase.RUNNING)]
        most = (
            s.safety.pods_per_action
            if proposal.kind is ActionKind.THROTTLE
            else s.admission.pods_per_action
        )
        rows = rows[np.argsort(-pods.cpu_used_millicores[rows], kind="stable")]
        writes: list[Write] = []
        for row in rows.tolist():
            before = int(limit[row])
            after = max(int(before * factor), 1)
            write = self._pod_write(Verb.CPU_LIMIT, row, after, before)
            if after < before and f"{write.target}#cpu" not in self._spent:
                writes.append(write)
            if len(writes) == most:
                break
        if not writes:
            raise NoPlanError(
                f"{proposal.target.short} has no running pod with a CPU limit to lower"
            )
        return self._finish(tuple(writes), tuple(map(back, writes)), disturbs=0)

    def _balloon(self, proposal: Proposal) -> Plan:
        factor = number(proposal, "factor", 0.0, 1.0)
        pods = self._snapshot.pods
        rows = self._affordable(self._pods_of(proposal, batch_only=False))
        rows = rows[pods.phase[rows] == Phase.RUNNING]
        peak = np.maximum(pods.memory_peak_mib[rows], pods.memory_used_mib[rows])
        floor = np.ceil(peak * self._settings.guard.memory_floor_factor).astype(np.int64)
        request = pods.memory_request_mib[rows]
        after = np.maximum((request * factor).astype(np.int64), np.maximum(floor, 1))
        after = np.maximum(after, SMALLEST_MEMORY_MIB)
        saved = request - after
        order = np.argsort(-saved, kind="stable")[:BALLOONS_PER_ACTION]
        writes = tuple(
            self._pod_write(Verb.MEMORY_REQUEST, int(rows[i]), int(after[i]), int(request[i]))
            for i in order.tolist()
            if saved[i] > 0
        )
        if not writes:
            raise NoPlanError(f"{proposal.target.short} has no running pod that asks for too much")
        return self._finish(writes, tuple(map(back, writes)), disturbs=0)

    def _gate(self, proposal: Proposal) -> Plan:
        row, _ = self._target(proposal, "namespace")
        decision = proposal.payload.get("decision")
        gate = DECISIONS.get(decision) if isinstance(decision, str) else None
        if gate is None:
            known = ", ".join(DECISIONS)
            raise NoPlanError(f"decision must be one of {known}, but got {shown(decision)}")
        spaces = self._snapshot.namespaces
        before = int(spaces.gate[row])
        if before == gate:
            raise NoPlanError(f"the gate of {proposal.target.short} is {gate.name.lower()} already")
        write = Write(
            verb=Verb.GATE,
            target=self._snapshot.namespace_ref(row),
            uid=int(spaces.uid[row]),
            value=int(gate),
            original=before,
        )
        undo = () if gate is Gate.OPEN else (back(write),)
        return self._finish((write,), undo, disturbs=0)

    # What the methods above share.

    def _target(self, proposal: Proposal, *kinds: str) -> tuple[int, str]:
        if proposal.target.kind not in kinds:
            wanted = " or ".join(kinds)
            raise NoPlanError(f"{proposal.kind} needs a {wanted}, but got a {proposal.target.kind}")
        row = self._snapshot.find(proposal.target)
        if row is None:
            raise NoPlanError(f"there is no {shown(str(proposal.target))} in this snapshot")
        return row, proposal.target.kind

    def _pods_of(self, proposal: Proposal, batch_only: bool = True) -> Rows:
        """The pods a target stands for; of a node only those whose owner lets us."""
        row, kind = self._target(proposal, "node", "pod", "workload")
        if kind == "pod":
            return np.array([row], np.intp)
        if kind == "workload":
            return self._population.of_workload(row)
        rows = self._population.on_node(row)
        mask = self._population.movable[rows]
        return rows[mask & self._population.batch[rows]] if batch_only else rows[mask]

    def _node_write(
        self, verb: Verb, row: int, value: int, original: int, expect: int | None = None
    ) -> Write:
        return Write(
            verb=verb,
            target=self._snapshot.node_ref(row),
            uid=int(self._snapshot.nodes.uid[row]),
            value=value,
            original=original,
            expect=expect,
        )

    def _pod_write(self, verb: Verb, row: int, value: int, original: int) -> Write:
        return Write(
            verb=verb,
            target=self._snapshot.pod_ref(row),
            uid=int(self._snapshot.pods.uid[row]),
            value=value,
            original=original,
        )

    def _finish(
        self,
        writes: tuple[Write, ...],
        inverse: tuple[Write, ...],
        *,
        disturbs: int,
        affected: Rows | None = None,
        node: int | None = None,
    ) -> Plan:
        s = self._snapshot
        targets = {write.target: None for write in writes}  # a dict keeps the order
        if node is not None:
            targets[s.node_ref(node)] = None
        rows = [int(row) for row in (affected if affected is not None else ())]
        rows += [row for ref in targets if ref.kind == "pod" and (row := s.find(ref)) is not None]
        pods = {s.pod_ref(row): None for row in rows}
        workloads = {ref: None for ref in targets if ref.kind == "workload"}
        owners = np.unique(s.pods.workload[rows]).tolist() if rows else []
        workloads |= {s.workload_ref(owner): None for owner in owners}
        nodes = tuple(ref for ref in targets if ref.kind == "node")
        return Plan(
            writes=writes,
            inverse=inverse,
            touches=tuple(targets | workloads | pods),
            workloads=tuple(workloads),
            nodes=nodes,
            disturbs=disturbs,
            effects=effects_of(writes),
        )
