# SPDX-License-Identifier: Apache-2.0
"""Drives a scenario's stimuli against the lab: real pods, real quotas, real dead kubelets.

The simulator and the lab read the same scenario files. What a stimulus means here is beside each
of its makers; the same seed deals the same deck. Everything lives in one namespace of its own and
is made under an identity of its own, so the audit log never mixes it up with Pilothouse.
"""

from __future__ import annotations

import hashlib
import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pilothouse.errors import LabFailed, UnknownName
from pilothouse.lab.image import WORKLOAD_IMAGE
from pilothouse.lab.lab import Lab
from pilothouse.lab.layout import Worker
from pilothouse.scenarios import Scenario
from pilothouse.scenarios.scenario import Range, StimulusKind

NAMESPACE = "pilothouse-exercise"  # made with the lab, as is the role that is bound to it
IDENTITY = "exerciser"
LABEL = "pilothouse.dev/stimulus"
MEMORY_LIMIT_MIB = 96
FLAP_SECONDS = 10  # on and off: faster than any forecast of a level can follow
PULSE_SECONDS = 1.0
DUTY_SECONDS = 20  # a failing kubelet stops for a rising part of every such stretch
LEAST_QUOTA = 0.25  # of what it had: how far a degrading worker's quota shrinks
RIVAL_REPLICAS = (1, 2)  # what a rival sets, turn about, whatever anybody else has set
Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One stimulus, dealt."""

    number: int
    kind: StimulusKind
    at_seconds: int
    duration_seconds: int
    magnitude: int  # unit as in the kind's declaration

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.number}"


def deal(scenario: Scenario, seed: int, *, pace: float = 1.0) -> list[Step]:
    """The first deck of a scenario, in order of time; ``pace`` 10 runs it ten times as fast."""
    cards = [s for s in scenario.exerciser.stimuli for _ in range(s.count)]
    length = _draw(scenario.exerciser.deck_seconds, seed, "deck", 0)
    warmup = scenario.exerciser.warmup_seconds
    order = sorted(range(len(cards)), key=lambda i: _word(seed, "order", i))
    gap = (length - warmup) / max(len(cards), 1)
    steps = []
    for turn, index in enumerate(order):
        card = cards[index]
        lasts = card.tuning.get("duration_seconds", Range(120, 120))
        size = card.tuning.get("magnitude", Range(0, 0))
        steps.append(
            Step(
                number=turn + 1,
                kind=card.kind,
                at_seconds=int((warmup + turn * gap) / pace),
                duration_seconds=max(int(_draw(lasts, seed, "duration", index) / pace), 1),
                magnitude=_magnitude(card.kind, _draw(size, seed, "magnitude", index), pace),
            )
        )
    return steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One entry of a latency schedule, for the lab's workers by name."""

    at_seconds: int
    wanted: dict[str, float]


def latency_schedule(
    scenario: Scenario, workers: Sequence[Worker], *, pace: float = 1.0
) -> list[Moved]:
    """The scenario's latency schedule; a list shorter than the workers goes around."""
    return [
        Moved(
            at_seconds=int(change.at_seconds / pace),
            wanted={
                one.name: float(change.node_ms[place % len(change.node_ms)])
                for place, one in enumerate(workers)
            },
        )
        for change in scenario.exerciser.latency
    ]


def _magnitude(kind: StimulusKind, drawn: int, pace: float) -> int:
    """A rival's magnitude is a time, and time runs faster with the pace."""
    return max(int(drawn / pace), 1) if kind is StimulusKind.RIVAL_CONTROLLER else drawn


def _word(seed: int, what: str, index: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{what}/{index}".encode()).digest()[:8])


def _draw(range_: Range, seed: int, what: str, index: int) -> int:
    return range_.low + _word(seed, what, index) % (range_.high - range_.low + 1)


def objects(step: Step, *, worker_millicores: int, workers: int) -> list[Object]:
    """What a stimulus creates; empty for those that work on nodes."""
    makers: dict[StimulusKind, Callable[[], list[Object]]] = {
        StimulusKind.MEMORY_GROWTH: lambda: [
            _deployment(
                step,
                arguments=[
                    f"--grow-mib-per-minute={max(step.magnitude * MEMORY_LIMIT_MIB // 1000, 1)}"
                ],
                limits={"memory": f"{MEMORY_LIMIT_MIB}Mi"},
            )
        ],
        StimulusKind.CPU_SATURATION: lambda: [_burner(step)],
        StimulusKind.FLAPPING_LOAD: lambda: [_burner(step, f"--flap={FLAP_SECONDS}s")],
        StimulusKind.RIVAL_CONTROLLER: lambda: [_deployment(step)],
        StimulusKind.NOISY_NEIGHBOR: lambda: [
            _deployment(
                step, replicas=step.magnitude, arguments=[f"--burn-millicores={worker_millicores}"]
            )
        ],
        StimulusKind.UNSCHEDULABLE_SELECTOR: lambda: [
            _deployment(step, replicas=step.magnitude, selector={"pilothouse.dev/zone": "nowhere"})
        ],
        StimulusKind.QUEUE_SURGE: lambda: [
            _job(step, pods=max(step.magnitude * worker_millicores * workers // 100_000, 1))
        ],
    }
    return makers.get(step.kind, list)()


def _pod_template(
    step: Step,
    *,
    arguments: list[str],
    millicores: int,
    limits: dict[str, str],
    selector: dict[str, str],
    once: bool,
) -> Object:
    labels = {"app": step.name, LABEL: str(step.kind)}
    container = {
        "name": "workload",
        "image": WORKLOAD_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["serve", "--memory-mib=16", *arguments],
        "resources": {
            "requests": {"cpu": f"{millicores}m", "memory": "32Mi"},
            "limits": limits,
        },
    }
    return {
        "metadata": {
            "labels": labels,
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8000"},
        },
        "spec": {
            "restartPolicy": "Never" if once else "Always",
            "terminationGracePeriodSeconds": 2,
            "nodeSelector": selector,
            "containers": [container],
        },
    }


def _deployment(
    step: Step,
    *,
    arguments: list[str] | None = None,
    replicas: int = 1,
    millicores: int = 20,
    limits: dict[str, str] | None = None,
    selector: dict[str, str] | None = None,
) -> Object:
    template = _pod_template(
        step,
        arguments=arguments or [],
        millicores=millicores,
        limits=limits or {},
        selector=selector or {},
        once=False,
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _meta(step),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": step.name}},
            "template": template,
        },
    }


def _burner(step: Step, *more: str) -> Object:
    """A service that asks for a tenth of a core and uses what the magnitude says of it."""
    burn = step.magnitude * 100 // 1000
    return _deployment(step, arguments=[f"--burn-millicores={burn}", *more], millicores=100)


def _job(step: Step, *, pods: int) -> Object:
    """Batch pods of a tenth of a core each: together they ask for what the magnitude says."""
    template = _pod_template(
        step,
        arguments=["--burn-millicores=50"],
        millicores=100,
        limits={},
        selector={},
        once=True,
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _meta(step),
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "activeDeadlineSeconds": step.duration_seconds,
            "ttlSecondsAfterFinished": 5,
            "template": template,
        },
    }


def _meta(step: Step) -> Object:
    labels = {"app": step.name, LABEL: str(step.kind)}
    return {"name": step.name, "namespace": NAMESPACE, "labels": labels}


class Exercise:
    """One run of a deck. ``run`` yields what begins and ends, and cleans up however it ends."""

    def __init__(
        self,
        lab: Lab,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._lab = lab
        self._clock = clock
        self._sleep = sleep
        self._workers = lab.workers()
        self._open: dict[int, tuple[Step, float]] = {}
        self._refusals: dict[int, str] = {}
        self._state: dict[int, object] = {}  # what was last done to a stimulus that goes on

    @property
    def active(self) -> list[Step]:
        """What is going on now; may be read from another thread."""
        return [step for step, _ in list(self._open.values())]

    def run(self, steps: list[Step], latency: Sequence[Moved] = ()) -> Iterator[str]:
        began = self._clock()
        moments: list[tuple[int, int, int, Callable[[], str]]] = []
        for s in steps:
            ends_at = s.at_seconds + s.duration_seconds
            moments.append((ends_at, 0, s.number, partial(self._end_one, s)))
            moments.append((s.at_seconds, 2, s.number, partial(self._open_one, s)))
        for place, moved in enumerate(latency):
            moments.append((moved.at_seconds, 1, place, partial(self._move, moved)))
        try:
            for at, _, _, happen in sorted(moments, key=lambda moment: moment[:3]):
                self._wait_until(began + at)
                yield f"{at:>5} s  {happen()}"
        finally:
            for step in self.active:
                self._close(step)
            if latency:
                self._lab.set_latency(dict.fromkeys(latency[0].wanted, 0.0))

    def _open_one(self, step: Step) -> str:
        self._open[step.number] = (step, self._clock())
        return f"{step.name} begins, {self.begin(step)}"

    def _end_one(self, step: Step) -> str:
        self._close(step)
        refusal = self._refusals.pop(step.number, "")
        return f"{step.name} ends{f'; in part: {refusal}' * bool(refusal)}"

    def _move(self, moved: Moved) -> str:
        self._lab.set_latency(dict(moved.wanted))
        ways = ", ".join(f"{node} {ms:g} ms" for node, ms in moved.wanted.items())
        return f"latencies change: {ways}"

    def _wait_until(self, moment: float) -> None:
        """Meanwhile what goes on changes: quotas shrink, kubelets stop, rivals scale."""
        while (left := moment - self._clock()) > 0:
            for step, since in list(self._open.values()):
                self.pulse(step, self._clock() - since)
            self._sleep(min(left, PULSE_SECONDS))

    def _close(self, step: Step) -> None:
        self._open.pop(step.number, None)
        self._state.pop(step.number, None)
        self.end(step)

    def begin(self, step: Step) -> str:
        """Start a stimulus; says in words what it is here."""
        share = self._workers[0].cpu_millicores if self._workers else 1000
        made = objects(step, worker_millicores=share, workers=max(len(self._workers), 1))
        for thing in made:
            self._lab.apply(json.dumps(thing), identity=IDENTITY)
        if made:
            return f"{made[0]['kind']} {NAMESPACE}/{step.name}"
        worker = self.victim(step)
        if step.kind is StimulusKind.NODE_DEGRADATION:
            return f"the quota of {worker} shrinks and its kubelet stops for longer and longer"
        if step.kind is StimulusKind.SUDDEN_NODE_LOSS:
            self._lab.kill(f"kubelet-{worker}")
            return f"the kubelet of {worker} is dead"
        if step.kind in (StimulusKind.IDLE, StimulusKind.LIGHT):
            return "nothing is done"
        raise UnknownName.among(
            "stimulus of the lab", str(step.kind), [str(k) for k in StimulusKind]
        )

    def pulse(self, step: Step, elapsed: float) -> None:
        """What a stimulus does while it lasts."""
        if step.kind is StimulusKind.NODE_DEGRADATION:
            self._degrade(step, elapsed)
        elif step.kind is StimulusKind.RIVAL_CONTROLLER:
            turn = int(elapsed // max(step.magnitude, 1)) % len(RIVAL_REPLICAS)
            if self._is_new(step, turn):
                self._scale(step, RIVAL_REPLICAS[turn])

    def _degrade(self, step: Step, elapsed: float) -> None:
        """The quota shrinks to a quarter; the kubelet is stopped for a rising part of the time."""
        worker = self.victim(step)
        progress = min(2 * elapsed / step.duration_seconds, 1.0)  # worst from half-time on
        stopped = elapsed % DUTY_SECONDS < progress * DUTY_SECONDS
        quota = round((1 - (1 - LEAST_QUOTA) * progress) * self._workers[0].cpu_millicores)
        if not self._is_new(step, (quota, stopped)):
            return
        try:
            self._lab.squeeze(worker, quota)
        except LabFailed as refusal:  # somebody's container has a higher limit; the kubelet is left
            self._refusals[step.number] = str(refusal)
        self._lab.signal(f"kubelet-{worker}", signal.SIGSTOP if stopped else signal.SIGCONT)

    def _is_new(self, step: Step, state: object) -> bool:
        before = self._state.get(step.number)
        self._state[step.number] = state
        return before != state

    def _scale(self, step: Step, replicas: int) -> None:
        patch = json.dumps({"spec": {"replicas": replicas}})
        self._lab.kubectl(
            *("patch", "deployment", step.name, "-n", NAMESPACE, "--type=merge", "-p", patch),
            identity=IDENTITY,
        )

    def end(self, step: Step) -> None:
        """Take a stimulus back."""
        worker = self.victim(step)
        if step.kind is StimulusKind.NODE_DEGRADATION:
            self._lab.signal(f"kubelet-{worker}", signal.SIGCONT)
            self._lab.squeeze(worker, self._workers[0].cpu_millicores)
        elif step.kind is StimulusKind.SUDDEN_NODE_LOSS:
            self._lab.restart(f"kubelet-{worker}")
        else:
            selector = f"app={step.name}"
            self._lab.kubectl(
                *("delete", "deployments,jobs", "-n", NAMESPACE, "-l", selector),
                "--wait=false",
                identity=IDENTITY,
            )

    def victim(self, step: Step) -> str:
        return self._workers[step.number % len(self._workers)].name if self._workers else ""
