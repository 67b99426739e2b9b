# SPDX-License-Identifier: Apache-2.0
"""The one simulator: a batch of clusters that step together, five seconds at a time.

Order of a tick:

1. the exerciser's events, then machines: precursors, deaths, repairs, boots
2. pods whose time has come: started, back from back-off, terminated, given up on a dead node
3. offered load, and batch pods that arrive
4. usage: demand, contention, latency, memory, out-of-memory kills, finished batch work
5. the rival controller, if any, undoes what it sees
6. HPA and node autoscaler, then owners create and end pods
7. drains evict, empty drained nodes sleep
8. opened gates let held pods go, the scheduler binds
9. energy and tolls

A cluster's future is a function of its blueprint and of the writes made to it, bit for bit: not of
the batch it runs in, of padding, or of the order in which slots were used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from pilothouse.scenarios import Scenario
from pilothouse.sim import machines, placement, pods, replicas, usage
from pilothouse.sim.blueprint import Blueprint, draw
from pilothouse.sim.randomness import Stream, key_one, keys
from pilothouse.sim.state import (
    ASLEEP,
    AWAKE,
    I8,
    NEVER,
    PENDING,
    SERVICE,
    STARTING,
    State,
)
from pilothouse.sim.tick import Tick, suited
from pilothouse.sim.timeline import Deck, Event, Exercise, Op, deal
from pilothouse.sim.trace import Replay, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalMove:
    """Something the rival controller did this tick."""

    cluster: int
    verb: str  # "taint" or "scale"
    row: int
    value: int
    original: int


class Simulation:
    """Clusters drawn from a scenario, one per seed."""

    def __init__(
        self,
        blueprints: Sequence[Blueprint],
        *,
        slots: int = 0,
        nodes: int = 0,
        traces: Sequence[Trace | None] = (),
        tick: Tick | None = None,
    ) -> None:
        """``slots`` and ``nodes`` ask for more room than needed; results do not change.

        A cluster with a trace replays its arrivals instead of drawing them. ``tick`` is how a tick
        is taken where not the suited way; results do not change with it either.
        """
        self.blueprints = tuple(blueprints)
        self.rival_moves: list[RivalMove] = []
        self._exercises: list[list[Exercise]] = [[] for _ in self.blueprints]
        self._decks: list[Deck] = []
        self._deck_numbers = [0] * len(self.blueprints)
        self._events: list[list[Event]] = []
        self.state = _build(self.blueprints, slots, nodes)
        for cluster, plan in enumerate(self.blueprints):
            deck = deal(plan, 0, 0)
            self._decks.append(deck)
            self._events.append(_latest_first(deck.events))
            self._exercises[cluster] = list(deck.exercises)
        self._replay = Replay(traces, self.state.workloads)
        for cluster, trace in enumerate(traces):
            if trace is not None:
                first = cluster * self.state.workloads
                self.state.w_rate[first : first + self.state.workloads] = 0
        self._due = np.array([self._next_due(c) for c in range(len(self.blueprints))])
        self._arriving = np.zeros(self.state.nobody_work, dtype=np.int32)
        self._tick = tick or suited(len(self.blueprints))
        _populate(self.state, self.blueprints)

    @classmethod
    def of(cls, scenario: Scenario, seeds: Sequence[int], tick: Tick | None = None) -> Simulation:
        """One cluster per seed."""
        return cls([draw(scenario, seed) for seed in seeds], tick=tick)

    @property
    def tick(self) -> int:
        return self.state.tick

    def step(self) -> None:
        """One tick of every cluster."""
        s = self.state
        s.tick += 1
        self.rival_moves = []
        self._exercise()
        self._tick.live(s, self._arriving)
        self._rival()
        replicas.autoscale_pods(s)
        replicas.autoscale_nodes(s)
        self._tick.settle(s)

    def exercises(self, cluster: int) -> list[Exercise]:
        """What is being exercised now."""
        now = self.state.tick
        return [x for x in self._exercises[cluster] if x.start_tick <= now < x.end_tick]

    def copy(self) -> Simulation:
        """An independent simulation with the same future under the same writes."""
        twin = Simulation.__new__(Simulation)
        twin.blueprints = self.blueprints
        twin.rival_moves = []
        twin._exercises = [list(x) for x in self._exercises]
        twin._decks = list(self._decks)
        twin._deck_numbers = list(self._deck_numbers)
        twin._events = [list(x) for x in self._events]
        twin.state = self.state.copy()
        twin._replay = self._replay
        twin._due = self._due.copy()
        twin._arriving = self._arriving.copy()
        twin._tick = type(self._tick)()
        return twin

    def save(self) -> bytes:
        """The changing part as bytes; the blueprints are drawn again from scenario and seed."""
        return msgspec.msgpack.encode([self._deck_numbers, self.state.to_bytes()])

    def restore(self, data: bytes) -> None:
        """Continue from what ``save`` wrote, on the same blueprints."""
        decoded: Any = msgspec.msgpack.decode(data)
        numbers, raw = decoded
        self.state = State.from_bytes(raw)
        for cluster, plan in enumerate(self.blueprints):
            deck = deal(plan, 0, 0)
            events, exercises = list(deck.events), list(deck.exercises)
            for number in range(1, numbers[cluster] + 1):
                deck = deal(plan, number, deck.end_tick)
                events += deck.events
                exercises += deck.exercises
            now = self.state.tick
            self._decks[cluster] = deck
            self._events[cluster] = _latest_first([e for e in events if e.tick > now])
            self._exercises[cluster] = [x for x in exercises if x.end_tick > now]
        self._deck_numbers = list(numbers)
        self._due = np.array([self._next_due(c) for c in range(len(self.blueprints))])

    def _next_due(self, cluster: int) -> int:
        events = self._events[cluster]
        deck_end = self._decks[cluster].end_tick
        return min(events[-1].tick, deck_end) if events else deck_end

    def _exercise(self) -> None:
        s = self.state
        self._arriving[:] = 0
        replayed = self._replay.due(s.tick)
        if len(replayed):
            np.add.at(self._arriving, replayed, 1)
        for cluster in np.flatnonzero(self._due <= s.tick).tolist():
            if self._decks[cluster].end_tick <= s.tick:
                self._deal_again(cluster)
            events = self._events[cluster]
            while events and events[-1].tick <= s.tick:
                self._happen(cluster, events.pop())
            self._due[cluster] = self._next_due(cluster)

    def _deal_again(self, cluster: int) -> None:
        self._deck_numbers[cluster] += 1
        start = self._decks[cluster].end_tick
        deck = deal(self.blueprints[cluster], self._deck_numbers[cluster], start)
        self._decks[cluster] = deck
        self._events[cluster] = _latest_first(self._events[cluster] + list(deck.events))
        live = [x for x in self._exercises[cluster] if x.end_tick > self.state.tick]
        self._exercises[cluster] = live + list(deck.exercises)

    def _happen(self, cluster: int, event: Event) -> None:
        s = self.state
        row = cluster * s.workloads + event.target
        match event.op:
            case Op.ARRIVE:  # nine of ten events
                self._arriving[row] += event.value
            case Op.SURGE:
                s.w_surge[row] = event.value
            case Op.DAMP:
                s.c_damp[cluster] = event.value
            case Op.LEAK:
                s.w_leak[row] = event.value
                pods.set_leak(s, np.flatnonzero(s.active_work == row))
            case Op.RIVAL:
                s.c_rival[cluster] = event.value
            case Op.FAULT:
                node = cluster * s.nodes + event.target
                machines.inflict(s, node, event.value, event.extra, event.more)
            case Op.LATENCY:
                pods.move_user(s, cluster * s.nodes + event.target, event.value)

    def _rival(self) -> None:
        """Another controller that takes back what is not as its own manifests say."""
        s = self.state
        if not s.c_rival.any():
            return
        tainted = np.flatnonzero(s.n_taint[:-1])
        for node in tainted.tolist():
            delay = int(s.c_rival[node // s.nodes])
            if delay and s.tick - s.n_taint_tick[node] >= delay:
                self._move("taint", node // s.nodes, node, 0, 1)
                s.n_taint[node] = 0
                s.c_freed[node // s.nodes] = s.tick
        foreign = (s.w_desired != s.w_baseline) & (s.w_autoscaled == 0) & (s.w_kind == SERVICE)
        for row in np.flatnonzero(foreign[:-1]).tolist():
            delay = int(s.c_rival[row // s.workloads])
            if delay and s.tick - s.w_scaled_tick[row] >= delay:
                before, after = int(s.w_desired[row]), int(s.w_baseline[row])
                self._move("scale", row // s.workloads, row, after, before)
                s.w_desired[row] = after
                s.w_scaled_tick[row] = s.tick

    def _move(self, verb: str, cluster: int, row: int, value: int, original: int) -> None:
        self.rival_moves.append(
            RivalMove(cluster=cluster, verb=verb, row=row, value=value, original=original)
        )


def _latest_first(events: Sequence[Event]) -> list[Event]:
    """The next event is the last of the list, so that taking it is cheap."""
    return sorted(events, reverse=True)


def _build(plans: tuple[Blueprint, ...], slots: int, node_rows: int) -> State:
    wanted = sum(_pods_at_start(p) for p in plans)
    s = State(
        batch=len(plans),
        nodes=max(node_rows, *(len(p.node_names) for p in plans), 1),
        workloads=max(len(p.workload_names) for p in plans),
        spaces=max(len(p.namespace_names) for p in plans),
        zones=max(len(p.zone_names) for p in plans),
        slots=max(slots, wanted + wanted // 64 + 32),
    )
    for cluster, plan in enumerate(plans):
        _fill_cluster(s, cluster, plan)
    return s


def _pods_at_start(plan: Blueprint) -> int:
    running = plan.workloads["rate"].astype(np.int64) * plan.workloads["work_ticks"] // 64_000
    return int(plan.workloads["baseline"].sum() + running.sum())


def _fill_cluster(s: State, cluster: int, plan: Blueprint) -> None:
    nodes = slice(cluster * s.nodes, cluster * s.nodes + len(plan.node_names))
    for name, column in plan.nodes.items():
        if not name.endswith("_mw") or name == "idle_mw":
            getattr(s, f"n_{name}")[nodes] = column
    for name in ("cpu", "memory"):
        rate = plan.nodes[f"{name}_mw"].astype(np.int64) * 1024 // plan.nodes[name]
        getattr(s, f"n_{name}_rate")[nodes] = rate
    s.n_place[nodes] = cluster * s.zones + plan.nodes["zone"]
    here = plan.nodes["spare"] == 0
    s.n_exists[nodes] = here
    s.n_ready[nodes] = here
    s.n_power[nodes] = np.where(here, AWAKE, ASLEEP)
    s.n_uid[nodes] = np.where(here, np.arange(1, len(here) + 1), 0)
    seed = np.array([plan.seed], dtype=np.uint32)
    s.n_key[nodes] = keys(seed, Stream.NODE, np.arange(len(here)))
    rows = slice(cluster * s.workloads, cluster * s.workloads + len(plan.workload_names))
    for name, column in plan.workloads.items():
        getattr(s, f"w_{name}")[rows] = column
    count = np.arange(len(plan.workload_names))
    s.w_exists[rows] = 1
    s.w_home[rows] = cluster
    s.w_desired[rows] = plan.workloads["baseline"]
    s.w_floor[rows] = np.maximum(plan.workloads["baseline"] // 2, 1)
    s.w_ceiling[rows] = 2 * plan.workloads["baseline"]
    s.w_key[rows] = keys(seed, Stream.LOAD, count)
    s.w_burst_key[rows] = keys(seed, Stream.BURST, count)
    s.w_arrival_key[rows] = keys(seed, Stream.ARRIVAL, count)
    s.w_pod_key[rows] = keys(seed, Stream.POD, count)
    zones = slice(cluster * s.zones, cluster * s.zones + len(plan.zone_names))
    s.z_price[zones] = plan.zones["price"]
    s.z_carbon[zones] = plan.zones["carbon"]
    s.c_seed[cluster] = key_one(plan.seed, Stream.TIE, 0)
    s.c_day_ticks[cluster] = plan.day_ticks
    s.c_day_offset[cluster] = plan.day_offset
    s.c_noise[cluster] = plan.noise_permille
    s.c_burst[cluster] = plan.burst_permille
    s.c_burst_level[cluster] = plan.burst_level_permille
    s.c_lateness[cluster] = plan.lateness_permille
    s.c_repair_low[cluster] = plan.repair_ticks.low
    s.c_repair_high[cluster] = plan.repair_ticks.high
    s.c_nodes[cluster] = len(plan.node_names)
    s.c_next_node_uid[cluster] = int(here.sum()) + 1


def _populate(s: State, plans: tuple[Blueprint, ...]) -> None:
    """Everything declared runs at the start, and batch work is under way."""
    replicas.reconcile(s)
    running = s.w_rate.astype(np.int64) * s.w_work_ticks // 64_000
    usage.tell_time(s)
    by_row = usage._DAY[s.c_day[s.w_home[:-1]]]
    level = s.w_trough[:-1] + (s.w_peak[:-1] - s.w_trough[:-1]) * by_row // 1000
    replicas.admit(s, (running[:-1] * level // 1000).astype(np.int32))
    for _ in range(1_000):
        before = int((s.phase == PENDING).sum())
        s.tried[:] = -1
        placement.schedule(s)
        if int((s.phase == PENDING).sum()) == before:
            break
    started: I8 = np.flatnonzero(s.phase == STARTING)
    pods.run(s, started)
    batch = started[s.is_batch[started] == 1]
    # Somewhere in the middle of their work, by their own key.
    part = (s.key[batch] >> np.uint32(22)).astype(np.int64) + 1
    s.remaining[batch] = np.maximum(s.work_total[batch] * part >> 10, 1)
    s.timer[started] = NEVER
