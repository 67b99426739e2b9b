# SPDX-License-Identifier: Apache-2.0
"""One decision as lines a person reads.

Reads the record and never recomputes it: every number printed here was stored by whoever used it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pilothouse.domain import (
    Decision,
    Mode,
    Proposal,
    Receipt,
    Result,
    Ruling,
    Status,
    Verdict,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A decision with what became of it, as found in the journal."""

    decision: Decision
    receipts: Sequence[Receipt] = ()
    results: Sequence[Result] = ()
    backend: str = "simulated"


def clock(seconds: int) -> str:
    """Cluster time as h:mm:ss since the cluster's start."""
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def headline(decision: Decision) -> str:
    """What was decided, in a few words."""
    if decision.headline is None:
        return "do nothing"
    return wish(decision.proposals[decision.headline])


def wish(proposal: Proposal) -> str:
    """``safety migrate worker-2 (0.78)``."""
    detail = proposal.payload.get("decision") or proposal.payload.get("state")
    kind = f"{proposal.kind}" + (f" {detail}" if detail else "")
    return f"{proposal.agent} {kind} {proposal.target.short} ({proposal.score:.2f})"


def lines(account: Account) -> list[tuple[str, str]]:
    """(heading, sentence) pairs; the heading is empty for a continued block."""
    decision = account.decision
    told: list[tuple[str, str]] = []
    chosen = [
        (p, v)
        for i, (p, v) in enumerate(zip(decision.proposals, decision.verdicts, strict=True))
        if v.ruling is Ruling.CHOSEN and not p.is_noop
    ]
    told += [("Chosen", _chosen(p, v)) for p, v in chosen] or [("Chosen", "do nothing")]
    told.append(("Because", decision.rationale))
    told += [("Moved by", sentence) for p, _ in chosen if (sentence := _moved_by(p))]
    told += _fates(decision, Ruling.OVERRIDDEN, "Lost")
    told += _fates(decision, Ruling.REFUSED, "Refused")
    told += _fates(decision, Ruling.EXPIRED, "Expired")
    told += [
        ("Idle", f"{p.agent}: {p.reason}")
        for p, _ in decision.with_ruling(Ruling.CHOSEN)
        if p.is_noop and decision.headline is not None
    ]
    if decision.margin:
        told.append(("Margin", decision.margin))
    told += [("Done", sentence) for sentence in _receipts(decision, account.receipts)]
    told += [("Outcome", f"{r.action.rpartition('.')[2]}: {r.sentence}") for r in account.results]
    if account.results:
        told.append(("Reward", _reward(account.results)))
    return told


def text(account: Account) -> str:
    """The whole account, ready to print."""
    decision = account.decision
    title = (
        f"Decision {decision.id}, cycle {decision.cycle}, {clock(decision.made_seconds)}, "
        f"{account.backend}" + _halted(decision)
    )
    return "\n".join([title, *(f"{head:<9} {sentence}" for head, sentence in lines(account))])


def _halted(decision: Decision) -> str:
    if not decision.halted:
        return ""
    return f", halted: {decision.halted_because}" if decision.halted_because else ", halted"


def _chosen(proposal: Proposal, verdict: Verdict) -> str:
    if verdict.acts:
        return wish(proposal)
    advised = verdict.mode is Mode.ADVISE
    how = f"; allow it: pilothouse approve {proposal.approval_id}" if advised else ""
    return f"{wish(proposal)} [{verdict.mode}: not executed{how}]"


def _moved_by(proposal: Proposal) -> str:
    """What a learned forecaster said moved the risk or the demand behind a chosen wish."""
    told = [e for e in proposal.evidence if e.unit in ("log-odds", "of its level")]
    if not told:
        return ""
    parts = ", ".join(f"{e.name} {e.value:+g}" for e in told)
    return f"{proposal.target.short}: {parts} {told[0].unit}"


def _fates(decision: Decision, ruling: Ruling, heading: str) -> list[tuple[str, str]]:
    return [
        (heading, f"{wish(p)}: {v.sentence}")
        for p, v in decision.with_ruling(ruling)
        if not p.is_noop
    ]


def _receipts(decision: Decision, receipts: Sequence[Receipt]) -> list[str]:
    answers: Mapping[str, Receipt] = {receipt.intent: receipt for receipt in receipts}
    said = []
    for action in decision.actions:
        found = [answers[w.intent] for w in action.writes if w.intent in answers]
        done = sum(receipt.status is Status.DONE for receipt in found)
        sentence = (
            f"{action.kind} {action.target.short}: {done} of {len(action.writes)} writes done"
        )
        others = sorted({f"{r.status}: {r.detail}" for r in found if r.status is not Status.DONE})
        others += sorted({f"not in force: {r.reservation}" for r in found if r.reservation})
        missing = len(action.writes) - len(found)
        if missing:
            others.append(f"{missing} without an answer yet")
        said.append(sentence + (f" ({'; '.join(others)})" if others else ""))
    return said


def _reward(results: Sequence[Result]) -> str:
    rewards = [r.reward for r in results if r.reward is not None]
    if not rewards:
        return "unknown: nothing to compare with"
    return (
        f"A {sum(r.safety for r in rewards):+.1f}   "
        f"B {sum(r.efficiency for r in rewards):+.1f}   "
        f"C {sum(r.admission for r in rewards):+.1f}"
    )
