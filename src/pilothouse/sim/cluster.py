# SPDX-License-Identifier: Apache-2.0
"""One simulated cluster with names and a command log: what the loop talks to.

A batch of one. ``Cluster`` is the protocol that this class and its remote twin share.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import numpy as np

from pilothouse.domain import (
    Action,
    Phase,
    Power,
    Receipt,
    Ref,
    Snapshot,
    Status,
    Toll,
    Verb,
    Write,
)
from pilothouse.errors import BackendError, InvalidSetting
from pilothouse.scenarios import Scenario
from pilothouse.sim import bill, control
from pilothouse.sim.blueprint import TICK_SECONDS, Blueprint, draw
from pilothouse.sim.command import PRESSURE, ActiveStimulus, Command
from pilothouse.sim.simulation import RivalMove, Simulation
from pilothouse.sim.trace import Trace
from pilothouse.sim.view import View, pod_name


class Cluster(Protocol):
    """A simulated cluster, here or in another process."""

    @property
    def name(self) -> str: ...
    @property
    def clock_seconds(self) -> int: ...
    def advance(self, seconds: int) -> None: ...
    def advance_to(self, clock_seconds: int) -> None: ...
    def observe(self) -> Snapshot: ...
    def execute(self, write: Write, agent: str) -> Receipt: ...
    def find(self, intent: str) -> Receipt | None: ...
    def toll(self) -> Toll: ...
    def fork(self) -> Cluster: ...
    def stimuli(self) -> tuple[ActiveStimulus, ...]: ...
    def log(self) -> list[Command]: ...
    def save(self) -> bytes: ...
    def close(self) -> None: ...


_ON = {
    Verb.SCALE: "workload",
    Verb.TAINT: "node",
    Verb.AVOID: "node",
    Verb.EVICT: "pod",
    Verb.DRAIN: "node",
    Verb.POWER: "node",
    Verb.FREQUENCY: "node",
    Verb.CPU_LIMIT: "pod",
    Verb.MEMORY_REQUEST: "pod",
    Verb.GATE: "namespace",
}


class _GoneError(BackendError):
    """There is no such object."""


class SimCluster:
    """A cluster of a scenario under a seed."""

    def __init__(
        self, scenario: Scenario, *, seed: int, name: str = "sim", trace: Trace | None = None
    ) -> None:
        plan = draw(scenario, seed)
        self._adopt(name, plan, Simulation([plan], traces=[trace]))
        self._trace = trace

    def _adopt(self, name: str, plan: Blueprint, simulation: Simulation) -> None:
        self.name = name
        self.seed = plan.seed
        self.scenario = plan.scenario
        self._plan = plan
        self._simulation = simulation
        self._view = View(name=name, plan=plan)
        self._log: list[Command] = []

    @property
    def clock_seconds(self) -> int:
        return self._simulation.tick * TICK_SECONDS

    def advance(self, seconds: int) -> None:
        """Let cluster time pass; a multiple of the tick."""
        ticks, rest = divmod(seconds, TICK_SECONDS)
        if rest or ticks < 0:
            raise InvalidSetting(
                f"The simulator advances by multiples of {TICK_SECONDS} s, but got {seconds}."
            )
        for _ in range(ticks):
            self._simulation.step()
            self._log.extend(self._rival_command(m) for m in self._simulation.rival_moves)

    def advance_to(self, clock_seconds: int) -> None:
        """Let time pass until this clock; nothing happens where it is already reached."""
        self.advance(max(clock_seconds - self.clock_seconds, 0))

    def observe(self) -> Snapshot:
        """What monitoring shows now."""
        return self._view.observe(self._simulation.state)

    def begin(self, action: Action) -> str:
        """The command log is the simulator's memory; it needs no other."""
        return ""

    def execute(self, write: Write, agent: str) -> Receipt:
        """Do one write, or refuse it as an API server would; either way it is logged."""
        before, row = 0, -1
        status, detail = Status.FAILED, ""
        facts = self._facts(write.verb, -1)
        try:
            row = self._row(write)
            before = control.current(self._simulation.state, write.verb, row)
            facts = self._facts(write.verb, row)
            if write.expect is not None and write.expect != before:
                raise control.RefusedError(f"conflict: expected {write.expect}, found {before}")
            avoid = self._node_row(write.avoid) if write.avoid else -1
            detail = control.perform(
                self._simulation.state, write.verb, row, write.value, -1 if avoid is None else avoid
            )
            status = Status.DONE
        except control.RefusedError as refusal:
            status, detail = Status.REFUSED, str(refusal)
        except _GoneError as gone:
            detail = str(gone)
        command = Command(
            tick=self._simulation.tick,
            seconds=self.clock_seconds,
            intent=write.intent,
            agent=agent,
            verb=str(write.verb),
            target=str(write.target),
            value=write.value,
            original=before,
            status=str(status),
            detail=detail,
            **facts,
        )
        self._log.append(command)
        return _receipt(command)

    def find(self, intent: str) -> Receipt | None:
        """The answer this intent got: the successful one where there is one, else the last."""
        mine = [c for c in self._log if c.intent == intent]
        done = [c for c in mine if c.status == Status.DONE]
        return _receipt((done or mine)[-1]) if mine else None

    def toll(self) -> Toll:
        """What the cluster cost since its start."""
        return bill.toll(self._simulation.state, 0)

    def fork(self) -> SimCluster:
        """An independent copy with the same future; its log starts empty."""
        twin = SimCluster.__new__(SimCluster)
        twin._adopt(self.name, self._plan, self._simulation.copy())
        twin._trace = self._trace
        twin._view.named, twin._view.names = self._view.named.copy(), self._view.names.copy()
        return twin

    def stimuli(self) -> tuple[ActiveStimulus, ...]:
        """What is being exercised now."""
        return tuple(
            ActiveStimulus(
                kind=x.kind,
                target=self._stimulus_target(x.kind, x.target),
                since_seconds=x.start_tick * TICK_SECONDS,
                until_seconds=x.end_tick * TICK_SECONDS,
                pressure=PRESSURE[x.kind],
            )
            for x in self._simulation.exercises(0)
        )

    def log(self) -> list[Command]:
        """Every command so far, oldest first."""
        return list(self._log)

    def close(self) -> None:
        """Nothing to give back; a remote fork has."""

    def log_since(self, count: int) -> list[Command]:
        """The commands after the first ``count``."""
        return self._log[count:]

    def save(self) -> bytes:
        """Everything needed to continue elsewhere, the log included."""
        log = [msgspec.to_builtins(c) for c in self._log]
        trace = self._trace and [self._trace.tick.tolist(), self._trace.workload.tolist()]
        head = [self.name, self.seed, msgspec.to_builtins(self.scenario), log, trace]
        return msgspec.msgpack.encode([head, self._simulation.save()])

    @classmethod
    def load(cls, data: bytes) -> SimCluster:
        """The cluster that ``save`` wrote."""
        decoded: Any = msgspec.msgpack.decode(data)
        (name, seed, scenario, log, table), simulation = decoded
        columns = table and [np.array(column, dtype=np.int64) for column in table]
        trace = Trace(tick=columns[0], workload=columns[1]) if columns else None
        cluster = cls(msgspec.convert(scenario, Scenario), seed=seed, name=name, trace=trace)
        cluster._simulation.restore(simulation)
        cluster._log = [msgspec.convert(c, Command) for c in log]
        return cluster

    def _row(self, write: Write) -> int:
        """The row a write is for; the uid must match, so that a namesake is never hit."""
        target, wanted = write.target, _ON[write.verb]
        if target.cluster != self.name or target.kind != wanted:
            raise _GoneError(
                f"not found: {write.verb} needs a {wanted} of {self.name}, got {target}"
            )
        find = {
            "workload": self._workload_row,
            "node": lambda ref: self._node_row(ref.name),
            "pod": lambda ref: self._pod_row(ref, write.uid),
            "namespace": self._space_row,
        }[wanted]
        row = find(target)
        if row is None:
            raise _GoneError(f"not found: {target}")
        uid = self._uid(wanted, row)
        if uid != write.uid:
            raise _GoneError(f"not found: {target} has uid {uid}, the write is for {write.uid}")
        return row

    def _uid(self, kind: str, row: int) -> int:
        s = self._simulation.state
        return (
            int({"node": s.n_uid, "pod": s.uid}[kind][row]) if kind in ("node", "pod") else row + 1
        )

    def _workload_row(self, ref: Ref) -> int | None:
        for row, name in enumerate(self._plan.workload_names):
            space = self._plan.namespace_names[int(self._plan.workloads["space"][row])]
            if (space, name) == (ref.namespace, ref.name):
                return row
        return None

    def _node_row(self, name: str) -> int | None:
        names = self._plan.node_names
        row = names.index(name) if name in names else -1
        return row if row >= 0 and self._simulation.state.n_exists[row] else None

    def _pod_row(self, ref: Ref, uid: int) -> int | None:
        s = self._simulation.state
        rows = (s.uid == uid).nonzero()[0] if uid > 0 else []
        if len(rows) != 1:
            return None
        work = int(s.work[rows[0]])
        space = self._plan.namespace_names[int(s.w_space[work])]
        name = pod_name(self._plan.workload_names[work], uid)
        return int(rows[0]) if (space, name) == (ref.namespace, ref.name) else None

    def _space_row(self, ref: Ref) -> int | None:
        names = self._plan.namespace_names
        return names.index(ref.name) if ref.name in names else None

    def _facts(self, verb: Verb, row: int) -> dict[str, Any]:
        """What an outside checker needs beside the write itself."""
        s, kind = self._simulation.state, _ON[verb]
        work = row if kind == "workload" else int(s.work[row]) if kind == "pod" else -1
        node = row if kind == "node" else int(s.node[row]) if kind == "pod" else -1
        node = -1 if node == s.nobody_node else node
        if row < 0:
            work = node = -1
        space = row if kind == "namespace" else int(s.w_space[work]) if work >= 0 else -1
        declared = 0
        if kind == "pod" and row >= 0:
            cpu = verb is Verb.CPU_LIMIT
            declared = int((s.w_cpu_limit if cpu else s.w_memory_request)[work])
        return {
            "namespace": self._plan.namespace_names[space] if space >= 0 else "",
            "workload": self._plan.workload_names[work] if work >= 0 else "",
            "node": self._plan.node_names[node] if node >= 0 else "",
            "managed": int(self._plan.namespaces["managed"][space]) if space >= 0 else 0,
            "protected": int(self._plan.namespaces["protected"][space]) if space >= 0 else 0,
            "priority": int(s.w_priority[work]) if work >= 0 else 0,
            "baseline": int(s.w_baseline[work]) if work >= 0 else 0,
            "limit_declared": declared,
            "node_pods": int(s.n_pods[node]) if node >= 0 else 0,
            "nodes": int(s.n_exists.sum()),
            "pods": int((s.uid > 0).sum()),
            **(self._pod_facts(row) if kind == "pod" and row >= 0 else {}),
            **(self._drain_facts(row) if verb is Verb.DRAIN and row >= 0 else {}),
        }

    def _pod_facts(self, row: int) -> dict[str, Any]:
        s = self._simulation.state
        return {
            "evictable": int(s.w_evictable[s.work[row]]),
            "failed": int(s.phase[row] == Phase.FAILED),
            "peak": int(s.peak[row]),
        }

    def _drain_facts(self, row: int) -> dict[str, Any]:
        """Whom a drain of this node moves, and who else is being drained."""
        s = self._simulation.state
        stays = (s.uid <= 0) | (s.phase == Phase.TERMINATING) | (s.w_evictable[s.work] == 0)
        nodes = np.where(stays, s.nobody_node, s.node)
        under = np.flatnonzero((s.n_drain > 0) & (s.n_power == Power.DRAINING))
        work = s.work[nodes == row]
        spaces = s.w_space[work]
        plan, names = self._plan.namespaces, self._plan.namespace_names
        closed = (plan["managed"][spaces] == 0) | (plan["protected"][spaces] == 1)
        return {
            "evictable": len(work),
            "closed": int(closed.sum()),
            "top_priority": int(s.w_priority[work].max(initial=0)),
            "spaces": tuple(names[i] for i in np.unique(spaces).tolist()),
            "draining": len(np.intersect1d(under[under != row], nodes)),
        }

    def _rival_command(self, move: RivalMove) -> Command:
        verb = Verb(move.verb)
        if verb is Verb.TAINT:
            ref = Ref(self.name, "node", "", self._plan.node_names[move.row])
        else:
            ref = self._workload_ref(move.row)
        return Command(
            tick=self._simulation.tick,
            seconds=self.clock_seconds,
            intent="",
            agent="rival",
            verb=move.verb,
            target=str(ref),
            value=move.value,
            original=move.original,
            status=str(Status.DONE),
            detail="as its manifest says",
            **self._facts(verb, move.row),
        )

    def _workload_ref(self, row: int) -> Ref:
        space = self._plan.namespace_names[int(self._plan.workloads["space"][row])]
        return Ref(self.name, "workload", space, self._plan.workload_names[row])

    def _stimulus_target(self, kind: str, row: int) -> Ref:
        if row < 0:
            return Ref(self.name, "cluster")
        if kind in ("node-degradation", "sudden-node-loss"):
            return Ref(self.name, "node", "", self._plan.node_names[row])
        return self._workload_ref(row)


def _receipt(command: Command) -> Receipt:
    return Receipt(
        intent=command.intent,
        status=Status(command.status),
        detail=command.detail,
        at_seconds=command.seconds,
    )
