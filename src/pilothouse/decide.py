# SPDX-License-Identifier: Apache-2.0
"""From what was seen and foretold to what will be done: propose, arbitrate and guard, composed.

``decide`` is the pure heart: the same inputs, agents, guard and ledger give the same decision, on
any day and in any process, which is what a replay checks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import islice
from typing import Any, get_args

import numpy as np

from pilothouse.act.planner import Planner
from pilothouse.arbitrate import Candidate, Role, arbitrate
from pilothouse.domain import (
    Action,
    ActionKind,
    Decision,
    Forecast,
    Mode,
    Plan,
    Proposal,
    Ref,
    Ruling,
    Snapshot,
    Verdict,
    Write,
)
from pilothouse.domain.reference import ObjectKind
from pilothouse.guard import JANITOR, STEWARD, Active, Guard, Ledger, Sent, refuse
from pilothouse.propose.registry import Janitor, Registration, Steward
from pilothouse.settings import Settings

DECISION_ID_LENGTH = 12
LIFETIME = "seconds"  # payload key: how long the proposer wants its action to last at most
MOST_ANSWERS = 10_000  # an agent that never stops answering is cut off here
BUILT_IN_JANITOR = Registration(Janitor(), 0, Janitor.title)
BUILT_IN_STEWARD = Registration(Steward(), 5, Steward.title)

Watch = Callable[[str], AbstractContextManager[None]]  # entered by the name of a step
Heard = tuple[list[Sent], list[Verdict | None]]  # verdicts only on what is no proposal at all


def untimed(step: str) -> AbstractContextManager[None]:
    """The watch of whoever does not care how long things take."""
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What one cycle decides from, all of it on record."""

    run_id: str
    cycle: int
    snapshot: Snapshot
    forecast: Forecast
    snapshot_digest: str
    forecast_digest: str
    modes: Mapping[str, Mode]
    halted: bool
    approved: frozenset[str]  # "<agent>:<kind>:<target>", Proposal.approval_id
    halted_because: str = ""


Listen = Callable[[Registration, Inputs, Guard], Heard]


@dataclass(frozen=True, slots=True)
class _Slate:
    """Everything on the table: who sent what, what it would write, what was said about it."""

    sent: list[Sent]
    plans: list[Plan | None]
    verdicts: list[Verdict | None]


def decide(
    inputs: Inputs,
    *,
    agents: Sequence[Registration],
    guard: Guard,
    settings: Settings,
    ledger: Ledger,
    watch: Watch = untimed,
    listen: Listen | None = None,
) -> Decision:
    """Ask every agent, screen, arbitrate, check; the ledger is read and not changed.

    ``watch`` is told which step is at work and has no say in it. ``listen`` asks one agent; a
    replay of a journal whose agents are not here gives their recorded answers instead.
    """
    _seal(inputs.snapshot, inputs.forecast)
    if all(agent.name != JANITOR for agent in agents):
        agents = (BUILT_IN_JANITOR, *agents)  # whoever else is heard, what expired is taken back
    if settings.act.stepwise:
        agents = (BUILT_IN_STEWARD, *(a for a in agents if a.name != STEWARD))
    slate = _gather(inputs, agents, guard, settings, ledger, watch, listen or hear)
    pairs = zip(slate.sent, slate.plans, strict=True)
    modes = [_mode(guard, each, plan, inputs) for each, plan in pairs]
    _arbitrate(slate, modes, inputs, guard, settings, ledger, watch)
    decision_id = _decision_id(inputs)
    verdicts = tuple(_with_reason(v, inputs) for v in slate.verdicts if v is not None)
    proposals = tuple(each.proposal for each in slate.sent)
    headline = _headline(proposals, verdicts)
    return Decision(
        id=decision_id,
        cycle=inputs.cycle,
        made_seconds=inputs.snapshot.taken_seconds,
        snapshot_digest=inputs.snapshot_digest,
        forecast_digest=inputs.forecast_digest,
        proposals=proposals,
        verdicts=verdicts,
        actions=_actions(decision_id, slate, verdicts, inputs, settings, ledger),
        headline=headline,
        rationale=_rationale(proposals, verdicts, headline, inputs),
        margin="" if headline is None else proposals[headline].otherwise,
        halted=inputs.halted,
        halted_because=inputs.halted_because,
    )


def _seal(*values: Snapshot | Forecast) -> None:
    """What an agent is shown is what the guard will read, so nobody may write on it."""
    for value in values:
        for table in (getattr(value, item.name) for item in fields(value)):
            if is_dataclass(table):
                for column in (getattr(table, item.name) for item in fields(table)):
                    if isinstance(column, np.ndarray):
                        column.setflags(write=False)


def _decision_id(inputs: Inputs) -> str:
    parts = (inputs.run_id, str(inputs.cycle), inputs.snapshot_digest, inputs.forecast_digest)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:DECISION_ID_LENGTH]


# Gathering.


def _gather(
    inputs: Inputs,
    agents: Sequence[Registration],
    guard: Guard,
    settings: Settings,
    ledger: Ledger,
    watch: Watch,
    listen: Listen,
) -> _Slate:
    """All proposals with their plans, and what the guard says about each on its own."""
    now, snapshot = inputs.snapshot.taken_seconds, inputs.snapshot
    with watch("propose"):
        slate = _ask(inputs, agents, guard, settings, ledger, listen)
    with watch("guard"):
        screened = guard.screen(
            slate.sent,
            slate.plans,
            ledger=ledger,
            snapshot=snapshot,
            modes=inputs.modes,
            halted=inputs.halted,
            now=now,
        )
    pairs = zip(slate.verdicts, screened, strict=True)
    return replace(slate, verdicts=[v if v is not None else w for v, w in pairs])


def _ask(
    inputs: Inputs,
    agents: Sequence[Registration],
    guard: Guard,
    settings: Settings,
    ledger: Ledger,
    listen: Listen,
) -> _Slate:
    """All proposals with their plans; verdicts only where an answer is no proposal at all."""
    now, snapshot = inputs.snapshot.taken_seconds, inputs.snapshot
    planner = Planner(snapshot, settings, guard.spent(ledger=ledger, snapshot=snapshot, now=now))
    sent: list[Sent] = []
    verdicts: list[Verdict | None] = []
    plans: list[Plan | None] = []
    for agent in sorted(agents, key=lambda a: (a.rank, a.name)):
        if agent.name == JANITOR:
            restores = ledger.due(now, halted=inputs.halted)
            answers = [_restore(agent, active, now) for active in restores]
            plans += [planner.restore(active.inverse) for active in restores]
            verdicts += [None] * len(restores)
            sent += [Sent(agent, p) for p in answers]
            continue
        if agent.name == STEWARD:  # never asked, whoever goes by that name
            for active, node, to_sleep in ledger.under_way(now) if settings.act.stepwise else ():
                plan = planner.carry_on(node, to_sleep=to_sleep)
                if not plan.impossible:
                    sent.append(Sent(agent, _carry_on(agent, active, node, plan, now)))
                    plans.append(plan)
                    verdicts.append(None)
            continue
        heard, judged = listen(agent, inputs, guard)
        sent += heard
        verdicts += judged
        plans += [
            None if verdict is not None or each.proposal.is_noop else planner.plan(each.proposal)
            for each, verdict in zip(heard, judged, strict=True)
        ]
    return _Slate(sent, plans, verdicts)


def hear(agent: Registration, inputs: Inputs, guard: Guard) -> Heard:
    """One agent's answer, fit for the record: bounded, finite, and a line even when it broke."""
    now = inputs.snapshot.taken_seconds
    try:
        answer = agent.proposer.propose(inputs.snapshot, inputs.forecast)
        proposals = list(islice(answer, MOST_ANSWERS))
    except KeyboardInterrupt:
        raise  # a person, or a service manager, stops the loop
    except BaseException as error:  # anybody's code; its failure is on the record
        line = f"{agent.name} failed: {_class_name(error)}: {_last_words(error)}"
        return _only_a_line(agent, inputs, line, "agent-failed")
    if not proposals:
        return _only_a_line(agent, inputs, f"{agent.name} did not answer", "no-answer")
    most = guard.reading_limit(agent)
    sent = [Sent(agent, p) for p in proposals[:most]]
    judged = guard.validate(sent, now)
    kept = [
        Sent(agent, each.proposal if v is None else _recordable(agent, each.proposal, inputs))
        for each, v in zip(sent, judged, strict=True)
    ]
    if len(proposals) > most:
        # The rest is counted, neither judged nor recorded: a flood must cost us nothing.
        unread = f"{len(proposals) - most} more proposals of {agent.name} were refused unread"
        extra = _only_a_line(agent, inputs, unread, "proposals-per-agent")
        return kept + extra[0], [*judged, *extra[1]]
    return kept, judged


def _class_name(error: BaseException) -> str:
    """Read past a metaclass, which could answer with code."""
    return _text(type.__dict__["__name__"].__get__(type(error)))


def _last_words(error: BaseException) -> str:
    """What an exception says, without running code that came with it."""
    said = BaseException.args.__get__(error)  # type: ignore[attr-defined]
    return _text(said[0]) if said else ""


def _only_a_line(agent: Registration, inputs: Inputs, line: str, rule: str) -> Heard:
    proposal = Proposal(
        agent=agent.name,
        label=f"{agent.title}:{ActionKind.NOOP.value}",
        kind=ActionKind.NOOP,
        target=inputs.snapshot.cluster_ref,
        payload={},
        score=0.0,
        priority=0,
        evidence=(),
        reason=line,
        expires_seconds=inputs.snapshot.taken_seconds,
    )
    return [Sent(agent, proposal)], [refuse(rule, line)]


def _recordable(agent: Registration, given: object, inputs: Inputs) -> Proposal:
    """What can be kept of a refused proposal: a journal has no place for NaN or a stranger's types.

    The verdict beside it says what was wrong with the original.
    """
    # Only a plain proposal is looked into: whatever else was given could answer with code.
    plain = given if type(given) is Proposal else None
    kind, score = (plain.kind, plain.score) if plain else (None, 0.0)
    finite = type(score) in (int, float) and abs(score) <= 1e9  # NaN is not, either
    return Proposal(
        agent=agent.name,
        label=_text(plain.label if plain else ""),
        kind=kind if type(kind) is ActionKind else ActionKind.NOOP,
        target=(_short_ref(plain.target) if plain else None) or inputs.snapshot.cluster_ref,
        payload={},
        score=float(score) if finite else 0.0,
        priority=0,
        evidence=(),
        reason=_text(plain.reason if plain else ""),
        expires_seconds=inputs.snapshot.taken_seconds,
    )


def _text(value: object) -> str:
    """Short, printable, and encodable whatever it was."""
    text = value if type(value) is str else ""
    return "".join(c if c.isprintable() else "?" for c in text[:200])


def _short_ref(ref: object) -> Ref | None:
    kind: Any = ref.kind if type(ref) is Ref else None
    if type(ref) is not Ref or type(kind) is not str or kind not in get_args(ObjectKind):
        return None
    return Ref(_text(ref.cluster), ref.kind, _text(ref.namespace), _text(ref.name))


def _restore(janitor: Registration, active: Active, now: int) -> Proposal:
    held = now - active.expires
    why = f"expired {held} s ago" if held >= 0 else "halted"
    return Proposal(
        agent=janitor.name,
        label=f"{janitor.title}:{ActionKind.RESTORE.value}",
        kind=ActionKind.RESTORE,
        target=active.target,
        payload={"restores": active.action},
        score=1.0,
        priority=0,
        evidence=(),
        reason=f"{active.agent} {active.kind.value} {active.target.short} {why}: taking it back",
        expires_seconds=now,
    )


def _carry_on(steward: Registration, active: Active, node: Ref, plan: Plan, now: int) -> Proposal:
    sleeps = not plan.disturbs
    kind = ActionKind.POWER_STATE if sleeps else ActionKind.MIGRATE
    rest = "is empty and sleeps" if sleeps else f"has {plan.disturbs} pods that move next"
    return Proposal(
        agent=steward.name,
        label=f"{steward.title}:{kind.value}",
        kind=kind,
        target=node,
        payload={
            "carries_on": active.action,
            "agent": active.agent,
            LIFETIME: active.expires - now,
        },
        score=1.0,
        priority=0,
        evidence=(),
        reason=f"{active.agent} {active.kind.value} {active.target.short} goes on: "
        f"{node.short} {rest}",
        expires_seconds=now,
    )


# Choosing.


def _mode(guard: Guard, each: Sent, plan: Plan | None, inputs: Inputs) -> Mode:
    if plan is None:
        return Mode.ENFORCE
    mode = guard.mode(each.proposal, plan, inputs.modes)
    if mode is Mode.ADVISE and each.proposal.approval_id in inputs.approved:
        return Mode.ENFORCE
    return mode


def _arbitrate(
    slate: _Slate,
    modes: Sequence[Mode],
    inputs: Inputs,
    guard: Guard,
    settings: Settings,
    ledger: Ledger,
    watch: Watch,
) -> None:
    """Fill in the verdicts that the guard's screening left open."""
    candidates = [
        Candidate(
            index=i,
            proposal=slate.sent[i].proposal,
            plan=plan,
            agent=slate.sent[i].sender.name,
            rank=slate.sent[i].sender.rank,
            mode=modes[i],
        )
        for i, plan in enumerate(slate.plans)
        if plan is not None and slate.verdicts[i] is None
    ]
    check = guard.check(
        ledger=ledger,
        snapshot=inputs.snapshot,
        halted=inputs.halted,
        now=inputs.snapshot.taken_seconds,
    )

    def grant(candidate: Candidate) -> Verdict | None:
        with watch("guard"):
            refusal = check.grant(slate.sent[candidate.index], candidate.plan)
        return None if refusal is None else replace(refusal, mode=candidate.mode)

    for index, verdict in arbitrate(candidates, settings.referee, grant, inputs.cycle).items():
        slate.verdicts[index] = verdict
    for index, each in enumerate(slate.sent):
        if slate.verdicts[index] is None:
            slate.verdicts[index] = _content(each.proposal)


def _content(proposal: Proposal) -> Verdict:
    """A no-op is granted by doing nothing."""
    return Verdict(
        ruling=Ruling.CHOSEN, rule="no-op", sentence=f"asks for nothing: {proposal.reason}"
    )


def _actions(
    decision_id: str,
    slate: _Slate,
    verdicts: Sequence[Verdict],
    inputs: Inputs,
    settings: Settings,
    ledger: Ledger,
) -> tuple[Action, ...]:
    now = inputs.snapshot.taken_seconds
    actions: list[Action] = []
    for index, verdict in enumerate(verdicts):
        plan, proposal = slate.plans[index], slate.sent[index].proposal
        if plan is None or not verdict.acts:
            continue
        action_id = f"{decision_id}.{len(actions)}"
        inverse = tuple(ledger.inverse_for(write) for write in plan.inverse)
        ttl = _lifetime(proposal, settings)
        lasting = inverse and ttl is not None
        actions.append(
            Action(
                id=action_id,
                proposal=index,
                agent=_on_behalf_of(slate.sent[index]),
                kind=proposal.kind,
                target=proposal.target,
                writes=_with_intents(plan.writes, action_id),
                inverse=inverse,
                expires_seconds=now + ttl if lasting and ttl is not None else None,
                restores=str(proposal.payload.get("restores", ""))
                if proposal.kind is ActionKind.RESTORE
                else "",
            )
        )
    return tuple(actions)


def _on_behalf_of(each: Sent) -> str:
    """Whose action it is: the steward acts for the agent that began."""
    if each.sender.name == STEWARD:
        return str(each.proposal.payload.get("agent", STEWARD))
    return each.sender.name


def _lifetime(proposal: Proposal, settings: Settings) -> int | None:
    """Seconds until the inverse runs: the kind's, or fewer where the proposal asks for fewer.

    Never below the dwell time, so that asking for little cannot be used to flap.
    """
    ttl = settings.guard.ttl_seconds.get(proposal.kind.value)
    asked = proposal.payload.get(LIFETIME)
    if ttl is None or not isinstance(asked, int) or isinstance(asked, bool):
        return ttl
    return min(max(asked, settings.guard.dwell_seconds), ttl)


def _with_intents(writes: Sequence[Write], action_id: str) -> tuple[Write, ...]:
    return tuple(replace(write, intent=f"{action_id}.{n}") for n, write in enumerate(writes))


# Saying why.


def _headline(proposals: Sequence[Proposal], verdicts: Sequence[Verdict]) -> int | None:
    """What to show first: what acts before what only advises, wishes before restores."""
    chosen = [
        i
        for i, (p, v) in enumerate(zip(proposals, verdicts, strict=True))
        if v.ruling is Ruling.CHOSEN and not p.is_noop
    ]
    chosen.sort(key=lambda i: (not verdicts[i].acts, proposals[i].kind is ActionKind.RESTORE, i))
    return chosen[0] if chosen else None


def _rationale(
    proposals: Sequence[Proposal],
    verdicts: Sequence[Verdict],
    headline: int | None,
    inputs: Inputs,
) -> str:
    if headline is not None:
        return proposals[headline].reason
    if inputs.halted:
        why = f" ({inputs.halted_because})" if inputs.halted_because else " by a person"
        return f"Nothing to do: halted{why}."
    parts = [_in_short(p, v) for p, v in zip(proposals, verdicts, strict=True)]
    return f"Nothing to do: {', '.join(dict.fromkeys(parts))}"


def _with_reason(verdict: Verdict, inputs: Inputs) -> Verdict:
    """A refusal because of the halt quotes what the halt was for."""
    if verdict.rule != "halted" or not inputs.halted_because:
        return verdict
    return replace(verdict, sentence=f"halted ({inputs.halted_because}): only restores happen")


def _in_short(proposal: Proposal, verdict: Verdict) -> str:
    if proposal.is_noop:
        return proposal.reason
    wish = f"{proposal.agent} {proposal.kind.value} {proposal.target.short}"
    return f"{wish} {verdict.ruling.value} ({verdict.sentence})"


__all__ = ["Heard", "Inputs", "Role", "decide"]
