# SPDX-License-Identifier: Apache-2.0
"""The referee: safety preempts, protective admission preempts efficiency, rank goes first.

Agents of one rank take turns: the first wish of each before the second of any, and whoever begins
changes from cycle to cycle. Priority and score are claims, so they order only what one agent asks
for.

It goes through the candidates in order and asks, for each, whether somebody already chosen stands
against it and whether the guard still grants it. A candidate that is not granted blocks nobody. A
shadow or unapproved candidate is weighed after all that enforce, so it can lose to one of them and
never beat it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest

from pilothouse.arbitrate.conflict import disagreement
from pilothouse.domain import (
    EFFICIENCY_KINDS,
    Mode,
    Plan,
    Proposal,
    Ruling,
    Verdict,
)
from pilothouse.settings import RefereeSettings

THIRD_PARTY_RANK = 100


class Role(StrEnum):
    """What a candidate counts as; it comes from the registration and the kind, not from claims."""

    RESTORE = "restore"
    SAFETY = "safety"
    ADMISSION = "admission"  # protective: queue, reject, deprioritize, cap
    EFFICIENCY = "efficiency"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A screened proposal; ``index`` is its place among the decision's proposals."""

    index: int
    proposal: Proposal
    plan: Plan
    agent: str  # as registered
    rank: int  # as registered
    mode: Mode  # ADVISE that a person approved arrives here as ENFORCE

    @property
    def role(self) -> Role:
        role = role_of(self.agent, self.rank, self.proposal)
        gives_back = bool(self.plan.effects) and all(way > 0 for _, way in self.plan.effects)
        # A clock or a node given back saves nothing, so it need not step aside for safety.
        return Role.OTHER if role is Role.EFFICIENCY and gives_back else role


Grant = Callable[[Candidate], Verdict | None]


def role_of(agent: str, rank: int, proposal: Proposal) -> Role:
    """A stranger never counts as safety, but who saves power is efficiency whoever it is."""
    if agent == "janitor":
        return Role.RESTORE
    if rank < THIRD_PARTY_RANK:
        if agent == "safety":
            return Role.SAFETY
        if agent == "admission":
            opens = proposal.payload.get("decision") == "admit"
            return Role.OTHER if opens else Role.ADMISSION
    return Role.EFFICIENCY if proposal.kind in EFFICIENCY_KINDS else Role.OTHER


def arbitrate(
    candidates: Sequence[Candidate], settings: RefereeSettings, grant: Grant, cycle: int = 0
) -> dict[int, Verdict]:
    """A verdict for each candidate, by its index. ``grant`` is the guard's last word."""
    enforcing = [c for c in candidates if c.mode is Mode.ENFORCE]
    others = [c for c in candidates if c.mode is not Mode.ENFORCE]
    verdicts: dict[int, Verdict] = {}
    acting = _pass(_in_order(enforcing, cycle), [], settings, grant, verdicts)
    _pass(_in_order(others, cycle), acting, settings, _granted, verdicts)
    return verdicts


def _granted(_: Candidate) -> Verdict | None:
    return None  # nothing will happen, so there is nothing to count


def _in_order(candidates: Sequence[Candidate], cycle: int) -> list[Candidate]:
    wishes: dict[tuple[int, str], list[Candidate]] = {}
    for candidate in sorted(candidates, key=_claim):
        wishes.setdefault((candidate.rank, candidate.agent), []).append(candidate)
    ordered: list[Candidate] = []
    for rank in sorted({rank for rank, _ in wishes}):
        names = sorted(name for other, name in wishes if other == rank)
        first = cycle % len(names)
        lists = [wishes[rank, name] for name in (*names[first:], *names[:first])]
        ordered += (c for turn in zip_longest(*lists) for c in turn if c is not None)
    return ordered


def _claim(c: Candidate) -> tuple[int, float, int]:
    return (c.proposal.priority, -c.proposal.score, c.index)


def _pass(
    ordered: Sequence[Candidate],
    chosen: list[Candidate],
    settings: RefereeSettings,
    grant: Grant,
    verdicts: dict[int, Verdict],
) -> list[Candidate]:
    """Choose greedily in order; returns everything chosen so far and now."""
    winners = list(chosen)
    slots = settings.actions_per_cycle
    for candidate in ordered:
        verdict = _beaten(candidate, winners, settings)
        if verdict is None and candidate.role is not Role.RESTORE and slots == 0:
            verdict = _no_slot(candidate, winners, settings)
        if verdict is None:
            refusal = grant(candidate)
            verdict = refusal or _win(candidate, ordered)
            if refusal is None:
                winners.append(candidate)
                slots -= candidate.role is not Role.RESTORE
        verdicts[candidate.index] = verdict
    return winners


def _beaten(
    candidate: Candidate, winners: Sequence[Candidate], settings: RefereeSettings
) -> Verdict | None:
    for winner in winners:
        key = disagreement(winner.plan, candidate.plan)
        if key:
            return _lost(candidate, winner, *_clash(candidate, winner, key))
        if settings.preemption == "cluster" and candidate.role is Role.EFFICIENCY:
            if winner.role is Role.SAFETY:
                return _lost(candidate, winner, "safety-preempts", _why(winner, "at risk"))
            if winner.role is Role.ADMISSION:
                return _lost(candidate, winner, "admission-preempts", _why(winner, "waiting"))
        elif settings.preemption == "overlap" and candidate.role is Role.EFFICIENCY:
            shared = set(winner.plan.touches) & set(candidate.plan.touches)
            if shared and winner.role in (Role.SAFETY, Role.ADMISSION):
                name = min(shared).short
                rule = f"{winner.role.value}-preempts"
                return _lost(candidate, winner, rule, f"{winner.role.value} goes first on {name}")
    return None


def _why(winner: Candidate, trouble: str) -> str:
    return f"{winner.role.value} preempts efficiency while anything is {trouble}"


def _clash(candidate: Candidate, winner: Candidate, key: str) -> tuple[str, str]:
    name, _, field = key.rpartition("#")
    short = name.rpartition("/")[2]
    if field.endswith(" twice"):
        return "duplicate", f"{winner.agent} already changes {field[:-6]} of {short}"
    rule = "highest-score"
    if winner.agent != candidate.agent:
        rule = "rank" if winner.rank != candidate.rank else "turn"
    return rule, f"{winner.agent} wants the opposite for {field} of {short}"


def _lost(candidate: Candidate, winner: Candidate, rule: str, why: str) -> Verdict:
    mine, theirs = candidate.proposal, winner.proposal
    return Verdict(
        ruling=Ruling.OVERRIDDEN,
        rule=rule,
        sentence=f"{why}: {winner.agent} {theirs.kind.value} {theirs.target.short} "
        f"({theirs.score:.2f}) beat {mine.kind.value} {mine.target.short} ({mine.score:.2f})",
        mode=candidate.mode,
        by=winner.index,
        used=mine.score,
        allowed=theirs.score,
    )


def _no_slot(
    candidate: Candidate, winners: Sequence[Candidate], settings: RefereeSettings
) -> Verdict:
    limit, last = settings.actions_per_cycle, winners[-1] if winners else candidate
    return Verdict(
        ruling=Ruling.OVERRIDDEN,
        rule="actions-per-cycle",
        sentence=f"{limit} of {limit} actions of this cycle are taken, the last by "
        f"{last.agent} {last.proposal.kind.value} {last.proposal.target.short} "
        f"({last.proposal.score:.2f})",
        mode=candidate.mode,
        by=last.index,
        used=limit,
        allowed=limit,
    )


def _win(candidate: Candidate, ordered: Sequence[Candidate]) -> Verdict:
    first = candidate is ordered[0]
    p = candidate.proposal
    if candidate.role is Role.RESTORE:
        rule, why = "restore", "an expired action is taken back"
    elif first:
        rule, why = "first-in-order", f"rank {candidate.rank}, score {p.score:.2f}"
    else:
        rule, why = "no-conflict", f"agrees with what was chosen before it, score {p.score:.2f}"
    return Verdict(
        ruling=Ruling.CHOSEN,
        rule=rule,
        sentence=why,
        mode=candidate.mode,
        used=p.score,
    )
