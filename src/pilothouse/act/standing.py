# SPDX-License-Identifier: Apache-2.0
"""Whether this process may write now: it leads, the switch is on, and a janitor is awake.

Asked before every single write. A lease only elects; what really keeps an older leader out is the
epoch and holder in each write's field manager, which an admission policy compares with the fence.
This check is the first of the two.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pilothouse.act.fence import Fence, Leader
from pilothouse.clients.keys import ACTING_KEY, FENCE, JANITOR, REASON_KEY, SWITCH, SYSTEM
from pilothouse.clients.requests import Refusal, Requests
from pilothouse.clients.store import Store
from pilothouse.errors import BackendError

HEARTBEAT = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{JANITOR}"
HEARTBEAT_SECONDS = 15.0  # a janitor that was silent for longer is taken for dead
LOOK_SECONDS = 2.0


@dataclass(slots=True)
class Heartbeat:
    """The janitor's, by our own clock: it counts when we saw it change."""

    requests: Requests
    clock: Callable[[], float] = time.monotonic
    _seen: str = ""
    _changed: float = float("-inf")
    _looked: float = float("-inf")
    _problem: str = "it was never seen"

    def objection(self) -> str:
        now = self.clock()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._look(now)
        quiet = now - self._changed
        if quiet <= HEARTBEAT_SECONDS:
            return ""
        since = f"silent for {quiet:.0f} s" if self._seen and quiet < 1e6 else self._problem
        return (
            f"no janitor is awake ({since}), so nothing could be taken back: start one with "
            "pilothouse janitor"
        )

    def _look(self, now: float) -> None:
        try:
            spec: dict[str, Any] = self.requests.get(HEARTBEAT).get("spec") or {}
        except Refusal as refusal:
            self._problem = "there is none" if refusal.is_missing else str(refusal)
            return
        except BackendError as error:
            self._problem = str(error)
            return
        beat = f"{spec.get('holderIdentity')} {spec.get('renewTime')}"
        if not spec.get("holderIdentity"):
            self._seen, self._changed = "", float("-inf")
            self._problem = "the last one said goodbye"
        elif beat != self._seen:
            # The first look proves nothing about when; an old beat is seen as silent in time.
            first = not self._seen and _age(str(spec.get("renewTime", ""))) > HEARTBEAT_SECONDS
            self._seen = beat
            if not first:
                self._changed = now


def _age(moment: str) -> float:
    from datetime import datetime

    try:
        return time.time() - datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return float("inf")


@dataclass(slots=True)
class LiveStanding:
    """Leads, is let, and is looked after."""

    leader: Leader
    store: Store
    fence: Fence
    heartbeat: Heartbeat

    @property
    def holder(self) -> str:
        return self.leader.identity

    @property
    def epoch(self) -> int:
        return self.leader.epoch

    def objection(self, *, restoring: bool = False) -> str:
        if not self.leader.is_held:
            return f"we do not lead: {self.leader.sentence}"
        why = self.switched_off() or self.fence.objection(self.leader, self.store.notes(FENCE))
        return why or ("" if restoring else self.heartbeat.objection())

    def switched_off(self) -> str:
        """The kill switch in the cluster; a missing one is off, as the policy has it."""
        switch = self.store.notes(SWITCH)
        if switch.get(ACTING_KEY) == "enabled":
            return ""
        why = switch.get(REASON_KEY) or (
            f"the ServiceAccount {SYSTEM}/{SWITCH} is not annotated {ACTING_KEY}: enabled"
        )
        return f"switched off in the cluster: {why}"
