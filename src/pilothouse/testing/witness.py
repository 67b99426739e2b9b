# SPDX-License-Identifier: Apache-2.0
"""An independent look at what a run that kept dying has really done.

    python -m pilothouse.testing.witness run.db commands.jsonl

Two stories are held against each other: the journal of the loop and the command log of the
simulator, which is another process. Nothing of the loop, the guard or the actuator is used here. A
run must be settled (its last process ended by itself), or intents may rightly be unanswered.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from pilothouse.domain import Action, Receipt, Write
from pilothouse.errors import JournalCorrupt
from pilothouse.journal import (
    Cycle,
    JournalReader,
    Outcome,
    Receipts,
    Resumed,
    SettingsChange,
    verify,
)

EXECUTED = ("done", "refused", "failed")  # the cluster answered


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that must never be seen, and was."""

    rule: str
    subject: str  # an intent, an action or a decision
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A write as it was announced."""

    seq: int
    wall: float
    at_seconds: int  # cluster clock of the decision
    action: Action
    write: Write


@dataclass(slots=True)
class Story:
    """What the journal says."""

    cycles: list[tuple[int, str]] = field(default_factory=list)  # number and decision, in order
    intents: list[tuple[str, Intent]] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    results: list[str] = field(default_factory=list)  # action ids
    restarts: int = 0
    resumed_seconds: int = 0  # cluster clock of the first cycle after the last restart
    ended_seconds: int = 0  # of the last cycle
    settle_seconds: int = 0
    resolved: Counter[str] = field(default_factory=Counter)  # status found by looking


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgment:
    """What was found, and how much was looked at."""

    findings: tuple[Finding, ...]
    numbers: dict[str, int]

    @property
    def ok(self) -> bool:
        return not self.findings


def judge(journal: Path, log: Path) -> Judgment:
    """Hold the journal against the command log."""
    report = verify(journal)
    if not report.ok:
        broken = Finding(rule="chain", subject=str(journal), sentence=report.problem)
        return Judgment(findings=(broken,), numbers={})
    story, commands = _story(journal), _commands(log)
    findings = [finding for rule in RULES for finding in rule(story, commands)]
    statuses = Counter(str(r.status) for r in story.receipts)
    acted = _acted(story)
    return Judgment(
        findings=tuple(findings),
        numbers={
            "cycles": len(story.cycles),
            "restarts": story.restarts,
            "intents": len(story.intents),
            "commands": len(commands),
            **{f"receipts {name}": count for name, count in sorted(statuses.items())},
            **{f"found {name}": count for name, count in sorted(story.resolved.items())},
            "actions done": len(acted),
            "results": len(story.results),
            "results awaited": len(acted.keys() - set(story.results)),
        },
    )


def _story(journal: Path) -> Story:
    story, restarted = Story(), False
    for entry in JournalReader(journal).entries():
        match entry.record:
            case Cycle(decision=decision):
                story.cycles.append((decision.cycle, decision.id))
                story.ended_seconds = decision.made_seconds
                if restarted:
                    story.resumed_seconds, restarted = decision.made_seconds, False
                story.intents += [
                    (
                        write.intent,
                        Intent(
                            seq=entry.seq,
                            wall=entry.wall,
                            at_seconds=decision.made_seconds,
                            action=action,
                            write=write,
                        ),
                    )
                    for action in decision.actions
                    for write in action.writes
                ]
            case Receipts(receipts=receipts):
                story.receipts += receipts
            case Outcome(result=result):
                story.results.append(result.action)
            case Resumed(resolved=resolved):
                story.restarts, restarted = story.restarts + 1, True
                story.resolved.update(resolved.values())
            case SettingsChange(settings=settings):
                story.settle_seconds = settings["score"]["settle_seconds"]
    return story


def _commands(log: Path) -> list[dict[str, Any]]:
    """Every command of ours; a rival in the scenario has no intents."""
    text = log.read_text(encoding="utf-8")
    if text and not text.endswith("\n"):
        raise JournalCorrupt(f"The command log {log} ends in the middle of a line.")
    lines = (json.loads(line) for line in text.splitlines())
    return [line for line in lines if line["agent"] != "rival"]


def _cycles_without_gap(story: Story, _: list[dict[str, Any]]) -> Iterator[Finding]:
    numbers = [number for number, _ in story.cycles]
    for before, after in pairwise(numbers):
        if after != before + 1:
            yield Finding(
                rule="cycle-gap", subject=str(after), sentence=f"Cycle {after} follows {before}."
            )
    yield from _twice("decision-twice", [decision for _, decision in story.cycles])


def _intents_once(story: Story, commands: list[dict[str, Any]]) -> Iterator[Finding]:
    yield from _twice("intent-twice", [name for name, _ in story.intents])
    yield from _twice("sent-twice", [c["intent"] for c in commands])
    yield from _twice("done-twice", [c["intent"] for c in commands if c["status"] == "done"])
    yield from _twice("receipt-twice", [r.intent for r in story.receipts])
    yield from _twice("result-twice", story.results)


def _commands_announced(story: Story, commands: list[dict[str, Any]]) -> Iterator[Finding]:
    intents = dict(story.intents)
    for command in commands:
        name = command["intent"]
        intent = intents.get(name)
        if intent is None:
            yield Finding(
                rule="no-intent",
                subject=name,
                sentence=f"{command['verb']} {command['target']} was commanded without an intent.",
            )
            continue
        write = intent.write
        announced = (intent.action.agent, str(write.verb), str(write.target), write.value)
        sent = tuple(command[key] for key in ("agent", "verb", "target", "value"))
        if announced != sent:
            yield Finding(
                rule="other-write", subject=name, sentence=f"Announced {announced}, sent {sent}."
            )
        if command["seconds"] < intent.at_seconds or command["wall"] < intent.wall:
            yield Finding(
                rule="intent-late",
                subject=name,
                sentence=f"Commanded {intent.wall - command['wall']:.6f} s before it was recorded.",
            )


def _commands_acknowledged(story: Story, commands: list[dict[str, Any]]) -> Iterator[Finding]:
    receipts = {r.intent: r for r in story.receipts}
    for command in commands:
        receipt = receipts.get(command["intent"])
        if receipt is None:
            yield Finding(
                rule="receipt-lost",
                subject=command["intent"],
                sentence=f"The cluster answered {command['status']}; the journal does not know.",
            )
        elif (receipt.status, receipt.at_seconds) != (command["status"], command["seconds"]):
            yield Finding(
                rule="receipt-differs",
                subject=receipt.intent,
                sentence=(
                    f"The cluster answered {command['status']} at {command['seconds']} s, the "
                    f"journal says {receipt.status} at {receipt.at_seconds} s."
                ),
            )


def _receipts_true(story: Story, commands: list[dict[str, Any]]) -> Iterator[Finding]:
    commanded = {c["intent"] for c in commands}
    intents, answered = dict(story.intents), {r.intent for r in story.receipts}
    for receipt in story.receipts:
        if receipt.status in EXECUTED and receipt.intent not in commanded:
            yield Finding(
                rule="receipt-invented",
                subject=receipt.intent,
                sentence=f"The journal says {receipt.status}; the cluster never saw it.",
            )
        if receipt.intent not in intents:
            yield Finding(
                rule="receipt-without-intent",
                subject=receipt.intent,
                sentence="Answered, but never announced.",
            )
    for name in intents:
        if name not in answered:
            yield Finding(rule="open", subject=name, sentence="Announced and never settled.")


def _results_come(story: Story, _: list[dict[str, Any]]) -> Iterator[Finding]:
    """After the settle window; a restart begins it anew, because what ran before is gone."""
    for action, at_seconds in _acted(story).items():
        due = max(at_seconds, story.resumed_seconds) + story.settle_seconds
        if due <= story.ended_seconds and action not in story.results:
            yield Finding(rule="result-lost", subject=action, sentence=f"Was due at {due} s.")


def _acted(story: Story) -> dict[str, int]:
    """Actions that changed something, taking back apart, with the time they were decided."""
    done = {r.intent.rpartition(".")[0] for r in story.receipts if r.status == "done"}
    intents = [intent for _, intent in story.intents]
    return {
        i.action.id: i.at_seconds for i in intents if i.action.id in done and not i.action.restores
    }


Rule = Callable[[Story, list[dict[str, Any]]], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    _cycles_without_gap,
    _intents_once,
    _commands_announced,
    _commands_acknowledged,
    _receipts_true,
    _results_come,
)


def _twice(rule: str, names: list[str]) -> Iterator[Finding]:
    for name, count in Counter(names).items():
        if count > 1:
            yield Finding(rule=rule, subject=name, sentence=f"Seen {count} times.")


def main() -> int:
    """Print what was found as JSON; 1 where anything was."""
    journal, log = (Path(argument) for argument in sys.argv[1:3])
    judgment = judge(journal, log)
    found = [{"rule": f.rule, "subject": f.subject, "is": f.sentence} for f in judgment.findings]
    print(json.dumps({"numbers": judgment.numbers, "findings": found}, indent=2))
    return 0 if judgment.ok else 1


if __name__ == "__main__":
    sys.exit(main())
