# SPDX-License-Identifier: Apache-2.0
"""Agents that want harm, all in enforce, on a real cluster: what the server's log says they got.

The short form makes a few dozen decisions; ``PILOTHOUSE_DECISIONS=10000`` is the whole of it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Any

import pytest

from pilothouse.domain import ActionKind
from pilothouse.lab import Lab
from pilothouse.propose.registry import Registration
from pilothouse.settings import Settings
from pilothouse.testing.hostile import Recipe, band
from tests.live.act.helm import Helm
from tests.live.act.test_crashes import run_checker

DECISIONS = int(os.environ.get("PILOTHOUSE_DECISIONS", "40"))
RECIPES = tuple(
    Recipe(kind, about, aim, payload, 1.0, 0, 60, "")
    for kind, about, payload in (
        (ActionKind.MIGRATE, "node", {}),
        (ActionKind.MIGRATE, "pod", {}),
        (ActionKind.THROTTLE, "pod", {"factor": 0.1}),
        (ActionKind.REPLICATE, "workload", {}),
        (ActionKind.ADMISSION, "namespace", {"decision": "reject"}),
        (ActionKind.POWER_STATE, "node", {"state": "asleep"}),
        (ActionKind.MEMORY_BALLOON, "pod", {"factor": 0.01}),
    )
    for aim in range(8)
)


def everybody(settings: Settings) -> Sequence[Registration]:
    return band(settings, RECIPES)


@contextmanager
def a_helm(kubeconfig: Path, journal: Path, **overrides: Any) -> Iterator[Helm]:
    """The shipped budgets; only the lab's fake nodes, which have no usage, are allowed for."""
    settings = Settings()
    helm = Helm(
        kubeconfig,
        journal,
        settings=settings,
        strangers=everybody,
        guard__completeness=0.3,
        run__cycle_seconds=1,
        **overrides,
    )
    try:
        yield helm
    finally:
        helm.close()


def test_hostile_agents_break_nothing_and_good_ones_still_act(
    installed: Lab,
    harbor: Callable[..., Any],
    actuator_kubeconfig: Path,
    janitor: subprocess.Popen[bytes],
    tmp_path: Path,
) -> None:
    harbor("prey", replicas=3, limits={"cpu": "200m", "memory": "64Mi"})
    since, journal = time(), tmp_path / "hostile.db"
    with a_helm(actuator_kubeconfig, journal) as helm:
        helm.know(helm.workload("prey"))
        for _ in range(DECISIONS // 2):
            helm.turn()
        helm.want(ActionKind.REPLICATE, helm.workload("prey"))
        for _ in range(DECISIONS - DECISIONS // 2):
            helm.turn()
        good = [a for t in helm.turns for a in t.turn.decision.actions if a.agent == "safety"]
    checked = run_checker(installed, journal, tmp_path, since)
    print(f"{DECISIONS} decisions; {checked.stderr.strip()}")
    assert checked.returncode == 0, checked.stdout
    assert good, "a legitimate action must still happen"


def test_checker_finds_violations_once_the_guard_is_gone(
    installed: Lab,
    harbor: Callable[..., Any],
    actuator_kubeconfig: Path,
    janitor: subprocess.Popen[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: without rails the same agents exceed their budgets, and it shows."""
    harbor("prey", replicas=3, limits={"cpu": "200m", "memory": "64Mi"})
    monkeypatch.setattr("pilothouse.guard.guard.RAILS", ())
    since, journal = time(), tmp_path / "unguarded.db"
    with a_helm(
        actuator_kubeconfig, journal, guard__per_node=0, referee__actions_per_cycle=20
    ) as helm:
        helm.know(helm.workload("prey"))
        for _ in range(12):
            helm.turn()
    checked = run_checker(installed, journal, tmp_path, since)
    assert checked.returncode == 1, checked.stderr
    assert "I4" in checked.stdout
