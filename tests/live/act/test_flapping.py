# SPDX-License-Identifier: Apache-2.0
"""Against flapping: load that comes and goes, and a rival that undoes what we do.

The real agents act; nothing tells them what to want. What they did is counted from their journal,
and that it was done is the API server's word, by the receipts.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import sleep, time
from typing import Any

import pytest

from pilothouse.cli.janitor import restore
from pilothouse.clients.access import from_kubeconfig
from pilothouse.clients.requests import Requests
from pilothouse.errors import ClusterUnreachable
from pilothouse.guard.ledger import direction_of, field_of
from pilothouse.lab import Lab
from pilothouse.settings import Settings
from tests.live.act.helm import SPACE, audit
from tests.live.act.pilot import Done, Pilot, piloted, shipped_settings
from tests.live.conftest import a_deployment

SCALE = 40  # every window and time in force is so many times shorter than what is shipped
SHIPPED = Settings().guard
WINDOW, DWELL, WINDOWS = SHIPPED.window_seconds // SCALE, SHIPPED.dwell_seconds // SCALE, 3
RIVAL = "kubectl-rival"  # a person's tool: a known controller would be refused by name at once
SETTINGS = shipped_settings(
    forecast__warmup_seconds=15,
    guard__window_seconds=WINDOW,
    guard__dwell_seconds=DWELL,
    guard__quarantine_seconds=SHIPPED.quarantine_seconds // SCALE,
    guard__ttl_seconds={kind: max(t // SCALE, 1) for kind, t in SHIPPED.ttl_seconds.items()},
)
PATIENCE_SECONDS = 150
BOTH = ("flapper", "wanted")  # load that comes and goes; load whose replicas a rival takes away


class Rival(threading.Thread):
    """Sets the replica count of one Deployment back to one whenever it is not."""

    def __init__(self, lab: Lab, name: str) -> None:
        super().__init__(daemon=True)
        self._requests = Requests(from_kubeconfig(lab.layout.kubeconfig))
        self._path = f"/apis/apps/v1/namespaces/{SPACE}/deployments/{name}"
        self._stopping = threading.Event()
        self.undone = 0

    def run(self) -> None:
        try:
            while not self._stopping.wait(1.0):
                with suppress(ClusterUnreachable):  # a busy machine: it looks again
                    self._undo()
        finally:
            self._requests.close()

    def _undo(self) -> None:
        if self._requests.get(self._path)["spec"]["replicas"] != 1:
            body = {"spec": {"replicas": 1}}
            self.undone += 1
            audit_id = f"rival.{self.undone}"
            self._requests.patch(self._path, body, author=RIVAL, audit_id=audit_id)

    def stop(self) -> None:
        self._stopping.set()
        self.join(20)


@contextmanager
def rivaled(lab: Lab, name: str) -> Iterator[Rival]:
    rival = Rival(lab, name)
    rival.start()
    try:
        yield rival
    finally:
        rival.stop()


@dataclass(frozen=True, slots=True)
class Run:
    """Three windows of a loop under both, from its first action on each of them on."""

    lab: Lab
    done: list[Done]  # inverses included
    rules: set[str]  # under which something was refused
    undone: int  # by the rival

    def by_window(self, name: str) -> list[int]:
        acted = [d for d in on(name, self.done) if not d.action.restores]
        assert acted, f"{name} was never acted on"
        places = [int((d.at - acted[0].at) // WINDOW) for d in acted]
        return [places.count(number) for number in range(WINDOWS)]


def on(name: str, done: list[Done]) -> list[Done]:
    """What was done to one workload."""
    return [d for d in done if any(w.target.name == name for w in d.action.writes)]


@pytest.fixture(scope="module")
def run(
    installed: Lab,
    actuator_kubeconfig: Path,
    janitor: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("flapping")
    asks = {"cpu": "100m", "memory": "32Mi"}
    flaps = ("--burn-millicores=200", "--flap=6s")
    steady = ("--burn-millicores=150",)
    for name, arguments in zip(BOTH, (flaps, steady), strict=True):
        made = a_deployment(name, namespace=SPACE, arguments=arguments, requests=asks)
        installed.apply(json.dumps(made))
    options = (folder, SETTINGS, "--enforce=safety,admission")
    with piloted(installed, actuator_kubeconfig, *options) as pilot:
        with rivaled(installed, "wanted") as rival:
            watch(pilot)
        rules = {v.rule for d in pilot.decisions() for v in d.verdicts}
        yield Run(installed, pilot.done(), rules, rival.undone)
    restore(everything=True, kubeconfig=installed.layout.kubeconfig)
    installed.kubectl("delete", "deployments", "--all", "-n", SPACE, "--wait=false")


def watch(pilot: Pilot) -> None:
    """Until three windows have passed since the first action on either."""
    began = time()
    while True:
        sleep(1)
        assert pilot.process.poll() is None, pilot.last_words()
        done = pilot.done()
        acted = [on(name, done) for name in BOTH]
        if all(acted) and time() > max(a[0].at for a in acted) + WINDOWS * WINDOW:
            return
        assert all(acted) or time() < began + PATIENCE_SECONDS, pilot.last_words()


def reversals(done: list[Done]) -> dict[str, list[int]]:
    """For each field of each object, when our own writes turned it round; inverses included."""
    last: dict[str, int] = {}
    turned: dict[str, list[int]] = {}
    for one in done:
        for write in one.action.writes:
            key, direction = field_of(write), direction_of(write)
            if last.get(key, direction) * direction < 0:
                turned.setdefault(key, []).append(one.decision.made_seconds)
            last[key] = direction or last.get(key, 0)
    return turned


def assert_calm(run: Run, name: str) -> None:
    counts = run.by_window(name)
    assert counts[-1] < counts[0], counts
    assert sum(counts[1:]) <= counts[0], counts
    for field, turns in reversals(on(name, run.done)).items():
        gaps = [later - earlier for earlier, later in pairwise(turns)]
        assert all(gap >= DWELL for gap in gaps), (field, gaps)


def test_flapping_load_is_answered_and_then_left_alone(
    run: Run, measured: Callable[..., None]
) -> None:
    measured(window_seconds=WINDOW, actions_on_flapping_load=run.by_window("flapper"))
    assert_calm(run, "flapper")


def test_rival_that_undoes_our_actions_is_not_fought(
    run: Run, measured: Callable[..., None]
) -> None:
    measured(actions_against_the_rival=run.by_window("wanted"), undone_by_the_rival=run.undone)
    assert run.undone >= 1, "the rival undid nothing, so nothing was tested"
    assert_calm(run, "wanted")
    assert "reversals" in run.rules, sorted(run.rules)


def test_every_action_is_in_the_servers_log(run: Run) -> None:
    seen = {event["auditID"] for event in audit(run.lab)}
    assert {w.intent for done in run.done for w in done.action.writes} <= seen
