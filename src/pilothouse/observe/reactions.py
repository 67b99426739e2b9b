# SPDX-License-Identifier: Apache-2.0
"""How late the cluster's own autoscalers are, measured from outside.

A reaction begins when a workload's load passes what its HorizontalPodAutoscaler aims at. It has up
to three more steps: the autoscaler wants more replicas, a node that was asked for becomes ready,
and as many replicas run as are wanted. Each is timed from the load. A load that goes away before
the autoscaler cared is no reaction; one that is not answered for long is given up and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pilothouse.domain import Reaction
from pilothouse.domain.observed import NEVER

GIVE_UP_SECONDS = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One autoscaled workload at one instant."""

    uid: int
    namespace: str
    name: str
    load_permille: int  # of what it requests, measured
    target_permille: int  # what its autoscaler aims at
    current: int  # replicas the autoscaler counts
    desired: int
    running: int


@dataclass(slots=True)
class _Open:
    began: int
    before: int
    decided: int = NEVER
    node: int = NEVER


class Reactions:
    """Follows every autoscaled workload from one look to the next."""

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}

    def look(self, now: int, sights: Sequence[Sight], nodes: Iterable[int]) -> list[Reaction]:
        """What ended since the last look. ``nodes`` are the creation times of ready nodes."""
        born = sorted(nodes)
        ended = []
        for sight in sights:
            open_ = self._follow(now, sight, born)
            done = open_ is not None and open_.decided != NEVER and sight.running >= sight.desired
            late = open_ is not None and now - open_.began > GIVE_UP_SECONDS
            if open_ is not None and (done or late):
                del self._open[sight.uid]
                ended.append(_reaction(open_, sight, now - open_.began if done else NEVER))
        gone = self._open.keys() - {sight.uid for sight in sights}
        for uid in gone:
            del self._open[uid]
        return ended

    def _follow(self, now: int, sight: Sight, born: Sequence[int]) -> _Open | None:
        known = self._open.get(sight.uid)
        above = sight.load_permille > sight.target_permille
        if known is None:
            if not above:
                return None
            # An autoscaler that read the same figures a moment before us has decided already.
            before = min(sight.current or sight.desired, sight.desired)
            known = self._open[sight.uid] = _Open(now, before)
        if known.decided == NEVER:
            if sight.desired > known.before:
                known.decided = now - known.began
            elif not above:
                del self._open[sight.uid]  # it went away by itself
                return None
        if known.node == NEVER:
            came = [at for at in born if at > known.began]
            known.node = now - known.began if came else NEVER
        return known


def _reaction(open_: _Open, sight: Sight, running: int) -> Reaction:
    return Reaction(
        namespace=sight.namespace,
        name=sight.name,
        began_seconds=open_.began,
        decided_seconds=open_.decided,
        node_seconds=open_.node,
        running_seconds=running,
        replicas_before=open_.before,
        replicas_after=sight.desired,
    )
