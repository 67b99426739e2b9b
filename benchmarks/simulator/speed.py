# SPDX-License-Identifier: Apache-2.0
"""Measures the simulator against its plain Python peers, and alone on a large cluster.

All sides run in one process, in turns, on the same scenario; times are CPU seconds of this
process, so that other work on the machine disturbs less. Each side looks at the whole cluster
after each tick, as a Gymnasium step does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from benchmarks.peers.python_simulator import PythonSimulator
from benchmarks.peers.tuned_python_simulator import TunedPythonSimulator
from benchmarks.simulator import agreement, equality
from pilothouse.scenarios import Scenario, load
from pilothouse.sim.kernels import CompiledTick
from pilothouse.sim.observation import Observer
from pilothouse.sim.simulation import Simulation
from pilothouse.sim.tick import ArrayTick, Tick

BATCH, NODES = 256, 32
PEERS = (PythonSimulator, TunedPythonSimulator)
PEER_CLUSTERS = 6  # a peer steps one cluster at a time; a few show what clusters cost
WARM_UP_TICKS = 20


class Different(AssertionError):
    """Two sides that should agree do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Cluster-ticks per CPU second at one size, one entry per repeat."""

    pods: int
    simulator: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    tuned_peer: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.simulator, self.peer, strict=True)]

    @property
    def tuned_ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.simulator, self.tuned_peer, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def to_dict(self) -> dict[str, object]:
        ratios = {"ratios": self.ratios, "tuned_ratios": self.tuned_ratios}
        return asdict(self) | ratios | {"ratio": self.ratio}


@dataclass(frozen=True, slots=True, kw_only=True)
class Large:
    """Steps of one large cluster."""

    nodes: int
    pods: int
    step_ms: list[float]
    moved_percent: float  # pods that came or went per tick

    @property
    def median_ms(self) -> float:
        return statistics.median(self.step_ms)

    def to_dict(self) -> dict[str, object]:
        return asdict(self) | {"median_ms": self.median_ms}


def scenario_of(pods: int) -> Scenario:
    """The default scenario at this size, one percent of the pods coming or going each tick."""
    return agreement.without_autoscaling(load("harbor").sized(NODES, pods))


def check_peers(pods: int, *, seeds: int, ticks: int) -> None:
    """Every pod, node, workload, toll and observation, tick by tick, on both peers."""
    scenario = scenario_of(pods)
    simulation = Simulation.of(scenario, range(seeds), CompiledTick())
    peers = [(seed, peer(scenario, seed)) for seed in range(seeds) for peer in PEERS]
    for _ in range(ticks):
        simulation.step()
        for seed, peer in peers:
            peer.advance()
            if difference := agreement.first_difference(simulation, seed, peer):
                raise Different(f"{type(peer).__name__} and the simulator differ: {difference}.")


def check_batch(pods: int, *, ticks: int, batch: int = BATCH) -> None:
    """Each cluster of a batch, compiled, is what it is alone on arrays, in every column."""
    scenario = load("harbor").sized(NODES, pods)
    together = Simulation.of(scenario, range(batch), CompiledTick())
    for _ in range(ticks):
        together.step()
    for seed in range(batch):
        alone = Simulation.of(scenario, [seed], ArrayTick())
        for _ in range(ticks):
            alone.step()
        ours, theirs = equality.cluster_columns(together, seed), equality.cluster_columns(alone, 0)
        if difference := equality.first_difference(ours, theirs):
            raise Different(f"Cluster {seed} differs from its single run: {difference}.")


def compare(
    pods: int, *, repeats: int, ticks: int, batch: int = BATCH, tick: Tick | None = None
) -> Comparison:
    """All sides in turns; ``tick`` is how the simulator takes one, where not the suited way."""
    scenario = scenario_of(pods)
    simulation = Simulation.of(scenario, range(batch), tick)
    observer = Observer(simulation.state)
    sides = [[peer(scenario, seed) for seed in range(PEER_CLUSTERS)] for peer in PEERS]

    def step_batch() -> None:
        simulation.step()
        observer.observe(simulation.state)

    def stepper(clusters: list[PythonSimulator]) -> Callable[[], None]:
        def step_each() -> None:
            for cluster in clusters:
                cluster.step()

        return step_each

    steps = [step_batch, *(stepper(side) for side in sides)]
    for step in steps:
        _rate(step, 1, WARM_UP_TICKS)
    result = Comparison(pods=pods)
    for _ in range(repeats):
        result.simulator.append(_rate(steps[0], batch, ticks))
        result.peer.append(_rate(steps[1], PEER_CLUSTERS, ticks))
        result.tuned_peer.append(_rate(steps[2], PEER_CLUSTERS, ticks))
    return result


def _rate(step: Callable[[], None], clusters: int, ticks: int) -> float:
    began = time.process_time()
    for _ in range(ticks):
        step()
    return clusters * ticks / (time.process_time() - began)


def large(nodes: int, pods: int, *, ticks: int, tick: Tick | None = None) -> Large:
    """One cluster, HPA included, one percent of the pods coming or going each tick."""
    simulation = Simulation.of(load("harbor").sized(nodes, pods), [0], tick)
    s = simulation.state
    for _ in range(2 * WARM_UP_TICKS):
        simulation.step()
    times, moved = [], []
    for _ in range(ticks):
        made, here = int(s.c_next_uid[0]), int(s.c_pods[0])
        began = time.process_time()
        simulation.step()
        times.append(1000 * (time.process_time() - began))
        came = int(s.c_next_uid[0]) - made
        went = came - (int(s.c_pods[0]) - here)
        moved.append(100 * (came + went) / here)
    return Large(
        nodes=nodes,
        pods=int(s.c_pods[0]),
        step_ms=times,
        moved_percent=statistics.mean(moved),
    )
