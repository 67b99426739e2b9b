# SPDX-License-Identifier: Apache-2.0
"""A run from start to end: determinism, controls, restarts and what happens without a record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pilothouse.domain import ActionKind, Mode, Receipt, Ruling, Status, Write
from pilothouse.errors import JournalMismatch, JournalUnwritable
from pilothouse.guard.switch import Command, ControlFile, Controls, controls_path
from pilothouse.journal import (
    Cycle,
    Journal,
    JournalReader,
    Outcome,
    Receipts,
    Resumed,
    SettingsChange,
    verify,
)
from pilothouse.propose.registry import Registration
from pilothouse.replay import replay
from pilothouse.run import Report, Runner
from pilothouse.scenarios import load
from pilothouse.settings import (
    GuardSettings,
    JournalSettings,
    ModeSettings,
    RunSettings,
    ScoreSettings,
    Settings,
)
from pilothouse.sim.cluster import SimCluster
from pilothouse.testing.builders import a_proposal


def settings_for(seed: int = 1, **changes: object) -> Settings:
    return replace(
        Settings(run=RunSettings(seed=seed), score=ScoreSettings(settle_seconds=60)), **changes
    )


def run(path: Path, cycles: int, settings: Settings | None = None, **parts: object) -> list[Report]:
    settings = settings or settings_for()
    with Journal.open(path, settings=settings.journal) as journal:
        return list(Runner(settings=settings, journal=journal, **parts).cycles(cycles))


def digest(path: Path) -> str:
    return verify(path).digest


def executed(reports: list[Report]) -> list[tuple[str, str, str]]:
    """(agent, kind, status) of every write."""
    return [
        (action.agent, str(action.kind), str(receipt.status))
        for report in reports
        for action in report.turn.decision.actions
        for receipt in report.turn.receipts
        if receipt.intent.startswith(action.id + ".")
    ]


def test_same_seed_gives_the_same_digest_and_another_seed_another(tmp_path):
    run(tmp_path / "a.db", 60)
    run(tmp_path / "b.db", 60)
    run(tmp_path / "c.db", 60, settings_for(seed=2))
    assert digest(tmp_path / "a.db") == digest(tmp_path / "b.db") != digest(tmp_path / "c.db")


def test_replay_decides_every_cycle_identically(tmp_path):
    run(tmp_path / "a.db", 80)
    report = replay(tmp_path / "a.db")
    assert (report.cycles, report.identical, report.difference) == (80, 80, "")


def test_replay_starts_from_the_ledger_of_a_rotated_file(tmp_path):
    """Earlier files may be gone; what they charged still counts."""
    path = tmp_path / "a.db"
    settings = settings_for(journal=JournalSettings(keep_segments=0))
    with Journal.open(path, settings=settings.journal) as journal:
        runner = Runner(settings=settings, journal=journal)
        list(runner.cycles(60))
        assert journal.rotate(state=runner.state(), simulator=runner.cluster.save())
        list(runner.cycles(40))
    report = replay(path)
    assert (report.cycles, report.identical) == (40, 40)
    list(run(path, 5, settings))
    assert replay(path).ok


def test_replay_shows_the_first_difference_when_the_decider_changed(tmp_path, monkeypatch):
    run(tmp_path / "a.db", 60)
    monkeypatch.setattr("pilothouse.propose.efficiency.Efficiency.propose", lambda *_: ())
    report = replay(tmp_path / "a.db")
    assert not report.ok
    assert report.difference.startswith("Cycle 1, decision ")


def test_restart_goes_on_where_the_journal_ends(tmp_path):
    path = tmp_path / "a.db"
    run(path, 70)
    reports = run(path, 30)
    assert [r.turn.decision.cycle for r in reports] == list(range(71, 101))
    assert reports[0].turn.snapshot.taken_seconds == 71 * 15
    assert replay(path).ok
    assert verify(path).ok


def test_restarted_simulator_is_the_one_that_was_left(tmp_path):
    """From a checkpoint and the writes since, the cluster is rebuilt to the same facts."""
    path, whole = tmp_path / "a.db", tmp_path / "whole.db"
    run(path, 63)
    settings = settings_for()
    with Journal.open(path, settings=settings.journal) as journal:
        rebuilt = Runner(settings=settings, journal=journal).cluster.observe()
    with Journal.open(whole, settings=settings.journal) as journal:
        runner = Runner(settings=settings, journal=journal)
        list(runner.cycles(63))
        kept = runner.cluster.observe()
    assert rebuilt.taken_seconds == kept.taken_seconds
    assert rebuilt.pods.uid.tolist() == kept.pods.uid.tolist()
    assert rebuilt.pods.node.tolist() == kept.pods.node.tolist()
    assert rebuilt.nodes.frequency_permille.tolist() == kept.nodes.frequency_permille.tolist()


def test_journal_of_another_seed_is_refused_and_unharmed(tmp_path):
    path = tmp_path / "a.db"
    run(path, 5)
    before = verify(path)
    with pytest.raises(JournalMismatch, match="seed 1, but 2 was given"):
        run(path, 5, settings_for(seed=2))
    assert verify(path) == before


def test_changed_settings_are_recorded_and_the_ledger_continues(tmp_path):
    path = tmp_path / "a.db"
    run(path, 40)
    run(path, 20, settings_for(guard=GuardSettings(per_agent=3)))
    changes = [
        e.record for e in JournalReader(path).entries() if isinstance(e.record, SettingsChange)
    ]
    assert [c.reason for c in changes] == ["start", "changed at a restart"]
    assert changes[1].settings["guard"]["per_agent"] == 3
    assert replay(path).ok


class Crash(BaseException):
    """Stands for the process dying; nothing may catch it."""


class CrashingCluster:
    """Dies before or after the write it is given reaches the cluster."""

    def __init__(self, cluster: SimCluster, *, after: bool) -> None:
        self._cluster = cluster
        self._after = after

    def __getattr__(self, name: str) -> object:
        return getattr(self._cluster, name)

    def execute(self, write: Write, agent: str) -> Receipt:
        if self._after:
            self._cluster.execute(write, agent)
        raise Crash


def crash(path: Path, cluster: SimCluster, *, after: bool) -> None:
    with pytest.raises(Crash):
        run(path, 300, cluster=CrashingCluster(cluster, after=after))


@pytest.mark.parametrize(
    ("after", "status"), [(True, Status.DONE), (False, Status.SKIPPED)], ids=["after", "before"]
)
def test_open_intent_is_settled_by_looking_and_never_sent_again(tmp_path, after, status):
    path = tmp_path / "a.db"
    cluster = SimCluster(load("harbor"), seed=1, name="sim")
    crash(path, cluster, after=after)
    logged = len(cluster.log())
    settings = settings_for()
    with Journal.open(path, settings=settings.journal) as journal:
        Runner(settings=settings, journal=journal, cluster=cluster)
        assert journal.open_intents == ()
    assert len(cluster.log()) == logged, "a restart must not write to the cluster"
    entries = [e.record for e in JournalReader(path).entries()]
    receipts = [r for e in entries if isinstance(e, Receipts) for r in e.receipts]
    assert receipts[0].status is status
    assert {r.status for r in receipts[1:]} <= {Status.SKIPPED}, "later writes were never sent"
    assert any(isinstance(e, Resumed) and e.resolved for e in entries)


def test_halt_stops_writes_at_once_and_takes_back_what_is_active(tmp_path):
    path = tmp_path / "a.db"
    settings = settings_for()
    with Journal.open(path, settings=settings.journal) as journal:
        runner = Runner(settings=settings, journal=journal)
        before = list(runner.cycles(60))
        assert runner.loop.ledger.active
        ControlFile(controls_path(path)).append("halt", {"reason": "drill"})
        halted = list(runner.cycles(30))
        ControlFile(controls_path(path)).append("resume", {})
        after = list(runner.cycles(60))
    assert any(agent != "janitor" for agent, _, _ in executed(before))
    assert {agent for agent, _, _ in executed(halted)} == {"janitor"}
    assert all(r.turn.decision.halted for r in halted)
    assert any(agent != "janitor" for agent, _, _ in executed(after))
    assert replay(path).ok


def test_kill_switch_thrown_after_the_decision_stops_its_writes(tmp_path):
    path = tmp_path / "a.db"
    settings = settings_for()
    cluster = SimCluster(load("harbor"), seed=1, name="sim")
    with Journal.open(path, settings=settings.journal) as journal:
        runner = Runner(settings=settings, journal=journal, cluster=cluster)
        append = runner.loop.journal.append_cycle

        def decided(record: Cycle, *rest: object) -> None:
            append(record, *rest)
            if record.decision.actions:
                ControlFile(controls_path(path)).append("halt", {})

        runner.loop.journal.append_cycle = decided
        reports = [r for r in runner.cycles(60) if r.turn.receipts]
    assert {r.status for r in reports[0].turn.receipts} == {Status.SKIPPED}
    assert cluster.log() == []


def test_agent_in_shadow_is_recorded_and_executes_nothing(tmp_path):
    settings = settings_for(modes=ModeSettings(agents={"efficiency": Mode.SHADOW}))
    reports = run(tmp_path / "a.db", 60, settings)
    shadowed = [
        v
        for r in reports
        for p, v in r.turn.decision.with_ruling(Ruling.CHOSEN)
        if p.agent == "efficiency" and not p.is_noop
    ]
    assert shadowed
    assert {v.mode for v in shadowed} == {Mode.SHADOW}
    assert not [e for e in executed(reports) if e[0] == "efficiency"]


class Steady:
    """Wants the same thing every cycle until it has it."""

    name = "steady"
    title = "Steady"

    def propose(self, snapshot, forecast):
        kind = ActionKind.DVFS if snapshot.nodes.frequency_permille[0] == 1000 else ActionKind.NOOP
        return [
            a_proposal(
                snapshot.node_ref(0),
                agent=self.name,
                label=f"{self.title}:{kind}",
                kind=kind,
                payload={"frequency_permille": 800},
                expires_seconds=snapshot.taken_seconds + 60,
            )
        ]


def test_advised_action_waits_for_one_approval_and_uses_it_up(tmp_path):
    path = tmp_path / "a.db"
    settings = settings_for(modes=ModeSettings(agents={"steady": Mode.ADVISE}))
    agents = (Registration(Steady(), 100, Steady.title),)
    with Journal.open(path, settings=settings.journal) as journal:
        runner = Runner(settings=settings, journal=journal, agents=agents)
        waiting = list(runner.cycles(3))
        wanted, verdict = waiting[-1].turn.decision.with_ruling(Ruling.CHOSEN)[0]
        assert verdict.mode is Mode.ADVISE
        assert executed(waiting) == []
        ControlFile(controls_path(path)).append("approve", {"id": wanted.approval_id})
        allowed = list(runner.cycles(3))
    assert executed(allowed) == [("steady", "dvfs", "done")]
    assert allowed[-1].controls.approved == {}
    assert replay(path, agents=agents).ok


def test_approval_lapses_when_nobody_wants_the_action_any_more():
    command = Command(line=1, command="approve", arguments={"id": "a:b:c"})
    controls = Controls().after(command, now=100)
    assert set(controls.without(frozenset(), now=699).approved) == {"a:b:c"}
    assert set(controls.without(frozenset(), now=700).approved) == set()


def test_nothing_acts_when_the_intent_cannot_be_made_durable(tmp_path):
    path = tmp_path / "a.db"
    settings = settings_for()
    cluster = SimCluster(load("harbor"), seed=1, name="sim")
    with Journal.open(path, settings=settings.journal) as journal:
        runner = Runner(settings=settings, journal=journal, cluster=cluster)

        def full(record: Cycle, *rest: object) -> None:
            raise JournalUnwritable("The disk is full.")

        runner.loop.journal.append_cycle = full
        with pytest.raises(JournalUnwritable):
            list(runner.cycles(60))
    assert cluster.log() == []


def test_every_executed_action_gets_a_result_from_after_its_window(tmp_path):
    path = tmp_path / "a.db"
    reports = run(path, 100)
    acted = {
        a.id: r.turn.snapshot.taken_seconds
        for r in reports[:90]
        for a in r.turn.decision.actions
        if not a.restores
        and any(x.status is Status.DONE and x.intent.startswith(a.id) for x in r.turn.receipts)
    }
    results = {
        e.record.result.action: e.record.result
        for e in JournalReader(path).entries()
        if isinstance(e.record, Outcome)
    }
    assert acted
    assert set(acted) <= set(results)
    for action, began in acted.items():
        assert results[action].settled_seconds == began + 60
        assert results[action].method == "fork"


def test_self_check_warns_when_the_run_ends_with_an_unhealthy_cluster(tmp_path):
    settings = settings_for()
    found: list[bool] = []
    with Journal.open(tmp_path / "a.db", settings=settings.journal) as journal:
        runner = Runner(settings=settings, journal=journal)
        for _ in range(40):
            reports = list(runner.cycles(5))
            view = reports[-1].turn.snapshot.interpreted
            verdict = next(f for f in runner.findings_at_end if f.name == "done-while-unhealthy")
            assert verdict.ok == (view.violations == 0 and view.failed_pods == 0)
            found.append(verdict.ok)
    assert set(found) == {True, False}


def test_resumed_controls_are_remembered(tmp_path):
    path = tmp_path / "a.db"
    run(path, 55)
    ControlFile(controls_path(path)).append("mode", {"agent": "safety", "mode": "off"})
    run(path, 5)
    reports: list[Report] = run(path, 5)
    assert reports[-1].controls.modes == {"safety": Mode.OFF}
    assert replay(path).ok


def test_unreadable_control_line_halts(tmp_path):
    path = tmp_path / "a.db"
    run(path, 2)
    controls_path(path).write_bytes(b"{not json}\n")
    reports = run(path, 2)
    assert reports[-1].turn.decision.halted
    assert "line 1" in reports[-1].controls.halted_because
