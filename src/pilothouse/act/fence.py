# SPDX-License-Identifier: Apache-2.0
"""The fence: the epoch whose writes the API server lets pass, and the proof that it does.

A new leader moves the fence to its own epoch before it reads or writes anything else; from then on
whatever an older leader still sends is refused. That this API server really judges by the fence is
tried out, not believed: a write of the epoch before ours must be refused by it, and one of ours
must pass. Both are dry runs that would change nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pilothouse.act.fields import annotation
from pilothouse.act.ownership import OURS
from pilothouse.clients.keys import EPOCH_KEY, FENCE, GATES, SYSTEM, account_path
from pilothouse.clients.requests import Refusal, Requests
from pilothouse.errors import BackendError

AGAIN_SECONDS = 2.0
FOLLOW_SECONDS = 3.0  # how long the API server may take to notice that the fence has moved
LOOK_SECONDS = 0.1


@dataclass(slots=True)
class Fence:
    """Moved and tried once for each epoch; a failure is tried again every two seconds."""

    requests: Requests
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _proven: int | None = None
    _asked: float = float("-inf")
    _problem: str = ""

    def objection(self, epoch: int) -> str:
        """Why the API server may not know that this epoch is the one that counts."""
        if epoch == self._proven:
            return ""
        if not self._problem or self.clock() - self._asked >= AGAIN_SECONDS:
            try:
                self._problem = self._move(epoch) or self._try_out(epoch)
            except BackendError as error:
                self._problem = f"the fence could not be moved to our epoch {epoch}: {error}"
            self._asked = self.clock()
            if not self._problem:
                self._proven = epoch
        return self._problem

    def _move(self, epoch: int) -> str:
        stands = annotation(self.requests.get(account_path(FENCE)), EPOCH_KEY)
        if stands and (not stands.isdigit() or int(stands) > epoch):
            return (
                f"the fence stands at epoch {stands} and ours is {epoch}: another leader came "
                "after us. If there is none, because the Lease was deleted, start anew with: "
                f"kubectl annotate serviceaccount {FENCE} -n {SYSTEM} {EPOCH_KEY}-"
            )
        body = {"metadata": {"annotations": {EPOCH_KEY: str(epoch)}}}
        self.requests.patch(
            account_path(FENCE), body, author=f"{OURS}{epoch}:fence", audit_id=f"fence.{epoch}"
        )
        return ""

    def _try_out(self, epoch: int) -> str:
        deadline = self.clock() + FOLLOW_SECONDS
        while refused := self._refusal(epoch):
            if self.clock() > deadline:
                return _blind(f"it refuses our own epoch {epoch}: {refused}")
            self.sleep(LOOK_SECONDS)
        refused = self._refusal(epoch - 1)
        if not refused:
            return _blind(f"it let a write of epoch {epoch - 1} pass")
        return "" if FENCE in refused else _blind(f"of epoch {epoch - 1} it says: {refused}")

    def _refusal(self, epoch: int) -> str:
        """What the API server would say to a write of some epoch that changes nothing."""
        try:
            self.requests.patch(
                account_path(GATES),
                {},
                author=f"{OURS}{epoch}:fence",
                audit_id=f"fence.{epoch}.try",
                dry_run=True,
            )
        except Refusal as refusal:
            return f"{refusal.code} {refusal}"
        return ""


def _blind(what: str) -> str:
    return (
        f"the API server does not judge by our fence: {what}. Apply the policies again "
        "(deploy/manifests/acting-policies.yaml); if it stays so, start the API server again"
    )
