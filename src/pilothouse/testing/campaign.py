# SPDX-License-Identifier: Apache-2.0
"""Hostile and honest agents in one loop on the simulator, with a witness at the end.

Each cycle is decided twice from the same snapshot and ledger: by the honest agents alone, and by
all. The second decision is carried out; the first shows what the strangers displaced.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from pilothouse.act import perform
from pilothouse.decide import Inputs, decide
from pilothouse.domain import (
    Action,
    ActionKind,
    Decision,
    Mode,
    Plan,
    Proposal,
    Ruling,
    Snapshot,
    Status,
    Verdict,
)
from pilothouse.guard import Check, Guard, Ledger, Sent, refuse
from pilothouse.predict.baseline import EwmaTrend
from pilothouse.propose.registry import Registration, default_agents
from pilothouse.scenarios import load
from pilothouse.settings import (
    GuardSettings,
    ModeSettings,
    RefereeSettings,
    Settings,
)
from pilothouse.sim.cluster import SimCluster
from pilothouse.testing.checker import Notice, Violation, check
from pilothouse.testing.hostile import BAND

CYCLE_SECONDS = 15
MISREADINGS = ("malformed", "impersonation", "duplicate", "proposals-per-agent")

# Different limits move the place where a mistake would show.
VARIANTS: Mapping[str, Settings] = {
    "default": Settings(),
    "tight": Settings(
        guard=GuardSettings(
            per_agent=2,
            per_workload=1,
            per_namespace=2,
            per_node=1,
            gated_namespaces=1,
            reversals=0,
            window_seconds=300,
        )
    ),
    "roomy": Settings(
        guard=GuardSettings(
            node_share=0.3,
            drains_at_once=3,
            disturbed_share=0.2,
            per_agent=60,
            per_node=8,
            per_workload=6,
            per_namespace=40,
            gated_namespaces=4,
            dwell_seconds=30,
            reversals=3,
            quarantine_seconds=900,
        ),
        referee=RefereeSettings(actions_per_cycle=12, preemption="overlap"),
    ),
    "brisk": Settings(
        guard=GuardSettings(
            node_share=0.3,
            drains_at_once=2,
            per_agent=40,
            per_node=4,
            per_workload=4,
            dwell_seconds=15,
            minimum_pod_age_seconds=15,
        ),
        referee=RefereeSettings(actions_per_cycle=6, preemption="overlap"),
    ),
    "protected": Settings(guard=GuardSettings(protected_priority=500)),
    "shadow": Settings(
        modes=ModeSettings(
            agents={
                "safety/shop": Mode.SHADOW,
                "drainer": Mode.ADVISE,
                "miser": Mode.SHADOW,
                "efficiency/media": Mode.OFF,
                "inflater/data": Mode.OFF,
            }
        )
    ),
}


class Operator:
    """Halts, resumes and changes modes now and then, between cycles and in the middle of one."""

    def __init__(self, seed: int, names: Sequence[str], *, calm: bool = False) -> None:
        self._dice, self._names, self._calm = random.Random(f"operator/{seed}"), names, calm
        self.halted, self.modes = False, dict[str, Mode]()
        self.notices: list[Notice] = []
        self._writes_left: int | None = None

    def before(self, cycle: int, position: int) -> None:
        """What is said before a cycle."""
        self._writes_left = None
        if self._calm:
            return
        if self.halted and self._dice.random() < 0.4:
            self._halt(position, halted=False)
        elif not self.halted and self._dice.random() < 0.01:
            self._halt(position, halted=True)
        elif not self.halted and self._dice.random() < 0.02:
            self._writes_left = self._dice.randrange(3)
        if self._dice.random() < 0.03:
            self._change_mode(position)

    def is_halted(self, position: int) -> bool:
        """The kill switch as the actuator reads it, right before a write."""
        if self._writes_left is not None:
            if self._writes_left == 0:
                self._writes_left = None
                self._halt(position, halted=True)
            else:
                self._writes_left -= 1
        return self.halted

    def _halt(self, position: int, *, halted: bool) -> None:
        self.halted = halted
        self.notices.append(Notice(position=position, halted=halted))

    def _change_mode(self, position: int) -> None:
        strict = [key for key, mode in self.modes.items() if mode is not Mode.ENFORCE]
        if strict and self._dice.random() < 0.6:  # or nobody would be left who may act
            key, mode = self._dice.choice(strict), Mode.ENFORCE
        else:
            key, mode = self._dice.choice(self._names), self._dice.choice(tuple(Mode))
            if self._dice.random() < 0.5:
                key += "/" + self._dice.choice(("shop", "media", "data", "research"))
        self.modes[key] = mode
        self.notices.append(Notice(position=position, key=key, mode=mode))


class OpenGuard(Guard):
    """The guard removed: whatever is a proposal and can be written goes through."""

    def validate(self, sent: Sequence[Sent], now: int) -> list[Verdict | None]:
        verdicts = super().validate(sent, now)
        return [v if v is not None and v.rule == "malformed" else None for v in verdicts]

    def mode(self, proposal: Proposal, plan: Plan, modes: Mapping[str, Mode]) -> Mode:
        return Mode.ENFORCE

    def check(self, *, ledger: Ledger, snapshot: Snapshot, halted: bool, now: int) -> Check:
        return _OpenCheck(self.settings, {}, ledger, snapshot, halted=halted, now=now)


class _OpenCheck(Check):
    def judge(self, each: Sent, plan: Plan) -> Verdict | None:
        return refuse("impossible", plan.impossible) if plan.impossible else None


@dataclass(slots=True, kw_only=True)
class Tale:
    """What came of a campaign."""

    decisions: int = 0
    wanted: int = 0  # honest actions chosen without the strangers
    kept: int = 0  # of those, chosen with them as well
    honest: int = 0  # honest actions carried out
    strange: int = 0  # actions of strangers carried out
    restores: int = 0
    writes: int = 0
    proposals: int = 0  # of strangers, on record
    refusals: Counter[str] = field(default_factory=Counter)  # of strangers, by rule
    misread: list[str] = field(default_factory=list)  # honest ones refused as malformed or false
    displaced: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)

    @property
    def kept_share(self) -> float:
        return self.kept / self.wanted if self.wanted else 1.0

    def add(self, other: Tale) -> None:
        """Several campaigns as one."""
        for name in ("decisions", "wanted", "kept", "honest", "strange", "restores", "writes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.proposals += other.proposals
        self.misread += other.misread
        self.refusals.update(other.refusals)
        self.displaced += other.displaced
        self.violations += other.violations


class Campaign:
    """One cluster, the honest agents and the strangers among them."""

    def __init__(
        self,
        *,
        scenario: str,
        seed: int,
        settings: Settings,
        strangers: Sequence[Registration],
        calm: bool = False,
        guard: type[Guard] = Guard,
    ) -> None:
        self.cluster = SimCluster(load(scenario), seed=seed)
        self.settings = settings
        self.honest = default_agents(settings)
        self.strangers = tuple(strangers)
        self.ledger = Ledger(settings.guard)
        self.guard = guard(settings, (*self.honest, *self.strangers))
        # The same names whoever takes part, so that the operator does the same with and without.
        names = [*(agent.name for agent in self.honest[1:]), *BAND]
        self.operator = Operator(seed, names, calm=calm)
        self.tale = Tale()
        self._forecaster = EwmaTrend(settings.forecast)
        self._run_id = f"{scenario}-{seed}"

    def run(self, cycles: int) -> Tale:
        """So many more cycles, then the witness is heard."""
        for _ in range(cycles):
            self.turn()
        return self.close()

    def close(self) -> Tale:
        self.tale.violations = self.violations()
        return self.tale

    def violations(self) -> list[Violation]:
        log = self.cluster.log()
        return check(log, self.settings, self.operator.notices, self.cluster.clock_seconds)

    def turn(self) -> Decision:
        self.tale.decisions += 1
        self.cluster.advance(CYCLE_SECONDS)
        self.operator.before(self.tale.decisions, self._position)
        inputs = self._inputs()
        alone = self._decide(inputs, self.honest)
        everybody = (*self.honest, *self.strangers)
        decision = self._decide(inputs, everybody) if self.strangers else alone
        self._compare(alone, decision)
        self._must_be_recordable(decision)
        self._act(decision, inputs.snapshot)
        return decision

    @property
    def _position(self) -> int:
        return len(self.cluster.log())

    def _inputs(self) -> Inputs:
        snapshot = self.cluster.observe()
        return Inputs(
            run_id=self._run_id,
            cycle=self.tale.decisions,
            snapshot=snapshot,
            forecast=self._forecaster.predict(snapshot),
            snapshot_digest=str(snapshot.taken_seconds),
            forecast_digest="",
            modes=dict(self.operator.modes),
            halted=self.operator.halted,
            approved=frozenset(),
        )

    def _decide(self, inputs: Inputs, agents: Sequence[Registration]) -> Decision:
        return decide(
            inputs, agents=agents, guard=self.guard, settings=self.settings, ledger=self.ledger
        )

    def _compare(self, alone: Decision, decision: Decision) -> None:
        chosen = {_essence(action) for action in decision.actions}
        names = {agent.name for agent in self.honest}
        for action in alone.actions:
            if action.kind is ActionKind.RESTORE:
                continue
            self.tale.wanted += 1
            if _essence(action) in chosen:
                self.tale.kept += 1
            else:
                line = f"{action.agent} {action.kind.value} {action.target.short}"
                self.tale.displaced.append(f"cycle {decision.cycle}: {line}")
        for proposal, verdict in zip(decision.proposals, decision.verdicts, strict=True):
            if proposal.agent not in names:
                self.tale.proposals += 1
                if verdict.ruling is not Ruling.CHOSEN:
                    self.tale.refusals[verdict.rule] += 1
            elif verdict.ruling is Ruling.REFUSED and verdict.rule in MISREADINGS:
                self.tale.misread.append(f"cycle {decision.cycle}: {verdict.sentence}")

    def _must_be_recordable(self, decision: Decision) -> None:
        """A stranger's proposal that the journal cannot hold or read back would stop the loop."""
        data = msgspec.msgpack.encode(decision)
        if msgspec.msgpack.decode(data, type=Decision) != decision:
            raise AssertionError(f"Cycle {decision.cycle} reads back differently.")

    def _act(self, decision: Decision, snapshot: Snapshot) -> None:
        done = list(
            perform(
                decision.actions,
                self.cluster,
                may_write=lambda *_: "halted" if self.operator.is_halted(self._position) else "",
                clock=lambda: self.cluster.clock_seconds,
            )
        )
        receipts = [receipt for _, _, receipt in done]
        self.ledger.charge(decision, snapshot)
        self.ledger.settle(receipts)
        self.tale.writes += sum(receipt.status is Status.DONE for receipt in receipts)
        honest = {agent.name for agent in self.honest}
        for action in decision.actions:
            if action.kind is ActionKind.RESTORE:
                self.tale.restores += 1
            elif action.agent in honest:
                self.tale.honest += 1
            else:
                self.tale.strange += 1


def _essence(action: Action) -> tuple[object, ...]:
    """What an action does, without the ids that depend on its place in the decision."""
    writes = tuple(replace(write, intent="") for write in action.writes)
    return (action.agent, action.kind, action.target, writes)
