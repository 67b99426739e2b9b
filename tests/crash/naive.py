# SPDX-License-Identifier: Apache-2.0
"""Two loops that are wrong on purpose, so that the witness can be seen to notice.

    python tests/crash/naive.py resends --sim URL --journal run.db

Each is the ordinary run with one obvious mistake in its wiring.
"""

from __future__ import annotations

import sys
from typing import Any

from pilothouse.domain import Receipt, Write
from pilothouse.journal import Cycle, Journal
from pilothouse.testing.crashing import main
from pilothouse.testing.failpoints import CrashingCluster


class Resends:
    """Settles an open intent by sending its write again: the obvious retry."""

    def __init__(self, journal: Journal, cluster: CrashingCluster) -> None:
        self._journal, self._cluster = journal, cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def find(self, intent: str) -> Receipt | None:
        decision = self._journal.reader().last_cycle().record.decision
        announced = {w.intent: (w, a.agent) for a in decision.actions for w in a.writes}
        return self._cluster.execute(*announced[intent])


class ActsFirst:
    """Writes to the cluster when a decision is made and records it afterwards."""

    def __init__(self, journal: Journal, cluster: CrashingCluster) -> None:
        self._cluster = cluster
        self._answers: dict[str, Receipt] = {}
        self._record = journal.append_cycle
        journal.append_cycle = self._act_and_record

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def execute(self, write: Write, agent: str) -> Receipt:
        return self._answers.pop(write.intent)

    def _act_and_record(self, record: Cycle, *rest: Any) -> None:
        for action in record.decision.actions:
            for write in action.writes:
                self._answers[write.intent] = self._cluster.execute(write, action.agent)
        self._record(record, *rest)


MISTAKES = {"resends": Resends, "acts_first": ActsFirst}

if __name__ == "__main__":
    main(sys.argv[2:], wire=MISTAKES[sys.argv[1]])
