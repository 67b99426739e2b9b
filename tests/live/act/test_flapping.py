# SPDX-License-Identifier: Apache-2.0
"""Against flapping: load that comes and goes, and a rival that undoes what we do.

The real agents act; nothing tells them what to want. What they did is counted from their journal,
and that it was done is the API server's word, by the receipts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import sleep, time
from typing import Any

import pytest

from pilothouse.clients.access import from_kubeconfig
from pilothouse.clients.requests import Requests
from pilothouse.guard.ledger import direction_of, field_of
from pilothouse.lab import Lab
from pilothouse.settings import Settings
from tests.live.act.helm import SPACE, audit
from tests.live.act.pilot import Done, Pilot, piloted, shipped_settings

SCALE = 24  # every window and time in force is so many times shorter than what is shipped
SHIPPED = Settings().guard
WINDOW, DWELL, WINDOWS = SHIPPED.window_seconds // SCALE, SHIPPED.dwell_seconds // SCALE, 3
RIVAL = "rival-controller"
SETTINGS = shipped_settings(
    forecast__warmup_seconds=15,
    guard__window_seconds=WINDOW,
    guard__dwell_seconds=DWELL,
    guard__quarantine_seconds=SHIPPED.quarantine_seconds // SCALE,
    guard__ttl_seconds={kind: max(t // SCALE, 1) for kind, t in SHIPPED.ttl_seconds.items()},
)
Make = Callable[..., Any]


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
                if self._requests.get(self._path)["spec"]["replicas"] != 1:
                    body = {"spec": {"replicas": 1}}
                    self.undone += 1
                    audit_id = f"rival.{self.undone}"
                    self._requests.patch(self._path, body, author=RIVAL, audit_id=audit_id)
        finally:
            self._requests.close()

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


def watch(pilot: Pilot, eventually: Make) -> list[list[Done]]:
    """What was done in each of three windows from the first action on, inverses aside."""
    acted = lambda: [d for d in pilot.done() if not d.action.restores]  # noqa: E731
    first = eventually(acted, seconds=90)[0]
    while time() < first.at + WINDOWS * WINDOW:
        assert pilot.process.poll() is None, pilot.last_words()
        sleep(1)
    windows: list[list[Done]] = [[] for _ in range(WINDOWS)]
    for done in acted():
        number = int((done.at - first.at) // WINDOW)
        if number < WINDOWS:
            windows[number].append(done)
    return windows


def assert_calm(pilot: Pilot, windows: list[list[Done]]) -> None:
    counts = [len(window) for window in windows]
    print(f"actions in windows of {WINDOW} s: {counts} (measured)")
    assert counts[0] >= 1
    assert counts[-1] <= max(counts[0] // 2, 1), counts
    assert sum(counts[1:]) <= counts[0], counts
    for field, turns in reversals(pilot).items():
        gaps = [later - earlier for earlier, later in pairwise(turns)]
        assert all(gap >= DWELL for gap in gaps), (field, gaps)


def reversals(pilot: Pilot) -> dict[str, list[int]]:
    """For each field of each object, when our own writes turned it round; inverses included."""
    last: dict[str, int] = {}
    turned: dict[str, list[int]] = {}
    for done in pilot.done():
        for write in done.action.writes:
            key, direction = field_of(write), direction_of(write)
            if last.get(key, direction) * direction < 0:
                turned.setdefault(key, []).append(done.decision.made_seconds)
            last[key] = direction or last.get(key, 0)
    return turned


def assert_witnessed(lab: Lab, windows: list[list[Done]]) -> None:
    seen = {event["auditID"] for event in audit(lab)}
    intents = {w.intent for window in windows for done in window for w in done.action.writes}
    assert intents <= seen


@pytest.fixture
def pilot(
    installed: Lab, actuator_kubeconfig: Path, janitor: Any, tmp_path: Path
) -> Iterator[Pilot]:
    folder = tmp_path / "pilot"
    with piloted(
        installed, actuator_kubeconfig, folder, SETTINGS, "--enforce=safety,admission"
    ) as made:
        yield made


def test_flapping_load_is_answered_once_and_then_left_alone(
    pilot: Pilot, installed: Lab, harbor: Make, eventually: Make
) -> None:
    flaps = ("--burn-millicores=200", "--flap=6s")
    harbor("flapper", arguments=flaps, requests={"cpu": "100m", "memory": "32Mi"})
    windows = watch(pilot, eventually)
    assert any("flapper" in str(w.target) for d in windows[0] for w in d.action.writes)
    assert_calm(pilot, windows)
    assert_witnessed(installed, windows)


def test_rival_that_undoes_our_actions_is_not_fought(
    pilot: Pilot, installed: Lab, harbor: Make, eventually: Make
) -> None:
    burns = ("--burn-millicores=150",)
    harbor("wanted", arguments=burns, requests={"cpu": "100m", "memory": "32Mi"})
    with rivaled(installed, "wanted") as rival:
        windows = watch(pilot, eventually)
    assert rival.undone >= 1, "the rival undid nothing, so nothing was tested"
    scaled = [
        [d for d in window if any(w.target.name == "wanted" for w in d.action.writes)]
        for window in windows
    ]
    assert scaled[0]
    assert_calm(pilot, scaled)
    assert_witnessed(installed, windows)
    said = [v.rule for d in pilot.decisions() for v in d.verdicts]
    assert "reversals" in said, sorted(set(said))
