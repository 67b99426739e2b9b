# SPDX-License-Identifier: Apache-2.0
"""A made-up cluster that writes the official 2019 layout, so that the whole path can be tested.

It has what real traces have and a forecaster needs: load with a daily wave, jobs that fail together
because they share a bug, machines that take their instances down, memory leaks with a precursor,
priorities, evictions and resubmissions. Same seed, same files. It proves that the path works; it
proves nothing about real clusters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pilothouse.learn.traces.schema import CODES, SECOND_US, Event

WINDOW_SECONDS = 300
DAY_SECONDS = 86_400
_CODE = {event: code for code, event in enumerate(CODES["google-2019"])}
_PRIORITIES = np.array([25, 103, 117, 200])


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How much, and how rough."""

    jobs: int = 120
    machines: int = 24
    hours: int = 24
    users: int = 8
    seed: int = 0
    leaky_share: float = 0.15
    buggy_users: float = 0.3
    machine_failures_per_day: float = 0.05  # of all machines


def write(folder: Path, recipe: Recipe) -> dict[str, int]:
    """Write four JSON-lines files and say how many rows each has."""
    folder.mkdir(parents=True, exist_ok=True)
    world = _World(recipe)
    tables: dict[str, list[dict[str, Any]]] = {
        "machine_events": list(world.machine_events()),
        "collection_events": [],
        "instance_events": [],
        "instance_usage": [],
    }
    for job in range(recipe.jobs):
        for table, row in world.life_of(job):
            tables[table].append(row)
    for table, rows in tables.items():
        rows.sort(key=lambda row: (row.get("time", row.get("end_time", 0)), json.dumps(row)))
        path = folder / f"{table}-000000000000.json"
        partial = path.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        partial.replace(path)
    return {table: len(rows) for table, rows in tables.items()}


class _World:
    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        dice = np.random.default_rng([recipe.seed, 0])
        self.end = recipe.hours * 3600
        self.capacity = dice.choice([0.25, 0.5, 1.0], recipe.machines)
        chance = recipe.machine_failures_per_day * recipe.hours / 24
        self.dies = np.where(
            dice.random(recipe.machines) < chance,
            dice.integers(3600, max(self.end, 3601), recipe.machines),
            self.end * 10,
        )
        self.buggy = dice.random(recipe.users) < recipe.buggy_users

    def machine_events(self) -> Iterator[dict[str, Any]]:
        for machine, capacity in enumerate(self.capacity.tolist()):
            room = {"cpus": capacity, "memory": capacity}
            yield {"time": 0, "machine_id": machine + 1, "type": 1, "capacity": room}
            if self.dies[machine] < self.end:
                at = int(self.dies[machine]) * SECOND_US
                yield {"time": at, "machine_id": machine + 1, "type": 2, "capacity": room}

    def life_of(self, job: int) -> Iterator[tuple[str, dict[str, Any]]]:
        r = self.recipe
        dice = np.random.default_rng([r.seed, 1, job])
        user = int(dice.integers(r.users))
        start = int(dice.integers(60, max(self.end - 1800, 61)))
        tier = int(dice.choice(4, p=[0.35, 0.3, 0.1, 0.25]))
        shape = _Shape(
            job=1000 + job,
            priority=int(_PRIORITIES[tier]),
            scheduling_class=min(tier, 3),
            cpu=float(dice.uniform(0.003, 0.12)),
            memory=float(dice.uniform(0.003, 0.12)),
            leaky=bool(dice.random() < r.leaky_share),
            buggy=bool(self.buggy[user] and dice.random() < 0.5),
            seconds=int(dice.integers(1200, max(min(self.end, 6 * 3600), 1201))),
        )
        head = {
            "collection_id": str(shape.job),  # as BigQuery writes integers
            "priority": shape.priority,
            "scheduling_class": shape.scheduling_class,
            "user": f"user-{user}",
            "collection_logical_name": f"job-of-{user}-{job % 5}",
        }
        yield "collection_events", {"time": start * SECOND_US, "type": _CODE[Event.SUBMIT], **head}
        bad_day = dice.random() < 0.5  # instances of a buggy job fail together, or not at all
        for index in range(int(dice.integers(1, 6))):
            yield from self._instance(shape, index, start, shape.buggy and bad_day)

    def _instance(
        self, shape: _Shape, index: int, start: int, doomed: bool
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        dice = np.random.default_rng([self.recipe.seed, 2, shape.job, index])
        at = start + int(dice.integers(1, 30))
        for attempt in range(3):  # the first and up to two resubmissions
            machine = int(dice.integers(self.recipe.machines))
            event = self._event(shape, index, machine)
            yield "instance_events", event(at, Event.SUBMIT)
            yield "instance_events", event(at + 5, Event.SCHEDULE)
            end, why = self._fate(shape, at + 5, machine, doomed, dice)
            yield from self._usage(shape, index, machine, at + 5, min(end, self.end), dice)
            if end >= self.end:
                return  # still running when the trace ends
            yield "instance_events", event(end, why)
            if why is Event.FINISH or attempt == 2:
                return
            at = end + int(dice.integers(10, 120))

    def _event(self, shape: _Shape, index: int, machine: int) -> Any:
        def make(at: int, kind: Event) -> dict[str, Any]:
            return {
                "time": at * SECOND_US,
                "type": _CODE[kind],
                "collection_id": str(shape.job),
                "instance_index": index,
                "priority": shape.priority,
                "scheduling_class": shape.scheduling_class,
                "machine_id": str(machine + 1),
                "resource_request": {"cpus": shape.cpu, "memory": shape.memory},
            }

        return make

    def _fate(
        self, shape: _Shape, at: int, machine: int, doomed: bool, dice: np.random.Generator
    ) -> tuple[int, Event]:
        ends = [(at + shape.seconds, Event.FINISH)]
        if shape.leaky:
            ends.append((at + shape.leak_seconds, Event.FAIL))
        if doomed:
            ends.append((at + int(dice.integers(300, 1500)), Event.FAIL))
        if self.dies[machine] > at:
            ends.append((int(self.dies[machine]), Event.LOST))
        if shape.priority < 100:
            ends.append((at + int(dice.exponential(4 * 3600)) + 60, Event.EVICT))
        return min(ends, key=lambda end: end[0])

    def _usage(
        self, shape: _Shape, index: int, machine: int, at: int, end: int, dice: np.random.Generator
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        first = at // WINDOW_SECONDS * WINDOW_SECONDS
        # Habits of the job and bursts of the instance have dice of their own: changing how much is
        # used changes nobody's fate.
        habit = np.random.default_rng([self.recipe.seed, 3, shape.job])
        busy, held = float(habit.uniform(0.1, 1.8)), float(habit.uniform(0.1, 0.7))
        bursts = np.random.default_rng([self.recipe.seed, 4, shape.job, index, at])
        for start in range(first, end, WINDOW_SECONDS):
            begins, ends = max(start, at), min(start + WINDOW_SECONDS, end)
            if ends <= begins:
                continue
            wave = 0.5 + 0.3 * np.sin(2 * np.pi * ends / DAY_SECONDS)
            cpu = shape.cpu * busy * float(wave * dice.uniform(0.85, 1.15))
            grown = (ends - at) / shape.leak_seconds if shape.leaky else 0.0
            memory = (
                shape.memory * min(held + (1 - held) * grown, 1.0) * float(dice.uniform(0.98, 1.0))
            )
            peak = cpu * float(bursts.uniform(1.0, 3.0))
            yield (
                "instance_usage",
                {
                    "start_time": begins * SECOND_US,
                    "end_time": ends * SECOND_US,
                    "collection_id": str(shape.job),
                    "instance_index": index,
                    "machine_id": str(machine + 1),
                    "average_usage": {"cpus": cpu, "memory": memory},
                    "maximum_usage": {"cpus": peak, "memory": memory},
                    "cycles_per_instruction": float(dice.uniform(0.8, 3.0)),
                    "memory_accesses_per_instruction": float(dice.uniform(0.001, 0.02)),
                    "cpu_usage_distribution": [cpu * (0.5 + 0.08 * k) for k in range(11)],
                },
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    job: int
    priority: int
    scheduling_class: int
    cpu: float
    memory: float
    leaky: bool
    buggy: bool
    seconds: int

    @property
    def leak_seconds(self) -> int:
        return max(self.seconds // 2, 600)
