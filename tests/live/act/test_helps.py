# SPDX-License-Identifier: Apache-2.0
"""It helps: fewer requests are lost where agents may act, and they act before the failure.

One pair of each stimulus in the short form. ``benchmarks/helping`` runs five, with what is shipped.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pilothouse.cli.janitor import restore
from pilothouse.clients.access import from_kubeconfig
from pilothouse.clients.requests import Requests
from pilothouse.domain import ActionKind
from pilothouse.lab import Lab
from pilothouse.lab.exercise import Exercise, Step
from pilothouse.scenarios.scenario import StimulusKind
from pilothouse.settings import Settings
from tests.live.act.conftest import read
from tests.live.act.helm import SPACE
from tests.live.act.objects import an_autoscaler, only
from tests.live.act.pilot import Done, Pilot, piloted, quick_settings, shipped_settings
from tests.live.act.twins import OFF, PAIR, Twins, twins

Make = Callable[..., Any]
PAIRS = int(os.environ.get("PILOTHOUSE_PAIRS", "1"))
FIGURES = os.environ.get("PILOTHOUSE_FIGURES", "")  # a file to add one line per pair to
LIMIT_MIB = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How fast things go: in seconds for a test, as shipped for a benchmark."""

    settings: Settings
    leak_mib_per_minute: int
    leak_seconds: int  # how long the leaking service is asked
    bystanders: int  # pods beside the pair: what may be moved is a share of all pods
    degrade_seconds: int
    ramp_seconds: int


QUICK = Course(
    settings=quick_settings(
        guard__ttl_seconds={"replicate": 120, "migrate": 120}, guard__per_workload=4
    ),
    leak_mib_per_minute=120,
    leak_seconds=48,
    bystanders=0,
    degrade_seconds=60,
    ramp_seconds=60,
)
WHOLE = Course(
    settings=shipped_settings(),
    # Killed after two and a half minutes: the guard moves no pod that is younger than two.
    leak_mib_per_minute=30,
    leak_seconds=300,  # long enough to see pods killed in either arm
    bystanders=80,
    degrade_seconds=90,
    ramp_seconds=120,
)
COURSE = WHOLE if PAIRS > 1 else QUICK


@pytest.fixture
def pair(installed: Lab, tmp_path: Path, eventually: Make) -> Iterator[Twins]:
    with twins(installed, tmp_path, eventually) as made:
        yield made


@contextmanager
def acting(lab: Lab, kubeconfig: Path, folder: Path) -> Iterator[Pilot]:
    """Safety acts, in the namespace that opted in; afterwards everything is taken back."""
    try:
        with piloted(lab, kubeconfig, folder, COURSE.settings, "--enforce=safety") as pilot:
            yield pilot
    finally:
        restore(everything=True, kubeconfig=lab.layout.kubeconfig)


def first_action(pilot: Pilot, *kinds: str) -> Done:
    found = [d for d in pilot.done() if not d.action.restores and d.action.kind.value in kinds]
    assert found, pilot.last_words()
    return found[0]


def started_anew(pilot: Pilot, since: float) -> list[float]:
    """When single pods were evicted, in seconds."""
    return [
        round(d.at - since, 1)
        for d in pilot.done()
        if d.action.kind is ActionKind.MIGRATE
        and d.action.target.kind == "pod"
        and not d.action.restores
    ]


def collect(stimulus: str, number: int, **figures: Any) -> None:
    """A line for whoever collects figures."""
    if FIGURES:
        line = {"stimulus": stimulus, "pair": number, "at": time.time()}
        line["load_average"] = os.getloadavg()[0]
        with Path(FIGURES).open("a") as file:
            file.write(json.dumps(line | figures) + "\n")


def verdict(
    stimulus: str, number: int, pilot: Pilot, loads: Any, first: Done, **figures: Any
) -> None:
    tallies = {arm: load.tally() for arm, load in loads.items()}
    on, off, acted = tallies["on"], tallies["off"], first.at - loads["off"].began
    print(
        f"{stimulus} {number}: lost {on['lost']} of {on['due']} with agents on, {off['lost']} of "
        f"{off['due']} with agents off; acted after {acted:.1f} s, the first request was lost "
        f"without us after {off['first_lost_seconds']:.1f} s (measured)"
    )
    reason = first.decision.rationale
    collect(stimulus, number, on=on, off=off, acted_seconds=acted, reason=reason, **figures)
    assert off["lost"] > 0, "the stimulus did no harm, so nothing was tested"
    assert on["lost"] < off["lost"], pilot.last_words()
    assert acted < off["first_lost_seconds"], "we acted only after the failure"


@pytest.mark.timeout(300 + COURSE.leak_seconds)
@pytest.mark.parametrize("number", range(1, PAIRS + 1))
def test_leaking_service_loses_fewer_requests_where_agents_act(
    number: int,
    installed: Lab,
    actuator_kubeconfig: Path,
    janitor: Any,
    pair: Twins,
    tmp_path: Path,
) -> None:
    """Every replica leaks until the kernel kills it. Where agents act a second one answers, and the
    first is started anew meanwhile."""
    leak = ("--memory-mib=16", f"--grow-mib-per-minute={COURSE.leak_mib_per_minute}")
    with acting(installed, actuator_kubeconfig, tmp_path / "pilot") as pilot:
        which, name = 1 + number % 3, f"leaky-{number}"  # budgets count by node and by name
        pair.surround(COURSE.bystanders)
        with only(installed, f"worker-{which}"):
            pair.make(name, arguments=leak, limits={"memory": f"{LIMIT_MIB}Mi"})
        loads = pair.ask(name, f"20x{COURSE.leak_seconds}s", seed=number)
        loads["off"].process.wait(COURSE.leak_seconds + 30)
        anew = started_anew(pilot, loads["off"].began)
        print(f"memory-growth {number}: pods started anew after {anew} s (measured)")
        first = first_action(pilot, "replicate")
        verdict("memory-growth", number, pilot, loads, first, started_anew_seconds=anew)
        assert anew, "the leaking pod was left to the kernel, so only half of it was tested"


@contextmanager
def degrading(lab: Lab, worker: int, seconds: int) -> Iterator[None]:
    """The exerciser's own degradation: a shrinking quota and a kubelet that stops for longer."""
    kind = StimulusKind.NODE_DEGRADATION
    step = Step(number=worker - 1, kind=kind, at_seconds=0, duration_seconds=seconds, magnitude=0)
    exercise = Exercise(lab)
    assert exercise.victim(step) == f"worker-{worker}"
    thread = threading.Thread(target=lambda: list(exercise.run([step])))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def is_up(lab: Lab, name: str) -> bool:
    return any(n["name"] == name and n["ready"] for n in lab.status()["nodes"])


@pytest.mark.parametrize("number", range(1, PAIRS + 1))
def test_service_on_a_degrading_node_loses_fewer_requests_where_agents_act(
    number: int,
    installed: Lab,
    actuator_kubeconfig: Path,
    janitor: Any,
    pair: Twins,
    tmp_path: Path,
    eventually: Make,
) -> None:
    """Its pods are moved while the node still answers; without us Kubernetes first gives it up."""
    light = ("--work=2ms", "--train-step=0s")
    which, name = 1 + (number + 1) % 3, f"tenant-{number}"  # budgets count by node and by name
    node = f"worker-{which}"
    with only(installed, node):
        pair.make(name, replicas=2, least=1, arguments=light)
    with acting(installed, actuator_kubeconfig, tmp_path / "pilot") as pilot:
        warm = COURSE.settings.forecast.warmup_seconds
        eventually(lambda: is_warm(pilot), seconds=warm + 60)
        loads = pair.ask(name, f"20x{COURSE.degrade_seconds + 5}s", seed=number)
        with degrading(installed, which, COURSE.degrade_seconds):
            pass
        eventually(lambda: is_up(installed, node))
        verdict("node-degradation", number, pilot, loads, first_action(pilot, "migrate"))


def is_warm(pilot: Pilot) -> bool:
    """Whether forecasts have begun: until then Safety says that there is none."""
    last = pilot.decisions()[-1:]
    return bool(last) and not any("no forecast" in p.reason for p in last[0].proposals)


@pytest.mark.parametrize("number", range(1, PAIRS + 1))
def test_ramping_surge_raises_the_minimum_before_the_autoscaler_reacts(
    number: int,
    installed: Lab,
    actuator_kubeconfig: Path,
    janitor: Any,
    pair: Twins,
    tmp_path: Path,
) -> None:
    """The control is an autoscaler like it under the same surge, where nobody acts."""
    name = f"surge-{number}"
    pair.make(name, arguments=("--work=10ms",), requests={"cpu": "200m", "memory": "32Mi"})
    for space in PAIR.values():
        scaler = an_autoscaler(name, least=1, most=4)
        scaler["metadata"]["namespace"] = space
        installed.apply(json.dumps(scaler))
    calm = COURSE.settings.forecast.warmup_seconds + 10
    with acting(installed, actuator_kubeconfig, tmp_path / "pilot") as pilot:
        loads = pair.ask(name, ramp(calm, COURSE.ramp_seconds), seed=number)
        reacted = autoscaler_reacts(installed, name, seconds=calm + COURSE.ramp_seconds + 30)
        for load in loads.values():
            load.process.kill()
        first = first_action(pilot, "replicate")
    began = loads["off"].began + calm
    acted, without = first.at - began, reacted - began
    print(
        f"surge {number}: minReplicas raised {acted:.1f} s into the ramp, the autoscaler alone "
        f"reacts after {without:.1f} s: {without - acted:.1f} s ahead (measured)"
    )
    collect("surge", number, acted_seconds=acted, autoscaler_seconds=without)
    assert {w.target.name for w in first.action.writes} == {name}
    assert {w.target.namespace for w in first.action.writes} == {SPACE}
    scaler = read(installed, "hpa", name, "-n", OFF)
    assert scaler["spec"]["minReplicas"] == 1
    assert acted < without


def ramp(calm: int, seconds: int) -> str:
    """From a fifth of what one replica asks for to a fifth more than that, in steps of 5 s."""
    steps = seconds // 5
    rates = [4 + (24 - 4) * (n + 1) / steps for n in range(steps)]
    return ",".join([f"4x{calm}s", *(f"{rate:.1f}x5s" for rate in rates), "24x60s"])


def autoscaler_reacts(lab: Lab, name: str, seconds: float) -> float:
    """When the control's autoscaler first wants more than one replica, by the wall clock."""
    requests = Requests(from_kubeconfig(lab.layout.kubeconfig))
    path = f"/apis/autoscaling/v2/namespaces/{OFF}/horizontalpodautoscalers/{name}"
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            if requests.get(path).get("status", {}).get("desiredReplicas", 0) > 1:
                return time.time()
            time.sleep(0.5)
    finally:
        requests.close()
    raise AssertionError("the autoscaler never reacted, so there is nothing to be ahead of")
