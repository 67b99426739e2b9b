# SPDX-License-Identifier: Apache-2.0
"""What the exerciser will do to one cluster, as a list of small events.

A deck of stimuli is shuffled and dealt over a stretch of time; each stimulus becomes a few
primitive events. Deck number k is a pure function of (scenario, seed, k): it can be dealt again
after a restart, and nobody's actions can change it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from pilothouse.scenarios import Scripted, Stimulus, StimulusKind
from pilothouse.sim.blueprint import TICK_SECONDS, Blueprint
from pilothouse.sim.randomness import Dice, Stream

FLAP_TICKS = 12  # a minute up, a minute down: faster than an HPA settles


class Fault(IntEnum):
    """What is wrong with a node."""

    NONE = 0
    DEGRADATION = 1
    FALSE_ALARM = 2
    SUDDEN = 3


class Op(IntEnum):
    """A primitive event: what changes at its tick."""

    SURGE = 1  # workload, per mille of its own requests, 0 ends it
    DAMP = 2  # whole cluster, per mille of the usual load, 1000 ends it
    LEAK = 3  # workload, KiB per tick and pod, 0 ends it
    FAULT = 4  # node, Fault; ``extra`` is the length in ticks, ``more`` the false alarm's height
    ARRIVE = 5  # workload, pods
    RIVAL = 6  # whole cluster, ticks until it undoes, 0 ends it
    LATENCY = 7  # node, milliseconds to its user


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """One primitive event; ordered by tick, then by the order of dealing."""

    tick: int
    order: int
    op: Op
    target: int
    value: int
    extra: int = 0
    more: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """One dealt stimulus, as the exerciser would announce it."""

    kind: StimulusKind
    target: int  # row of a node or workload, -1 for the whole cluster
    start_tick: int
    end_tick: int
    magnitude: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Deck:
    """A dealt deck: the events in order, what they mean, and where the next deck starts."""

    start_tick: int
    end_tick: int
    events: tuple[Event, ...]
    exercises: tuple[Exercise, ...]


Primitive = tuple[int, Op, int, int, int, int]  # tick, op, target, value, extra, more


def deal(plan: Blueprint, number: int, start_tick: int) -> Deck:
    """Deck ``number``, beginning at ``start_tick``."""
    exerciser = plan.scenario.exerciser
    dice = Dice(plan.seed, Stream.DECK, number)
    if exerciser.script:
        return _scripted(plan, dice, start_tick)
    span = exerciser.deck_seconds
    length = max(dice.between(span.low, span.high) // TICK_SECONDS, 1)
    cards = [i for i, s in enumerate(exerciser.stimuli) for _ in range(s.count)]
    warmup = exerciser.warmup_seconds // TICK_SECONDS
    gap = (length - warmup) // max(len(cards), 1)
    primitives: list[Primitive] = []
    exercises: list[Exercise] = []
    used: set[tuple[bool, int]] = set()
    alarms = 0
    for place, card in enumerate(dice.shuffled(cards)):
        stimulus = exerciser.stimuli[card]
        tick = start_tick + warmup + place * gap + dice.between(0, max(gap // 3, 0))
        exercise = _draw(plan, stimulus, tick, dice, used)
        exercises.append(exercise)
        false_alarm = False
        if stimulus.kind is StimulusKind.NODE_DEGRADATION:
            # At most every second degradation is a false alarm, so that a deck has real ones.
            chance = dice.between(0, 999) < plan.scenario.faults.false_alarm_permille
            false_alarm = chance and 2 * (alarms + 1) <= stimulus.count
            alarms += false_alarm
        primitives += _SCRIPTS[stimulus.kind](plan, exercise, dice, false_alarm)
    primitives += _latencies(plan, start_tick)
    primitives.sort(key=lambda p: p[0])
    events = tuple(
        Event(tick=t, order=i, op=op, target=target, value=value, extra=extra, more=more)
        for i, (t, op, target, value, extra, more) in enumerate(primitives)
    )
    return Deck(
        start_tick=start_tick,
        end_tick=start_tick + length,
        events=events,
        exercises=tuple(exercises),
    )


def _scripted(plan: Blueprint, dice: Dice, start_tick: int) -> Deck:
    """The whole script as one deck."""
    exercises = [_told(plan, told, start_tick) for told in plan.scenario.exerciser.script]
    exercises.sort(key=lambda x: x.start_tick)
    primitives = [p for x in exercises for p in _SCRIPTS[x.kind](plan, x, dice, False)]
    primitives += _latencies(plan, start_tick)
    primitives.sort(key=lambda p: p[0])
    events = tuple(
        Event(tick=t, order=i, op=op, target=target, value=value, extra=extra, more=more)
        for i, (t, op, target, value, extra, more) in enumerate(primitives)
    )
    return Deck(
        start_tick=start_tick,
        end_tick=max(x.end_tick for x in exercises) + 1,
        events=events,
        exercises=tuple(exercises),
    )


def _latencies(plan: Blueprint, start_tick: int) -> list[Primitive]:
    """The latency schedule of one deck; it begins again with the next."""
    return [
        (start_tick + change.at_seconds // TICK_SECONDS, Op.LATENCY, node, ms, 0, 0)
        for change in plan.scenario.exerciser.latency
        for node in range(len(plan.nodes["spare"]))
        for ms in (change.node_ms[node % len(change.node_ms)],)
    ]


def _told(plan: Blueprint, told: Scripted, start_tick: int) -> Exercise:
    start = start_tick + told.at_seconds // TICK_SECONDS
    return Exercise(
        kind=told.kind,
        target=_counted(plan, told.kind, told.target),
        start_tick=start,
        end_tick=start + max(told.duration_seconds // TICK_SECONDS, 1),
        magnitude=told.magnitude,
    )


def _counted(plan: Blueprint, kind: StimulusKind, number: int) -> int:
    choices = _choices(plan, kind)
    return choices[number % len(choices)] if choices else _fixed_row(plan, kind)


_ON_SERVICE = {
    StimulusKind.MEMORY_GROWTH,
    StimulusKind.CPU_SATURATION,
    StimulusKind.FLAPPING_LOAD,
}
_ON_NODE = {StimulusKind.NODE_DEGRADATION, StimulusKind.SUDDEN_NODE_LOSS}


def _draw(
    plan: Blueprint, stimulus: Stimulus, tick: int, dice: Dice, used: set[tuple[bool, int]]
) -> Exercise:
    ranges = plan.scenario.parameters(stimulus)
    magnitude = dice.between(ranges["magnitude"].low, ranges["magnitude"].high)
    seconds = dice.between(ranges["duration_seconds"].low, ranges["duration_seconds"].high)
    return Exercise(
        kind=stimulus.kind,
        target=_target(plan, stimulus.kind, dice, used),
        start_tick=tick,
        end_tick=tick + max(seconds // TICK_SECONDS, 1),
        magnitude=magnitude,
    )


def _target(plan: Blueprint, kind: StimulusKind, dice: Dice, used: set[tuple[bool, int]]) -> int:
    """A row nobody was aimed at in this deck, as long as there is one."""
    choices = _choices(plan, kind)
    if not choices:
        return _fixed_row(plan, kind)
    side = kind in _ON_NODE
    fresh = [row for row in choices if (side, row) not in used] or choices
    row = fresh[dice.between(0, len(fresh) - 1)]
    used.add((side, row))
    return row


def _choices(plan: Blueprint, kind: StimulusKind) -> list[int]:
    """Rows a stimulus may be aimed at; none where it has a fixed row or the whole cluster."""
    if kind in _ON_SERVICE:
        return list(plan.services)
    if kind in _ON_NODE:
        return [i for i, s in enumerate(plan.nodes["spare"].tolist()) if not s]
    return []


def _fixed_row(plan: Blueprint, kind: StimulusKind) -> int:
    return {
        StimulusKind.QUEUE_SURGE: plan.surge_row,
        StimulusKind.NOISY_NEIGHBOR: plan.noisy_row,
        StimulusKind.UNSCHEDULABLE_SELECTOR: plan.selector_row,
    }.get(kind, -1)


def _damp(plan: Blueprint, x: Exercise, dice: Dice, alarm: bool) -> list[Primitive]:
    start = (x.start_tick, Op.DAMP, 0, x.magnitude, 0, 0)
    return [start, (x.end_tick, Op.DAMP, 0, 1000, 0, 0)]


def _saturate(plan: Blueprint, x: Exercise, dice: Dice, alarm: bool) -> list[Primitive]:
    start = (x.start_tick, Op.SURGE, x.target, x.magnitude, 0, 0)
    return [start, (x.end_tick, Op.SURGE, x.target, 0, 0, 0)]


def _flap(plan: Blueprint, x: Exercise, dice: Dice, alarm: bool) -> list[Primitive]:
    out: list[Primitive] = []
    for tick in range(x.start_tick, x.end_tick, 2 * FLAP_TICKS):
        out.append((tick, Op.SURGE, x.target, x.magnitude, 0, 0))
        out.append((tick + FLAP_TICKS, Op.SURGE, x.target, 0, 0, 0))
    return out


def _leak(plan: Blueprint, x: Exercise, dice: Dice, alarm: bool) -> list[Primitive]:
    limit_mib = int(plan.workloads["memory_limit"][x.target])
    rate = limit_mib * 1024 * x.magnitude * TICK_SECONDS // 60_000
    start = (x.start_tick, Op.LEAK, x.target, rate, 0, 0)
    return [start, (x.end_tick, Op.LEAK, x.target, 0, 0, 0)]


def _degrade(plan: Blueprint, x: Exercise, dice: Dice, alarm: bool) -> list[Primitive]:
    kind = Fault.FALSE_ALARM if alarm else Fault.DEGRADATION
    length = x.end_tick - x.start_tick
    return [(x.start_tick, Op.FAULT, x.target, int(kind), length, x.magnitude)]


def _lose(plan: Blueprint, x: Exercise, dice: Dice, alarm: bool) -> list[Primitive]:
    return [(x.start_tick, Op.FAULT, x.target, int(Fault.SUDDEN), 0, 0)]


def _surge(plan: Blueprint, x: Exercise, dice: Dice, alarm: bool) -> list[Primitive]:
    exists = plan.nodes["spare"] == 0
    cpu = int(plan.nodes["cpu"][exists].sum())
    request = int(plan.workloads["cpu_request"][x.target])
    pods = min(max(cpu * x.magnitude // 1000 // request, 8), 110)
    return _spread(x, pods)


def _crowd(plan: Blueprint, x: Exercise, dice: Dice, alarm: bool) -> list[Primitive]:
    return [(x.start_tick, Op.ARRIVE, x.target, x.magnitude, 0, 0)]


def _spread(x: Exercise, pods: int) -> list[Primitive]:
    """Arrivals spread evenly over the stimulus."""
    ticks = x.end_tick - x.start_tick
    steps = [pods * (i + 1) // ticks - pods * i // ticks for i in range(ticks)]
    return [(x.start_tick + i, Op.ARRIVE, x.target, n, 0, 0) for i, n in enumerate(steps) if n]


def _rival(plan: Blueprint, x: Exercise, dice: Dice, alarm: bool) -> list[Primitive]:
    ticks = max(x.magnitude // TICK_SECONDS, 1)
    return [(x.start_tick, Op.RIVAL, 0, ticks, 0, 0), (x.end_tick, Op.RIVAL, 0, 0, 0, 0)]


Script = Callable[[Blueprint, Exercise, Dice, bool], list[Primitive]]

_SCRIPTS: dict[StimulusKind, Script] = {
    StimulusKind.IDLE: _damp,
    StimulusKind.LIGHT: _damp,
    StimulusKind.MEMORY_GROWTH: _leak,
    StimulusKind.NODE_DEGRADATION: _degrade,
    StimulusKind.SUDDEN_NODE_LOSS: _lose,
    StimulusKind.CPU_SATURATION: _saturate,
    StimulusKind.QUEUE_SURGE: _surge,
    StimulusKind.UNSCHEDULABLE_SELECTOR: _crowd,
    StimulusKind.NOISY_NEIGHBOR: _crowd,
    StimulusKind.FLAPPING_LOAD: _flap,
    StimulusKind.RIVAL_CONTROLLER: _rival,
}
