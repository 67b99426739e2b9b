# SPDX-License-Identifier: Apache-2.0
"""The simulator's dynamics as a plain Python, Gymnasium-style environment: one object per pod.

This is how such an environment is usually written: dataclasses with slots, loops, no arrays, and
some care for speed where a profile asks for it: sums and queues are kept instead of searched for,
the loop over running pods is one function with local names. It exists to be compared with: the
same numbers, tick by tick, at the speed of an idiomatic Python loop. Left out, as in the compared
configuration: HPA, node autoscaler, writes.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

from pilothouse.scenarios import Scenario
from pilothouse.sim.blueprint import NOWHERE, TICK_SECONDS, Blueprint, draw
from pilothouse.sim.curves import SHARE, day_level, latency_factor, poisson_table
from pilothouse.sim.timeline import Event, Fault, Op, deal

MASK = 0xFFFFFFFF
GOLDEN = 0x9E3779B9
NEVER = 2**31 - 1
UNLIMITED = 1 << 20

PENDING, STARTING, RUNNING, FAILED, TERMINATING = range(5)
AWAKE, DRAINING, ASLEEP, BOOTING, DEAD = range(5)

BACKOFF_TICKS = (2, 4, 8, 16, 32, 60)
HEALTHY_TICKS = 600 // TICK_SECONDS
LOST_TICKS = 340 // TICK_SECONDS
WAIT_GRACE_TICKS = 60 // TICK_SECONDS
NOT_READY_TICKS = 40 // TICK_SECONDS
LARGEST_SHARE = 64_000
BUSY_SHARE = 921
FULL_SHARE = 922

LATENCY = tuple(latency_factor(share) for share in range(2 * SHARE + 1))
DAY = tuple(day_level(phase) for phase in range(1001))
ARRIVALS = tuple(tuple(row) for row in poisson_table().tolist())


Observation = dict[str, list[list[int]]]
Step = tuple[Observation, float, bool, bool, dict[str, int]]


def mix(x: int) -> int:
    """Scramble 32 bits."""
    x ^= x >> 16
    x = x * 0x85EBCA6B & MASK
    x ^= x >> 13
    x = x * 0xC2B2AE35 & MASK
    return x ^ x >> 16


def make_key(seed: int, stream: int, entity: int) -> int:
    """The key of one entity's draws."""
    base = mix(seed + GOLDEN & MASK)
    base = mix(base + stream * GOLDEN & MASK)
    return mix(base + entity & MASK)


def draw_word(key: int, tick: int) -> int:
    """One draw at one tick."""
    return mix(key + tick * GOLDEN & MASK)


@dataclass(slots=True, eq=False)
class Node:
    """A machine."""

    index: int
    zone: int
    cpu: int
    memory: int
    latency: int
    idle_mw: int
    cpu_rate: int
    memory_rate: int
    boot_ticks: int
    key: int
    power: int = AWAKE
    ready: bool = True
    errors: int = 0
    lag_ms: int = 0
    health: int = 1000
    fault: Fault = Fault.NONE
    fault_tick: int = 0
    fault_ticks: int = 0
    fault_height: int = 0
    wake_tick: int = NEVER
    dead_tick: int = NEVER
    repair_tick: int = NEVER
    deaths: int = 0
    cpu_requested: int = 0
    memory_requested: int = 0
    cpu_used: int = 0
    memory_used: int = 0
    power_mw: int = 0
    pods: dict[int, Pod] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether new pods may come."""
        return self.ready and self.power == AWAKE

    def score(self, work: Workload) -> int:
        """LeastAllocated and BalancedAllocation for one more pod; -1 where it does not fit."""
        cpu = self.cpu_requested + work.cpu_request
        memory = self.memory_requested + work.memory_request
        if cpu > self.cpu or memory > self.memory:
            return -1
        if work.zone >= 0 and work.zone != self.zone:
            return -1
        least = (self.cpu - cpu) * 100 // self.cpu + (self.memory - memory) * 100 // self.memory
        lean = abs(cpu * 1000 // self.cpu - memory * 1000 // self.memory)
        return least // 2 + 100 - lean // 20

    def watts(self) -> int:
        """Power drawn now, in milliwatts."""
        if self.power == DEAD:
            return 0
        if self.power == BOOTING:
            return self.idle_mw * 1300 // 1000
        dynamic = self.cpu_used * self.cpu_rate >> 10
        return self.idle_mw + dynamic + (self.memory_used * self.memory_rate >> 10)

    def observation(self) -> list[int]:
        """What a policy sees of it."""
        return [
            1,
            int(self.ready),
            self.power,
            len(self.pods),
            self.cpu_requested,
            self.memory_requested,
            self.cpu_used,
            self.memory_used,
            self.errors,
            self.lag_ms,
            self.power_mw,
        ]


@dataclass(slots=True, eq=False)
class Workload:
    """An owner of pods."""

    index: int
    batch: bool
    priority: int
    desired: int
    min_available: int
    cpu_request: int
    cpu_limit: int
    memory_request: int
    memory_limit: int
    memory_base: int
    memory_load: int
    base_ms: int
    objective_ms: int
    start_ticks: int
    grace_ticks: int
    trough: int
    peak: int
    phase: int
    zone: int
    rate: int
    work_ticks: int
    appetite: int
    patience_ticks: int
    load_key: int
    burst_key: int
    arrival_key: int
    pod_key: int
    have: int = 0
    owed: int = 0
    ready: int = 0
    created: int = 0
    network_ms: int = 0
    surge: int = 0
    surge_now: int = 0
    leak: int = 0
    load: int = 0
    share: int = 0
    memory_level: int = 0
    latency: int = 0
    violation: bool = False
    factors: int = 0
    squares: int = 0
    before: int = 0
    after: int = 0
    luck: int = 0

    def spread_load(self) -> None:
        """Load and memory of each of its running pods."""
        share = self.appetite if self.batch else self.load // max(self.ready, 1)
        self.share = min(share, LARGEST_SHARE)
        self.memory_level = self.memory_base + self.memory_load * self.share // self.cpu_request
        self.factors = self.squares = 0

    def measure_latency(self) -> None:
        """The 95th percentile over its pods, and whether the objective is broken."""
        if self.ready:
            queueing = self.base_ms * self.squares // max(self.factors * 16, 1)
            self.latency = queueing + self.network_ms // self.ready
        else:
            self.latency = 60 * self.base_ms
        self.violation = (
            self.latency > self.objective_ms
            or self.ready < self.min_available
            or (self.ready == 0 and self.load > 0)
        )

    def observation(self) -> list[int]:
        """What a policy sees of it."""
        return [1, self.load, self.latency, self.ready, self.have, int(self.violation)]


@dataclass(slots=True, eq=False)
class Pod:
    """A pod."""

    uid: int
    key: int
    work: Workload
    created: int
    since: int
    timer: int
    cpu_limit: int
    ratio: int
    memory_limit: int
    memory_alarm: int
    work_total: int
    remaining: int
    deadline: int
    node: Node | None = None
    phase: int = PENDING
    stuck: bool = False
    down: bool = False
    lost: bool = False
    started: bool = False
    tried: int = -1
    leaked: int = 0
    demand: int = 0
    used: int = 0
    memory: int = 0
    restarts: int = 0
    ooms: int = 0
    backoff: int = 0

    def observation(self) -> list[int]:
        """What a policy sees of it."""
        node = -1 if self.node is None else self.node.index
        if self.phase != RUNNING:
            return [self.uid, node, self.phase, 0, 0, self.restarts]
        return [self.uid, node, RUNNING, self.used, self.memory, self.restarts]


class PythonSimulator:
    """One cluster; ``reset`` and ``step`` as in Gymnasium."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.plan: Blueprint = draw(scenario, seed)
        self.reset()

    def reset(self) -> tuple[Observation, dict[str, int]]:
        """Build the cluster and place everything that is declared."""
        plan = self.plan
        self.tick = 0
        self.next_uid = 1
        self.freed = 0
        self.damp = self.damp_now = 1000
        self.failed = self.violation = self.waiting = 0
        self.energy = self.cost = self.carbon = 0
        self.nodes = [self._node(i) for i in range(len(plan.node_names))]
        self.workloads = [self._workload(i) for i in range(len(plan.workload_names))]
        self.services = [w for w in self.workloads if not w.batch]
        self.batches = [w for w in self.workloads if w.rate > 0]
        self.prices = plan.zones["price"].tolist()
        self.carbons = plan.zones["carbon"].tolist()
        self.pods: dict[int, Pod] = {}
        self.pending: dict[int, Pod] = {}
        self.finished: list[Pod] = []
        self.reborn: list[Pod] = []
        self.deck_number = 0
        self.deck = deal(plan, 0, 0)
        self.events: list[Event] = list(self.deck.events)
        self._populate()
        return self._observation(), {}

    def _node(self, index: int) -> Node:
        row: dict[str, Any] = {n: int(column[index]) for n, column in self.plan.nodes.items()}
        for unused in ("spare", "scrape"):
            row.pop(unused)
        for name in ("cpu", "memory"):
            row[f"{name}_rate"] = row.pop(f"{name}_mw") * 1024 // row[name]
        return Node(index=index, key=make_key(self.plan.seed, 5, index), **row)

    def _workload(self, index: int) -> Workload:
        row: dict[str, Any] = {n: int(column[index]) for n, column in self.plan.workloads.items()}
        for unused in ("space", "evictable", "autoscaled"):
            row.pop(unused)
        seed = self.plan.seed
        return Workload(
            index=index,
            batch=bool(row.pop("kind")),
            desired=row.pop("baseline"),
            load_key=make_key(seed, 2, index),
            burst_key=make_key(seed, 3, index),
            arrival_key=make_key(seed, 4, index),
            pod_key=make_key(seed, 1, index),
            **row,
        )

    def _populate(self) -> None:
        self._reconcile()
        day = DAY[self._day_phase()]
        for work in self.workloads:
            level = work.trough + (work.peak - work.trough) * day // 1000
            self._admit(work, work.rate * work.work_ticks // 64_000 * level // 1000)
        before = -1
        while len(self.pending) != before:
            before = len(self.pending)
            for pod in self.pending.values():
                pod.tried = -1
            self._schedule()
        for pod in self.pods.values():
            if pod.phase == STARTING:
                self._run(pod)
                if pod.work.batch:
                    pod.remaining = max(pod.work_total * ((pod.key >> 22) + 1) >> 10, 1)

    def step(self, action: None = None) -> Step:
        """One tick. The reward is what the tick cost, negated."""
        before = self.failed + self.violation
        self.advance()
        reward = float(before - self.failed - self.violation)
        return self._observation(), reward, False, False, {}

    def advance(self) -> None:
        """One tick without looking at it."""
        self.tick += 1
        self._exercise()
        self._advance_machines()
        self._time_comes()
        self._offer_load()
        self._arrive()
        self._consume()
        self._finish_batch()
        self._reconcile()
        self._schedule()
        self._settle()

    def _observation(self) -> Observation:
        return {
            "nodes": [node.observation() for node in self.nodes],
            "workloads": [work.observation() for work in self.workloads],
            "pods": [pod.observation() for pod in self.pods.values()],
        }

    # What happens to the cluster

    def _exercise(self) -> None:
        if self.deck.end_tick <= self.tick:
            self.deck_number += 1
            self.deck = deal(self.plan, self.deck_number, self.deck.end_tick)
            self.events = sorted(self.events + list(self.deck.events))
        self.arriving: dict[int, int] = {}
        while self.events and self.events[0].tick <= self.tick:
            self._happen(self.events.pop(0))

    def _happen(self, event: Event) -> None:
        if event.op is Op.SURGE:
            self.workloads[event.target].surge = event.value
        elif event.op is Op.DAMP:
            self.damp = event.value
        elif event.op is Op.LEAK:
            self.workloads[event.target].leak = event.value
        elif event.op is Op.ARRIVE:
            self.arriving[event.target] = self.arriving.get(event.target, 0) + event.value
        elif event.op is Op.FAULT:
            node = self.nodes[event.target]
            if node.power == AWAKE and node.fault is Fault.NONE:
                node.fault = Fault(event.value)
                node.fault_tick = self.tick
                node.fault_ticks = max(event.extra, 1)
                node.fault_height = event.more

    def _advance_machines(self) -> None:
        for node in self.nodes:
            noise = draw_word(node.key, self.tick)
            node.errors = int(noise >> 24 > 243)
            node.lag_ms = 100 + (noise & 511)
            node.health = 1000
            if node.fault is not Fault.NONE:
                self._advance_fault(node)
            if node.dead_tick + NOT_READY_TICKS == self.tick:
                node.ready = False
            if node.repair_tick == self.tick:
                node.repair_tick = node.dead_tick = NEVER
                node.power = BOOTING
                node.ready = False
                node.wake_tick = self.tick + node.boot_ticks
            if node.wake_tick == self.tick:
                node.wake_tick = NEVER
                node.power = AWAKE
                node.ready = True
                self.freed = self.tick

    def _advance_fault(self, node: Node) -> None:
        age = self.tick - node.fault_tick
        progress = min(1000 * age // node.fault_ticks, 1000)
        alarm = node.fault is Fault.FALSE_ALARM
        level = (
            min(progress, 1000 - progress) * 2 * node.fault_height // 1000 if alarm else progress
        )
        node.errors += 42 * level // 1000
        node.lag_ms += 24_000 * level // 1000
        node.health = 1000 - 400 * level // 1000
        if age >= node.fault_ticks or node.fault is Fault.SUDDEN:
            if alarm:
                node.fault = Fault.NONE
            else:
                self._kill(node)

    def _kill(self, node: Node) -> None:
        node.fault = Fault.NONE
        node.power = DEAD
        node.wake_tick = NEVER
        node.dead_tick = self.tick
        node.deaths += 1
        low, high = self.plan.repair_ticks.low, self.plan.repair_ticks.high
        word = draw_word(node.key, -node.deaths)
        node.repair_tick = self.tick + low + (word * (high - low + 1) >> 32)
        for pod in node.pods.values():
            pod.timer = self.tick + LOST_TICKS
            if pod.phase != TERMINATING:
                self._stop(pod)
                pod.phase = FAILED
                pod.since = self.tick
                pod.down = pod.lost = True

    # The life of a pod

    def _create(self, work: Workload, key: int) -> Pod:
        limit = work.cpu_limit or UNLIMITED
        memory_limit = work.memory_limit or UNLIMITED
        size = 768 + (key >> 9 & 511)
        total = min(work.appetite, limit) * work.work_ticks * size >> 10
        pod = Pod(
            uid=self.next_uid,
            key=key,
            work=work,
            created=self.tick,
            since=self.tick,
            timer=self.tick + work.patience_ticks if work.patience_ticks else NEVER,
            cpu_limit=limit,
            ratio=(1 << 20) // limit,
            memory_limit=memory_limit,
            memory_alarm=memory_limit // 8 * 7,
            work_total=total,
            remaining=max(total, 1) if work.batch else 1,
            deadline=self.tick + WAIT_GRACE_TICKS + 2 * work.work_ticks if work.batch else NEVER,
        )
        self.next_uid += 1
        work.have += 1
        self.pods[pod.uid] = self.pending[pod.uid] = pod
        return pod

    def _create_next(self, work: Workload) -> Pod:
        pod = self._create(work, mix(work.pod_key + work.created & MASK))
        work.created += 1
        return pod

    def _admit(self, work: Workload, count: int) -> None:
        for _ in range(count):
            self._create_next(work)

    def _run(self, pod: Pod) -> None:
        assert pod.node is not None
        pod.phase = RUNNING
        pod.since = self.tick
        pod.timer = NEVER
        pod.down = False
        pod.started = True
        pod.work.ready += 1
        pod.work.network_ms += pod.node.latency

    def _stop(self, pod: Pod) -> None:
        if pod.phase == RUNNING:
            assert pod.node is not None
            pod.work.ready -= 1
            pod.work.network_ms -= pod.node.latency
        pod.memory = pod.leaked = 0

    def _start(self, pod: Pod) -> None:
        ticks = pod.work.start_ticks
        pod.phase = STARTING
        pod.since = self.tick
        pod.timer = self.tick + ticks + (ticks * (pod.key >> 31) >> 1)

    def _bind(self, pod: Pod, node: Node) -> None:
        del self.pending[pod.uid]
        pod.node = node
        node.pods[pod.uid] = pod
        node.cpu_requested += pod.work.cpu_request
        node.memory_requested += pod.work.memory_request
        self._start(pod)

    def _erase(self, pod: Pod) -> None:
        if pod.node is not None:
            del pod.node.pods[pod.uid]
            pod.node.cpu_requested -= pod.work.cpu_request
            pod.node.memory_requested -= pod.work.memory_request
            self.freed = self.tick
        else:
            del self.pending[pod.uid]
        del self.pods[pod.uid]

    def _remove(self, pod: Pod) -> None:
        self._stop(pod)
        pod.work.have -= 1
        self._erase(pod)

    def _crash(self, pod: Pod) -> None:
        level = 0 if self.tick - pod.since >= HEALTHY_TICKS else pod.backoff
        self._stop(pod)
        pod.phase = FAILED
        pod.since = self.tick
        pod.down = True
        pod.restarts += 1
        pod.ooms += 1
        pod.backoff = min(level + 1, len(BACKOFF_TICKS) - 1)
        pod.timer = self.tick + BACKOFF_TICKS[level]
        pod.remaining = pod.work_total if pod.work.batch else 1

    def _give_up_lost(self, pod: Pod) -> None:
        pod.work.have -= 1
        if pod.work.batch:
            self.reborn.append(pod)
        else:
            pod.work.owed += 1
        self._erase(pod)

    def _time_comes(self) -> None:
        due = [pod for pod in self.pods.values() if pod.timer == self.tick]
        for pod in due:
            if pod.phase == PENDING:
                self._remove(pod)
            elif pod.phase == STARTING:
                self._run(pod)
            elif pod.phase == TERMINATING:
                self._erase(pod)
            elif pod.lost:
                self._give_up_lost(pod)
            else:
                self._start(pod)

    # Load and usage

    def _day_phase(self) -> int:
        ticks = self.plan.day_ticks
        return 1000 * ((self.tick + self.plan.day_offset) % ticks) // ticks

    def _draw_minute(self, work: Workload, step: int) -> None:
        """The points that load noise moves between in this minute, and its luck."""
        work.before = draw_word(work.load_key, step) >> 22
        work.after = draw_word(work.load_key, step + 1) >> 22
        work.luck = (draw_word(work.burst_key, step) >> 12) * 125 >> 17

    def _wobble(self, work: Workload, part: int) -> int:
        line = work.before + (work.after - work.before) * part // 12
        noise = 1000 + (line - 512) * self.plan.noise_permille // 512
        if work.luck < self.plan.burst_permille:
            return noise * self.plan.burst_level_permille // 1000
        return noise

    def _offer_load(self) -> None:
        self.damp_now += (self.damp - self.damp_now) >> 2
        base = self._day_phase()
        step, part = divmod(self.tick, 12)
        for work in self.services:
            if part == 0 or self.tick == 1:
                self._draw_minute(work, step)
            work.surge_now += (work.surge - work.surge_now) >> 2
            day = DAY[(base + work.phase) % 1000]
            level = work.trough + (work.peak - work.trough) * day // 1000
            level = level * self._wobble(work, part) // 1000
            level = level * self.damp_now // 1000
            work.load = work.desired * work.cpu_request * max(level, work.surge_now) // 1000

    def _arrive(self) -> None:
        day = DAY[self._day_phase()]
        for work in self.batches:
            level = work.trough + (work.peak - work.trough) * day // 1000
            level = level * self.damp_now // 1000
            rate = min(work.rate * level // 1_000_000, len(ARRIVALS) - 1)
            word = draw_word(work.arrival_key, self.tick)
            if word > ARRIVALS[rate][0]:
                count = bisect_left(ARRIVALS[rate], word)
                self.arriving[work.index] = self.arriving.get(work.index, 0) + count
        for index in sorted(self.arriving):
            self._admit(self.workloads[index], self.arriving[index])

    def _consume(self) -> None:
        for work in self.workloads:
            work.spread_load()
        dying: list[Pod] = []
        for node in self.nodes:
            running = [pod for pod in node.pods.values() if pod.phase == RUNNING]
            dying += self._ask(node, running)
            self._grant(node, running)
            if node.memory_used > node.memory:
                dying.append(max(running, key=lambda p: (p.memory - p.work.memory_request, p.uid)))
        for work in self.services:
            work.measure_latency()
        for pod in {pod.uid: pod for pod in dying}.values():
            self._crash(pod)

    def _ask(self, node: Node, running: list[Pod]) -> list[Pod]:
        """Demand and memory of a node's pods; returns those above their memory limit."""
        dying = []
        asked = held = 0
        offset = self.tick * GOLDEN
        for pod in running:
            work = pod.work
            demand = work.share * (896 + (mix(pod.key + offset & MASK) >> 24)) >> 10
            if work.leak:
                pod.leaked += work.leak * (768 + (pod.key & 511)) >> 10
            memory = work.memory_level + (pod.leaked >> 10)
            if memory > pod.memory_alarm:
                demand = min(demand * 3, LARGEST_SHARE)
                if memory > pod.memory_limit:
                    dying.append(pod)
            used = demand if demand < pod.cpu_limit else pod.cpu_limit
            pod.demand, pod.memory, pod.used = demand, memory, used
            asked += used
            held += memory
        node.cpu_used, node.memory_used = asked, held
        return dying

    def _grant(self, node: Node, running: list[Pod]) -> None:
        """CPU, latency and progress of a node's pods."""
        asked, capability = node.cpu_used, max(node.cpu * node.health // 1000, 1)
        if asked > capability:
            node.cpu_used = capability
            self._share_out(running, capability)
            return
        pressure = min(asked * SHARE // capability, BUSY_SHARE)
        for pod in running:
            busy = pod.demand * pod.ratio >> 10
            self._progress(pod, busy if busy > pressure else pressure)

    def _share_out(self, running: list[Pod], capability: int) -> None:
        """The same on a node that is asked for more than it has."""
        granted = self._water_fill(running, capability)
        for pod, got in zip(running, granted, strict=True):
            busy = max(pod.demand * pod.ratio >> 10, FULL_SHARE)
            if got < pod.used:
                busy = max(busy, min(pod.used * SHARE // max(got, 1), 2 * SHARE))
            pod.used = got
            self._progress(pod, busy)

    def _progress(self, pod: Pod, busy: int) -> None:
        """Feel how busy it is, and do batch work with the CPU it got."""
        work = pod.work
        if work.batch:
            pod.remaining -= pod.used
            if pod.remaining <= 0:
                self.finished.append(pod)
            return
        factor = LATENCY[busy if busy < 2 * SHARE else 2 * SHARE]
        work.factors += factor
        work.squares += factor * factor

    def _water_fill(self, on_node: list[Pod], capability: int) -> list[int]:
        total = sum(max(pod.work.cpu_request, 1) for pod in on_node)
        first = [min(p.used, capability * max(p.work.cpu_request, 1) // total) for p in on_node]
        left = capability - sum(first)
        unmet = [pod.used - share for pod, share in zip(on_node, first, strict=True)]
        missing = max(sum(unmet), 1)
        return [
            min(pod.used, share + left * short // missing)
            for pod, share, short in zip(on_node, first, unmet, strict=True)
        ]

    def _finish_batch(self) -> None:
        # A pod may have run out of memory in the tick that would have been its last.
        for pod in sorted(self.finished, key=lambda pod: pod.uid):
            if pod.phase == RUNNING:
                self._remove(pod)
        self.finished.clear()

    # Controllers

    def _reconcile(self) -> None:
        for old in sorted(self.reborn, key=lambda pod: pod.uid):
            pod = self._create(old.work, old.key)
            pod.created = old.created
            pod.deadline = old.deadline
            pod.down = True
        self.reborn = []
        for work in self.services:
            for _ in range(work.desired - work.have):
                pod = self._create_next(work)
                pod.down = work.owed > 0
                work.owed = max(work.owed - 1, 0)

    def _schedule(self) -> None:
        queue = [
            pod
            for pod in self.pending.values()
            if pod.tried < 0 or self.freed > pod.tried or self.tick - pod.tried >= 12
        ]
        if not queue:
            return
        queue.sort(key=lambda pod: (-pod.work.priority, pod.uid))
        open_nodes = [node for node in self.nodes if node.is_open]
        hopeless: set[int] = set()
        for pod in queue[: max(50, len(self.nodes) // 4)]:
            node = None if pod.work.index in hopeless else self._best_node(pod, open_nodes)
            if node is None:
                pod.tried = self.tick
                pod.stuck = pod.work.zone == NOWHERE
                hopeless.add(pod.work.index)
            else:
                self._bind(pod, node)

    def _best_node(self, pod: Pod, open_nodes: list[Node]) -> Node | None:
        best, best_node = -1, None
        for node in open_nodes:
            score = node.score(pod.work)
            if score < 0:
                continue
            word = pod.key + (node.index + 1) * GOLDEN & MASK
            value = score << 32 | (word ^ word >> 15) * 0xC2B2AE35 & MASK
            if value > best:
                best, best_node = value, node
        return best_node

    # The bill

    def _settle(self) -> None:
        phase = self._day_phase()
        dear, green = DAY[(phase + 950) % 1000], DAY[phase]
        prices = [price * (800 + dear * 2 // 5) // 1000 for price in self.prices]
        carbons = [carbon * (1200 - green * 2 // 5) // 1000 for carbon in self.carbons]
        for node in self.nodes:
            node.power_mw = node.watts()
            self.energy += node.power_mw
            self.cost += node.power_mw * prices[node.zone]
            self.carbon += node.power_mw * carbons[node.zone]
        tick = self.tick
        late = 0
        for pod in self.pods.values():
            if pod.down:
                self.failed += 1
            if pod.deadline < tick and pod.phase != PENDING:
                late += 1
        self.waiting += len(self.pending)
        for pod in self.pending.values():
            if pod.work.batch and tick - pod.created > WAIT_GRACE_TICKS:
                late += 1
        broken = sum(work.violation for work in self.services)
        self.violation += 1000 * broken + late * self.plan.lateness_permille
