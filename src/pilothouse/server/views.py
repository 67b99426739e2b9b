# SPDX-License-Identifier: Apache-2.0
"""One turn of the loop as the page shows it: pure functions from domain values to JSON shapes.

A view is made from what the cycle produced and from the view before it, which carries what
accumulates: how old each step's work is, the rewards so far, since when a check warns. Nothing is
decided or recomputed here; sentences are quoted from the decision. Proposals may come from
anybody, so their text is cut and numbers that are not finite become null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pilothouse.domain import (
    Action,
    Decision,
    Forecast,
    Proposal,
    Receipt,
    Result,
    Reward,
    Snapshot,
    Status,
    Toll,
    Verdict,
    Write,
)
from pilothouse.domain import Ruling as DomainRuling
from pilothouse.server.clusterview import cluster_view, forecast_view, target_name
from pilothouse.server.events import Turned, events_of
from pilothouse.server.shapes import (
    STEPS,
    ActionView,
    CheckView,
    CycleView,
    DecisionView,
    EffectView,
    EvidenceView,
    ForecastView,
    ProposalView,
    ReceiptView,
    ResultView,
    RewardsView,
    RewardView,
    RulingCounts,
    RunView,
    SettlingView,
    StageState,
    StageView,
    StepName,
    StepView,
    StimulusView,
    WinnerView,
)

PROPOSALS_SHOWN = 60
RECEIPTS_SHOWN = 20
EVIDENCE_SHOWN = 12
SETTLING_SHOWN = 64
FORKS = "fork"  # timed, but a cost of scoring in the simulator and not of the cycle
TEXT_SHOWN = 400
NO_REWARD = RewardView(safety=0.0, efficiency=0.0, admission=0.0)


class Stage(Protocol):
    """A stage of the run; the journal's record of one will do."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> StageState: ...
    @property
    def done(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def artifacts(self) -> Sequence[str]: ...


class Check(Protocol):
    """A self-check; the journal's record of one will do."""

    @property
    def name(self) -> str: ...
    @property
    def ok(self) -> bool: ...
    @property
    def sentence(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stimulus:
    """Stress that is being put on the cluster."""

    name: str
    target: str
    since_seconds: int  # cluster clock
    until_seconds: int | None
    expects: str  # the pressure it should cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A command of a person that took effect in this cycle, as a line."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is being run; the same in every cycle."""

    id: str
    cluster: str
    scenario: str
    seed: int
    cycle_seconds: int
    backend: Literal["sim", "kubernetes"] = "sim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Everything one cycle produced, as the loop knows it when the cycle is over."""

    run: RunFacts
    decision: Decision
    snapshot: Snapshot
    forecast: Forecast
    receipts: Sequence[Receipt]
    results: Sequence[Result]  # settled in this cycle, of earlier actions
    timings: Mapping[str, float]  # step name to wall milliseconds, for those that were timed
    wall_ms: int  # ms since 1970, for display only
    modes: Mapping[str, str] = field(default_factory=dict)
    stages: Sequence[Stage] = ()  # all, or those that changed; others are carried on by name
    checks: Sequence[Check] = ()  # likewise
    stimuli: Sequence[Stimulus] = ()
    controls: Sequence[Control] = ()
    journal_bytes: int = 0


def cycle_view(turn: Turn, previous: CycleView | None = None) -> CycleView:
    """The view of this turn; ``previous`` is the view of the turn before, if there was one."""
    decision = decision_view(turn.decision, turn.receipts)
    settling = _settling(decision, previous)
    forecast = forecast_view(turn.snapshot, turn.forecast)
    stimuli = [_stimulus(s) for s in turn.stimuli]
    settled = [result_view(r) for r in turn.results]
    now = turn.snapshot.taken_seconds
    stages = _stages(turn, previous)
    checks = _checks(turn, previous)
    turned = Turned(
        decision=decision,
        settling=settling,
        settled=settled,
        stages=stages,
        checks=checks,
        controls=[clip(c.text) for c in turn.controls],
    )
    return CycleView(
        cycle=turn.decision.cycle,
        at_seconds=now,
        wall_ms=turn.wall_ms,
        cycle_ms=round(sum(ms for name, ms in turn.timings.items() if name != FORKS), 3),
        journal_bytes=turn.journal_bytes,
        run=_run(turn),
        decision=decision,
        forecast=forecast,
        cluster=cluster_view(turn.snapshot, turn.forecast, stimuli),
        steps=_steps(turn, decision, forecast, previous),
        rewards=_rewards(settled, previous),
        settled=settled,
        settling=_without(settling, settled),
        stages=stages,
        checks=checks,
        events=events_of(turned, previous),
    )


def decision_view(decision: Decision, receipts: Sequence[Receipt]) -> DecisionView:
    """One decision with the backend's answers; results are added when they come."""
    pairs = list(zip(decision.proposals, decision.verdicts, strict=True))
    rulings = [v.ruling for v in decision.verdicts]
    order = sorted(range(len(pairs)), key=lambda i: (_place(decision, i), i))
    answers = {receipt.intent: receipt for receipt in receipts}
    return DecisionView(
        id=decision.id,
        cycle=decision.cycle,
        at_seconds=decision.made_seconds,
        kind=_kind(decision),
        title=_title(decision),
        headline=decision.headline,
        rationale=clip(decision.rationale),
        margin=clip(decision.margin),
        halted=decision.halted,
        halted_because=clip(decision.halted_because),
        snapshot_digest=decision.snapshot_digest,
        forecast_digest=decision.forecast_digest,
        proposals_total=len(pairs),
        proposals=[_proposal(decision, i) for i in order[:PROPOSALS_SHOWN]],
        rulings=RulingCounts(
            chosen=rulings.count(DomainRuling.CHOSEN),
            overridden=rulings.count(DomainRuling.OVERRIDDEN),
            refused=rulings.count(DomainRuling.REFUSED),
            expired=rulings.count(DomainRuling.EXPIRED),
        ),
        actions=[_action(action, answers) for action in decision.actions],
    )


def result_view(result: Result) -> ResultView:
    """A settled action."""
    return ResultView(
        action=result.action,
        settled_seconds=result.settled_seconds,
        method=result.method,
        sentence=clip(result.sentence),
        overlapped=result.overlapped,
        effect=None if result.effect is None else _effect(result.effect),
        reward=None if result.reward is None else _reward(result.reward),
    )


def stage_view(stage: Stage) -> StageView:
    """A stage, whoever keeps it."""
    return StageView(
        name=stage.name,
        state=stage.state,
        done=stage.done,
        total=stage.total,
        reason=clip(stage.reason),
        artifacts=[clip(a) for a in stage.artifacts],
    )


def clip(text: str) -> str:
    """Text of any origin, short enough for a page and valid for JSON."""
    if not text.isascii():  # half a surrogate pair cannot be encoded
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= TEXT_SHOWN else text[: TEXT_SHOWN - 1] + "…"


def finite(value: float | None) -> float | None:
    """A number JSON can carry, or nothing."""
    return None if value is None or not math.isfinite(value) else float(value)


def whole(value: float) -> int:
    """A whole number from a proposer who may have given anything; 0 where there is none."""
    return int(value) if math.isfinite(value) and abs(value) < 2**53 else 0


_RULING_PLACE = {
    DomainRuling.CHOSEN: 1,
    DomainRuling.OVERRIDDEN: 2,
    DomainRuling.REFUSED: 3,
    DomainRuling.EXPIRED: 4,
}


def _place(decision: Decision, index: int) -> int:
    if index == decision.headline:
        return 0
    if decision.proposals[index].is_noop:  # whoever wants nothing comes after who lost
        return len(_RULING_PLACE) + 1
    return _RULING_PLACE[decision.verdicts[index].ruling]


def _kind(decision: Decision) -> Literal["act", "advise", "nothing"]:
    if decision.actions:
        return "act"
    return "advise" if decision.headline is not None else "nothing"


def _title(decision: Decision) -> str:
    if decision.headline is None:
        return "Do nothing"
    proposal = decision.proposals[decision.headline]
    return clip(f"{proposal.label} {target_name(proposal.target)}")


def _proposal(decision: Decision, index: int) -> ProposalView:
    proposal, verdict = decision.proposals[index], decision.verdicts[index]
    return ProposalView(
        index=index,
        agent=clip(proposal.agent),
        label=clip(proposal.label),
        kind=str(proposal.kind),
        target=clip(target_name(proposal.target)),
        ref=clip(str(proposal.target)),
        score=finite(proposal.score),
        priority=whole(proposal.priority),
        reason=clip(proposal.reason),
        otherwise=clip(proposal.otherwise),
        evidence=_evidence(proposal),
        payload={clip(k): clip(str(v)) for k, v in list(proposal.payload.items())[:12]},
        expires_seconds=whole(proposal.expires_seconds),
        ruling=verdict.ruling.value,
        rule=verdict.rule,
        sentence=clip(verdict.sentence),
        mode=verdict.mode.value,
        beaten_by=_winner(decision, verdict),
        used=finite(verdict.used),
        allowed=finite(verdict.allowed),
        free_at_seconds=verdict.free_at_seconds,
    )


def _evidence(proposal: Proposal) -> list[EvidenceView]:
    return [
        EvidenceView(
            name=clip(e.name), value=finite(e.value), unit=clip(e.unit), needs=finite(e.needs)
        )
        for e in proposal.evidence[:EVIDENCE_SHOWN]
    ]


def _winner(decision: Decision, verdict: Verdict) -> WinnerView | None:
    if verdict.by is None:
        return None
    winner = decision.proposals[verdict.by]
    return WinnerView(
        index=verdict.by,
        agent=clip(winner.agent),
        label=clip(winner.label),
        target=clip(target_name(winner.target)),
        score=finite(winner.score),
    )


def _action(action: Action, answers: Mapping[str, Receipt]) -> ActionView:
    answered = [(w, answers[w.intent]) for w in action.writes if w.intent in answers]
    # What did not work is worth more of the limited room than what did.
    answered.sort(key=lambda pair: (pair[1].status is Status.DONE, not pair[1].reservation))
    return ActionView(
        id=action.id,
        proposal=action.proposal,
        agent=action.agent,
        kind=str(action.kind),
        target=clip(target_name(action.target)),
        writes=len(action.writes),
        expires_seconds=action.expires_seconds,
        restores=action.restores,
        receipts=[_receipt(write, receipt) for write, receipt in answered[:RECEIPTS_SHOWN]],
        result=None,
    )


def _receipt(write: Write, receipt: Receipt) -> ReceiptView:
    return ReceiptView(
        intent=receipt.intent,
        write=f"{write.verb} {target_name(write.target)}: {write.original} → {write.value}",
        status=receipt.status.value,
        detail=clip(receipt.detail),
        reservation=clip(receipt.reservation),
        at_seconds=receipt.at_seconds,
    )


def _effect(toll: Toll) -> EffectView:
    return EffectView(
        failed_pod_seconds=toll.failed_pod_seconds,
        violation_seconds=toll.violation_seconds,
        waiting_pod_seconds=toll.waiting_pod_seconds,
        energy_joules=toll.energy_joules,
        energy_cost_micros=toll.energy_cost_micros,
        carbon_grams=toll.carbon_grams,
    )


def _reward(reward: Reward) -> RewardView:
    return RewardView(
        safety=reward.safety, efficiency=reward.efficiency, admission=reward.admission
    )


def _rewards(settled: Sequence[ResultView], previous: CycleView | None) -> RewardsView:
    last = NO_REWARD
    for result in settled:
        if result.reward is not None:
            last = _plus(last, result.reward)
    before = NO_REWARD if previous is None else previous.rewards.total
    return RewardsView(total=_plus(before, last), last=last)


def _plus(one: RewardView, other: RewardView) -> RewardView:
    return RewardView(
        safety=one.safety + other.safety,
        efficiency=one.efficiency + other.efficiency,
        admission=one.admission + other.admission,
    )


def _settling(decision: DecisionView, previous: CycleView | None) -> list[SettlingView]:
    """Actions whose results are still to come, those of this cycle last."""
    labels = {p.index: p.label for p in decision.proposals}
    new = [
        SettlingView(
            action=action.id,
            agent=action.agent,
            label=labels.get(action.proposal, f"{action.agent}:{action.kind}"),
            target=action.target,
            since_seconds=decision.at_seconds,
        )
        for action in decision.actions
    ]
    return [*(previous.settling if previous is not None else ()), *new][-SETTLING_SHOWN:]


def _without(settling: Sequence[SettlingView], settled: Sequence[ResultView]) -> list[SettlingView]:
    known = {result.action for result in settled}
    return [one for one in settling if one.action not in known]


def _run(turn: Turn) -> RunView:
    return RunView(
        id=turn.run.id,
        cluster=turn.run.cluster,
        backend=turn.run.backend,
        scenario=turn.run.scenario,
        seed=turn.run.seed,
        cycle_seconds=turn.run.cycle_seconds,
        modes={agent: str(mode) for agent, mode in sorted(turn.modes.items())},
        halted=turn.decision.halted,
    )


def _stimulus(stimulus: Stimulus) -> StimulusView:
    return StimulusView(
        name=clip(stimulus.name),
        target=clip(stimulus.target),
        since_seconds=stimulus.since_seconds,
        until_seconds=stimulus.until_seconds,
        expects=clip(stimulus.expects),
    )


def _stages(turn: Turn, previous: CycleView | None) -> list[StageView]:
    known = {} if previous is None else {stage.name: stage for stage in previous.stages}
    return list((known | {stage.name: stage_view(stage) for stage in turn.stages}).values())


def _checks(turn: Turn, previous: CycleView | None) -> list[CheckView]:
    known = {} if previous is None else {check.name: check for check in previous.checks}
    for check in turn.checks:
        old = known.get(check.name)
        same = old is not None and old.ok == check.ok
        known[check.name] = CheckView(
            name=check.name,
            ok=check.ok,
            sentence=clip(check.sentence),
            since_seconds=old.since_seconds if old and same else turn.snapshot.taken_seconds,
        )
    return list(known.values())


def _steps(
    turn: Turn, decision: DecisionView, forecast: ForecastView, previous: CycleView | None
) -> list[StepView]:
    said = _summaries(turn, decision, forecast)
    before = {} if previous is None else {step.name: step for step in previous.steps}
    return [_step(name, turn, said[name], before.get(name)) for name in STEPS]


def _step(name: StepName, turn: Turn, said: str, before: StepView | None) -> StepView:
    now = turn.snapshot.taken_seconds
    # Acting and scoring run every cycle but mostly find nothing to do; that is not fresh work.
    # Whatever else there is has happened when there is a decision, timed or not.
    idle = (name == "act" and not turn.receipts) or (name == "score" and not turn.results)
    if not idle:
        took = round(turn.timings[name], 3) if name in turn.timings else None
        return StepView(name=name, done_seconds=now, age_seconds=0, duration_ms=took, summary=said)
    if before is None or before.done_seconds is None:
        return StepView(
            name=name, done_seconds=None, age_seconds=None, duration_ms=None, summary="not yet"
        )
    return StepView(
        name=name,
        done_seconds=before.done_seconds,
        age_seconds=now - before.done_seconds,
        duration_ms=before.duration_ms,
        summary=before.summary,
    )


def _summaries(turn: Turn, decision: DecisionView, forecast: ForecastView) -> dict[StepName, str]:
    rulings = decision.rulings
    risk = forecast.risk_permille
    done = sum(receipt.status is Status.DONE for receipt in turn.receipts)
    return {
        "observe": f"{len(turn.snapshot.nodes)} nodes, {len(turn.snapshot.pods)} pods",
        "predict": "no forecast" if risk is None else f"highest risk {risk / 1000:.2f}",
        "propose": _count(decision.proposals_total, "proposal"),
        "arbitrate": f"{rulings.chosen} chosen, {rulings.overridden} lost",
        "guard": f"{rulings.refused} refused" if rulings.refused else "nothing refused",
        "act": f"{done} of {_count(len(turn.receipts), 'write')} done",
        "score": f"{_count(len(turn.results), 'result')} settled",
        "explain": decision.title,
    }


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
