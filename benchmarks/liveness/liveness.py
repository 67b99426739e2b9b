# SPDX-License-Identifier: Apache-2.0
"""Is the default run alive: does every agent get its turn, lose, and get refused?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pilothouse.domain import Ruling, Status
from pilothouse.loop import Turn

AGENTS = ("safety", "efficiency", "admission")


@dataclass(slots=True, kw_only=True)
class Liveness:
    """What happened at least once in a run."""

    seed: int
    executed: Counter[str] = field(default_factory=Counter)  # "agent:kind", no-ops never execute
    overridden_cycles: int = 0
    refused_cycles: int = 0
    quiet_cycles: int = 0  # "do nothing", explained

    @property
    def missing(self) -> list[str]:
        """What a living run has and this one has not."""
        acted = {key.partition(":")[0] for key in self.executed}
        lacks = [f"an executed action of {agent}" for agent in AGENTS if agent not in acted]
        for count, what in (
            (self.overridden_cycles, "an override"),
            (self.refused_cycles, "a guard refusal"),
            (self.quiet_cycles, "an explained do-nothing"),
        ):
            lacks += [] if count else [what]
        return lacks

    def take_in(self, turns: Iterable[Turn]) -> Liveness:
        for turn in turns:
            decision = turn.decision
            done = {r.intent.rpartition(".")[0] for r in turn.receipts if r.status is Status.DONE}
            for action in decision.actions:
                # Opening a gate again is a plain admit: it does not count as acting.
                plain = decision.proposals[action.proposal].payload.get("decision") == "admit"
                if action.id in done and not plain:
                    self.executed[f"{action.agent}:{action.kind}"] += 1
            lost = decision.with_ruling(Ruling.OVERRIDDEN)
            self.overridden_cycles += any(not proposal.is_noop for proposal, _ in lost)
            self.refused_cycles += bool(decision.with_ruling(Ruling.REFUSED))
            self.quiet_cycles += decision.kind == "nothing" and bool(decision.rationale)
        return self
