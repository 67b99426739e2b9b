# SPDX-License-Identifier: Apache-2.0
"""One cluster on paper: what a scenario and a seed say exists before the first tick.

Columns are plain arrays in the units of the state. Nothing here depends on what anybody does
later, so two arms of a comparison start from the same blueprint.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pilothouse.domain import WorkloadKind
from pilothouse.scenarios import Range, Scenario
from pilothouse.sim.randomness import Dice, Stream

TICK_SECONDS = 5
NOWHERE = 99  # a zone that no node is in
ANYWHERE = -1

Ints = NDArray[np.int32]

SERVICE_NAMES = (
    "cart", "search", "catalog", "checkout", "profile", "gateway", "reviews", "pricing",
    "stream", "thumbs", "feed", "upload", "ledger", "mail", "maps", "chat",
)  # fmt: skip
BATCH_NAMES = ("report", "index", "train", "export", "render", "compact", "scan", "etl")
ZONES = ("north", "harbor", "south", "east", "west", "delta")


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """Arrays by node (n_), by workload (w_), by namespace (s_ for space) and by zone (z_)."""

    seed: int
    scenario: Scenario
    day_ticks: int
    day_offset: int  # ticks into the day at the start
    noise_permille: int
    burst_permille: int
    burst_level_permille: int
    lateness_permille: int
    repair_ticks: Range
    node_names: tuple[str, ...]
    workload_names: tuple[str, ...]
    namespace_names: tuple[str, ...]
    zone_names: tuple[str, ...]
    namespaces: dict[str, Ints]
    zones: dict[str, Ints]
    nodes: dict[str, Ints]
    workloads: dict[str, Ints]
    services: tuple[int, ...] = field(default=())  # rows that stimuli may aim at
    surge_row: int = 0
    noisy_row: int = 0
    selector_row: int = 0


def _pick(dice: Dice, span: Range) -> int:
    return dice.between(span.low, span.high)


def _ticks(seconds: int) -> int:
    return max(seconds // TICK_SECONDS, 1)


class _Rows:
    """Collects one dict per row and turns them into columns."""

    def __init__(self) -> None:
        self.rows: list[dict[str, int]] = []
        self.names: list[str] = []

    def add(self, name: str, **values: int) -> int:
        self.rows.append(values)
        self.names.append(name)
        return len(self.rows) - 1

    def columns(self) -> dict[str, Ints]:
        return {k: np.array([r[k] for r in self.rows], dtype=np.int32) for k in self.rows[0]}


def draw(scenario: Scenario, seed: int) -> Blueprint:
    """The cluster of this scenario under this seed."""
    dice = Dice(seed, Stream.WORLD)
    nodes, cores = _draw_nodes(scenario, dice)
    spaces = _draw_namespaces()
    workloads, services, special = _draw_workloads(scenario, dice, cores, len(nodes.rows))
    day = _ticks(_pick(dice, scenario.load.day_seconds))
    repair = scenario.faults.repair_seconds
    zones = _draw_zones(scenario, dice)
    return Blueprint(
        seed=seed,
        scenario=scenario,
        day_ticks=day,
        day_offset=dice.between(day // 6, day // 3),
        noise_permille=scenario.load.noise_permille,
        burst_permille=scenario.load.burst_permille,
        burst_level_permille=scenario.load.burst_level_permille,
        lateness_permille=scenario.batch.lateness_permille,
        repair_ticks=Range(_ticks(repair.low), _ticks(repair.high)),
        node_names=tuple(nodes.names),
        workload_names=tuple(workloads.names),
        namespace_names=tuple(spaces.names),
        zone_names=tuple(zones.names),
        namespaces=spaces.columns(),
        zones=zones.columns(),
        nodes=nodes.columns(),
        workloads=workloads.columns(),
        services=tuple(services),
        surge_row=special["surge"],
        noisy_row=special["noisy"],
        selector_row=special["selector"],
    )


def _draw_nodes(scenario: Scenario, dice: Dice) -> tuple[_Rows, int]:
    """Nodes, and the cores of those that exist from the start."""
    world = scenario.world
    rows, cores = _Rows(), 0
    count, spare = _pick(dice, world.nodes), _pick(dice, world.spare_nodes)
    for index in range(count + spare):
        size = _pick(dice, world.node_cores)
        profile = dice.between(0, 2)
        rows.add(
            f"worker-{index}" if index < count else f"spare-{index - count}",
            zone=index % world.zones,
            cpu=size * 1000,
            memory=size * _pick(dice, world.node_memory_mib_per_core),
            latency=_pick(dice, world.node_latency_ms),
            # The reference machine, a thrifty one and a hungry one.
            idle_mw=(80_000, 62_000, 95_000)[profile] * size // 12,
            cpu_mw=(120_000, 100_000, 150_000)[profile] * size // 12,
            memory_mw=(60_000, 50_000, 66_000)[profile] * size // 12,
            spare=int(index >= count),
            boot_ticks=_ticks(dice.between(60, 90)),
            scrape=dice.between(0, 2),
        )
        cores += size if index < count else 0
    return rows, cores


def _draw_namespaces() -> _Rows:
    rows = _Rows()
    rows.add("kube-system", managed=0, protected=1)
    rows.add("shop", managed=1, protected=0)
    rows.add("media", managed=1, protected=0)
    rows.add("platform", managed=1, protected=0)
    rows.add("data", managed=1, protected=0)
    rows.add("research", managed=1, protected=0)
    rows.add("legacy", managed=0, protected=0)
    return rows


def _draw_zones(scenario: Scenario, dice: Dice) -> _Rows:
    rows = _Rows()
    for index in range(scenario.world.zones):
        rows.add(
            ZONES[index] if index < len(ZONES) else f"zone-{index}",
            price=dice.between(90_000, 160_000),
            carbon=dice.between(120, 420),
        )
    return rows


def _service(
    space: int, replicas: int, cpu: int, dice: Dice, scenario: Scenario, **extra: int
) -> dict[str, int]:
    shape = scenario.services
    memory = cpu * dice.between(1_400, 3_000) // 1000
    base = _pick(dice, shape.base_latency_ms)
    # At least one eviction is always possible where there are two replicas.
    floor = min(replicas - 1, (3 * replicas + 3) // 4)
    values = {
        "space": space,
        "kind": int(WorkloadKind.SERVICE),
        "priority": dice.between(1, 10) * 100,
        "baseline": replicas,
        "min_available": max(floor, 0),
        "cpu_request": cpu,
        "cpu_limit": cpu * shape.limit_permille // 1000,
        "memory_request": memory,
        "memory_limit": memory * shape.memory_limit_permille // 1000,
        "memory_base": memory * 55 // 100,
        "memory_load": memory * 25 // 100,
        "base_ms": base,
        "objective_ms": base * _pick(dice, shape.objective_factor_permille) // 1000
        + scenario.world.node_latency_ms.high,
        "start_ticks": _ticks(_pick(dice, shape.start_seconds)),
        "grace_ticks": dice.between(1, 3),
        "trough": _pick(dice, scenario.load.trough_permille),
        "peak": _pick(dice, scenario.load.peak_permille),
        "phase": dice.between(0, 120) - 60,
        "autoscaled": 0,
        "evictable": 1,
        "zone": ANYWHERE,
        "rate": 0,
        "work_ticks": 0,
        "appetite": 0,
        "patience_ticks": 0,
    }
    return values | extra


def _batch(
    space: int, cpu: int, run_ticks: int, dice: Dice, scenario: Scenario, **extra: int
) -> dict[str, int]:
    shape = scenario.batch
    memory = cpu * dice.between(1_000, 2_400) // 1000
    values = {
        "space": space,
        "kind": int(WorkloadKind.BATCH),
        "priority": 10,
        "baseline": 0,
        "min_available": 0,
        "cpu_request": cpu,
        "cpu_limit": cpu * shape.limit_permille // 1000,
        "memory_request": memory,
        "memory_limit": memory * 2,
        "memory_base": memory * 80 // 100,
        "memory_load": 0,
        "base_ms": 0,
        "objective_ms": 0,
        "start_ticks": dice.between(1, 3),
        "grace_ticks": 1,
        "trough": 300,
        "peak": 1000,
        "phase": 0,
        "autoscaled": 0,
        "evictable": 1,
        "zone": ANYWHERE,
        "rate": 0,
        "work_ticks": run_ticks,
        "appetite": cpu * _pick(dice, shape.appetite_permille) // 1000,
        "patience_ticks": 0,
    }
    return values | extra


def _draw_workloads(
    scenario: Scenario, dice: Dice, cores: int, nodes: int
) -> tuple[_Rows, list[int], dict[str, int]]:
    rows = _Rows()
    still = {"trough": 300, "peak": 300, "evictable": 0, "phase": 0}
    dns = _service(0, 3, 100, dice, scenario, priority=2_000_000_000, min_available=2, **still)
    rows.add("dns", **dns)
    store = _service(0, 2, 200, dice, scenario, priority=2_000_000_000, min_available=1, **still)
    rows.add("storage", **store)
    rows.add("billing", **_service(6, 4, 300, dice, scenario))
    rows.add("vault", **_service(6, 1, 200, dice, scenario, evictable=0, min_available=0))
    services = _draw_services(scenario, dice, rows, cores)
    special = _draw_batches(scenario, dice, rows)
    return rows, services, special


def _draw_services(scenario: Scenario, dice: Dice, rows: _Rows, cores: int) -> list[int]:
    shape = scenario.services
    count = _pick(dice, shape.count)
    replicas = [_pick(dice, shape.replicas) for _ in range(count)]
    sizes = [dice.between(3, 9) for _ in range(count)]
    wanted = cores * _pick(dice, shape.requested_permille)
    unit = wanted // max(sum(r * s for r, s in zip(replicas, sizes, strict=True)), 1)
    autoscaled = _pick(dice, shape.autoscaled)
    services = []
    for index in range(count):
        cpu = max(sizes[index] * unit // 10 * 10, 50)
        stem = SERVICE_NAMES[index % len(SERVICE_NAMES)]
        name = stem if index < len(SERVICE_NAMES) else f"{stem}-{index // len(SERVICE_NAMES)}"
        values = _service(1 + index % 3, replicas[index], cpu, dice, scenario)
        if index < autoscaled:
            # An HPA may halve the replicas, so the budget's floor lies below half.
            values |= {"autoscaled": 1, "min_available": max(replicas[index] // 2 - 1, 1)}
        services.append(rows.add(name, **values))
    return services


def _draw_batches(scenario: Scenario, dice: Dice, rows: _Rows) -> dict[str, int]:
    shape = scenario.batch
    count = _pick(dice, shape.workloads)
    pods = _pick(dice, shape.concurrent_pods)
    for index in range(count):
        run = _ticks(_pick(dice, shape.run_seconds))
        stem = BATCH_NAMES[index % len(BATCH_NAMES)]
        name = stem if index < len(BATCH_NAMES) else f"{stem}-{index // len(BATCH_NAMES)}"
        cpu = _pick(dice, shape.cpu_request_millicores)
        share = pods * (index + 1) // count - pods * index // count
        # Arrivals per tick in 1/64ths of 1/1000: scaled by the day's level in per mille.
        values = _batch(4 + index % 2, cpu, run, dice, scenario, rate=share * 64_000 // run)
        rows.add(name, **values)
    cpu = dice.between(120, 180) * 10
    # Greedier than it declares: a cluster full of it by requests is overfull by use.
    surge = _batch(4, cpu, _ticks(dice.between(120, 200)), dice, scenario, appetite=cpu * 14 // 10)
    noisy = _batch(5, 500, _ticks(300), dice, scenario, cpu_limit=7_000, appetite=9_000)
    stuck = _batch(5, 300, _ticks(120), dice, scenario, zone=NOWHERE, patience_ticks=_ticks(600))
    return {
        "surge": rows.add("backfill", **surge),
        "noisy": rows.add("crunch", **noisy),
        "selector": rows.add("pinned", **stuck),
    }
