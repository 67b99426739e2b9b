# SPDX-License-Identifier: Apache-2.0
"""Bringing a run back from its journal: ledger, controls, simulator and the forecaster's memory.

Everything is rebuilt from the newest checkpoint and what was recorded since. Nothing here writes to
a cluster that is alive: an embedded simulator died with its process and is made anew, with the
writes that were done to it; any other cluster is only looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pilothouse.domain import Action, Decision, Mode, Receipt, Snapshot, Status, Write
from pilothouse.guard import Ledger
from pilothouse.guard.switch import Command, Controls
from pilothouse.journal import (
    Control,
    Cycle,
    Entry,
    JournalReader,
    Outcome,
    Receipts,
    RecordedCycle,
    Resume,
)
from pilothouse.scenarios import load as load_scenario
from pilothouse.settings import Settings
from pilothouse.sim.cluster import SimCluster

BACKFILL_CYCLES = 60  # recorded snapshots a resumed forecaster sees again


def recorded_cycles(resume: Resume, path: Path) -> list[RecordedCycle]:
    """The cycles a restart needs: all since the checkpoint, and enough for the forecaster."""
    if resume.cycle is None:
        return []
    after = -1 if resume.checkpoint_cycle is None else resume.checkpoint_cycle
    oldest = min(after, resume.cycle - BACKFILL_CYCLES) + 1
    reader = JournalReader(path)
    return list(reader.cycles(after=reader.seq_before_cycle(oldest)))


def recent_snapshots(cycles: Sequence[RecordedCycle]) -> list[Snapshot]:
    """The last recorded snapshots, oldest first, for a forecaster that lost its memory."""
    return [recorded.snapshot for recorded in cycles[-BACKFILL_CYCLES:]]


def clock_of(resume: Resume | None) -> int:
    """Cluster time of the last recorded cycle."""
    return resume.last.decision.made_seconds if resume and resume.last else 0


def embedded_cluster(settings: Settings, resume: Resume | None) -> SimCluster:
    """The simulator inside this process, brought back to where the journal says it was."""
    run = settings.run
    if resume is None or not resume.simulator:
        cluster = SimCluster(load_scenario(run.scenario), seed=run.seed, name=run.cluster)
    else:
        cluster = SimCluster.load(resume.simulator)
    for seconds, write, agent in _executed(resume.since if resume else ()):
        cluster.advance(seconds - cluster.clock_seconds)
        cluster.execute(write, agent)
    cluster.advance(max(clock_of(resume) - cluster.clock_seconds, 0))
    return cluster


def _executed(since: Sequence[Entry]) -> Iterator[tuple[int, Write, str]]:
    """Writes that were done, with the cluster time of their receipts, in order."""
    planned: dict[str, tuple[Write, str]] = {}
    for entry in since:
        match entry.record:
            case Cycle() as cycle:
                for action in cycle.decision.actions:
                    planned.update((w.intent, (w, action.agent)) for w in action.writes)
            case Receipts() as answer:
                for receipt in answer.receipts:
                    if receipt.status is Status.DONE and receipt.intent in planned:
                        yield receipt.at_seconds, *planned[receipt.intent]


def unscored_actions(resume: Resume, settled: Sequence[Receipt]) -> list[Action]:
    """Executed actions whose result was still awaited when the process ended."""
    known = [e.record.receipts for e in resume.since if isinstance(e.record, Receipts)]
    receipts = itertools.chain(settled, *known)
    done = {r.intent.rpartition(".")[0] for r in receipts if r.status is Status.DONE}
    before = msgspec.convert(resume.state.get("awaiting", []), list[Action])
    waiting = {action.id: action for action in before}
    for entry in resume.since:
        match entry.record:
            case Cycle() as cycle:
                fresh = (a for a in cycle.decision.actions if a.id in done and not a.restores)
                waiting.update((action.id, action) for action in fresh)
            case Outcome() as outcome:
                waiting.pop(outcome.result.action, None)
    return list(waiting.values())


def ledger_of(resume: Resume | None, cycles: Sequence[RecordedCycle], settings: Settings) -> Ledger:
    """The guard's ledger from the checkpoint and everything recorded since."""
    if resume is None:
        return Ledger(settings.guard)
    state = resume.state.get("ledger")
    ledger = Ledger.from_dict(state, settings.guard) if state else Ledger(settings.guard)
    snapshots = {recorded.seq: recorded.snapshot for recorded in cycles}
    for entry in resume.since:
        match entry.record:
            case Cycle() as cycle:
                ledger.charge(cycle.decision, snapshots[entry.seq])
            case Receipts() as answer:
                ledger.settle(answer.receipts)
    return ledger


def controls_of(resume: Resume | None) -> Controls:
    """What operators had said; approvals that were used or have lapsed are gone."""
    if resume is None:
        return Controls()
    known = resume.state.get("controls", {})
    controls = Controls(
        halted=known.get("halted", False),
        halted_because=known.get("halted_because", ""),
        modes={key: Mode(mode) for key, mode in known.get("modes", {}).items()},
        approved=known.get("approved", {}),
        line=known.get("line", 0),
    )
    now = 0
    for entry in resume.since:
        match entry.record:
            case Control() as control:
                controls = controls.after(command_of(control), now)
            case Cycle() as cycle:
                now = cycle.decision.made_seconds
                controls = settled(controls, cycle.decision)
    return controls


def settled(controls: Controls, decision: Decision) -> Controls:
    """One approval allows one action."""
    used = frozenset(decision.proposals[a.proposal].approval_id for a in decision.actions)
    return controls.without(used, decision.made_seconds)


def command_of(record: Control) -> Command:
    """The command a record of one came from."""
    arguments = {k: v for k, v in record.arguments.items() if k != "line"}
    return Command(line=int(record.arguments["line"]), command=record.command, arguments=arguments)
