# SPDX-License-Identifier: Apache-2.0
"""What ``pilothouse up --enforce`` adds: a lease, an actuator, and a look for the janitor."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pilothouse.act.fence import Fence
from pilothouse.act.fit import FitCheck
from pilothouse.act.kubernetes import ClusterActuator, Ground, Limits
from pilothouse.act.power import hook_of
from pilothouse.act.standing import Heartbeat, LiveStanding
from pilothouse.cli.stopping import check
from pilothouse.clients.access import Access
from pilothouse.clients.events import EventWriter
from pilothouse.clients.lease import Leadership
from pilothouse.clients.requests import Requests
from pilothouse.clients.resources import ACTING_KINDS, KINDS, Kind
from pilothouse.clients.store import Store
from pilothouse.errors import UnknownName, UserError
from pilothouse.live import ActingCluster

if TYPE_CHECKING:
    from pilothouse.observe import Observer
    from pilothouse.settings import Settings

AGENTS = ("safety", "efficiency", "admission")
JANITOR_SECONDS = 10.0


class Acting:
    """Puts together what writing needs; ``up`` opens the cluster with it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.leadership = Leadership()  # until the cluster is opened with a real one
        self.standing: LiveStanding | None = None

    @property
    def kinds(self) -> Sequence[Kind]:
        return (*KINDS, *ACTING_KINDS)

    def cluster(
        self,
        access: Access,
        store: Store,
        observer: Observer,
        events: EventWriter,
        leadership: Leadership,
    ) -> ActingCluster:
        requests, guard = Requests(access), self._settings.guard
        self.leadership = leadership
        cluster = ActingCluster(store, observer, events, leadership)
        self.standing = LiveStanding(self.leadership, store, Fence(requests), Heartbeat(requests))
        ground = Ground(
            store=store,
            uid_of=observer.uid_of,
            clock=observer.clock_seconds,
            snapshot=lambda: cluster.last,
        )
        limits = Limits(
            protected_priority=guard.protected_priority,
            keep_seconds=guard.window_seconds + guard.quarantine_seconds,
        )
        cluster.equip(
            ClusterActuator(
                requests,
                ground,
                self.standing,
                limits,
                fit=FitCheck(store),
                hook=hook_of(self._settings.act.power_hook),
            )
        )
        return cluster

    def wait_to_lead(self, say: Callable[[str], None]) -> None:
        """Stand by until the lease is ours, whoever has it is named; and shut out at once whoever
        had it before."""
        from pilothouse.cli.live import stand_by

        assert self.standing is not None, "the cluster is opened first"
        while not self.leadership.is_held:
            stand_by(self.leadership, say)
            check()
            time.sleep(0.1)
        if why := self.standing.objection(restoring=True):  # which moves the fence, where it may
            say(f"Not acting yet: {why}")

    def require_janitor(self) -> None:
        """No fresh heartbeat, no enforcing."""
        assert self.standing is not None, "the cluster is opened first"
        deadline = time.monotonic() + JANITOR_SECONDS
        while why := self.standing.heartbeat.objection():
            if time.monotonic() > deadline:
                raise UserError(f"Enforcing is refused: {why}.")
            time.sleep(0.5)


def enforcing(settings: Settings, names: str) -> Settings:
    """Settings with these agents in enforce: ``safety,admission``."""
    from pilothouse.settings.file import with_overrides

    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name.partition("/")[0] not in AGENTS:
            raise UnknownName.among("agent", name, AGENTS)
    modes = {**{k: str(v) for k, v in settings.modes.agents.items()}}
    modes |= dict.fromkeys(wanted, "enforce")
    return with_overrides(settings, {"modes.agents": modes}, source="--enforce")
