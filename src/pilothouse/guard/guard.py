# SPDX-License-Identifier: Apache-2.0
"""Screening and checking: the rails, asked in order about one plan after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pilothouse.domain import ActionKind, Mode, Plan, Proposal, Snapshot, Verdict
from pilothouse.errors import InvalidSetting
from pilothouse.guard.case import THIRD_PARTY_RANK, Case, Sent, Standing, View, refuse
from pilothouse.guard.ledger import STEWARD, Ledger
from pilothouse.guard.modes import mode_of
from pilothouse.guard.rails import CARRYING_RAILS, RAILS
from pilothouse.guard.tally import Tally
from pilothouse.guard.validity import JANITOR, validate
from pilothouse.settings import Settings

THIRD_PARTY_READINGS = 4


class Guard:
    """The rails, for one set of settings and registered agents."""

    def __init__(self, settings: Settings, registrations: Sequence[Standing]) -> None:
        self.settings = settings
        self._ranks = {r.name: r.rank for r in registrations}
        if len(self._ranks) != len(registrations):
            names = sorted(r.name for r in registrations)
            raise InvalidSetting(f"Agents need distinct names, but got: {', '.join(names)}.")

    def reading_limit(self, sender: Standing) -> int:
        """Proposals of this agent that are read in one cycle.

        Third parties share ``THIRD_PARTY_READINGS`` times the allowance of one agent, so that many
        of them cannot make a cycle late.
        """
        one = self.settings.guard.proposals_per_agent
        if sender.rank < THIRD_PARTY_RANK:
            return one
        strangers = sum(rank >= THIRD_PARTY_RANK for rank in self._ranks.values())
        return min(one, max(THIRD_PARTY_READINGS * one // max(strangers, 1), 1))

    def validate(self, sent: Sequence[Sent], now: int) -> list[Verdict | None]:
        """Whether each is a proposal at all; nothing that fails here is worth planning."""
        return validate(sent, now=now, most=self.reading_limit)

    def mode(self, proposal: Proposal, plan: Plan, modes: Mapping[str, Mode]) -> Mode:
        if proposal.kind is ActionKind.RESTORE:
            return Mode.ENFORCE  # whatever was done may always be undone
        agent = proposal.agent
        if agent == STEWARD:  # it goes as far as the agent whose action it carries on
            agent = str(proposal.payload.get("agent", agent))
        return mode_of(agent, plan, modes, self.settings.modes)

    def spent(self, *, ledger: Ledger, snapshot: Snapshot, now: int) -> frozenset[str]:
        """Workloads without budget and fields that rest: what a planner had better leave out."""
        s = self.settings.guard
        tally = Tally(ledger, snapshot, now=now, window=s.window_seconds, ranks=self._ranks)
        return tally.full("workload", s.per_workload) | ledger.resting(now, s.dwell_seconds)

    def screen(
        self,
        sent: Sequence[Sent],
        plans: Sequence[Plan | None],
        *,
        ledger: Ledger,
        snapshot: Snapshot,
        modes: Mapping[str, Mode],
        halted: bool,
        now: int,
    ) -> list[Verdict | None]:
        """A refusal for each proposal that may not happen on its own, None for the others.

        A plan of None means the proposal was judged before (or wants nothing).
        """
        check = self.check(ledger=ledger, snapshot=snapshot, halted=halted, now=now)
        return [
            None if plan is None else self._screen(check, each, plan, modes)
            for each, plan in zip(sent, plans, strict=True)
        ]

    def _screen(
        self, check: Check, each: Sent, plan: Plan, modes: Mapping[str, Mode]
    ) -> Verdict | None:
        mode = self.mode(each.proposal, plan, modes)
        if mode is Mode.OFF:
            return replace(refuse("mode-off", f"{each.sender.name} is off here"), mode=mode)
        verdict = check.judge(each, plan)
        return None if verdict is None else replace(verdict, mode=mode)

    def check(self, *, ledger: Ledger, snapshot: Snapshot, halted: bool, now: int) -> Check:
        """A fresh run of checks, to be asked in the order in which actions will happen."""
        return Check(self.settings, self._ranks, ledger, snapshot, halted=halted, now=now)


class Check:
    """Judges plan after plan and counts those it grants."""

    def __init__(
        self,
        settings: Settings,
        ranks: Mapping[str, int],
        ledger: Ledger,
        snapshot: Snapshot,
        *,
        halted: bool,
        now: int,
    ) -> None:
        self._settings, self._ledger, self._halted, self._now = settings, ledger, halted, now
        window = settings.guard.window_seconds
        self._tally = Tally(ledger, snapshot, now=now, window=window, ranks=ranks)
        self._view = View(snapshot, settings)

    def judge(self, each: Sent, plan: Plan) -> Verdict | None:
        """Whether this plan may happen now, after those already granted."""
        if plan.impossible:
            return refuse("impossible", plan.impossible)
        if each.proposal.kind is ActionKind.RESTORE and each.sender.name == JANITOR:
            return None
        if self._halted:
            return refuse("halted", "halted by a person: only restores happen")
        case = Case(
            sender=each.sender,
            proposal=each.proposal,
            plan=plan,
            view=self._view,
            ledger=self._ledger,
            tally=self._tally,
            settings=self._settings,
            now=self._now,
        )
        rails = CARRYING_RAILS if each.sender.name == STEWARD else RAILS
        for rail in rails:
            verdict = rail(case)
            if verdict is not None:
                return verdict
        return None

    def grant(self, each: Sent, plan: Plan) -> Verdict | None:
        """Judge, and count it when it passes."""
        verdict = self.judge(each, plan)
        if verdict is None and each.sender.name == STEWARD:
            self._tally.take(plan)  # its budgets were charged when the drain began
        elif verdict is None and each.proposal.kind is not ActionKind.RESTORE:
            self._tally.grant(plan, each.sender.name, self._now)
        return verdict
