# SPDX-License-Identifier: Apache-2.0
"""An independent witness: did anything happen that never may?

It reads the simulator's command log, the settings' numbers and what an operator said, and counts
again in its own way. It shares no code with the guard and knows nothing about proposals, plans or
verdicts: only what was really executed. Writes of the janitor take something back; they are held
against what was there before, not against budgets.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from pilothouse.domain import Gate, Mode, Status, Verb
from pilothouse.settings import GuardSettings, Settings
from pilothouse.sim.command import Command

JANITOR, RIVAL, SAFETY = "janitor", "rival", "safety"
SERVING = {Verb.TAINT, Verb.DRAIN, Verb.POWER}
POD_VERBS = {Verb.EVICT, Verb.CPU_LIMIT, Verb.MEMORY_REQUEST}
# The value at which nothing is left to take back.
AT_HOME = {Verb.TAINT: 0, Verb.DRAIN: 0, Verb.POWER: 1, Verb.GATE: 0, Verb.FREQUENCY: 1000}
LATE_SECONDS = 300  # an inverse may need a few tries


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What an operator said, and how many commands were in the log by then."""

    position: int
    halted: bool | None = None
    key: str = ""  # "safety" or "safety/shop"
    mode: Mode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Something that may never happen, and did."""

    rule: str
    seconds: int
    intent: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Deed:
    """One executed write with its place in the log."""

    position: int
    command: Command

    @property
    def verb(self) -> Verb:
        return Verb(self.command.verb)

    @property
    def action(self) -> str:
        return self.command.intent.rpartition(".")[0]

    @property
    def field(self) -> str:
        """What was changed; a taint, a drain and a sleep all take a node out of service."""
        name = "serving" if self.verb in SERVING else self.verb.value
        return f"{self.command.target}#{name}"

    @property
    def direction(self) -> int:
        value, before = self.command.value, self.command.original
        if self.verb in (Verb.TAINT, Verb.DRAIN, Verb.GATE, Verb.EVICT):
            return -1 if value else 1
        if self.verb is Verb.POWER:
            return 1 if value else -1
        return (value > before) - (value < before)

    @property
    def restores(self) -> bool:
        return self.command.agent == JANITOR

    @property
    def moved(self) -> int:
        """Pods that lose their place; one that is lost already has none."""
        if self.verb is Verb.EVICT:
            return int(not self.command.failed)
        return self.command.evictable if self.verb is Verb.DRAIN and self.command.value else 0

    def broke(self, rule: str, sentence: str) -> Violation:
        c = self.command
        text = f"{c.agent} {c.verb} {c.target} {c.original} to {c.value}: {sentence}"
        return Violation(rule=rule, seconds=c.seconds, intent=c.intent, sentence=text)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything the witness may look at."""

    log: Sequence[Command]
    settings: Settings
    notices: Sequence[Notice]
    until: int  # cluster clock at the end

    @property
    def limits(self) -> GuardSettings:
        return self.settings.guard

    @cached_property
    def executed(self) -> list[Deed]:
        return [Deed(i, c) for i, c in enumerate(self.log) if c.status == Status.DONE]

    @cached_property
    def ours(self) -> list[Deed]:
        return [d for d in self.executed if d.command.agent != RIVAL]

    @cached_property
    def wishes(self) -> list[Deed]:
        """Ours, restores aside."""
        return [d for d in self.ours if not d.restores]


Rule = Callable[[Evidence], Iterable[Violation]]


def check(
    log: Sequence[Command],
    settings: Settings,
    notices: Sequence[Notice] = (),
    until: int | None = None,
) -> list[Violation]:
    """Everything in the log that may never happen; an empty list is a clean record."""
    end = until if until is not None else max((c.seconds for c in log), default=0)
    evidence = Evidence(log=log, settings=settings, notices=notices, until=end)
    found = [violation for rule in RULES for violation in rule(evidence)]
    return sorted(found, key=lambda v: (v.seconds, v.rule, v.intent))


def at_most(total: int, share: float) -> int:
    """A share of a total, rounded up to at least one, in exact arithmetic."""
    return max(math.ceil(Fraction(str(share)) * total), 1)


# Who and what.


def protected_objects(e: Evidence) -> Iterator[Violation]:
    for deed in e.wishes:
        c = deed.command
        if c.namespace and (c.protected or not c.managed):
            yield deed.broke("protected", f"namespace {c.namespace} is closed")
        if c.workload and c.priority >= e.limits.protected_priority:
            yield deed.broke("protected", f"{c.workload} has priority {c.priority}")
        if deed.verb in POD_VERBS and not c.evictable:
            yield deed.broke("protected", "the pod may not be disturbed")
        if deed.moved and deed.verb is Verb.DRAIN:
            if c.closed:
                yield deed.broke("protected", f"moves {c.closed} pods of closed namespaces")
            if c.top_priority >= e.limits.protected_priority:
                yield deed.broke("protected", f"moves a pod of priority {c.top_priority}")


def halts(e: Evidence) -> Iterator[Violation]:
    for deed in e.wishes:
        said = [n.halted for n in e.notices if n.position <= deed.position and n.halted is not None]
        if said and said[-1]:
            yield deed.broke("halted", "written after a halt")


def modes(e: Evidence) -> Iterator[Violation]:
    for deed in e.wishes:
        table = dict(e.settings.modes.agents)
        for notice in e.notices:
            if notice.mode is not None and notice.position <= deed.position:
                table[notice.key] = notice.mode
        c = deed.command
        own = table.get(c.agent, e.settings.modes.default)
        spaces = [c.namespace] if c.namespace else list(c.spaces)
        held = [table.get(f"{c.agent}/{space}", own) for space in spaces]
        held += [own] if deed.verb in SERVING or deed.verb is Verb.FREQUENCY else []
        if any(mode is not Mode.ENFORCE for mode in held):
            yield deed.broke("mode", f"its modes are {', '.join(map(str, held))}")


def single_success(e: Evidence) -> Iterator[Violation]:
    times = Counter(d.command.intent for d in e.ours)
    for deed in e.ours:
        if times[deed.command.intent] > 1 or not deed.command.intent:
            yield deed.broke("intent", f"executed {times[deed.command.intent]} times")


# How much.


def budgets(e: Evidence) -> Iterator[Violation]:
    """Actions in sliding windows: by agent, workload, namespace and node."""
    uses: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    limits = e.limits
    for deed in e.wishes:
        c = deed.command
        keys = [("agent", c.agent, limits.per_agent)]
        if deed.verb in SERVING or deed.verb is Verb.FREQUENCY:
            keys.append(("node", c.node, limits.per_node))
        if c.workload:
            keys.append(("workload", f"{c.namespace}/{c.workload}", limits.per_workload))
        if c.namespace:
            keys.append(("namespace", c.namespace, limits.per_namespace))
        for what, key, allowed in keys:
            seen = uses[what, key]
            if deed.action in seen:
                continue
            seen[deed.action] = c.seconds
            used = sum(at > c.seconds - limits.window_seconds for at in seen.values())
            if used > allowed:
                yield deed.broke(f"per-{what}", f"{used} actions on {key}, allowed {allowed}")


def disturbed_share(e: Evidence) -> Iterator[Violation]:
    """Pods moved in a window. Safety may empty a node beyond it; nobody may add to that."""
    moves: list[tuple[int, int]] = []
    for deed in e.wishes:
        if not deed.moved:
            continue
        c = deed.command
        moves.append((c.seconds, deed.moved))
        total = sum(n for at, n in moves if at > c.seconds - e.limits.window_seconds)
        allowed = at_most(c.pods, e.limits.disturbed_share)
        empties = c.agent == SAFETY and deed.verb is Verb.DRAIN and c.value == 1
        if total > allowed and not empties:
            yield deed.broke("disturbed-share", f"{total} pods moved, allowed {allowed}")


def node_share(e: Evidence) -> Iterator[Violation]:
    """Nodes tainted, drained or asleep because of us at any time."""
    out: dict[str, set[Verb]] = defaultdict(set)
    for position, c in enumerate(e.log):
        deed = Deed(position, c)
        if deed.verb not in SERVING or not c.node:
            continue
        held = out[c.node]
        if c.original == AT_HOME[deed.verb]:
            held.discard(deed.verb)  # a drain ends with the machine, say; the log shows it later
        if c.status != Status.DONE:
            continue
        if deed.direction > 0:
            held -= {Verb.DRAIN, Verb.POWER} if deed.verb is not Verb.TAINT else {Verb.TAINT}
            continue
        if c.agent == RIVAL:
            continue
        held.add(deed.verb)
        count, allowed = sum(map(bool, out.values())), at_most(c.nodes, e.limits.node_share)
        if count > allowed:
            yield deed.broke("node-share", f"{count} nodes out of service, allowed {allowed}")


def drains_at_once(e: Evidence) -> Iterator[Violation]:
    for deed in e.wishes:
        if deed.verb is Verb.DRAIN and deed.moved:
            at_once = deed.command.draining + 1
            if at_once > e.limits.drains_at_once:
                yield deed.broke("drains-at-once", f"{at_once} nodes are being emptied")


def gates(e: Evidence) -> Iterator[Violation]:
    closed: set[str] = set()
    for deed in e.executed:
        if deed.verb is not Verb.GATE:
            continue
        c = deed.command
        if c.value == Gate.OPEN:
            closed.discard(c.namespace)
            continue
        closed.add(c.namespace)
        if len(closed) > e.limits.gated_namespaces:
            yield deed.broke("gated-namespaces", f"{len(closed)} namespaces are gated")
        if c.value == Gate.REJECT and not e.settings.admission.allow_reject:
            yield deed.broke("reject", "rejecting work is off")


# How far.


def floors(e: Evidence) -> Iterator[Violation]:
    limits = e.limits
    for deed in e.wishes:
        c, value = deed.command, deed.command.value
        if deed.verb is Verb.SCALE:
            most = math.floor(Fraction(str(limits.replica_factor)) * c.baseline)
            least = min(c.baseline, c.original)
            if not least <= value <= most:
                yield deed.broke("replica-factor", f"allowed are {least} to {most}")
        elif deed.verb is Verb.CPU_LIMIT:
            least = math.ceil(Fraction(str(limits.cpu_floor_share)) * c.limit_declared)
            if not least <= value <= c.limit_declared:
                yield deed.broke("cpu-floor", f"allowed are {least} to {c.limit_declared}")
        elif deed.verb is Verb.MEMORY_REQUEST:
            least = math.ceil(Fraction(str(limits.memory_floor_factor)) * c.peak)
            if value < least:
                yield deed.broke("memory-floor", f"the peak is {c.peak}, the floor {least}")
        elif deed.verb is Verb.FREQUENCY:
            least = math.ceil(Fraction(str(limits.frequency_floor)) * 1000)
            if not least <= value <= 1000:
                yield deed.broke("frequency-floor", f"allowed are {least} to 1000")


# How often.


def dwell(e: Evidence) -> Iterator[Violation]:
    last: dict[str, Deed] = {}
    for deed in e.ours:
        if deed.verb is Verb.EVICT:
            continue
        before = last.get(deed.field)
        last[deed.field] = deed
        if before is None or deed.restores or before.action == deed.action:
            continue
        rested = deed.command.seconds - before.command.seconds
        if rested < e.limits.dwell_seconds:
            yield deed.broke("dwell", f"the field rested {rested} s")


def reversals(e: Evidence) -> Iterator[Violation]:
    """Turning a field round too often in a window, or at all while it is quarantined."""
    limits = e.limits
    memory = max(limits.window_seconds, limits.quarantine_seconds)
    facing: dict[str, tuple[int, int]] = {}  # which way it went last, and when
    turned: dict[str, list[int]] = defaultdict(list)
    for deed in e.ours:
        now, turns = deed.command.seconds, turned[deed.field]
        way = 0 if deed.restores else deed.direction  # going on from a restore is no turn
        before, at = facing.get(deed.field, (0, now))
        facing[deed.field] = way, now
        if way * before >= 0 or now - at >= memory:
            continue
        recent = [t for t in turns if t > now - limits.window_seconds]
        if len(recent) + 1 > limits.reversals:
            yield deed.broke("reversals", f"turned {len(recent) + 1} times in a window")
        elif _is_quarantined(turns, now, limits):
            yield deed.broke("reversals", "turned during the quarantine")
        turns.append(now)


def _is_quarantined(turns: list[int], now: int, limits: GuardSettings) -> bool:
    for last in turns:
        crowd = [t for t in turns if last - limits.window_seconds < t <= last]
        if len(crowd) >= max(limits.reversals, 1) and now - last < limits.quarantine_seconds:
            return True
    return False


# Taking back.


def false_restores(e: Evidence) -> Iterator[Violation]:
    """A restore never goes beyond what was there before one of our own writes."""
    before: dict[tuple[str, Verb], set[int]] = defaultdict(set)
    for deed in e.ours:
        c, key = deed.command, (deed.command.target, deed.verb)
        if not deed.restores:
            before[key].add(c.original)
            continue
        home = AT_HOME.get(deed.verb, c.baseline if deed.verb is Verb.SCALE else c.limit_declared)
        known = before[key] | {home}
        if not min(known) <= c.value <= max(known):
            yield deed.broke("false-restore", f"we only ever replaced {sorted(known)}")


def overdue(e: Evidence) -> Iterator[Violation]:
    """What lasts longer than any lifetime allows and was never tried to be taken back."""
    longest = max(e.limits.ttl_seconds.values(), default=0) + LATE_SECONDS
    open_since: dict[tuple[str, Verb], Deed] = {}
    for position, command in enumerate(e.log):
        deed = Deed(position, command)
        if command.target.split("/")[1] == "pod":
            continue  # pods come and go, and what is gone needs no inverse
        yield from _late(
            open_since.pop((command.target, deed.verb), None), command.seconds, longest
        )
        if deed.verb is Verb.POWER and command.value:
            open_since.pop((command.target, Verb.DRAIN), None)
        home = command.baseline if deed.verb is Verb.SCALE else AT_HOME.get(deed.verb)
        done = command.status == Status.DONE and command.agent not in (JANITOR, RIVAL)
        if done and command.value != home:
            open_since[command.target, deed.verb] = deed
    for deed in open_since.values():
        yield from _late(deed, e.until, longest)


def _late(deed: Deed | None, now: int, longest: int) -> Iterator[Violation]:
    if deed is not None and now - deed.command.seconds > longest:
        yield deed.broke("overdue", f"in force for {now - deed.command.seconds} s")


RULES: tuple[Rule, ...] = (
    protected_objects,
    halts,
    modes,
    single_success,
    budgets,
    disturbed_share,
    node_share,
    drains_at_once,
    gates,
    floors,
    dwell,
    reversals,
    false_restores,
    overdue,
)
