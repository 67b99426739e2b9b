# SPDX-License-Identifier: Apache-2.0
"""Writes against a running simulation: what an API server would do, and what it would refuse.

``perform`` takes rows, not names, so that a trainer can use it on a whole batch. A refusal is
raised as ``RefusedError`` with the sentence an API server would answer.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pilothouse.domain import Gate, Power, Verb
from pilothouse.errors import BackendError
from pilothouse.sim import machines, pods
from pilothouse.sim.state import (
    ASLEEP,
    AWAKE,
    DEAD,
    DRAINING,
    TERMINATING,
    UNLIMITED,
    State,
)

REPLICAS_MAX = 10_000


class RefusedError(BackendError):
    """The write was not done; the message says why."""


def current(s: State, verb: Verb, row: int) -> int:
    """The value a write would change."""
    return _CURRENT[verb](s, row)


def perform(s: State, verb: Verb, row: int, value: int, avoid: int = -1) -> str:
    """Do one write; the answer says what happened."""
    return _PERFORM[verb](s, row, value, avoid)


def _replicas(s: State, row: int) -> int:
    return int(s.w_floor[row] if s.w_autoscaled[row] else s.w_desired[row])


def _limit(value: int) -> int:
    return 0 if value == UNLIMITED else value


_CURRENT: dict[Verb, Callable[[State, int], int]] = {
    Verb.SCALE: _replicas,
    Verb.TAINT: lambda s, row: int(s.n_taint[row]),
    Verb.AVOID: lambda s, row: 0,
    Verb.EVICT: lambda s, row: 0,
    Verb.DRAIN: lambda s, row: int(s.n_drain[row]),
    Verb.POWER: lambda s, row: int(s.n_power[row] != ASLEEP),
    Verb.FREQUENCY: lambda s, row: int(s.n_frequency[row]),
    Verb.CPU_LIMIT: lambda s, row: _limit(int(s.cpu_limit[row])),
    Verb.MEMORY_REQUEST: lambda s, row: int(s.memory_request[row]),
    Verb.GATE: lambda s, row: int(s.s_gate[row]),
}


def _within(value: int, low: int, high: int, what: str) -> None:
    if not low <= value <= high:
        raise RefusedError(f"invalid: {what} must be between {low} and {high}, but got {value}")


def _scale(s: State, row: int, value: int, avoid: int) -> str:
    _within(value, 0, REPLICAS_MAX, "replicas")
    s.w_scaled_tick[row] = s.tick
    s.w_avoid[row] = avoid
    if s.w_autoscaled[row]:
        s.w_floor[row] = max(value, 1)
        s.w_ceiling[row] = max(int(s.w_ceiling[row]), value)
        s.w_desired[row] = max(int(s.w_desired[row]), value)
        return f"minReplicas {value}"
    before = int(s.w_desired[row])
    s.w_desired[row] = value
    return f"replicas {before} to {value}"


def _taint(s: State, row: int, value: int, avoid: int) -> str:
    _within(value, 0, 1, "taint")
    s.n_taint[row] = value
    s.n_taint_tick[row] = s.tick
    if value == 0:
        _room(s, row // s.nodes)
    return "tainted" if value else "taint removed"


def _room(s: State, cluster: int) -> None:
    """Pending pods are worth another try from the next tick on."""
    s.c_freed[cluster] = s.tick + 1


def _avoid(s: State, row: int, value: int, avoid: int) -> str:
    raise RefusedError(
        "unsupported: here a scale itself names the node its new replica is kept off"
    )


def _evict(s: State, row: int, value: int, avoid: int) -> str:
    if s.phase[row] == TERMINATING:
        return "already terminating"
    why = machines.evict(s, row)
    if why:
        raise RefusedError(why)
    return "evicted"


def _drain(s: State, row: int, value: int, avoid: int) -> str:
    _within(value, 0, 2, "drain")
    power = int(s.n_power[row])
    if value == 0:
        s.n_drain[row] = 0
        if power == DRAINING:
            s.n_power[row] = AWAKE
            _room(s, row // s.nodes)
        return "drain stopped"
    if power not in (AWAKE, DRAINING):
        raise RefusedError(f"the node is {Power(power).name.lower()}")
    s.n_drain[row] = value
    s.n_power[row] = DRAINING
    return "draining, then asleep" if value == 2 else "draining"


def _power(s: State, row: int, value: int, avoid: int) -> str:
    _within(value, 0, 1, "power")
    power = int(s.n_power[row])
    if power == DEAD:
        raise RefusedError("the node is dead")
    if value == 0:
        if power == ASLEEP:
            return "already asleep"
        bound = int(s.n_pods[row])
        if bound:
            raise RefusedError(f"{bound} pods are bound to the node; drain it first")
        machines.sleep(s, row)
        s.n_drain[row] = 0
        return "asleep"
    if power == ASLEEP:
        machines.wake(s, np.array([row]))
        return f"waking, ready in {int(s.n_boot_ticks[row]) * 5} s"
    if power == DRAINING:
        return _drain(s, row, 0, avoid)
    return "already awake"


def _frequency(s: State, row: int, value: int, avoid: int) -> str:
    _within(value, 300, 1000, "frequency")
    s.n_frequency[row] = value
    return f"clock at {value} per mille"


def _cpu_limit(s: State, row: int, value: int, avoid: int) -> str:
    if s.cpu_limit[row] == UNLIMITED:
        raise RefusedError("the pod has no CPU limit; adding one could not be taken back")
    _within(value, pods.SMALLEST_LIMIT, 1_000_000, "CPU limit")
    if s.phase[row] == TERMINATING:
        raise RefusedError("the pod is terminating")
    pods.set_cpu_limit(s, np.array([row]), np.array([value], dtype=np.int32))
    return f"CPU limit {value} millicores"


def _memory_request(s: State, row: int, value: int, avoid: int) -> str:
    _within(value, 1, 10_000_000, "memory request")
    if s.phase[row] == TERMINATING:
        raise RefusedError("the pod is terminating")
    before, limit = int(s.memory_request[row]), int(s.memory_limit[row])
    node = int(s.node[row])
    if node != s.nobody_node:
        free = int(s.n_memory[node] - s.n_memory_requested[node])
        if value - before > free:
            raise RefusedError(f"infeasible: {value - before} MiB more asked, {free} MiB free")
        s.n_memory_requested[node] += value - before
        if value < before:
            _room(s, node // s.nodes)
    s.memory_request[row] = value
    if limit != UNLIMITED:
        after = max(limit * value // max(before, 1), 1)
        pods.set_memory_limit(s, np.array([row]), np.array([after], dtype=np.int32))
    return f"memory request {value} MiB"


def _gate(s: State, row: int, value: int, avoid: int) -> str:
    _within(value, 0, 3, "gate")
    s.s_gate[row] = value
    return f"gate {Gate(value).name.lower()}"


_PERFORM: dict[Verb, Callable[[State, int, int, int], str]] = {
    Verb.SCALE: _scale,
    Verb.TAINT: _taint,
    Verb.AVOID: _avoid,
    Verb.EVICT: _evict,
    Verb.DRAIN: _drain,
    Verb.POWER: _power,
    Verb.FREQUENCY: _frequency,
    Verb.CPU_LIMIT: _cpu_limit,
    Verb.MEMORY_REQUEST: _memory_request,
    Verb.GATE: _gate,
}
