# SPDX-License-Identifier: Apache-2.0
"""How long an action lasts: its kind's time, or less where its proposer asks for less."""

from __future__ import annotations

from typing import Any

import pytest

from pilothouse.decide import LIFETIME, Inputs, decide
from pilothouse.domain import ActionKind, Forecast, Proposal, Snapshot
from pilothouse.guard import Guard, Ledger
from pilothouse.propose.registry import Registration
from pilothouse.settings import Settings
from pilothouse.testing.builders import a_forecast, a_proposal, a_snapshot

SETTINGS = Settings()
FULL = SETTINGS.guard.ttl_seconds["dvfs"]


class Slow:
    """Wants one node slowed, for as long as it was told to ask for."""

    name, title = "efficiency", "AgentB"

    def __init__(self, payload: dict[str, Any]) -> None:
        self.payload = payload

    def propose(self, snapshot: Snapshot, forecast: Forecast) -> list[Proposal]:
        return [
            a_proposal(
                snapshot.node_ref(1),
                agent=self.name,
                label=f"{self.title}:dvfs",
                kind=ActionKind.DVFS,
                payload={"frequency_permille": 650, **self.payload},
                expires_seconds=snapshot.taken_seconds + 30,
            )
        ]


@pytest.mark.parametrize(
    ("asked", "lasts"),
    [
        ({}, FULL),
        ({LIFETIME: 300}, 300),
        ({LIFETIME: 10 * FULL}, FULL),
        ({LIFETIME: 1}, SETTINGS.guard.dwell_seconds),
        ({LIFETIME: -5}, SETTINGS.guard.dwell_seconds),
        ({LIFETIME: True}, FULL),
        ({LIFETIME: 250.5}, FULL),
    ],
)
def test_action_lasts_no_longer_than_its_kind_and_no_shorter_than_the_dwell(asked, lasts):
    snapshot = a_snapshot(nodes=8, pods=40)
    forecast = a_forecast(snapshot)
    agents = (Registration(Slow(asked), 30, "AgentB"),)
    inputs = Inputs(
        run_id="r",
        cycle=1,
        snapshot=snapshot,
        forecast=forecast,
        snapshot_digest="a",
        forecast_digest="b",
        modes={},
        halted=False,
        approved=frozenset(),
    )
    decision = decide(
        inputs,
        agents=agents,
        guard=Guard(SETTINGS, agents),
        settings=SETTINGS,
        ledger=Ledger(SETTINGS.guard),
    )
    assert [v.sentence for v in decision.verdicts if not v.acts] == []
    assert decision.actions[0].expires_seconds == snapshot.taken_seconds + lasts
