# SPDX-License-Identifier: Apache-2.0
"""Random placement networks and worlds, and the golden fixtures made from them.

``python -m pilothouse.testing.placement`` writes ``api/fixtures/placement``: the weights of
networks nobody trained, clusters in plain columns, and the features, Q values, choice and scores
that follow; one network sees memory beside CPU, the other disk. JAX, NumPy and Go have to agree
with them.
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilothouse import policy
from pilothouse.policy import Card, Nodes, Pods, Policy, Shape
from pilothouse.policy.features import (
    FEATURES,
    NODE_FEATURES,
    POD_FEATURES,
    BesideCPU,
    seeing,
)

FOLDER = Path(__file__).parents[3] / "api" / "fixtures" / "placement"
SHAPE = Shape(encoder=(len(FEATURES), 32, 32), head=(96, 32, 1))
SIZES = (1, 2, 3, 3, 5, 8, 13, 32, 33, 64, 200)
GOLDEN: dict[str, tuple[BesideCPU, str, tuple[int, ...]]] = {
    "fixture": ("memory", "cases.json", SIZES),
    "disk": ("disk", "disk-cases.json", (1, 2, 3, 5, 13, 33)),
}
"""By policy: what it sees beside CPU, the file of its cases, and their sizes."""
NODE_COLUMNS = tuple(field.name for field in fields(Nodes))
POD_COLUMNS = tuple(field.name for field in fields(Pods))


def random_tensors(seed: int, shape: Shape = SHAPE) -> dict[str, NDArray[np.float32]]:
    """Weights as a network has before training, with some bias so that ties are rare."""
    random = np.random.default_rng(seed)
    tensors = {}
    for part, widths in (("encoder", shape.encoder), ("head", shape.head)):
        for k, (wide, out) in enumerate(pairwise(widths)):
            weight = random.normal(0, np.sqrt(2 / wide), (wide, out))
            tensors[f"{part}.{k}.weight"] = weight.astype(np.float32)
            tensors[f"{part}.{k}.bias"] = random.normal(0, 0.1, out).astype(np.float32)
    return tensors


def random_policy(
    folder: Path, seed: int = 0, *, name: str = "fixture", beside_cpu: BesideCPU = "memory"
) -> Policy:
    """A policy with random weights, written and read back."""
    card = Card(
        policy=name,
        node_features=seeing(NODE_FEATURES, beside_cpu),
        pod_features=seeing(POD_FEATURES, beside_cpu),
        network=SHAPE,
        seed=seed,
        reward={"name": "none: random weights"},
    )
    policy.write(folder / name, card, random_tensors(seed))
    return policy.read(folder / name)


def near_and_few(folder: Path, *, name: str = "near-and-few") -> Policy:
    """Weights set by hand: keep within the limits first, then fill nodes that are active.

    For tests that need a policy whose choice a reader can work out.
    """
    shape = Shape(encoder=(len(FEATURES), 16, 16), head=(48, 16, 1))
    tensors = {k: np.zeros_like(v) for k, v in random_tensors(0, shape).items()}
    wishes = {
        "latency_over_soft": -8.0,
        "latency_over_hard": -16.0,
        "active": 1.0,
        "cpu_requested_share": 0.5,
    }
    for place, (feature, weight) in enumerate(wishes.items()):
        tensors["encoder.0.weight"][FEATURES.index(feature), place] = 1.0
        tensors["encoder.1.weight"][place, place] = 1.0
        tensors["head.0.weight"][place, place] = 1.0
        tensors["head.1.weight"][place, 0] = weight
    card = Card(policy=name, network=shape, reward={"name": "none: weights set by hand"})
    policy.write(folder / name, card, tensors)
    return policy.read(folder / name)


def random_world(random: np.random.Generator, nodes: int) -> tuple[Nodes, Pods]:
    """A cluster in which no single feature decides, and a pod that may or may not have limits."""
    cpu = random.choice([2000, 4000, 8000, 16000], nodes)
    memory = random.choice([4, 8, 16, 64], nodes) * 1024
    capacity = random.choice([30, 110, 250], nodes)
    used = random.random((2, nodes)) * random.choice([0.0, 0.5, 1.0], nodes)
    ask = int(random.choice([0, 100, 250, 1000, 3000])), int(random.choice([0, 64, 512, 4096]))
    cpu_used = np.rint(used[0] * cpu)
    memory_used = np.rint(used[1] * memory)
    soft = float(random.choice([np.nan, 20.0, 50.0]))
    hidden, latency = random.random(nodes), random.exponential(30, nodes)
    undescribed, power = random.random(nodes), random.random(nodes)
    hard = float(random.choice([np.nan, 1.5])) * soft
    disk = random.choice([20, 50, 400], nodes) * 1024
    world = Nodes(
        pods=np.rint(used[0] * capacity / 2),
        pod_capacity=capacity,
        cpu_requested=cpu_used,
        cpu_allocatable=cpu,
        memory_requested=memory_used,
        memory_allocatable=memory,
        active=used[0] > 0,
        latency_ms=np.where(hidden < 0.2, np.nan, latency),
        idle_power_share=np.where(undescribed < 0.3, np.nan, power),
        feasible=(cpu_used + ask[0] <= cpu) & (memory_used + ask[1] <= memory),
        disk_requested=np.rint(random.random(nodes) * disk),
        disk_allocatable=disk,
    )
    pod = Pods(
        cpu_request=ask[0],
        memory_request=ask[1],
        soft_limit_ms=soft,
        hard_limit_ms=hard,
        disk_request=int(random.choice([0, 256, 10_240])),
    )
    return world, pod


def golden_case(network: policy.Network, seed: int, nodes: int) -> dict[str, Any]:
    """One cluster and everything that follows from it."""
    world, pod = random_world(np.random.default_rng(seed), nodes)
    features = policy.build(world, pod, beside_cpu=network.beside_cpu)
    q = network(features)
    feasible = np.asarray(world.feasible, np.bool_)

    def tells(column: str) -> bool:
        return network.beside_cpu == "disk" or not column.startswith("disk_")

    return {
        "seed": seed,
        "nodes": {name: _plain(getattr(world, name)) for name in NODE_COLUMNS if tells(name)},
        "pod": {name: _plain(getattr(pod, name)) for name in POD_COLUMNS if tells(name)},
        "features": _plain(features),
        "q": _plain(q),
        "choice": int(policy.choose(q, feasible)),
        "scores": _plain(policy.to_scores(q, feasible)),
    }


def _plain(values: Any) -> Any:
    """JSON values; what is unknown becomes null."""
    if isinstance(values, np.ndarray):
        return [_plain(value) for value in values]
    value = values.item() if isinstance(values, np.generic) else values
    return None if isinstance(value, float) and np.isnan(value) else value


def write_golden(folder: Path = FOLDER) -> None:
    """Write the weights and the cases."""
    for name, (beside_cpu, file, sizes) in GOLDEN.items():
        network = random_policy(folder, name=name, beside_cpu=beside_cpu).network
        cases = [golden_case(network, seed, size) for seed, size in enumerate(sizes)]
        lines = ",\n".join(json.dumps(case) for case in cases)
        (folder / file).write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    write_golden(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
