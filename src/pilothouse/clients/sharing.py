# SPDX-License-Identifier: Apache-2.0
"""Pods of one owner say mostly the same; what is the same is kept once.

Decoding gives each pod its own containers, labels and owner. Of fifty thousand pods that is a
third of the cache's memory, and nearly all of it is copies. An equal part is replaced by the one
of the last pod of the same owner, which nobody can tell apart because nothing here ever changes.
"""

from __future__ import annotations

from msgspec.structs import force_setattr

from pilothouse.clients.resources import Pod, Trimmed

MOST_OWNERS = 50_000  # beyond, we begin anew: sharing is a saving, not a promise


class Sharing:
    """Remembers one pod per owner."""

    def __init__(self) -> None:
        self._alike: dict[str, Pod] = {}

    def share(self, item: Trimmed) -> None:
        """Replace what an earlier pod of the same owner has as well, and what it says twice."""
        if not isinstance(item, Pod):
            return
        if item.metadata.owner_references:
            self._share_with_siblings(item)
        _share_within(item)

    def _share_with_siblings(self, item: Pod) -> None:
        owner = item.metadata.owner_references[0].uid
        other = self._alike.get(owner)
        if other is None:
            if len(self._alike) >= MOST_OWNERS:
                self._alike.clear()
            self._alike[owner] = item
            return
        _share(item.spec, other.spec, ("containers", "init_containers", "node_selector", "volumes"))
        _share(item.metadata, other.metadata, ("labels", "annotations", "owner_references"))
        if item.metadata.namespace == other.metadata.namespace:
            force_setattr(item.metadata, "namespace", other.metadata.namespace)


def _share_within(pod: Pod) -> None:
    """A container that was never resized has in its status what is in its spec."""
    wanted = {c.name: c.resources for c in (*pod.spec.containers, *pod.spec.init_containers)}
    for status in (*pod.status.container_statuses, *pod.status.init_container_statuses):
        own = wanted.get(status.name)
        if own is None:
            continue
        if status.resources == own:
            force_setattr(status, "resources", own)
        if status.allocated_resources == own.requests:
            force_setattr(status, "allocated_resources", own.requests)


def _share(mine: Trimmed, other: Trimmed, fields: tuple[str, ...]) -> None:
    for field in fields:
        theirs = getattr(other, field)
        if getattr(mine, field) == theirs:
            force_setattr(mine, field, theirs)
