# SPDX-License-Identifier: Apache-2.0
"""Decks of stimuli, dealt for the lab."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from pilothouse.errors import LabFailed
from pilothouse.lab.exercise import (
    NAMESPACE,
    Exercise,
    Moved,
    Step,
    deal,
    latency_schedule,
    objects,
)
from pilothouse.lab.layout import Worker
from pilothouse.scenarios import Scenario, StimulusKind, load, names
from pilothouse.scenarios.library import parse


@pytest.mark.parametrize("name", names())
def test_same_seed_deals_the_same_deck(name: str) -> None:
    scenario = load(name)
    assert deal(scenario, 3) == deal(scenario, 3)
    assert len(deal(scenario, 3)) == sum(s.count for s in scenario.exerciser.stimuli)


def test_pace_shortens_everything_and_keeps_the_order() -> None:
    scenario = load("harbor")
    slow, fast = deal(scenario, 1), deal(scenario, 1, pace=10)
    assert [s.kind for s in slow] == [s.kind for s in fast]
    assert all(f.at_seconds <= s.at_seconds // 10 + 1 for s, f in zip(slow, fast, strict=True))


def a_step(kind: StimulusKind, magnitude: int = 500, duration: int = 10) -> Step:
    return Step(number=1, kind=kind, at_seconds=0, duration_seconds=duration, magnitude=magnitude)


def test_everything_made_lives_in_the_exercisers_own_namespace() -> None:
    for kind in StimulusKind:
        for thing in objects(a_step(kind), worker_millicores=500, workers=3):
            assert thing["metadata"]["namespace"] == NAMESPACE


def test_queue_surge_asks_for_its_share_of_the_cluster() -> None:
    (job,) = objects(a_step(StimulusKind.QUEUE_SURGE, 2_000), worker_millicores=500, workers=3)
    assert job["spec"]["parallelism"] * 100 == 2 * 3 * 500


class FakeLab:
    """Remembers what was asked of it."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []

    def workers(self) -> list[Worker]:
        return [Worker(number=n, cpu_millicores=500, memory_mib=512) for n in (1, 2)]

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **_: self.done.append((name, *map(str, given)))


def play(lab: FakeLab, steps: list[Step], latency: Sequence[Moved] = ()) -> Iterator[str]:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return Exercise(lab, clock=lambda: now[0], sleep=sleep).run(steps, latency)  # type: ignore[arg-type]


def test_degraded_node_loses_its_quota_step_by_step_and_gets_everything_back() -> None:
    lab = FakeLab()
    said = list(play(lab, [a_step(StimulusKind.NODE_DEGRADATION, duration=60)]))
    assert "quota of worker-2 shrinks" in said[0]
    quotas = [int(call[2]) for call in lab.done if call[0] == "squeeze"]
    assert quotas[:-1] == sorted(quotas[:-1], reverse=True)
    assert min(quotas) == 125
    assert quotas[-1] == 500
    signals = [call[2] for call in lab.done if call[0] == "signal"]
    assert signals.count(str(signal.SIGSTOP)) > 5
    assert signals[-1] == str(signal.SIGCONT)


class RefusingLab(FakeLab):
    """A container on the worker has a CPU limit above the quota that is asked for."""

    def squeeze(self, worker: str, millicores: int) -> None:
        if millicores < 400:
            raise LabFailed("the kernel refuses that quota")


def test_quota_that_the_kernel_refuses_leaves_the_kubelet_and_is_told() -> None:
    lab = RefusingLab()
    said = list(play(lab, [a_step(StimulusKind.NODE_DEGRADATION, duration=60)]))
    assert said[-1].endswith("in part: the kernel refuses that quota")
    assert str(signal.SIGSTOP) in [call[2] for call in lab.done if call[0] == "signal"]


def test_rival_scales_up_and_down_for_as_long_as_it_lasts() -> None:
    lab = FakeLab()
    list(play(lab, [a_step(StimulusKind.RIVAL_CONTROLLER, magnitude=5, duration=20)]))
    patches = [call[-1] for call in lab.done if call[:2] == ("kubectl", "patch")]
    assert [json.loads(patch)["spec"]["replicas"] for patch in patches] == [1, 2, 1, 2]


def test_flapping_load_is_really_switched_off_and_on() -> None:
    (made,) = objects(a_step(StimulusKind.FLAPPING_LOAD), worker_millicores=500, workers=3)
    arguments = made["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--flap=10s" in arguments


def test_stimulus_that_is_interrupted_is_taken_back() -> None:
    lab = FakeLab()
    run = play(lab, [a_step(StimulusKind.SUDDEN_NODE_LOSS)])
    next(run)
    run.close()  # type: ignore[attr-defined]
    assert ("kill", "kubelet-worker-2") in lab.done
    assert ("restart", "kubelet-worker-2") in lab.done


def moving_users() -> Scenario:
    text = (
        "description: Users move.\n"
        "exerciser:\n"
        "  latency:\n"
        "    - {at_seconds: 0, node_ms: [5, 60]}\n"
        "    - {at_seconds: 40, node_ms: [60, 5]}\n"
    )
    return parse(text, name="moving-users", source="moving-users.yaml")


def test_a_latency_schedule_is_put_into_the_lab_and_taken_back() -> None:
    lab = FakeLab()
    schedule = latency_schedule(moving_users(), lab.workers(), pace=10)

    said = list(play(lab, [], schedule))

    assert [line.split()[0] for line in said] == ["0", "4"]
    assert "worker-1 60 ms, worker-2 5 ms" in said[1]
    assert [call[1] for call in lab.done if call[0] == "set_latency"] == [
        "{'worker-1': 5.0, 'worker-2': 60.0}",
        "{'worker-1': 60.0, 'worker-2': 5.0}",
        "{'worker-1': 0.0, 'worker-2': 0.0}",
    ]
