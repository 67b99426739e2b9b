# SPDX-License-Identifier: Apache-2.0
"""Budgets in use: what the ledger holds in the window plus what this cycle granted so far."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pilothouse.domain import Plan, Ref, Snapshot, Verb
from pilothouse.guard.ledger import OUT_OF_SERVICE, Ledger, disturbed_by, taken_by, touched_by


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a budget."""

    at: int
    agent: str
    amount: int = 1


class Tally:
    """Uses by budget and object: ``("workload", "sim/workload/shop/cart")``."""

    def __init__(
        self,
        ledger: Ledger,
        snapshot: Snapshot,
        *,
        now: int,
        window: int,
        ranks: Mapping[str, int],
    ) -> None:
        self._snapshot = snapshot
        self.ranks = ranks  # of the registered agents; whoever is not among them is a stranger
        self._uses: dict[tuple[str, str], list[Use]] = defaultdict(list)
        self.nodes_out: dict[Ref, str] = ledger.nodes_out()
        self.granted_out: list[Ref] = []  # taken out of service in this cycle
        self.granted_gates: list[str] = []
        self.granted_taken: Counter[int] = Counter()  # running pods, by their workload's row
        for charge in ledger.charges:
            if charge.at <= now - window:
                continue
            self._add("agent", (charge.agent,), charge.agent, charge.at)
            self._add("node", charge.nodes, charge.agent, charge.at)
            self._add("workload", charge.workloads, charge.agent, charge.at)
            self._add("namespace", charge.namespaces, charge.agent, charge.at)
            if charge.disturbs:
                use = Use(charge.at, charge.agent, charge.disturbs)
                self._uses["disturbed", ""].append(use)

    def _add(self, budget: str, keys: Iterable[str], agent: str, at: int) -> None:
        for key in keys:
            self._uses[budget, key].append(Use(at, agent))

    def uses(self, budget: str, key: str = "") -> list[Use]:
        """Oldest first."""
        return self._uses.get((budget, key), [])

    def full(self, budget: str, allowed: int) -> frozenset[str]:
        """Objects whose budget is used up."""
        mine = {key: uses for (name, key), uses in self._uses.items() if name == budget}
        return frozenset(key for key, uses in mine.items() if len(uses) >= allowed)

    def grant(self, plan: Plan, agent: str, now: int) -> None:
        """Count a plan that passed, so that the next one sees it."""
        nodes, workloads, namespaces = touched(plan, self._snapshot)
        self._add("agent", (agent,), agent, now)
        self._add("node", nodes, agent, now)
        self._add("workload", workloads, agent, now)
        self._add("namespace", namespaces, agent, now)
        disturbs = disturbed_by(plan.writes, self._snapshot)
        if disturbs:
            self._uses["disturbed", ""].append(Use(now, agent, disturbs))
        self.take(plan)
        for write in plan.writes:
            if write.verb in OUT_OF_SERVICE and (write.value == 0) == (write.verb is Verb.POWER):
                self.nodes_out[write.target] = agent
                self.granted_out.append(write.target)
            if write.verb is Verb.GATE and write.value:
                self.granted_gates.append(write.target.name)

    def take(self, plan: Plan) -> None:
        """Count the running pods that a plan takes away, whether or not it costs budgets."""
        self.granted_taken += taken_by(plan.writes, self._snapshot)


def touched(
    plan: Plan, snapshot: Snapshot
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Nodes, workloads and namespaces that a plan writes to, each once, in order."""
    return touched_by(plan.writes, snapshot)
