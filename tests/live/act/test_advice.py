# SPDX-License-Identifier: Apache-2.0
"""Asked first: an agent in advise changes nothing until a person approves one action of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from pilothouse.clients.keys import FENCE
from pilothouse.domain import ActionKind, Mode, Proposal, Ruling
from pilothouse.lab import Lab
from pilothouse.testing.livecheck.audit import is_dry_run
from tests.live.act.conftest import read
from tests.live.act.helm import ACTUATOR, SPACE, audit
from tests.live.act.pilot import Pilot, piloted, quick_settings

SETTINGS = quick_settings(modes__agents={"safety": "advise"}, guard__ttl_seconds={"replicate": 6})
LEAK = ("--memory-mib=56", "--grow-mib-per-minute=40")
Make = Callable[..., Any]


@pytest.fixture
def pilot(
    installed: Lab, actuator_kubeconfig: Path, janitor: Any, tmp_path: Path
) -> Iterator[Pilot]:
    folder = tmp_path / "pilot"
    options = ("--enforce=admission",)
    with piloted(installed, actuator_kubeconfig, folder, SETTINGS, *options) as made:
        yield made


def advised(pilot: Pilot) -> list[Proposal]:
    """What was chosen and waits for a person."""
    return [
        proposal
        for decision in pilot.decisions()
        for proposal, verdict in zip(decision.proposals, decision.verdicts, strict=True)
        if verdict.ruling is Ruling.CHOSEN
        and verdict.mode is Mode.ADVISE
        and proposal.kind is ActionKind.REPLICATE
        and proposal.target.name == "leaky"
    ]


def replicas(lab: Lab) -> int:
    return int(read(lab, "deployment", "leaky", "-n", SPACE)["spec"]["replicas"])


def writes(lab: Lab) -> list[str]:
    """Objects of others that the actuator changed; tickets, Lease, Events and fence are its own."""
    own = ("tickets", "leases", "events")
    return [
        f"{e['verb']} {e['objectRef']['resource']}/{e['objectRef'].get('name')}"
        for e in audit(lab)
        if e["user"]["username"] == ACTUATOR
        and e["verb"] not in ("get", "list", "watch")
        and e["objectRef"]["resource"] not in own
        and e["objectRef"].get("name") != FENCE
        and not is_dry_run(e)  # with which a new leader tries out the fence
    ]


def command(pilot: Pilot, *words: str) -> str:
    line = [sys.executable, "-m", "pilothouse.cli", *words, f"--journal={pilot.journal}"]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def test_advised_action_waits_for_a_person_and_happens_once_approved(
    pilot: Pilot, installed: Lab, harbor: Make, eventually: Make
) -> None:
    before = writes(installed)
    harbor("leaky", arguments=LEAK, limits={"memory": "96Mi"})
    wish = eventually(lambda: advised(pilot), seconds=150)[0]
    sleep(3)  # several cycles more in which nothing may happen
    assert replicas(installed) == 1
    assert writes(installed) == before
    assert wish.approval_id in command(pilot, "explain", "last")
    command(pilot, "approve", wish.approval_id)
    eventually(lambda: replicas(installed) == 2, seconds=60, every=0.2)
    acted = eventually(pilot.done)  # a receipt is written after the server has the write
    assert acted[0].action.kind is ActionKind.REPLICATE
    eventually(lambda: replicas(installed) == 1)  # and it is taken back by itself
    assert len([d for d in pilot.done() if not d.action.restores]) == 1, "one approval, one action"
