# SPDX-License-Identifier: Apache-2.0
"""The placement environment as a NumPy user would vectorize it: many clusters, one array program.

Plays the very courses that our trainer plays and gives the same observations, masks and rewards
(tests compare them step by step). Needs nothing but NumPy, so that the PyTorch peer can run in an
interpreter of its own.
"""

from __future__ import annotations

import numpy as np

MOST_SHARE = 2.0
MOST_MS = 10_000.0
NEVER = -1e9


class Clusters:
    """``count`` clusters in play; a course that ends is replaced by a random other one."""

    def __init__(self, courses, count, rng):
        self.courses = courses
        self.rng = rng
        self.rows = np.arange(count)
        self.many = len(courses["cpu"])
        self.steps = courses["pod_cpu"].shape[1] - 1
        nodes = courses["cpu"].shape[1]
        self.course = np.zeros(count, np.int64)
        self.clock = np.zeros(count, np.int64)
        self.cpu, self.memory, self.pods, self.counted = (
            np.zeros((count, nodes), np.int64) for _ in range(4)
        )
        self.where = np.full((count, self.steps + 1), -1)
        self.reset(np.ones(count, bool), rng.integers(0, self.many, count))

    def reset(self, over, course):
        c = self.courses
        self.course = np.where(over, course, self.course)
        self.clock[over] = 0
        self.cpu[over] = c["cpu_background"][self.course[over]]
        self.memory[over] = c["memory_background"][self.course[over]]
        self.pods[over] = c["pods_background"][self.course[over]]
        self.counted[over] = 0
        self.where[over] = -1

    def observe(self):
        """Features (clusters, nodes, 18), which nodes exist, and which could take the pod."""
        c, k, t = self.courses, self.course, self.clock
        exists = c["exists"][k]
        room = self._room = c["cpu"][k], c["memory"][k], c["pod_capacity"][k]
        ask = self._ask = c["pod_cpu"][k, t][:, None], c["pod_memory"][k, t][:, None]
        soft, hard = c["soft_ms"][k, t][:, None], c["hard_ms"][k, t][:, None]
        latency = c["latency_ms"][k, c["epoch"][k, t]]
        known = latency >= 0
        mask = exists & (room[0] - self.cpu >= ask[0]) & (room[1] - self.memory >= ask[1])
        mask &= self.pods < room[2]
        ones = np.ones_like(room[0])
        columns = (
            share(self.pods, room[2]),
            share(self.cpu, room[0]),
            share(self.memory, room[1]),
            share(self.cpu + ask[0], room[0]),
            share(self.memory + ask[1], room[1]),
            self.counted > 0,
            np.clip(latency, 0, MOST_MS),
            known,
            c["idle_permille"][k] / 1000,
            mask,
            over(latency, known, soft),
            over(latency, known, hard),
            ones * share(ask[0], np.where(exists, room[0], 0).max(1, keepdims=True)),
            ones * share(ask[1], np.where(exists, room[1], 0).max(1, keepdims=True)),
            ones * soft,
            ones * hard,
            ones * (soft > 0),
            ones * (hard > 0),
        )
        features = np.stack(columns, axis=-1).astype(np.float32) * exists[..., None]
        self._exists, self._mask = exists, mask
        return features, exists, mask

    def step(self, choice):
        """Bind, reward, departures; returns the reward and which courses have ended."""
        c, k, rows = self.courses, self.course, self.rows
        some = self._mask.any(axis=1)
        reward = np.where(some, self._packing(choice), 0.0)
        for table, amount in (
            (self.cpu, self._ask[0][:, 0]),
            (self.memory, self._ask[1][:, 0]),
            (self.pods, 1),
            (self.counted, 1),
        ):
            table[rows, choice] += np.where(some, amount, 0)
        self.where[rows, self.clock] = np.where(some, choice, -1)
        self.clock += 1
        leaving = c["leavers"][k, self.clock]
        node = np.where(leaving >= 0, np.take_along_axis(self.where, leaving, axis=1), -1)
        row, slot = np.nonzero(node >= 0)
        at, pod = (row, node[row, slot]), leaving[row, slot]
        np.subtract.at(self.cpu, at, c["pod_cpu"][k[row], pod])
        np.subtract.at(self.memory, at, c["pod_memory"][k[row], pod])
        np.subtract.at(self.pods, at, 1)
        np.subtract.at(self.counted, at, 1)
        return reward.astype(np.float32), self.clock >= self.steps

    def _packing(self, choice):
        """Do not wake a node needlessly, fill the fullest, wake the roomiest."""
        (cpu_room, memory_room, pods_room), (cpu, memory) = self._room, self._ask
        used = self._mask & (self.counted > 0)
        fresh = self._mask & (self.counted == 0)
        after = 0.5 * ((self.cpu + cpu) / cpu_room + (self.memory + memory) / memory_room)
        room = np.minimum((cpu_room - self.cpu) / cpu, (memory_room - self.memory) / memory)
        room = np.minimum(room, pods_room - self.pods)
        rows = self.rows
        woke = self.counted[rows, choice] == 0
        fullest = np.where(used, after, NEVER).max(axis=1)
        roomiest = np.maximum(np.where(fresh, room, NEVER).max(axis=1), 1.0)
        snug = np.where(woke, 0.0, after[rows, choice] - fullest)
        roomy = np.where(woke, room[rows, choice] / roomiest - 1.0, 0.0)
        return -1.0 * (woke & used.any(axis=1)) + 0.3 * snug + roomy


def share(part, whole):
    return np.clip(np.where(whole > 0, part / np.maximum(whole, 1), 1.0), 0.0, MOST_SHARE)


def over(latency, known, limit):
    beyond = (latency - limit) / np.maximum(limit, 1)
    return np.where((limit > 0) & known, np.clip(beyond, -1.0, 1.0), 0.0)
