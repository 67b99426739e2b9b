# SPDX-License-Identifier: Apache-2.0
"""The steps, composed: one ``turn`` of the loop is one cycle.

    observe → predict → propose → arbitrate → guard → act → score → explain

The decision is durable before the first write, the receipts are durable before the turn is over.
Time is moved by whoever owns the loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from pilothouse.act import Actuator, perform
from pilothouse.decide import Inputs, decide
from pilothouse.domain import Action, Decision, Forecast, Mode, Receipt, Result, Snapshot, Write
from pilothouse.guard import Guard, Ledger
from pilothouse.guard.switch import Controls
from pilothouse.journal import Cycle, Outcome, Receipts, Record, digest_of
from pilothouse.predict import Forecaster
from pilothouse.propose.registry import Registration
from pilothouse.score import Forkable, Scorer
from pilothouse.settings import Settings


class Cluster(Actuator, Forkable, Protocol):
    """What the loop needs of a backend; the simulator and its remote twin have it."""

    def observe(self) -> Snapshot: ...


class Recorder(Protocol):
    """Where decisions become durable: the journal."""

    def append(self, *items: Record, cycle: int | None = None) -> int: ...

    def append_cycle(
        self, record: Cycle, snapshot: Snapshot, forecast: Forecast, *others: Record
    ) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Everything one cycle produced."""

    decision: Decision
    snapshot: Snapshot
    forecast: Forecast
    receipts: tuple[Receipt, ...]
    results: tuple[Result, ...]  # settled in this cycle, of earlier actions
    modes: Mapping[str, Mode]
    timings: Mapping[str, float]  # step to wall milliseconds


@dataclass(slots=True, kw_only=True)
class Loop:
    """One cluster, one journal, and the parts between them."""

    cluster: Cluster
    journal: Recorder
    forecaster: Forecaster
    agents: Sequence[Registration]
    guard: Guard
    ledger: Ledger
    scorer: Scorer
    settings: Settings
    run_id: str

    def turn(
        self, cycle: int, controls: Controls, may_write: Callable[[Action, Write], str]
    ) -> Turn:
        """One cycle; ``may_write`` reads the controls again, before every write."""
        watch = Stopwatch()
        with watch("observe"):
            snapshot = self.cluster.observe()
        with watch("score"):
            results = tuple(self.scorer.due(self.cluster))
        with watch("predict"):
            forecast = self.forecaster.predict(snapshot)
        with watch("arbitrate"):
            decision = self._decide(cycle, snapshot, forecast, controls, watch)
        with watch("journal"):
            self._record(decision, snapshot, forecast, controls, results)
        with watch("fork"):
            base = self.scorer.before(self.cluster, decision.actions)
        with watch("act"):
            now = lambda: self.cluster.clock_seconds  # noqa: E731
            done = list(perform(decision.actions, self.cluster, may_write=may_write, clock=now))
            receipts = tuple(receipt for _, _, receipt in done)
            if receipts:
                self.journal.append(Receipts(decision=decision.id, receipts=receipts), cycle=cycle)
        self.ledger.charge(decision, snapshot)
        self.ledger.settle(receipts)
        with watch("fork"):
            self.scorer.after(self.cluster, base, done)
        return Turn(
            decision=decision,
            snapshot=snapshot,
            forecast=forecast,
            receipts=receipts,
            results=results,
            modes=controls.modes,
            timings=watch.milliseconds,
        )

    def _decide(
        self,
        cycle: int,
        snapshot: Snapshot,
        forecast: Forecast,
        controls: Controls,
        watch: Stopwatch,
    ) -> Decision:
        inputs = Inputs(
            run_id=self.run_id,
            cycle=cycle,
            snapshot=snapshot,
            forecast=forecast,
            snapshot_digest=digest_of(snapshot),
            forecast_digest=digest_of(forecast),
            modes=controls.modes,
            halted=controls.halted,
            halted_because=controls.halted_because,
            approved=frozenset(controls.approved),
        )
        return decide(
            inputs,
            agents=self.agents,
            guard=self.guard,
            settings=self.settings,
            ledger=self.ledger,
            watch=watch,
        )

    def _record(
        self,
        decision: Decision,
        snapshot: Snapshot,
        forecast: Forecast,
        controls: Controls,
        results: Sequence[Result],
    ) -> None:
        view = snapshot.interpreted
        record = Cycle(
            decision=decision,
            interpreted={
                "queue_length": view.queue_length,
                "queue_oldest_seconds": view.queue_oldest_seconds,
                "unschedulable": view.unschedulable,
                "violations": view.violations,
                "failed_pods": view.failed_pods,
                "requested_permille": view.requested_permille,
                "used_permille": view.used_permille,
                "power_watts": view.power_watts,
            },
            modes={key: str(mode) for key, mode in controls.modes.items()},
            approvals=tuple(sorted(controls.approved)),
        )
        self.journal.append_cycle(
            record, snapshot, forecast, *(Outcome(result=result) for result in results)
        )


class Stopwatch:
    """Wall milliseconds by step; a step entered twice adds up, one within another is its own."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}
        self._within = [0.0]  # spent in steps inside the one at work, innermost last

    @contextmanager
    def __call__(self, step: str) -> Iterator[None]:
        began = time.perf_counter()
        self._within.append(0.0)
        try:
            yield
        finally:
            spent = 1000 * (time.perf_counter() - began)
            own = spent - self._within.pop()
            self._within[-1] += spent
            self.milliseconds[step] = self.milliseconds.get(step, 0.0) + own
