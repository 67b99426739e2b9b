# SPDX-License-Identifier: Apache-2.0
"""Turning a chosen action into writes, one intent at a time.

An actuator is anything that executes a write and can later be asked whether an intent was
executed; the simulator, its remote twin and, later, a real cluster are. Variation is a different
actuator (``RecordingActuator`` writes nothing), never a flag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from pilothouse.domain import Action, Receipt, Ref, Status, Write


class Actuator(Protocol):
    """Executes writes and remembers which intents it has seen."""

    def begin(self, action: Action) -> str:
        """Told of an action before its first write; says why it must not begin, or nothing."""
        ...

    def execute(self, write: Write, agent: str) -> Receipt: ...

    def find(self, intent: str) -> Receipt | None:
        """What became of an intent, by looking; None when it never arrived and never will."""
        ...


class RecordingActuator:
    """Writes nothing and keeps what it was asked to write; for shadow runs and dry runs."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.writes: list[Write] = []

    def begin(self, action: Action) -> str:
        return ""

    def execute(self, write: Write, agent: str) -> Receipt:
        self.writes.append(write)
        return Receipt(
            intent=write.intent,
            status=Status.SKIPPED,
            detail=f"recorded for {agent}, not sent",
            at_seconds=self._clock(),
        )

    def find(self, intent: str) -> Receipt | None:
        return None


def perform(
    actions: Sequence[Action],
    actuator: Actuator,
    *,
    may_write: Callable[[Action, Write], str],
    clock: Callable[[], int],
) -> Iterator[tuple[Action, Write, Receipt]]:
    """Send each write of each action, in order, and hand back every answer.

    A write that did not succeed stops the later writes on the same target: a node whose taint was
    refused must not be drained. ``may_write`` is asked before every single write and says why not,
    or nothing; what takes an earlier action back is sent all the same.
    """
    for action in actions:
        stopped: set[Ref] = set()
        begun: str | None = None  # what the actuator said to the action, once it was told of it
        for write in action.writes:
            why_not = may_write(action, write)
            if why_not and not action.restores:
                receipt = _skipped(write, why_not, clock())
            elif (begun is None and (begun := actuator.begin(action))) or begun:
                receipt = _skipped(write, begun, clock())
            elif write.target in stopped:
                receipt = _skipped(
                    write, "an earlier write on this target did not succeed", clock()
                )
            else:
                receipt = actuator.execute(write, action.agent)
            # An inverse that finds its value changed by somebody leaves the next ones their turn.
            passed = action.restores and receipt.status is Status.REFUSED
            if receipt.status is not Status.DONE and not passed:
                stopped.add(write.target)
            yield action, write, receipt


def resolve(
    intents: Sequence[str], actuator: Actuator, *, clock: Callable[[], int]
) -> list[Receipt]:
    """Settle intents left open by a crash: by looking, never by sending them again."""
    found = ((intent, actuator.find(intent)) for intent in intents)
    return [
        receipt
        if receipt is not None
        else Receipt(
            intent=intent,
            status=Status.SKIPPED,
            detail="looked for after a restart and not found: it was never executed",
            at_seconds=clock(),
        )
        for intent, receipt in found
    ]


def _skipped(write: Write, why: str, now: int) -> Receipt:
    return Receipt(intent=write.intent, status=Status.SKIPPED, detail=why, at_seconds=now)
