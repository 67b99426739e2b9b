# SPDX-License-Identifier: Apache-2.0
"""What of a cycle is worth a line in the event list.

A line is news: a refusal that stands since the cycle before, a check that still warns or a stage
that did not move is not repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pilothouse.server.shapes import (
    ActionView,
    CheckView,
    CycleView,
    DecisionView,
    EventKind,
    EventView,
    ProposalView,
    ResultView,
    SettlingView,
    Severity,
    StageView,
)

REFUSALS_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """The parts of a cycle that can make news."""

    decision: DecisionView
    settling: Sequence[SettlingView]
    settled: Sequence[ResultView]
    stages: Sequence[StageView]
    checks: Sequence[CheckView]
    controls: Sequence[str]


@dataclass(frozen=True, slots=True)
class Line:
    """An event before it has a number."""

    kind: EventKind
    severity: Severity
    text: str
    agent: str = ""
    decision: str = ""


def events_of(turned: Turned, previous: CycleView | None) -> list[EventView]:
    """The lines of one cycle, newest first: what a person did, then what we did about it."""
    lines = [
        *_stages(turned.stages, previous),
        *(Line("control", "warn", text) for text in turned.controls),
        *_results(turned),
        *_checks(turned.checks, previous),
        *_refusals(turned.decision, previous),
        *_actions(turned.decision),
    ]
    decision = turned.decision
    numbered = [
        EventView(
            id=f"{decision.cycle}.{number}",
            cycle=decision.cycle,
            at_seconds=decision.at_seconds,
            kind=line.kind,
            severity=line.severity,
            agent=line.agent,
            decision=line.decision,
            text=line.text,
        )
        for number, line in enumerate(lines)
    ]
    return numbered[::-1]


def _actions(decision: DecisionView) -> Iterator[Line]:
    labels = {p.index: p.label for p in decision.proposals}
    for action in decision.actions:
        severity, how = _answer(action)
        label = labels.get(action.proposal, f"{action.agent}:{action.kind}")
        yield Line("action", severity, f"{label} {action.target}: {how}", action.agent, decision.id)
    acting = {action.proposal for action in decision.actions}
    for p in decision.proposals:
        if p.ruling == "chosen" and p.index not in acting and p.kind != "noop":
            why = "" if p.mode == "enforce" else f" (mode {p.mode})"
            text = f"{p.label} {p.target}: chosen, not done{why}"
            yield Line("action", "info", text, p.agent, decision.id)


def _answer(action: ActionView) -> tuple[Severity, str]:
    statuses = [receipt.status for receipt in action.receipts]
    if not statuses:
        return "warn", "no answer yet"
    failed = [receipt for receipt in action.receipts if receipt.status != "done"]
    if not failed:
        return "good", f"done, {action.writes} write{'' if action.writes == 1 else 's'}"
    severity: Severity = "warn" if len(failed) < len(statuses) else "bad"
    first = failed[0]
    return severity, f"{len(failed)} of {action.writes} writes {first.status}: {first.detail}"


def _refusals(decision: DecisionView, previous: CycleView | None) -> Iterator[Line]:
    known = set() if previous is None else {_same(p) for p in _refused(previous.decision)}
    fresh = [p for p in _refused(decision) if _same(p) not in known]
    for p in fresh[:REFUSALS_SHOWN]:
        text = f"{p.label} {p.target} refused: {p.sentence}"
        yield Line("refusal", "warn", text, p.agent, decision.id)
    if len(fresh) > REFUSALS_SHOWN:
        rest = len(fresh) - REFUSALS_SHOWN
        yield Line("refusal", "warn", f"{rest} more proposals refused", "", decision.id)


def _refused(decision: DecisionView) -> list[ProposalView]:
    return [p for p in decision.proposals if p.ruling == "refused"]


def _same(proposal: ProposalView) -> tuple[str, str, str]:
    return proposal.label, proposal.ref, proposal.rule


def _results(turned: Turned) -> Iterator[Line]:
    known = {one.action: one for one in turned.settling}
    for result in turned.settled:
        action = known.get(result.action)
        whose = "" if action is None else f"{action.label} {action.target}: "
        yield Line(
            "outcome",
            _worth(result),
            f"{whose}{result.sentence}",
            "" if action is None else action.agent,
            result.action.partition(".")[0],
        )


def _worth(result: ResultView) -> Severity:
    if result.reward is None:
        return "info"
    total = result.reward.safety + result.reward.efficiency + result.reward.admission
    if total == 0:
        return "info"
    return "good" if total > 0 else "bad"


def _checks(checks: Sequence[CheckView], previous: CycleView | None) -> Iterator[Line]:
    before = {} if previous is None else {c.name: c.ok for c in previous.checks}
    for check in checks:
        if check.ok == before.get(check.name, True):
            continue
        if check.ok:
            yield Line("check", "good", f"{check.name}: fine again")
        else:
            yield Line("check", "warn", f"{check.name}: {check.sentence}")


def _stages(stages: Sequence[StageView], previous: CycleView | None) -> Iterator[Line]:
    before = {} if previous is None else {s.name: s.state for s in previous.stages}
    for stage in stages:
        if before.get(stage.name) == stage.state:
            continue
        why = f": {stage.reason}" if stage.reason else ""
        yield Line("stage", "info", f"stage {stage.name} {stage.state}{why}")
