# SPDX-License-Identifier: Apache-2.0
"""One run: a loop with its cluster, journal and controls, started fresh or taken up again.

A restart reads the journal, rebuilds the guard's ledger from it, lets the forecaster see the
recorded snapshots again, brings the embedded simulator back to where it was (from the newest
checkpoint and the writes that were done since) and settles intents that a crash left open by
looking for them. It never sends a write again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import msgspec

from pilothouse import __version__, restart
from pilothouse.act import resolve
from pilothouse.domain import Action, Mode, Snapshot, Write
from pilothouse.errors import JournalMismatch
from pilothouse.guard import Charge, Guard
from pilothouse.guard.switch import Command, ControlFile, Controls, controls_path, objection
from pilothouse.journal import (
    Check,
    Checkpoint,
    Control,
    Journal,
    Receipts,
    Record,
    Resume,
    Resumed,
    Run,
    SettingsChange,
    Stage,
)
from pilothouse.loop import Cluster, Loop, Turn
from pilothouse.predict import Forecaster, forecaster_of, with_thresholds
from pilothouse.propose.registry import Registration, default_agents, refuse_twins
from pilothouse.score import Scorer
from pilothouse.score.selfcheck import Finding, SelfCheck, Stress
from pilothouse.settings import Settings
from pilothouse.settings.file import to_tree
from pilothouse.sim.cluster import SimCluster
from pilothouse.sim.remote import RemoteCluster


@runtime_checkable
class Successor(Protocol):
    """A cluster that other leaders may have acted on."""

    def handover(self) -> Sequence[tuple[Action, Charge, bool]]: ...


class Backend(Cluster, Protocol):
    """A cluster that can also say what stress it is under."""

    def stimuli(self) -> Sequence[Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One cycle for whoever watches the run."""

    turn: Turn
    controls: Controls
    modes: Mapping[str, Mode]  # in force: the settings' and what an operator said since
    commands: Sequence[Command]  # taken in this cycle
    findings: Sequence[Finding]
    stages: Sequence[Stage]
    stresses: Sequence[Any]


class Runner:
    """Moves time, takes controls, checks itself and keeps the run's place in the journal."""

    def __init__(
        self,
        *,
        settings: Settings,
        journal: Journal,
        cluster: Backend | None = None,
        forecaster: Forecaster | None = None,
        agents: Sequence[Registration] | None = None,
        prepared: Sequence[Stage] = (),
        history: Sequence[Snapshot] = (),
    ) -> None:
        """``history`` is what the cluster was like before we looked; forecasts warm up on it."""
        settings = with_thresholds(settings)
        self.settings = settings
        self.journal = journal
        self._switch = ControlFile(controls_path(journal.path))
        before = self._switch.end()  # of an older run, if this one is new; what comes now is for us
        self._forecaster = forecaster or forecaster_of(settings.forecast)
        self._agents = tuple(agents if agents is not None else default_agents(settings))
        refuse_twins(self._agents)
        self._check = SelfCheck()
        self._seen: Snapshot | None = None
        self.stages = _stages(self._forecaster.name, prepared)
        self.findings_at_end: Sequence[Finding] = ()
        _refuse_other_cluster(settings, cluster)
        resume = journal.begin(_run_of(settings))
        _refuse_restarted_cluster(cluster, resume)
        self.run_id = (resume.run if resume else _run_of(settings)).run_id
        self._controls = before if resume is None else restart.controls_of(resume)
        self.lines_left_alone = 0 if resume else before.line
        cycles = restart.recorded_cycles(resume, journal.path) if resume else []
        self.cluster: Backend = cluster or restart.embedded_cluster(settings, resume)
        self._clock = restart.clock_of(resume)
        self.loop = Loop(
            cluster=self.cluster,
            journal=journal,
            forecaster=self._forecaster,
            agents=self._agents,
            guard=Guard(settings, self._agents),
            ledger=restart.ledger_of(resume, cycles, settings, journal.path),
            scorer=Scorer(settings.score),
            settings=settings,
            run_id=self.run_id,
        )
        if resume is None:
            start = _settings_record(settings, self._forecaster, "start")
            journal.append(start, *self._place_among_controls(), *self.stages)
        else:
            self._take_up(resume, restart.recent_snapshots(cycles))
        for snapshot in history:
            if snapshot.taken_seconds > self._clock:
                self._forecaster.predict(snapshot)
        self.cycle = (resume.cycle or 0) if resume else 0

    def cycles(self, count: int | None) -> Iterator[Report]:
        """Run so many cycles, or for ever; the caller paces by taking its time."""
        first = self.cycle
        while count is None or self.cycle < first + count:
            yield self._next(done=self.cycle - first, total=count)
        self._finish(total=self.cycle - first)

    def _next(self, *, done: int, total: int | None) -> Report:
        self.cycle += 1
        self._clock += self.settings.run.cycle_seconds
        self.cluster.advance(max(self._clock - self.cluster.clock_seconds, 0))
        commands = self._switch.after(self._controls)
        for command in commands:
            self._controls = self._controls.after(command, self.cluster.clock_seconds)
        if commands:
            self.journal.append(*map(_control_record, commands), cycle=self.cycle)
        self._take_over()
        turn = self.loop.turn(self.cycle, self._controls, self._why_not_now)
        stresses = tuple(self.cluster.stimuli())
        findings = self._check.look(
            turn.snapshot,
            turn.decision,
            list(turn.results),
            tuple(
                Stress(name=str(s.kind), pressure=s.pressure, since_seconds=s.since_seconds)
                for s in stresses
            ),
        )
        self._seen = turn.snapshot
        self._controls = restart.settled(self._controls, turn.decision)
        self._stage("loop", "running", done=done + 1, total=total or 0)
        self._keep_place([_check_record(f) for f in findings])
        return Report(
            turn=turn,
            controls=self._controls,
            modes=turn.modes,
            commands=commands,
            findings=findings,
            stages=self.stages,
            stresses=stresses,
        )

    def _take_over(self) -> None:
        """Budgets and what is in force from another leader's tickets; a checkpoint records it."""
        if not isinstance(self.cluster, Successor):
            return
        ledger, now = self.loop.ledger, self.cluster.clock_seconds
        taken = [
            (action, charge, in_force)
            for action, charge, in_force in self.cluster.handover()
            if ledger.adopt(action, charge, in_force=in_force, now=now)
        ]
        if taken:
            adopted = {"adopted": msgspec.to_builtins(taken), "adopted_seconds": now}
            # As of the cycle before: this one's record comes after it.
            record = Checkpoint(state=self.state() | adopted, simulator=b"")
            self.journal.append(record, cycle=self.cycle - 1)

    def _why_not_now(self, action: Action, write: Write) -> str:
        """Kill switch and modes, read again right before a write."""
        now = self._controls
        for command in self._switch.after(now):
            now = now.after(command, self.cluster.clock_seconds)
        return objection(
            action.agent,
            write.target,
            decided=self._controls,
            now=now,
            settings=self.settings.modes,
        )

    def _place_among_controls(self) -> list[Record]:
        """Where a new run begins in a controls file that is older, so that a restart knows."""
        if not self.lines_left_alone:
            return []
        return [Checkpoint(state=self.state(), simulator=self._saved())]

    def _keep_place(self, notes: list[Record]) -> None:
        if self.cycle % self.settings.journal.keyframe_cycles == 0:
            notes.append(Checkpoint(state=self.state(), simulator=self._saved()))
        if notes:
            self.journal.append(*notes, cycle=self.cycle)
        if self.journal.rotation_due:
            self.journal.rotate(state=self.state(), simulator=self._saved())

    def state(self) -> dict[str, Any]:
        """What a restart needs beside the simulator; a checkpoint or a new file carries it."""
        controls = self._controls
        return {
            "ledger": self.loop.ledger.to_dict(),
            "awaiting": msgspec.to_builtins(self.loop.scorer.awaiting),
            "controls": {
                "halted": controls.halted,
                "halted_because": controls.halted_because,
                "modes": {key: str(mode) for key, mode in controls.modes.items()},
                "approved": dict(controls.approved),
                "line": controls.line,
                "seal": controls.seal,
            },
        }

    def _saved(self) -> bytes:
        return self.cluster.save() if isinstance(self.cluster, SimCluster) else b""

    def _finish(self, *, total: int) -> None:
        self._stage("loop", "done", done=total, total=total)
        done = [stage.name for stage in self.stages if stage.state == "done"]
        findings = self._check.at_end(self._seen, done, loop_done=True)
        notes: list[Record] = [_check_record(f) for f in findings if not f.ok]
        self.journal.append(*notes, *self.stages)
        self.findings_at_end = findings

    def _take_up(self, resume: Resume, seen: Sequence[Snapshot]) -> None:
        """Settle what a crash left open, and write down what changed since."""
        intents = [write.intent for write in resume.open_intents]
        receipts = resolve(intents, self.cluster, clock=lambda: self.cluster.clock_seconds)
        self.loop.ledger.settle(receipts)
        for snapshot in seen:
            self._forecaster.predict(snapshot)
        self.loop.scorer.take_up(restart.unscored_actions(resume, receipts), self.cluster)
        answered = [
            Receipts(
                decision=decision, receipts=tuple(r for r in receipts if _of(r.intent) == decision)
            )
            for decision in dict.fromkeys(_of(intent) for intent in intents)
        ]
        change = _settings_record(self.settings, self._forecaster, "changed at a restart")
        changed = resume.settings is None or _differs(resume.settings, change)
        # The ledger had the new settings when it took the receipts in, and a replay does likewise.
        notes: list[Record] = [
            *([change] if changed else []),
            *answered,
            Resumed(reason="restart", resolved={r.intent: str(r.status) for r in receipts}),
        ]
        self.journal.append(*notes, *self.stages)

    def _stage(self, name: str, state: Any, *, done: int, total: int) -> None:
        self.stages = [
            replace(stage, state=state, done=done, total=total) if stage.name == name else stage
            for stage in self.stages
        ]


def _refuse_other_cluster(settings: Settings, cluster: Backend | None) -> None:
    """A journal names the cluster it is about; a simulator elsewhere knows what it is."""
    if not isinstance(cluster, RemoteCluster):
        return
    run = settings.run
    for name, given, real in (
        ("cluster", run.cluster, cluster.name),
        ("scenario", run.scenario, cluster.scenario_name),
        ("seed", run.seed, cluster.seed),
    ):
        if given != real:
            raise JournalMismatch(
                f"The simulated cluster runs {name} {real}, but {given} was given. Give {name} "
                f"{real}, or start the simulator with {given}."
            )


def _refuse_restarted_cluster(cluster: Backend | None, resume: Resume | None) -> None:
    """Time does not go back: such a simulator forgot every write that the journal knows of."""
    recorded = restart.clock_of(resume)
    if isinstance(cluster, RemoteCluster) and cluster.clock_seconds < recorded:
        raise JournalMismatch(
            f"The simulated cluster is at {cluster.clock_seconds} s, the journal at {recorded} s: "
            "it was restarted. Give another --journal to start anew with it."
        )


def _run_of(settings: Settings) -> Run:
    run = settings.run
    identity = f"{run.cluster}/{run.scenario}/{run.seed}"
    return Run(
        run_id=hashlib.sha256(identity.encode()).hexdigest()[:12],
        cluster=run.cluster,
        scenario=run.scenario,
        seed=run.seed,
        version=__version__,
    )


def _stages(forecaster: str, prepared: Sequence[Stage]) -> list[Stage]:
    """The stages of a run; what was done before the loop takes the place of "disabled"."""
    done = {stage.name: stage for stage in prepared}
    usual = [
        Stage(name="forecasters", state="done", done=1, total=1, artifacts=(forecaster,)),
        Stage(name="tune", state="disabled", reason="not requested"),
        Stage(name="train", state="disabled", reason="not requested"),
        Stage(name="loop", state="pending"),
    ]
    return [done.get(stage.name, stage) for stage in usual]


def _settings_record(settings: Settings, forecaster: Forecaster, reason: str) -> SettingsChange:
    return SettingsChange(
        settings=decisive(to_tree(settings)), forecaster=forecaster.name, reason=reason
    )


def decisive(tree: dict[str, Any]) -> dict[str, Any]:
    """The settings a decision depends on: not where the page is served or how fast we walk, nor
    where usage is asked for, because what was answered is in the snapshot."""
    apart = ("serve", "journal", "observe")
    kept = {key: value for key, value in tree.items() if key not in apart}
    kept["run"] = {k: v for k, v in tree["run"].items() if k != "interval_wall_seconds"}
    return kept


def _differs(before: SettingsChange, now: SettingsChange) -> bool:
    return (before.settings, before.forecaster) != (now.settings, now.forecaster)


def _control_record(command: Command) -> Control:
    return Control(
        line=" ".join([command.command, *command.arguments.values()]),
        command=command.command,
        arguments={**command.arguments, "line": str(command.line), "seal": command.seal},
    )


def _check_record(finding: Finding) -> Check:
    return Check(
        name=finding.name,
        ok=finding.ok,
        sentence=finding.sentence,
        numbers=dict(finding.numbers),
    )


def _of(intent: str) -> str:
    return intent.partition(".")[0]
