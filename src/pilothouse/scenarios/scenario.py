# SPDX-License-Identifier: Apache-2.0
"""The values a scenario file is read into."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal


@dataclass(frozen=True, slots=True)
class Range:
    """Integers from low to high, both included."""

    low: int
    high: int

    def overlaps(self, other: Range) -> bool:
        return self.low <= other.high and other.low <= self.high


class StimulusKind(StrEnum):
    """What the exerciser can do to a cluster; the magnitude's unit is beside each."""

    IDLE = "idle"  # per mille of the usual load of everything
    LIGHT = "light"  # per mille of the usual load of everything
    MEMORY_GROWTH = "memory-growth"  # per mille of the memory limit per minute, one service
    NODE_DEGRADATION = "node-degradation"  # per mille of worst precursors reached by a false alarm
    SUDDEN_NODE_LOSS = "sudden-node-loss"  # none: a node dies without a sign
    CPU_SATURATION = "cpu-saturation"  # per mille of a service's own requests
    QUEUE_SURGE = "queue-surge"  # per mille of the cluster's CPU, asked for by batch pods
    UNSCHEDULABLE_SELECTOR = "unschedulable-selector"  # pods
    NOISY_NEIGHBOR = "noisy-neighbor"  # pods
    FLAPPING_LOAD = "flapping-load"  # per mille of a service's own requests, on and off
    RIVAL_CONTROLLER = "rival-controller"  # seconds until it undoes what it sees


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Machines."""

    nodes: Range = Range(12, 16)
    zones: int = 3
    node_cores: Range = Range(8, 16)
    node_memory_mib_per_core: Range = Range(3_600, 4_400)
    """About 4 GiB per core, the usual general-purpose shape."""
    node_latency_ms: Range = Range(2, 24)
    spare_nodes: Range = Range(0, 0)
    """Nodes a node autoscaler may add; 0 leaves the autoscaler off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Workloads that answer requests."""

    count: Range = Range(11, 13)
    replicas: Range = Range(5, 13)
    requested_permille: Range = Range(440, 520)
    """CPU requests of all services over the cluster's CPU."""
    limit_permille: int = 2_000
    """CPU limit over CPU request."""
    memory_limit_permille: int = 1_600
    base_latency_ms: Range = Range(8, 40)
    objective_factor_permille: Range = Range(5_000, 7_000)
    """Latency objective over base latency, network aside: broken above about 83 % utilization."""
    start_seconds: Range = Range(5, 25)
    autoscaled: Range = Range(2, 3)
    """How many have an HPA."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Workloads that finish."""

    workloads: Range = Range(3, 3)
    concurrent_pods: Range = Range(12, 24)
    """How many run at a time in the long run at full load."""
    cpu_request_millicores: Range = Range(300, 800)
    run_seconds: Range = Range(180, 480)
    limit_permille: int = 2_000
    appetite_permille: Range = Range(1_000, 1_300)
    """CPU a pod would use over its request."""
    lateness_permille: int = 100
    """Violation seconds per second that one batch pod waits or is late beyond its grace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How much is asked of services over a day; a day may be compressed."""

    day_seconds: Range = Range(3_000, 4_200)
    trough_permille: Range = Range(120, 180)
    peak_permille: Range = Range(620, 760)
    noise_permille: int = 60
    burst_permille: int = 15
    """Chance per service and minute of a short burst."""
    burst_level_permille: int = 1_300


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What breaks, apart from stimuli."""

    repair_seconds: Range = Range(1_200, 1_800)
    false_alarm_permille: int = 300
    """Share of degradations whose precursors rise and go away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stimulus:
    """One kind of stress, drawn ``count`` times in every deck."""

    kind: StimulusKind
    count: int = 1
    tuning: dict[str, Range] = field(default_factory=dict)
    held_out: dict[str, Range] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """One stress at a stated time, as a replayed trace tells it."""

    kind: StimulusKind
    at_seconds: int
    duration_seconds: int
    magnitude: int
    target: int = 0
    """Which service or node, counted from 0 and around; meaningless for the whole cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyChange:
    """From a moment of each deck on, how far nodes are from their user."""

    at_seconds: int
    node_ms: tuple[int, ...]
    """Milliseconds by node, in the order of the nodes and around."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exerciser:
    """Deals stimuli from a shuffled deck, spread over ``deck_seconds``, then shuffles again."""

    deck_seconds: Range = Range(3_900, 4_200)
    warmup_seconds: int = 180
    """Quiet at the start of each deck."""
    stimuli: tuple[Stimulus, ...] = ()
    script: tuple[Scripted, ...] = ()
    """Instead of a deck: what happens when. After the last one it begins again."""
    latency: tuple[LatencyChange, ...] = ()
    """A latency schedule, beside the deck or script."""


Ranges = Literal["tuning", "held-out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One file."""

    name: str = ""
    description: str
    world: World = World()
    services: Services = Services()
    batch: Batch = Batch()
    load: Load = Load()
    faults: Faults = Faults()
    exerciser: Exerciser = Exerciser()
    ranges: Ranges = "tuning"

    def with_ranges(self, ranges: Ranges) -> Scenario:
        """The same scenario, its stimuli drawn from the other set of ranges."""
        return replace(self, ranges=ranges)

    def parameters(self, stimulus: Stimulus) -> dict[str, Range]:
        """The ranges in force for one of its stimuli."""
        return stimulus.tuning if self.ranges == "tuning" else stimulus.held_out

    def sized(self, nodes: int, pods: int, *, churn: bool = True) -> Scenario:
        """About this many nodes and pods, for benchmarks.

        With churn a quarter of the pods are batch, alive for forty ticks: one percent of all pods
        comes or goes each tick. Without, a tenth are batch and live as long as in this scenario.
        """
        batch = max(pods // (4 if churn else 10), 1)
        services = max((pods - batch) // 40, 4)
        replicas = (pods - batch) // services
        workloads = max(pods // 1_500, 3)
        return replace(
            self,
            name=f"{self.name}-{nodes}x{pods}",
            world=replace(self.world, nodes=Range(nodes, nodes), spare_nodes=Range(0, 0)),
            services=replace(
                self.services,
                count=Range(services, services),
                replicas=Range(replicas, replicas),
            ),
            batch=replace(
                self.batch,
                workloads=Range(workloads, workloads),
                concurrent_pods=Range(batch, batch),
                cpu_request_millicores=Range(200, 300),
                run_seconds=Range(180, 220) if churn else self.batch.run_seconds,
            ),
        )
