# SPDX-License-Identifier: Apache-2.0
"""Agents that toss coins: the same names, ranks and kinds as ours, and no idea what they do.

They stand beside the real ones to show that the gain comes from choosing well, not from the guard
or from acting at all. They see the same snapshots, pass the same guard and have the same budgets.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from pilothouse.domain import ActionKind, Evidence, Forecast, Proposal, Ref, Snapshot
from pilothouse.domain.proposal import Scalar
from pilothouse.propose.registry import Janitor, Registration
from pilothouse.settings import Settings

EXPIRY_SECONDS = 30
WISHES = 3  # per cycle in which it wants something

Draw = tuple[ActionKind, Ref, dict[str, Scalar]]


class Chance:
    """Wants something at random in a share of all cycles."""

    def __init__(
        self,
        name: str,
        title: str,
        *,
        eager: float,
        draw: Callable[[random.Random, Snapshot], Draw],
        seed: int,
    ) -> None:
        self.name, self.title = name, title
        self._eager, self._draw, self._seed = eager, draw, seed

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> Sequence[Proposal]:
        # Seeded by the clock, so that the agent is as stateless as the real ones.
        dice = random.Random(f"{self.name}/{self._seed}/{snapshot.taken_seconds}")
        if dice.random() >= self._eager:
            return [self._wish(ActionKind.NOOP, snapshot.cluster_ref, {}, 0.0, snapshot, 0)]
        draws = [self._draw(dice, snapshot) for _ in range(WISHES)]
        return [
            self._wish(kind, target, payload, round(dice.random(), 4), snapshot, place)
            for place, (kind, target, payload) in enumerate(draws)
        ]

    def _wish(
        self,
        kind: ActionKind,
        target: Ref,
        payload: dict[str, Scalar],
        score: float,
        snapshot: Snapshot,
        priority: int,
    ) -> Proposal:
        return Proposal(
            agent=self.name,
            label=f"{self.title}:{kind.value}",
            kind=kind,
            target=target,
            payload=payload,
            score=score,
            priority=priority,
            evidence=(Evidence("coin", score),),
            reason="a coin was tossed",
            expires_seconds=snapshot.taken_seconds + EXPIRY_SECONDS,
        )


def random_agents(settings: Settings, seed: int) -> tuple[Registration, ...]:
    """Our agents' places taken by chance; about as busy as ours or busier."""
    return (
        Registration(Janitor(), 0, "Janitor"),
        Registration(Chance("safety", "AgentA", eager=0.25, draw=_safety, seed=seed), 10, "AgentA"),
        Registration(
            Chance("admission", "AgentC", eager=0.1, draw=_admission, seed=seed), 20, "AgentC"
        ),
        Registration(
            Chance("efficiency", "AgentB", eager=0.25, draw=_efficiency, seed=seed), 30, "AgentB"
        ),
    )


def _safety(dice: random.Random, snapshot: Snapshot) -> Draw:
    kind = dice.choice((ActionKind.REPLICATE, ActionKind.MIGRATE, ActionKind.THROTTLE))
    if kind is ActionKind.REPLICATE and dice.random() < 0.5:
        return kind, snapshot.workload_ref(dice.randrange(len(snapshot.workloads))), {}
    payload: dict[str, Scalar] = {}
    if kind is ActionKind.THROTTLE:
        payload = {"factor": round(dice.uniform(0.5, 0.95), 2)}
    return kind, _node(dice, snapshot), payload


def _admission(dice: random.Random, snapshot: Snapshot) -> Draw:
    if dice.random() < 0.5:
        factor = round(dice.uniform(0.5, 0.95), 2)
        return ActionKind.RESOURCE_CAP, _node(dice, snapshot), {"factor": factor}
    space = snapshot.namespace_ref(dice.randrange(len(snapshot.namespaces)))
    decision = dice.choice(("queue", "deprioritize", "admit"))
    return ActionKind.ADMISSION, space, {"decision": decision}


def _efficiency(dice: random.Random, snapshot: Snapshot) -> Draw:
    target = _node(dice, snapshot)
    kind = dice.choice((ActionKind.POWER_STATE, ActionKind.DVFS, ActionKind.MEMORY_BALLOON))
    payloads: dict[ActionKind, dict[str, Scalar]] = {
        ActionKind.POWER_STATE: {"state": dice.choice(("asleep", "awake")), "drain": True},
        ActionKind.DVFS: {"frequency_permille": dice.randrange(500, 1001, 50)},
        ActionKind.MEMORY_BALLOON: {"factor": round(dice.uniform(0.5, 0.95), 2)},
    }
    return kind, target, payloads[kind]


def _node(dice: random.Random, snapshot: Snapshot) -> Ref:
    return snapshot.node_ref(dice.randrange(len(snapshot.nodes)))
