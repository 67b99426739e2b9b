# SPDX-License-Identifier: Apache-2.0
"""Deciding every recorded cycle again, and comparing.

The guard's ledger and the settings are rebuilt from the journal as it is read; each decision is
made anew from the recorded snapshot and forecast and must come out identical, field by field.

A journal whose agents are not here (strangers', or a test's) is replayed ``as_heard``: what they
answered is taken from the record, and everything that became of it is worked out again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec

from pilothouse.decide import Heard, Inputs, Listen, decide
from pilothouse.domain import Action, Decision, Forecast, Mode, Proposal, Ruling, Snapshot
from pilothouse.errors import JournalCorrupt
from pilothouse.guard import JANITOR, STEWARD, Charge, Guard, Ledger, Sent
from pilothouse.journal import (
    Checkpoint,
    Cycle,
    Frame,
    JournalReader,
    Receipts,
    Rotated,
    Run,
    SettingsChange,
    digest_of,
)
from pilothouse.propose.registry import THIRD_PARTY_RANK, Registration, default_agents
from pilothouse.settings import Settings

# Verdicts on answers that were no proposals at all; nothing of them was planned.
UNPLANNED = frozenset(
    {
        "malformed",
        "impersonation",
        "kind-not-allowed",
        "expired",
        "duplicate",
        "proposals-per-agent",
        "agent-failed",
        "no-answer",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """How many cycles came out the same, and where the first did not."""

    cycles: int
    identical: int
    difference: str = ""  # the first one, as a sentence

    @property
    def ok(self) -> bool:
        return self.cycles == self.identical


class _Bench:
    """The decision core under the settings in force at some point of the journal."""

    def __init__(self, settings: Settings, agents: Sequence[Registration] | None) -> None:
        self.settings = settings
        self.agents = tuple(agents) if agents is not None else default_agents(settings)
        self.guard = Guard(settings, self.agents)


class Replay:
    """Walks a journal once; ``step`` takes one record at a time."""

    def __init__(
        self, agents: Sequence[Registration] | None = None, *, as_heard: bool = False
    ) -> None:
        self._agents = agents
        self._as_heard = as_heard
        self._run_id = ""
        self._bench: _Bench | None = None
        self._ledger: Ledger | None = None
        self.cycles = 0
        self.identical = 0
        self.difference = ""

    def step(self, record: object, frame: Frame | None) -> None:
        match record:
            case Run():
                self._run_id = record.run_id
            case Rotated():
                self._begin_segment(record)
            case SettingsChange():
                self._change(record)
            case Cycle() if frame is not None:
                self._redecide(record, frame)
            case Receipts() if self._ledger is not None:
                self._ledger.settle(record.receipts)
            case Checkpoint() if self._ledger is not None and "adopted" in record.state:
                self._adopt(record, self._ledger)

    def _adopt(self, record: Checkpoint, ledger: Ledger) -> None:
        """What the run took over from another leader's tickets, as it recorded it."""
        taken = msgspec.convert(record.state["adopted"], list[tuple[Action, Charge, bool]])
        for action, charge, in_force in taken:
            ledger.adopt(action, charge, in_force=in_force, now=record.state["adopted_seconds"])

    def _begin_segment(self, record: Rotated) -> None:
        """Go on; where the earlier files are gone, from the ledger that this one carries."""
        self._run_id = record.run.run_id
        if self._bench is not None or record.settings is None:
            return
        self._change(record.settings)
        guard = msgspec.convert(record.settings.settings, Settings).guard
        self._ledger = Ledger.from_dict(record.state["ledger"], guard)

    def _change(self, record: SettingsChange) -> None:
        settings = msgspec.convert(record.settings, Settings)
        self._bench = _Bench(settings, self._agents)
        state = None if self._ledger is None else self._ledger.to_dict()
        self._ledger = (
            Ledger(settings.guard) if state is None else Ledger.from_dict(state, settings.guard)
        )

    def _redecide(self, record: Cycle, frame: Frame) -> None:
        if self._bench is None or self._ledger is None:
            raise JournalCorrupt("A decision is recorded before the settings it was made under.")
        recorded = record.decision
        inputs = Inputs(
            run_id=self._run_id,
            cycle=recorded.cycle,
            snapshot=frame.snapshot,
            forecast=frame.forecast,
            snapshot_digest=digest_of(frame.snapshot),
            forecast_digest=digest_of(frame.forecast),
            modes={key: Mode(mode) for key, mode in record.modes.items()},
            halted=recorded.halted,
            halted_because=recorded.halted_because,
            approved=frozenset(record.approvals),
        )
        bench, listen = self._bench, None
        if self._as_heard:
            bench = _Bench(bench.settings, speakers(recorded, bench.settings))
            listen = answers(recorded)
        anew = decide(
            inputs,
            agents=bench.agents,
            guard=bench.guard,
            settings=bench.settings,
            ledger=self._ledger,
            listen=listen,
        )
        self.cycles += 1
        if anew == recorded:
            self.identical += 1
        elif not self.difference:
            place = first_difference(recorded, anew)
            self.difference = f"Cycle {recorded.cycle}, decision {recorded.id}: {place}"
        self._ledger.charge(recorded, frame.snapshot)


def replay(
    path: Path,
    *,
    agents: Sequence[Registration] | None = None,
    as_heard: bool = False,
    progress: Callable[[int], None] = lambda cycle: None,
) -> ReplayReport:
    """Decide every cycle of a journal again."""
    walk = Replay(agents, as_heard=as_heard)
    for entry, frame in JournalReader(path).story():
        walk.step(entry.record, frame)
        if isinstance(entry.record, Cycle):
            progress(entry.cycle)
    return ReplayReport(cycles=walk.cycles, identical=walk.identical, difference=walk.difference)


class Absent:
    """An agent of whom only its recorded answers are here."""

    def __init__(self, name: str) -> None:
        self.name = self.title = name

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> Sequence[Proposal]:
        return ()


def speakers(recorded: Decision, settings: Settings) -> tuple[Registration, ...]:
    """Whoever was asked in a cycle: each left a line, in the order of their ranks. A record keeps
    that order and not the ranks, so strangers are taken to be ranked one after the other."""
    ours = {agent.name: agent.rank for agent in default_agents(settings)}
    names = dict.fromkeys(proposal.agent for proposal in recorded.proposals)
    strangers = [name for name in names if name not in ours and name != STEWARD]
    ranks = ours | {name: THIRD_PARTY_RANK + n for n, name in enumerate(strangers)}
    return tuple(
        Registration(Absent(name), ranks[name], name)
        for name in names
        if name not in (JANITOR, STEWARD)
    )


def answers(recorded: Decision) -> Listen:
    """What each agent said in a cycle, and what it said that was no proposal."""
    pairs = list(zip(recorded.proposals, recorded.verdicts, strict=True))

    def listen(agent: Registration, inputs: Inputs, guard: Guard) -> Heard:
        said = [(p, v) for p, v in pairs if p.agent == agent.name]
        unplanned = (Ruling.REFUSED, Ruling.EXPIRED)
        return (
            [Sent(agent, proposal) for proposal, _ in said],
            [v if v.rule in UNPLANNED and v.ruling in unplanned else None for _, v in said],
        )

    return listen


def first_difference(recorded: Any, anew: Any, path: str = "decision") -> str:
    """Where two values first differ, with both sides."""
    for name, one, other in _parts(recorded, anew):
        if one != other:
            return first_difference(one, other, path + name)
    return f"{path} was {recorded!r}, now {anew!r}"


def _parts(recorded: Any, anew: Any) -> Iterator[tuple[str, Any, Any]]:
    """The corresponding parts of two values of one shape; nothing where the shapes differ."""
    if type(recorded) is not type(anew):
        return
    if isinstance(recorded, tuple) and len(recorded) == len(anew):
        for index, (one, other) in enumerate(zip(recorded, anew, strict=True)):
            yield f"[{index}]", one, other
    elif is_dataclass(recorded):
        for each in fields(recorded):
            yield f".{each.name}", getattr(recorded, each.name), getattr(anew, each.name)
