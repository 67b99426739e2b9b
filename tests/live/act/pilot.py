# SPDX-License-Identifier: Apache-2.0
"""The product itself on the lab: ``pilothouse up`` in a process, with its own agents.

Nothing is told what to want here. What it did is read from its journal afterwards, with the wall
time of each record, so that it can be laid beside what others measured.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pilothouse.domain import Action, Decision, Receipt, Result, Status
from pilothouse.journal import Cycle, Outcome, Receipts
from pilothouse.journal.reader import JournalReader
from pilothouse.lab import Lab
from pilothouse.settings import Settings
from pilothouse.settings.file import load, to_yaml, with_overrides
from tests.live.act.helm import SHORT

# The lab's kubelets renew every 5 s, others every 10 s: nearly one missed is half as much here.
LAB_HEARTBEATS = {"forecast.heartbeat_lag_alarm_ms": 4_000}
# The lab's fake nodes have no usage to measure; the real three have.
LAB_USAGE = {"guard.completeness": 0.3}


def quick_settings(**changes: Any) -> Settings:
    """The short windows of the live tests, and forecasts that are warm within seconds."""
    quick = {"forecast.warmup_seconds": 15, "run.interval_wall_seconds": 0.5}
    return with_overrides(load(SHORT), LAB_HEARTBEATS | quick | _dotted(changes))


def shipped_settings(**changes: Any) -> Settings:
    """What is shipped, but for what the lab is: its heartbeats and its fake nodes."""
    return with_overrides(Settings(), LAB_HEARTBEATS | LAB_USAGE | _dotted(changes))


def _dotted(changes: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("__", "."): value for key, value in changes.items()}


@dataclass(frozen=True, slots=True)
class Done:
    """An action that was carried out, and when by the wall clock."""

    action: Action
    decision: Decision
    at: float
    receipts: tuple[Receipt, ...]


@dataclass(frozen=True, slots=True)
class Pilot:
    """One loop on the lab; ``done`` and ``results`` may be read while it runs."""

    journal: Path
    log: Path
    process: subprocess.Popen[bytes]

    def done(self) -> list[Done]:
        """Actions of which every write was done, oldest first; restores included."""
        decisions: dict[str, Decision] = {}
        found = []
        for entry in self._entries():
            if isinstance(entry.record, Cycle):
                decisions[entry.record.decision.id] = entry.record.decision
            elif isinstance(entry.record, Receipts):
                decision = decisions[entry.record.decision]
                found += _carried_out(decision, entry.record.receipts, entry.wall)
        return found

    def results(self) -> list[Result]:
        return [e.record.result for e in self._entries() if isinstance(e.record, Outcome)]

    def decisions(self) -> list[Decision]:
        return [e.record.decision for e in self._entries() if isinstance(e.record, Cycle)]

    def _entries(self) -> Iterator[Any]:
        return JournalReader(self.journal).entries() if self.journal.exists() else iter(())

    def last_words(self) -> str:
        return self.log.read_text()[-3000:]


def _carried_out(decision: Decision, receipts: tuple[Receipt, ...], at: float) -> Iterator[Done]:
    by_intent = {receipt.intent: receipt for receipt in receipts}
    for action in decision.actions:
        mine = tuple(by_intent[w.intent] for w in action.writes if w.intent in by_intent)
        if mine and all(receipt.status is Status.DONE for receipt in mine):
            yield Done(action, decision, at, mine)


@contextmanager
def piloted(
    lab: Lab, kubeconfig: Path, folder: Path, settings: Settings, *options: str
) -> Iterator[Pilot]:
    """Run the loop until the block ends; it is asked to stop as a service manager would."""
    folder.mkdir(exist_ok=True)
    config, log = folder / "config.yaml", folder / "log"
    config.write_text(to_yaml(settings))
    command = [sys.executable, "-X", "faulthandler", "-m", "pilothouse.cli"]
    command += ["up", "--no-serve", "--json"]
    command += [f"--config={config}", f"--kubeconfig={kubeconfig}", f"--journal={folder}/act.db"]
    command += [f"--prometheus={lab.prometheus_url}"] if lab.prometheus_url else []
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *options], stdout=output, stderr=output)
    try:
        yield Pilot(folder / "act.db", log, process)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(90)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # says where each of its threads is
            process.wait(30)
            pytest.fail(f"The loop does not stop when it is told to:\n{log.read_text()[-6000:]}")
