# SPDX-License-Identifier: Apache-2.0
"""All pods of a cluster as columns that are kept from one look to the next.

Objects in the cache are never changed, only replaced. So a pod whose object is the very one of the
last look has the same row, and a look costs what has changed, not what there is: with fifty
thousand pods and twenty changes a second that is the difference between a busy core and an idle
one. What a pod object does not say about its own past (peaks, kills, growth) is kept here too, by
row.

A row is a *slot*: its number stays while the pod lives, and is given to another pod afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pilothouse.clients.metrics import Sample, Usage
from pilothouse.clients.resources import Meta, Pod
from pilothouse.observe import pending
from pilothouse.observe.pods import facts, is_finished
from pilothouse.observe.workloads import controller

Slots = NDArray[np.int64]

GROWTH_SECONDS, GROWTH_FROM_SECONDS = 60.0, 8.0  # memory growth is told from so much history
HELD_EVERY_SECONDS = 4.0
HELD = 16  # of those make a bit more than the minute that growth looks back
FEWEST_SLOTS = 64
FEWEST_WORDS = 1024

_INTS = (
    *("uid", "phase", "cpu_request", "cpu_limit", "memory_request", "memory_limit", "restarts"),
    *("evictable", "priority", "space", "node", "owner"),
    *(
        "counted_restarts",
        "oom_kills",
        "peak_mib",
        "cpu_used",
        "memory_used",
        "held_next",
        "growth",
    ),
)
_FLOATS = ("created", "since", "sampled_at")
_FLAGS = ("alive", "finished", "waiting", "sampled")


class Words:
    """Texts by number, so that a column of them is a column of numbers."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._ids: dict[str, int] = {}
        self._most = FEWEST_WORDS

    def id_of(self, text: str) -> int:
        known = self._ids.get(text)
        if known is None:
            known = self._ids[text] = len(self.texts)
            self.texts.append(text)
        return known

    def rows(self, numbers: Mapping[str, int]) -> NDArray[np.int32]:
        """For each text its number among these, or -1."""
        found = (numbers.get(text, -1) for text in self.texts)
        return np.fromiter(found, dtype=np.int32, count=len(self.texts))

    def forget_unused(self, column: NDArray[Any], alive: NDArray[Any]) -> None:
        """Names of what is long gone would pile up; now and then the rest is numbered anew."""
        if len(self.texts) <= self._most:
            return
        used = np.unique(column[alive])
        numbers = np.zeros(len(self.texts), dtype=column.dtype)
        numbers[used] = np.arange(used.size)
        column[:] = numbers[column]
        self.texts = [self.texts[i] for i in used.tolist()]
        self._ids = {text: i for i, text in enumerate(self.texts)}
        self._most = max(FEWEST_WORDS, 2 * len(self.texts))


class Roll:
    """Every pod, finished ones and all namespaces included. ``number`` gives the uid of a row."""

    def __init__(self, number: Callable[[Meta], int]) -> None:
        self._number = number
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self.pods: list[Pod | None] = []  # by slot
        self._keys: list[tuple[str, str]] = []  # namespace and name, by slot
        self.names = np.empty(0, dtype=object)
        self.spaces, self.nodes, self.owners = Words(), Words(), Words()
        self._columns: dict[str, NDArray[Any]] = {
            **{name: np.zeros(0, dtype=np.int64) for name in _INTS},
            **{name: np.zeros(0, dtype=np.float64) for name in _FLOATS},
            **{name: np.zeros(0, dtype=bool) for name in _FLAGS},
            "held_at": np.zeros((0, HELD), dtype=np.float64),
            "held_mib": np.zeros((0, HELD), dtype=np.int32),
        }
        self._usage: Usage | None = None
        self._fresh: list[int] = []  # slots whose pod the last usage was not asked about

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    # Pods

    def update(self, pods: Sequence[Pod]) -> None:
        """Take in what is there now."""
        slots, known = self._slots, self.pods
        changed = [
            pod
            for pod in pods
            if (slot := slots.get(pod.metadata.uid)) is None or known[slot] is not pod
        ]
        for pod in changed:
            if not self._is_copy(pod):
                self._write(pod)
        if len(slots) > len(pods):
            self._drop(slots.keys() - {pod.metadata.uid for pod in pods})
        alive = self["alive"]
        for words, column in (
            (self.spaces, "space"),
            (self.nodes, "node"),
            (self.owners, "owner"),
        ):
            words.forget_unused(self[column], alive)

    def _is_copy(self, pod: Pod) -> bool:
        """The same version in another object, as after a new list: only the object is taken."""
        slot = self._slots.get(pod.metadata.uid)
        before = None if slot is None else self.pods[slot]
        if slot is None or before is None or not pod.metadata.resource_version:
            return False
        if before.metadata.resource_version != pod.metadata.resource_version:
            return False
        self.pods[slot] = pod
        return True

    def _drop(self, uids: Iterable[str]) -> None:
        for uid in uids:
            slot = self._slots.pop(uid)
            self.pods[slot] = None
            self["alive"][slot] = False
            for words in ("space", "node", "owner"):
                self[words][slot] = 0
            self._free.append(slot)

    def _write(self, pod: Pod) -> None:
        meta, row, columns = pod.metadata, facts(pod), self._columns
        slot = self._slots.get(meta.uid)
        if slot is None:
            slot = self._enter(pod)
            columns["counted_restarts"][slot] = row.restarts
            columns["oom_kills"][slot] = int(row.last_oom)
        self.pods[slot] = pod
        if row.restarts > columns["counted_restarts"][slot]:
            columns["counted_restarts"][slot] = row.restarts
            columns["oom_kills"][slot] += int(row.last_oom)
            self._forget_memory(slot)
        owner = controller(meta)
        for name, value in (
            ("phase", row.phase),
            ("cpu_request", row.cpu_request),
            ("cpu_limit", row.cpu_limit),
            ("memory_request", row.memory_request),
            ("memory_limit", row.memory_limit),
            ("restarts", row.restarts),
            ("evictable", row.evictable),
            ("priority", row.priority),
            ("created", row.created),
            ("since", row.since),
            ("node", self.nodes.id_of(pod.spec.node_name)),
            ("owner", self.owners.id_of(owner.uid if owner else meta.uid)),
            ("finished", is_finished(pod)),
            ("waiting", _waits(pod)),
        ):
            columns[name][slot] = value

    def _enter(self, pod: Pod) -> int:
        if not self._free:
            self._grow()
        slot, meta = self._free.pop(), pod.metadata
        self._slots[meta.uid] = slot
        for column in self._columns.values():
            column[slot] = 0
        self["alive"][slot] = True
        self["uid"][slot] = self._number(meta)
        self["space"][slot] = self.spaces.id_of(meta.namespace)
        self.names[slot] = meta.name
        self._keys[slot] = (meta.namespace, meta.name)
        self._fresh.append(slot)
        return slot

    def _grow(self) -> None:
        before = len(self.pods)
        more = max(FEWEST_SLOTS, before // 2)
        for name, column in self._columns.items():
            added = np.zeros((more, *column.shape[1:]), dtype=column.dtype)
            self._columns[name] = np.concatenate([column, added])
        self.names = np.concatenate([self.names, np.empty(more, dtype=object)])
        self.pods += [None] * more
        self._keys += [("", "")] * more
        self._free += range(before + more - 1, before - 1, -1)

    def _forget_memory(self, slot: int) -> None:
        """A container that began anew holds nothing of what the one before held."""
        for name in ("peak_mib", "held_next", "growth"):
            self[name][slot] = 0
        self["held_at"][slot] = 0

    # Usage

    def take(self, usage: Usage) -> None:
        """What is used now; only pods that came since are asked about again."""
        if usage is not self._usage:
            self._usage = usage
            slots = np.flatnonzero(self["alive"])
        else:
            slots = np.array([s for s in self._fresh if self["alive"][s]], dtype=np.int64)
        self._fresh.clear()
        if slots.size:
            get, keys = usage.pods.get, self._keys
            self._note(slots, [get(keys[slot]) for slot in slots.tolist()])

    def _note(self, slots: Slots, samples: Sequence[Sample | None]) -> None:
        told = np.fromiter((s is not None for s in samples), dtype=bool, count=len(samples))
        self["sampled"][slots] = told
        for name in ("cpu_used", "memory_used"):
            self[name][slots[~told]] = 0
        known = [s for s in samples if s is not None]
        slots = slots[told]
        held = np.fromiter((s.memory_mib for s in known), dtype=np.int64, count=len(known))
        at = np.fromiter((s.at for s in known), dtype=np.float64, count=len(known))
        self["cpu_used"][slots] = np.fromiter(
            (s.cpu_millicores for s in known), dtype=np.int64, count=len(known)
        )
        self["memory_used"][slots] = held
        self["peak_mib"][slots] = np.maximum(self["peak_mib"][slots], held)
        self["sampled_at"][slots] = at
        last = (self["held_next"][slots] - 1) % HELD
        due = at - self["held_at"][slots, last] >= HELD_EVERY_SECONDS
        self._hold(slots[due], at[due], held[due])
        self["growth"][slots] = self._rate(slots)

    def _hold(self, slots: Slots, at: NDArray[Any], held: NDArray[Any]) -> None:
        place = self["held_next"][slots] % HELD
        self["held_at"][slots, place] = at
        self["held_mib"][slots, place] = held
        self["held_next"][slots] = (place + 1) % HELD

    def growth_mib_per_minute(self, slots: Slots) -> NDArray[np.int32]:
        """How fast memory grew in the last minute; 0 where there is too little history."""
        return self["growth"][slots].astype(np.int32)

    def _rate(self, slots: Slots) -> NDArray[Any]:
        now, held = self["sampled_at"][slots], self["held_at"][slots]
        recent = np.where((held > 0) & (held >= (now - GROWTH_SECONDS)[:, None]), held, np.inf)
        oldest = recent.argmin(axis=1)
        rows = np.arange(slots.size)
        seconds = now - recent[rows, oldest]
        enough = seconds >= GROWTH_FROM_SECONDS
        more = self["memory_used"][slots] - self["held_mib"][slots, oldest]
        rate = np.where(enough, 60 * more / np.where(enough, seconds, 1.0), 0.0)
        return np.rint(rate)

    # Looking

    def unfinished(self, spaces: Collection[str] | None = None) -> Slots:
        """Slots of pods that still count, in these namespaces or in all; by ascending uid."""
        wanted = self["alive"] & ~self["finished"]
        if spaces is not None:
            words = self.spaces.texts
            shown = np.fromiter((t in spaces for t in words), dtype=bool, count=len(words))
            wanted &= shown[self["space"]] if shown.size else False
        slots = np.flatnonzero(wanted)
        return slots[np.argsort(self["uid"][slots], kind="stable")]

    def pod(self, slot: int) -> Pod:
        found = self.pods[slot]
        assert found is not None  # slots come from ``unfinished`` of this very look
        return found


def _waits(pod: Pod) -> bool:
    """Whether there is anything to ask about this pod; why it waits may change without it."""
    return (
        pod.metadata.deletion_timestamp is None and pending.classify(pod, frozenset()) is not None
    )
