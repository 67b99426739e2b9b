# SPDX-License-Identifier: Apache-2.0
"""An independent witness for a real cluster: did anything happen that never may?

    python -m pilothouse.testing.livecheck --audit FILE --journal FILE --tickets FILE

Reads only the API server's audit log, the journals and the tickets, and counts again in its own
way. It shares no code with the guard or the actuator. Exit status 1 means that a violation was
found; each is one line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pilothouse.domain import Action, Status
from pilothouse.journal import Cycle, JournalReader, Receipts, SettingsChange
from pilothouse.journal.verify import verify

ACCOUNT = "system:serviceaccount:pilothouse-system:pilothouse-"
ACTUATOR, JANITOR = f"{ACCOUNT}actuator", f"{ACCOUNT}janitor"
READS = ("get", "list", "watch")
OWN = ("leases", "events", "tickets")
RESIDUE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One write of ours, as the API server logged it."""

    user: str
    verb: str
    resource: str  # "pods/eviction"
    namespace: str
    name: str
    code: int
    intent: str
    at: float  # Unix seconds

    @property
    def action(self) -> str:
        return self.intent.rpartition(".")[0]

    @property
    def succeeded(self) -> bool:
        return self.code < 300


@dataclass(slots=True)
class Books:
    """What the journals say: intents, receipts and the guard's numbers."""

    intents: dict[str, float] = field(default_factory=dict)  # to the wall time of their record
    actions: dict[str, Action] = field(default_factory=dict)
    receipts: dict[str, list[str]] = field(default_factory=dict)
    guard: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)


def deeds(lines: Iterable[str]) -> Iterator[Deed]:
    """Writes of our two accounts, our own Lease, Events and tickets aside."""
    for line in lines:
        event = json.loads(line)
        user, place = event["user"]["username"], event.get("objectRef") or {}
        if user not in (ACTUATOR, JANITOR) or event["verb"] in READS:
            continue
        if place.get("resource") in OWN or event.get("stage") != "ResponseComplete":
            continue
        moment = str(event["requestReceivedTimestamp"]).replace("Z", "+00:00")
        parts = (place.get("resource", ""), place.get("subresource", ""))
        yield Deed(
            user=user,
            verb=event["verb"],
            resource="/".join(part for part in parts if part),
            namespace=place.get("namespace", ""),
            name=place.get("name", ""),
            code=int((event.get("responseStatus") or {}).get("code", 0)),
            intent=event["auditID"],
            at=datetime.fromisoformat(moment).timestamp(),
        )


def read_books(journals: Sequence[Path]) -> Books:
    books = Books()
    for path in journals:
        report = verify(path)
        if not report.ok:
            books.broken.append(f"{path.name}: {report.sentence}")
        for entry in JournalReader(path).entries():
            match entry.record:
                case Cycle() as cycle:
                    for action in cycle.decision.actions:
                        books.actions[action.id] = action
                        for write in action.writes:
                            books.intents[write.intent] = entry.wall
                case Receipts() as answers:
                    for one in answers.receipts:
                        books.receipts.setdefault(one.intent, []).append(str(one.status))
                case SettingsChange() as change:
                    books.guard = change.settings["guard"]
    return books


def check(
    done: Sequence[Deed], books: Books, tickets: Sequence[dict[str, Any]], now: float
) -> list[str]:
    """Every violation, as a sentence that begins with the invariant's name."""
    closed = {t["spec"]["action"] for t in tickets}
    return [
        *(f"I3 {line}" for line in books.broken),
        *_announced(done, books, closed),
        *_answered(books),
        *_within_budget(done, books),
        *_evicted_only(done),
        *_once(done),
        *_open_namespaces(done, books),
        *_taken_back(tickets, now),
    ]


def _announced(done: Sequence[Deed], books: Books, tickets: set[str]) -> Iterator[str]:
    for deed in done:
        if deed.user == JANITOR:
            release = deed.intent.startswith("janitor.release.")
            action = deed.action.removeprefix("janitor.")
            if not release and deed.resource != "tickets/status" and action not in tickets:
                yield f"I1 {deed.intent}: the janitor wrote {deed.resource} without a ticket"
            continue
        known = books.intents.get(deed.intent)
        if known is None:
            yield f"I1 {deed.intent}: {deed.verb} {deed.resource} {deed.name} has no intent"
        elif known > deed.at + 0.001:
            yield f"I1 {deed.intent}: written {known - deed.at:.3f} s before its intent was durable"


def _answered(books: Books) -> Iterator[str]:
    for intent in books.intents:
        if intent not in books.receipts:
            yield f"I2 {intent}: no receipt"


def _within_budget(done: Sequence[Deed], books: Books) -> Iterator[str]:
    """Actions of one agent, and actions on one node, in every sliding window."""
    window = float(books.guard.get("window_seconds", 600))
    by_agent: dict[str, dict[str, float]] = defaultdict(dict)
    by_node: dict[str, dict[str, float]] = defaultdict(dict)
    for deed in done:
        action = books.actions.get(deed.action)
        if deed.user != ACTUATOR or not deed.succeeded or action is None or action.restores:
            continue
        if deed.resource == "pods/eviction" and action.target.kind == "node":
            continue  # carries on a drain that was counted when it began
        by_agent[action.agent].setdefault(action.id, deed.at)
        if deed.resource == "nodes":
            by_node[deed.name].setdefault(action.id, deed.at)
    for kind, groups in (("per_agent", by_agent), ("per_node", by_node)):
        allowed = int(books.guard.get(kind, 0))
        for name, actions in groups.items():
            most = _most_in(sorted(actions.values()), window)
            if most > allowed:
                yield f"I4 {name}: {most} actions in a window, {kind} allows {allowed}"


def _most_in(moments: Sequence[float], window: float) -> int:
    most = first = 0
    for last, moment in enumerate(moments):
        while moments[first] <= moment - window:
            first += 1
        most = max(most, last - first + 1)
    return most


def _evicted_only(done: Sequence[Deed]) -> Iterator[str]:
    for deed in done:
        if deed.verb in ("delete", "deletecollection") and deed.succeeded:
            yield f"I6 {deed.intent}: {deed.resource} {deed.name} was deleted, not evicted"


def _once(done: Sequence[Deed]) -> Iterator[str]:
    successes = Counter(d.intent for d in done if d.succeeded and d.user == ACTUATOR)
    for intent, count in successes.items():
        if count > 1:
            yield f"I7 {intent}: {count} successes"


def _open_namespaces(done: Sequence[Deed], books: Books) -> Iterator[str]:
    """What a decision names is what was touched, and never the system's."""
    for deed in done:
        if not deed.succeeded or not deed.namespace:
            continue
        if deed.namespace.startswith("kube-"):
            yield f"I9 {deed.intent}: {deed.resource} in {deed.namespace}"
        ours = deed.namespace == "pilothouse-system"
        if ours and not (deed.resource == "configmaps" and deed.name == "pilothouse-gates"):
            yield f"I9 {deed.intent}: {deed.resource} {deed.name} in {deed.namespace}"
        action = books.actions.get(deed.action)
        if action is not None and not ours:
            named = {w.target.namespace or w.target.name for w in action.writes}
            if deed.namespace not in named:
                yield f"I9 {deed.intent}: {deed.namespace} is not what was decided about"


def _taken_back(tickets: Sequence[dict[str, Any]], now: float) -> Iterator[str]:
    for ticket in tickets:
        spec, phase = ticket["spec"], (ticket.get("status") or {}).get("phase", "")
        if phase or not spec.get("undo") or "expires" not in spec:
            continue
        moment = datetime.fromisoformat(spec["expires"].replace("Z", "+00:00")).timestamp()
        if now > moment + RESIDUE_SECONDS:
            yield f"I10 {spec['action']}: expired {now - moment:.0f} s ago and is in force still"


def in_window(books: Books) -> int:
    """Intents that were looked for after a crash: no receipt in the process that announced them."""
    settled = [s for statuses in books.receipts.values() for s in statuses]
    return sum(status == str(Status.SKIPPED) for status in settled)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audit", type=Path, action="append", required=True)
    parser.add_argument("--journal", type=Path, action="append", required=True)
    parser.add_argument("--tickets", type=Path, required=True)
    parser.add_argument("--since", type=float, default=0.0, help="Unix time to begin at.")
    parser.add_argument("--now", type=float, required=True, help="Unix time of the look.")
    given = parser.parse_args()
    lines = [line for path in given.audit for line in path.read_text().splitlines() if line]
    done = sorted((d for d in deeds(lines) if d.at >= given.since), key=lambda d: d.at)
    books = read_books(given.journal)
    tickets = json.loads(given.tickets.read_text())["items"]
    violations = check(done, books, tickets, given.now)
    for line in violations:
        print(line)
    good = sum(d.succeeded for d in done)
    print(
        f"{len(done)} writes of ours ({good} done), {len(books.intents)} intents, "
        f"{len(tickets)} tickets: {len(violations)} violations",
        file=sys.stderr,
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
