# SPDX-License-Identifier: Apache-2.0
"""``up --exercise``: the lab under a scenario's stimuli while the loop looks at it.

The exerciser has a namespace and an identity of its own, so neither the loop nor the audit log can
mistake its deeds for ours. It works on the lab only: it kills kubelets and shrinks quotas.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pilothouse.errors import PilothouseError, UserError

if TYPE_CHECKING:
    from pilothouse.lab import Lab
    from pilothouse.lab.exercise import Exercise, Step
    from pilothouse.sim.command import ActiveStimulus

GONE_SECONDS = 60.0


class _StopError(Exception):
    """Ends a deck from the inside, so that it takes back what it has begun."""


class Exerciser:
    """Deals one deck after the other on a thread of its own until told to stop."""

    def __init__(
        self, lab: Lab, steps: list[Step], clock: Callable[[], int], say: Callable[[str], None]
    ) -> None:
        from pilothouse.lab.exercise import Exercise

        self._steps = steps
        self._clock = clock
        self._say = say
        self._stop = threading.Event()
        self._exercise: Exercise = Exercise(lab, sleep=self._sleep)
        self._since: dict[str, int] = {}
        self._thread = threading.Thread(target=self._work, name="exerciser", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Wait until everything is taken back."""
        self._stop.set()
        self._thread.join(timeout=GONE_SECONDS)

    def stimuli(self) -> list[ActiveStimulus]:
        """What is going on, for the page and for the loop's check of itself."""
        from pilothouse.domain import Ref
        from pilothouse.lab.exercise import NAMESPACE, objects
        from pilothouse.sim.command import PRESSURE, ActiveStimulus

        active = self._exercise.active
        self._since = {s.name: self._since.get(s.name, self._clock()) for s in active}
        found = []
        for step in active:
            made = objects(step, worker_millicores=1000, workers=1)
            target = Ref("lab", "node", "", self._exercise.victim(step))
            if made:
                target = Ref("lab", "workload", NAMESPACE, step.name)
            since = self._since[step.name]
            found.append(
                ActiveStimulus(
                    kind=step.kind,
                    target=target,
                    since_seconds=since,
                    until_seconds=since + step.duration_seconds,
                    pressure=PRESSURE[step.kind],
                )
            )
        return found

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise _StopError

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                for line in self._exercise.run(self._steps):
                    self._say(f"Exercise {line.strip()}")
        except _StopError:
            pass
        except PilothouseError as error:  # the loop goes on looking; a person is told
            self._say(f"Exercise ended: {error}")


def lab_behind(kubeconfig: Path) -> Lab:
    """The lab that a kubeconfig leads to; anything else is not ours to break."""
    from pilothouse.clients import from_kubeconfig
    from pilothouse.home import home
    from pilothouse.lab import Lab
    from pilothouse.lab.layout import API_ADDRESS, API_PORT

    lab = Lab(home() / "lab")
    server = from_kubeconfig(kubeconfig).server
    if lab.planned is None or server != f"https://{API_ADDRESS}:{API_PORT}":
        raise UserError(
            f"--exercise works on the lab, but {kubeconfig} leads to {server}. Start a lab with: "
            "pilothouse lab up, and give its kubeconfig."
        )
    return lab


@contextmanager
def exercised(
    scenario: str,
    *,
    seed: int,
    pace: float,
    kubeconfig: Path,
    clock: Callable[[], int],
    say: Callable[[str], None],
) -> Iterator[Exerciser]:
    """Stimuli for as long as the block lasts."""
    from pilothouse.lab.exercise import deal
    from pilothouse.scenarios import load

    lab = lab_behind(kubeconfig)
    exerciser = Exerciser(lab, deal(load(scenario), seed, pace=pace), clock, say)
    exerciser.start()
    try:
        yield exerciser
    finally:
        exerciser.stop()
