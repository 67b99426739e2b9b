# SPDX-License-Identifier: Apache-2.0
"""The fence: the one leader whose writes the API server lets pass, and the proof that it does.

A new leader moves the fence to its own epoch and name before it reads tickets or writes; from then
on whatever any other sends is refused. The fence only moves to greater epochs, and an epoch is how
often the Lease has changed hands; so where a Lease was deleted and counts from 0 again, it is made
to count on from the fence, and nobody has to clear anything.

That this API server really judges by the fence is tried out, not believed: writes signed with the
epoch before ours, and by somebody else with ours, must be refused by it, and one of ours must pass.
All are dry runs that would change nothing. Where the fence is seen to stand elsewhere afterwards, a
person or a tool has moved it, and all of this is done again: who was replaced gains nothing by
that, since it takes a Lease that is renewed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pilothouse.act.fields import Json, annotation
from pilothouse.act.ownership import sign
from pilothouse.clients.keys import EPOCH_KEY, FENCE, GATES, HOLDER_KEY, SYSTEM, account_path
from pilothouse.clients.requests import Refusal, Requests
from pilothouse.errors import BackendError

AGAIN_SECONDS = 2.0
FOLLOW_SECONDS = 4.0  # what the API server needs to see the fence move, or a Lease to be renewed
LOOK_SECONDS = 0.1
# A Lease counts in 32 bits, up to 2,147,483,647: of nine digits every number fits, of ten not.
# The policy pilothouse-carriers allows as many.
MOST_DIGITS = 9
LAST_EPOCH = 10**MOST_DIGITS - 1  # none comes after it, so nobody may have it
CLEAR = f"kubectl annotate serviceaccount {FENCE} -n {SYSTEM} {EPOCH_KEY}- {HOLDER_KEY}-"


class Leader(Protocol):
    """A lease, held or not."""

    @property
    def identity(self) -> str: ...

    @property
    def epoch(self) -> int: ...

    @property
    def is_held(self) -> bool: ...

    @property
    def sentence(self) -> str: ...

    def count_beyond(self, number: int) -> None:
        """Have a greater epoch than this one, from the next renewal on."""
        ...


@dataclass(slots=True)
class Fence:
    """Moved and tried once for each epoch, and again where it is seen to stand elsewhere; a failure
    is tried again every two seconds."""

    requests: Requests
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _tried: int | None = None
    _asked: float = float("-inf")
    _problem: str = ""

    def objection(self, leader: Leader, seen: Mapping[str, str]) -> str:
        """Why the API server may not know that this leader is the one that counts.

        ``seen`` are the fence's annotations as they were last watched.
        """
        in_doubt = bool(self._problem) or not _is_at(leader, seen)
        is_due = self.clock() - self._asked >= AGAIN_SECONDS  # by then a watch has seen our move
        if leader.epoch != self._tried or (in_doubt and is_due):
            self._problem = self._prove(leader)
            self._asked = self.clock()
        return self._problem

    def _prove(self, leader: Leader) -> str:
        self._tried, self._problem = leader.epoch, "the fence was not tried to the end"
        try:
            thing = self.requests.get(account_path(FENCE))
            if why := self._fall_in(leader, thing):
                return why
            epoch = self._tried = leader.epoch
            if not leader.is_held:  # asked after the epoch, which is a rival's once the Lease is
                return f"we lead no more: {leader.sentence}"
            if epoch >= LAST_EPOCH:
                return (
                    f"the Lease has counted to {epoch}, which leaves no epoch for the next leader. "
                    "Stop every loop, remove the Lease with: kubectl delete lease pilothouse -n "
                    f"{SYSTEM}, clear the fence with: {CLEAR}, and start the loops again"
                )
            self._move(epoch, leader.identity, thing["metadata"]["resourceVersion"])
            return self._try_out(epoch, leader.identity)
        except BackendError as error:
            return f"the fence could not be moved to our epoch {leader.epoch}: {error}"

    def _fall_in(self, leader: Leader, thing: Json) -> str:
        """Have an epoch to which the fence can be moved, by way of the Lease where need be."""
        stands, holder = annotation(thing, EPOCH_KEY), annotation(thing, HOLDER_KEY)
        if not stands:
            return ""
        is_number = stands.isdecimal() and len(stands) <= MOST_DIGITS
        if not is_number or int(stands) >= LAST_EPOCH:  # before the Lease is made to count beyond
            return f"the fence stands at {stands!r}, which is no epoch. Remove it with: {CLEAR}"
        taken = int(stands)

        def behind() -> str:
            is_ours = (leader.epoch, leader.identity) == (taken, holder)
            if leader.epoch > taken or is_ours or not leader.is_held:
                return ""
            return (
                f"the fence stands at epoch {taken} of {holder} and ours is {leader.epoch}: "
                "another leader came after us, or the Lease was deleted and counts on from there "
                "with its next renewal"
            )

        if behind():
            # Only the holder of the Lease can renew it: who was replaced gains nothing by this.
            leader.count_beyond(taken)
        return self._wait_out(behind)

    def _move(self, epoch: int, holder: str, version: str) -> None:
        notes = {EPOCH_KEY: str(epoch), HOLDER_KEY: holder}
        self.requests.patch(
            account_path(FENCE),
            {"metadata": {"resourceVersion": version, "annotations": notes}},
            author=sign(epoch, holder, "fence"),
            audit_id=f"fence.{epoch}",
        )

    def _try_out(self, epoch: int, holder: str) -> str:
        if refused := self._wait_out(lambda: self._refusal(epoch, holder)):
            return _blind(f"it refuses our own epoch {epoch}", refused)
        for number, name in ((epoch - 1, holder), (epoch, "nobody")):
            refused = self._refusal(number, name)
            if not refused:
                return _blind(f"it let a write of epoch {number} of {name} pass")
            if FENCE not in refused:
                return _blind(f"it refuses epoch {number} of {name} for another reason", refused)
        return ""

    def _refusal(self, epoch: int, holder: str) -> str:
        """What the API server would say to a leader's write that changes nothing."""
        try:
            self.requests.try_patch(
                account_path(GATES),
                {},
                author=sign(epoch, holder, "fence"),
                audit_id=f"fence.{epoch}.try",
            )
        except Refusal as refusal:
            return f"{refusal.code} {refusal}"
        return ""

    def _wait_out(self, look: Callable[[], str]) -> str:
        """What still speaks against it after a while; nothing as soon as nothing does."""
        deadline = self.clock() + FOLLOW_SECONDS
        while (why := look()) and self.clock() <= deadline:
            self.sleep(LOOK_SECONDS)
        return why


def _is_at(leader: Leader, notes: Mapping[str, str]) -> bool:
    stands = (notes.get(EPOCH_KEY), notes.get(HOLDER_KEY))
    return stands == (str(leader.epoch), leader.identity)


def _blind(what: str, refused: str = "") -> str:
    if refused and FENCE not in refused:  # something else refuses: policies made anew cure nothing
        return f"the API server cannot be asked whether it judges by our fence: {what}: {refused}"
    said = f"{what}: {refused}" if refused else what
    return (
        f"the API server does not judge by our fence: {said}. Apply the policies again "
        "(deploy/manifests/acting-policies.yaml); if it stays so, start the API server again"
    )
