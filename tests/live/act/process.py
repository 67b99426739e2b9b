# SPDX-License-Identifier: Apache-2.0
"""A loop in a process of its own, which a test may stop, kill or cut off.

    python -m tests.live.act.process KUBECONFIG JOURNAL PLAN [TARGET]

Plans: ``watch``, ``drain NODE``, ``throttle POD``, and ``busy APP`` (one small reversible action
per turn, for ever). Lines on stdout say what is durable and what was answered, as they happen.

``PILOTHOUSE_TEST_STOP`` names a place between an intent and its receipt: ``durable`` (before
anything was sent), ``ticket`` (after the ticket) or ``write`` (after a write, before its receipt).
The process stops there by itself, the first time it comes by or, with ``write:3``, the third, and
says so.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pilothouse.domain import Action, ActionKind, Forecast, Receipt, Snapshot, Write
from pilothouse.errors import JournalUnwritable
from pilothouse.journal import Cycle, Journal, Record
from pilothouse.settings import JournalSettings
from tests.live.act.helm import SPACE, Helm, said


class TellingJournal(Journal):
    """Says when the intents of a cycle are durable; waits for whoever still has the file."""

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        settings: JournalSettings | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Journal:
        while True:
            try:
                return super().open(path, settings=settings, clock=clock)
            except JournalUnwritable as held:
                tell("waiting", str(held))
                time.sleep(0.2)

    def append_cycle(
        self, record: Cycle, snapshot: Snapshot, forecast: Forecast, *others: Record
    ) -> None:
        super().append_cycle(record, snapshot, forecast, *others)
        if record.decision.actions:
            tell("durable", [w.intent for a in record.decision.actions for w in a.writes])
            pass_by("durable")


def tell(what: str, value: object) -> None:
    print(json.dumps({what: value}), flush=True)


PASSED: Counter[str] = Counter()


def pass_by(place: str) -> None:
    """Stop here if this is the place; whoever told us to will kill us."""
    wanted, _, number = os.environ.get("PILOTHOUSE_TEST_STOP", "").partition(":")
    PASSED[place] += 1
    if (wanted, int(number or 1)) == (place, PASSED[place]):
        tell("stopped", place)
        os.kill(os.getpid(), signal.SIGSTOP)


def watched(helm: Helm) -> None:
    """Pass by after every ticket and every write."""
    begin, execute = helm.cluster.begin, helm.cluster.execute

    def begin_and_pass(action: Action) -> str:
        said = begin(action)
        pass_by("ticket")
        return said

    def execute_and_pass(write: Write, agent: str) -> Receipt:
        receipt = execute(write, agent)
        pass_by("write")
        return receipt

    helm.cluster.begin = begin_and_pass  # type: ignore[method-assign]
    helm.cluster.execute = execute_and_pass  # type: ignore[method-assign]


def main() -> None:
    kubeconfig, journal, plan, *target = sys.argv[1:]
    options = json.loads(os.environ.get("PILOTHOUSE_TEST_SETTINGS", "{}"))
    helm = Helm(Path(kubeconfig), Path(journal), journal_type=TellingJournal, **options)
    watched(helm)
    tell("leads", helm.acting.leadership.epoch)
    try:
        acted = False
        for number in itertools.count():
            if plan == "busy" or not acted:
                wish(helm, plan, target[0] if target else "")
            report = helm.turn()
            acted = acted or bool(report.turn.decision.actions)
            if not acted:
                tell("refused", said(report.turn.decision))
            for receipt in report.turn.receipts:
                tell("receipt", [receipt.intent, receipt.status.value, receipt.detail])
            tell("turn", number)
            time.sleep(0.05)
    finally:
        helm.close()


def wish(helm: Helm, plan: str, target: str) -> None:
    if plan == "busy":
        _busy(helm, target)
    elif plan == "watch":
        return
    elif plan == "drain":
        helm.know(helm.node(target))
        helm.want(ActionKind.MIGRATE, helm.node(target))
    else:
        helm.know(helm.pod(target))
        helm.want(ActionKind.THROTTLE, helm.pod(target), factor=0.6)


def _busy(helm: Helm, app: str) -> None:
    """One of several small actions, whichever the guard lets through."""
    snapshot = helm.cluster.last
    if snapshot is None:
        helm.know(helm.workload(app))
        return
    pods = [str(n) for n in snapshot.pods.names if str(n).startswith(f"{app}-")]
    chosen = random.choice(["throttle", "replicate", "dvfs", "queue", "evict"])
    node = f"worker-{random.randint(1, 3)}"
    if chosen == "throttle" and pods:
        helm.want(ActionKind.THROTTLE, helm.pod(random.choice(pods)), factor=0.8)
    elif chosen == "replicate":
        helm.want(ActionKind.REPLICATE, helm.workload(app), avoid=node)
    elif chosen == "dvfs":
        helm.want(ActionKind.DVFS, helm.node(node), agent="efficiency", frequency_permille=700)
    elif chosen == "evict" and pods:
        helm.want(ActionKind.MIGRATE, helm.pod(random.choice(pods)))
    else:
        helm.want(ActionKind.ADMISSION, helm.space(SPACE), agent="admission", decision="queue")


if __name__ == "__main__":
    main()
