# SPDX-License-Identifier: Apache-2.0
"""The thesis's two tests as courses: three nodes, one kind of pod, latencies that change.

Test 1 creates its pods one by one, deletes them all and starts over. Test 2 fills up once, then
for ever deletes the oldest and creates a new one. Latencies change at two points of the run, so
that each node is the nearest once. Seeds vary latencies, background load and the order of nodes.

The thesis's pods ask for 250m: thirty of them do not fit one 2-core node. On smaller nodes the
requests are scaled down, and where measuring is noisy all latencies and limits are scaled up;
both are said wherever such a figure is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilothouse.errors import InvalidSetting
from pilothouse.learn.placement.course import FOREVER, Courses, Family, draw

NODES = 3
ONE_NODE = 0.95  # of a node's free room is what all pods of a test take together
JOINS_MS = 3
NEAR, MIDDLE, FAR = (6, 16), (22, 28), (34, 55)  # ms: within soft, within hard, beyond


PRESETS: dict[str, dict[str, Any]] = {
    "short": {},
    "thesis": {"cycles": 500, "waits": True},
}
"""What a comparison changes; the thesis repeats test 1 five hundred times and waits in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A test's settings; the defaults are the thesis's pod and counts on nodes that hold them."""

    test: int = 1
    cycles: int = 6  # test 1: times that all pods come and go
    pods: int = 30
    replacements: int = 120  # test 2: pods after the first ones
    cpu_millicores: int = 250
    memory_mib: int = 64
    soft_ms: int = 20
    hard_ms: int = 30
    node_cores: int = 8  # thirty pods of 250m fit one such node
    nodes_move: bool = False  # test 2: one node is lost and a better one joins
    latency_factor: int = 1  # of all latencies and limits
    waits: bool = False  # on a real cluster: as long as the thesis between placements
    scaled: bool = False  # requests were made smaller to fit the nodes

    def __post_init__(self) -> None:
        if self.test not in (1, 2):
            raise InvalidSetting(f"There are two tests, 1 and 2, but got {self.test}.")
        if 0 < self.hard_ms < self.soft_ms:
            raise InvalidSetting(
                f"A soft limit of {self.soft_ms} ms lies beyond the hard one of {self.hard_ms} ms, "
                "so it could never matter. Give a --soft that is no larger than --hard."
            )

    @property
    def steps(self) -> int:
        return self.cycles * self.pods if self.test == 1 else self.pods + self.replacements

    @property
    def changes(self) -> tuple[int, int]:
        """Steps at which latencies change; in test 1 at the beginning of a cycle."""
        third = self.steps / 3
        if self.test == 1:
            return tuple(round(k * self.cycles / 3) * self.pods for k in (1, 2))  # type: ignore[return-value]
        return round(third), round(2 * third)

    def seconds_before(self, step: int) -> float:
        """What the thesis waits before the pod of this step, deletions included."""
        if step == 0:
            return 0.0
        if self.test == 1:
            return 3.0 + (25.0 if step % self.pods == 0 else 0.0)
        return 2.0 if step <= self.pods else 4.0

    def fitted(self, cpu_millicores: int, memory_mib: int) -> Trial:
        """With pods of which all fit one node that has so much free; never larger ones."""
        cpu = min(self.cpu_millicores, int(ONE_NODE * cpu_millicores / self.pods))
        memory = min(self.memory_mib, int(ONE_NODE * memory_mib / self.pods))
        if cpu < 1 or memory < 1:
            raise InvalidSetting(
                f"{self.pods} pods cannot fit one node with {cpu_millicores}m and {memory_mib} MiB "
                "free. Ask for fewer with --pods."
            )
        smaller = (cpu, memory) != (self.cpu_millicores, self.memory_mib)
        return replace(self, cpu_millicores=cpu, memory_mib=memory, scaled=smaller)

    def deviations(self) -> list[str]:
        """Where this differs from the thesis's pod, as sentences."""
        usual, said = Trial(), []
        ours, thesis = (f"{t.cpu_millicores}m and {t.memory_mib} MiB" for t in (self, usual))
        if self.scaled:
            said.append(
                f"Requests are scaled to {ours}, so that all {self.pods} pods fit one of these "
                f"nodes (the thesis's ask for {thesis})."
            )
        elif ours != thesis:
            said.append(f"Pods ask for {ours} (the thesis's for {thesis}).")
        ours, thesis = (f"{t.soft_ms} and {t.hard_ms} ms" for t in (self, usual))
        if ours != thesis:
            said.append(f"Soft and hard limits are {ours} (the thesis's: {thesis}).")
        if self.latency_factor != 1:
            said.append(
                f"Latencies and limits ({ours}) are taken {self.latency_factor} times as long."
            )
        return said

    @property
    def lost_at(self) -> int:
        """Step before which a node is lost and another joins."""
        return self.steps // 2


def courses(trial: Trial, seeds: int, *, first_seed: int = 0) -> Courses:
    """One course per seed."""
    width = NODES + (1 if trial.nodes_move else 0)
    family = Family(nodes=(width, width), steps=trial.steps, cores=(trial.node_cores,), churn=0.0)
    drawn = draw(replace(family, background_percent=(0, 5)), seed=7_000 + first_seed, count=seeds)
    shape = (seeds, trial.steps + 1)
    epoch = np.searchsorted(np.array(trial.changes), np.arange(trial.steps + 1), side="right")
    latency = _latencies(seeds, width, first_seed)
    made = replace(
        drawn,
        memory=np.full_like(drawn.memory, 4096 * trial.node_cores),
        latency_ms=latency * trial.latency_factor,
        epoch=np.tile(epoch.astype(np.int32), (seeds, 1)),
        pod_cpu=np.full(shape, trial.cpu_millicores, np.int32),
        pod_memory=np.full(shape, trial.memory_mib, np.int32),
        pod_disk=np.zeros(shape, np.int32),  # the thesis's pods ask for none
        soft_ms=np.full(shape, trial.soft_ms * trial.latency_factor, np.int32),
        hard_ms=np.full(shape, trial.hard_ms * trial.latency_factor, np.int32),
        leavers=_leavers(trial, seeds),
    )
    return _moving(made, trial) if trial.nodes_move else made


def joining(trial: Trial) -> Courses:
    """Test 2 for a real cluster of two nodes: the near one is lost, a nearer third one joins.

    Who is there is the cluster's own doing; latencies stay as they are.
    """
    made = courses(replace(trial, nodes_move=False), 1)
    latency = np.array([sum(NEAR) // 2, sum(MIDDLE) // 2, JOINS_MS]) * trial.latency_factor
    return replace(
        made,
        latency_ms=np.broadcast_to(latency.astype(np.int32), (1, 3, NODES)).copy(),
        epoch=np.zeros_like(made.epoch),
    )


def _latencies(seeds: int, width: int, first_seed: int) -> NDArray[np.int32]:
    """(seeds, epochs, nodes): the nearest node is another one in each epoch."""
    dice = np.random.default_rng([41, first_seed])
    latency = np.empty((seeds, 3, width), np.int32)
    for seed in range(seeds):
        order = dice.permutation(NODES)
        for epoch in range(3):
            for rank, (low, high) in enumerate((NEAR, MIDDLE, FAR)):
                node = order[(epoch + rank) % NODES]
                latency[seed, epoch, node] = dice.integers(low, high, endpoint=True)
        latency[seed, :, NODES:] = JOINS_MS  # who joins late is nearer than anybody
    return latency


def _leavers(trial: Trial, seeds: int) -> NDArray[np.int32]:
    steps = trial.steps
    if trial.test == 1:
        table = np.full((steps + 1, trial.pods), -1, np.int32)
        for cycle in range(1, trial.cycles + 1):
            last = cycle * trial.pods
            table[last] = np.arange(last - trial.pods, last)
    else:
        table = np.full((steps + 1, 1), -1, np.int32)
        table[trial.pods :, 0] = np.arange(steps + 1 - trial.pods)
    return np.broadcast_to(table, (seeds, *table.shape)).copy()


def _moving(made: Courses, trial: Trial) -> Courses:
    """The node that is nearest halfway goes; the nearer one that was not there joins."""
    nearest = made.latency_ms[:, 1, :NODES].argmin(axis=1)
    until, since = made.open_until.copy(), made.open_from.copy()
    until[np.arange(made.count), nearest] = trial.lost_at
    since[:, NODES:] = trial.lost_at
    return replace(made, open_until=np.minimum(until, FOREVER), open_from=since)
